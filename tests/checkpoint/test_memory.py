"""What a save holds in memory, and for how long."""

from __future__ import annotations

import gc
import time
import weakref

import numpy as np
import pytest

from expkit.checkpoint import CheckpointStore
from expkit.core.errors import CheckpointError, ExpkitError, NonFiniteLossError
from expkit.core.host_memory import HostMemory

PATIENCE_S = 5.0


def state_of(memory: HostMemory, value: float) -> dict:
    arrays = {f"w{number}": memory.empty((300_000 + number,), np.float32) for number in range(3)}
    for array in arrays.values():
        array[...] = value
    moments = {name: memory.copy(array) for name, array in arrays.items()}
    return {
        "model": arrays,
        "optimizer": {"default": moments},
        "callbacks": {"average": {"w0": memory.copy(arrays["w0"])}},
    }


def arrays_of(state: dict) -> list[weakref.ref]:
    trees = [state["model"], state["optimizer"]["default"], state["callbacks"]["average"]]
    return [weakref.ref(array) for tree in trees for array in tree.values()]


def are_gone(arrays: list[weakref.ref]) -> bool:
    """Whether nothing holds them; a thread that has done its work may take a moment to let go."""
    deadline = time.monotonic() + PATIENCE_S
    while any(array() is not None for array in arrays) and time.monotonic() < deadline:
        time.sleep(0.001)
    return all(array() is None for array in arrays)


@pytest.fixture(params=[True, False], ids=["background", "blocking"])
def store(request, memory_path):
    store = CheckpointStore(memory_path / "checkpoints", background=request.param)
    yield store
    store.close()


def save(store, state, step):
    store.save(state, step=step, epoch=0, metrics={}, score=None)


def test_a_state_is_let_go_when_it_is_written(store):
    memory = HostMemory()
    for step in (1, 2):
        state = state_of(memory, step)
        arrays = arrays_of(state)
        save(store, state, step)
        del state
        store.wait()
        assert are_gone(arrays)


def test_each_state_lies_where_the_one_before_has_lain(store):
    memory = HostMemory()
    held = set()
    for step in range(1, 6):
        state = state_of(memory, step)
        save(store, state, step)
        arrays = arrays_of(state)
        del state
        store.wait()
        assert are_gone(arrays)
        held.add(memory.held_bytes)
    assert len(held) == 1
    for step in (4, 5):
        loaded, _ = store.load(store.last().path.with_name(f"step-{step:08d}"))
        assert {float(value) for value in np.unique(loaded["model"]["w2"])} == {step}


@pytest.mark.parametrize("background", [True, False])
def test_a_state_that_the_disk_did_not_take_is_let_go(memory_path, background):
    """Where training goes on, its memory serves the next save."""
    root = memory_path / "missing" / "checkpoints"
    root.parent.mkdir()
    store = CheckpointStore(root, background=background, on_error="warn")
    root.parent.rmdir()
    root.parent.write_bytes(b"")
    arrays, error = failed_save(store, 1.0)
    assert error is None
    assert are_gone(arrays)
    store.close()


@pytest.mark.parametrize("failure", ["disk", "nan"])
@pytest.mark.parametrize("background", [True, False])
def test_a_state_whose_save_has_failed_is_let_go(memory_path, failure, background):
    root = memory_path / "missing" / "checkpoints"
    if failure == "disk":
        root.parent.mkdir()
    store = CheckpointStore(root, background=background)
    if failure == "disk":
        root.parent.rmdir()
        root.parent.write_bytes(b"")
    arrays, error = failed_save(store, np.nan if failure == "nan" else 1.0)
    assert error is (NonFiniteLossError if failure == "nan" else CheckpointError)
    gc.collect()  # an error and the frames that it went through hold each other
    assert are_gone(arrays)
    store.close()


def failed_save(store, value):
    """The arrays, and the class of the error; not the error, whose traceback would hold them."""
    state = state_of(HostMemory(), value)
    arrays = arrays_of(state)
    try:
        save(store, state, 1)
        store.wait()
    except ExpkitError as error:
        return arrays, type(error)
    return arrays, None
