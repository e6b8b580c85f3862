"""State trees for the tests of checkpoints: each a pure function of a number."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from expkit.checkpoint import CheckpointStore

Tree = dict[str, Any]


def _tree(number: int) -> Tree:
    random = np.random.default_rng(number)
    weights = {
        "0.weight": random.standard_normal((8, 4)).astype(np.float32),
        "0.bias": random.standard_normal(8).astype(np.float32),
    }
    moments = {path: {"exp_avg": weight * 2, "step": number} for path, weight in weights.items()}
    return {
        "model": weights,
        "optimizer": {"default": moments},
        "trainer": {"number": number, "best": {"score": None}},
        "schedules": [{"wait": number}, {}],
        "callbacks": {"average": {"0.bias": weights["0.bias"] / 2}},
        "ranks": {
            "0000": {"python": [3, 1, None], "host": random.integers(0, 256, 16).astype(np.uint8)}
        },
    }


def _assert_same(got: Any, wanted: Any) -> None:
    assert type(got) is type(wanted), (got, wanted)
    if isinstance(wanted, dict):
        assert list(got) == list(wanted)
        for key, value in wanted.items():
            _assert_same(got[key], value)
    elif isinstance(wanted, list):
        assert len(got) == len(wanted)
        for one, other in zip(got, wanted, strict=True):
            _assert_same(one, other)
    elif isinstance(wanted, np.ndarray):
        assert got.dtype == wanted.dtype
        assert got.shape == wanted.shape
        assert got.tobytes() == wanted.tobytes()
    elif wanted != wanted:
        assert got != got
    else:
        assert got == wanted
        assert str(got) == str(wanted)  # -0.0 is not 0.0


@pytest.fixture
def memory_path(tmp_path: Path) -> Iterator[Path]:
    """A directory in memory: for many saves, where the disk itself is not at stake."""
    memory = Path("/dev/shm")
    if not memory.is_dir():
        yield tmp_path
        return
    with tempfile.TemporaryDirectory(dir=memory) as name:
        yield Path(name)


@pytest.fixture
def tree() -> Callable[[int], Tree]:
    """A state tree by number."""
    return _tree


@pytest.fixture
def assert_same() -> Callable[[Any, Any], None]:
    """Two trees are equal to the bit, in types and in order."""
    return _assert_same


@pytest.fixture
def save() -> Callable[..., None]:
    """Save the tree of a step and wait."""

    def save(
        store: CheckpointStore, step: int, score: float | None = None, number: int | None = None
    ) -> None:
        state = _tree(step if number is None else number)
        metrics = {} if score is None else {"accuracy": score}
        store.save(state, step=step, epoch=step // 5, metrics=metrics, score=score)
        store.wait()

    return save
