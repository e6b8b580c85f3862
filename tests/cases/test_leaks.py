"""Many saves and resumes in one process leave nothing open and nothing held."""

from __future__ import annotations

import contextlib
import gc
import os
import threading
from pathlib import Path

import pytest

from expkit.checkpoint import CheckpointStore
from expkit.core.events import Callback
from expkit.run.board import TensorBoardLogger
from expkit.run.loggers import LoggerGroup
from expkit.run.records import JsonLinesLogger
from tests.cases.parts import make_trainer

pytestmark = pytest.mark.slow

RESUMES, SAVES, KEEP = 50, 200, 2
WARM = 5  # resumes until every part of the process has been used
STEPS = SAVES // RESUMES


class DiskUse(Callback):
    """The most bytes that lay on the disk after any step."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.most = 0

    def step_end(self, context) -> None:
        self.most = max(self.most, size_of(self.root))


def size_of(directory: Path) -> int:
    """Bytes of all files below; a writer may remove some meanwhile."""
    total = 0
    for place, _, names in os.walk(directory):
        for name in names:
            with contextlib.suppress(FileNotFoundError):
                total += (Path(place) / name).stat().st_size
    return total


def resident_bytes() -> int:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def in_use() -> tuple[int, int]:
    return len(list(Path("/proc/self/fd").iterdir())), threading.active_count()


@pytest.mark.parametrize("framework", ["numpy", "torch", "paddle"])
def test_many_saves_and_resumes_leak_nothing(framework, tmp_path):
    if framework != "numpy":
        pytest.importorskip(framework)
    disk = DiskUse(tmp_path / "checkpoints")
    seen = []
    for number in range(RESUMES):
        train_on(framework, tmp_path, disk, number * STEPS, (number + 1) * STEPS)
        gc.collect()
        if number >= WARM:
            seen.append((*in_use(), resident_bytes()))
    sizes = [size_of(path) for path in disk.root.iterdir() if path.is_dir()]
    assert len(sizes) == KEEP
    assert sum(sizes) <= disk.most <= (KEEP + 2) * max(sizes)
    descriptors, threads, memory = zip(*seen, strict=True)
    assert set(descriptors) == {descriptors[0]}
    assert set(threads) == {threads[0]}
    assert max(memory) <= 1.05 * memory[0]


def train_on(framework: str, run: Path, disk: DiskUse, start: int, stop: int) -> None:
    """Go on from the last checkpoint, which must be that of step ``start``, with a save a step."""
    store = CheckpointStore(disk.root, keep_last=KEEP, keep_best=0)
    logger = LoggerGroup([JsonLinesLogger(run), TensorBoardLogger(run)])
    trainer = make_trainer(
        framework,
        mlp={"hidden": (520, 520)},
        checkpoint=store,
        logger=logger,
        callbacks=[disk],
        n_epochs=None,
        max_steps=stop,
        save_every=1,
        log_every=1,
    )
    try:
        if start:
            trainer.load_state(store.load("last")[0])
            logger.rewind(start)
        assert trainer.progress.step == start
        assert trainer.fit().steps == stop
    finally:
        store.close()
        logger.close()
        trainer.driver.shutdown()
