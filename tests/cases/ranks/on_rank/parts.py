"""Small parts that only ranks need; all others are those of `tests.cases.parts`."""

from __future__ import annotations

import importlib
import logging
import zlib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

from expkit.checkpoint import CheckpointStore
from expkit.core.batch import Batch, Window
from expkit.core.events import Callback
from expkit.core.trainer import Trainer
from expkit.data import Data, Sequential
from expkit.losses import MeanAbsoluteError
from expkit.optimizers import SGD
from tests.cases.parts import make_constant, make_driver, make_trainer, weights

DRIVERS = {"torch": "TorchDDPDriver", "paddle": "PaddleFleetDriver"}
TIMEOUT_S = 30.0


def driver_of(framework: str, alone: bool = False, **options: Any) -> Any:
    """The driver of all ranks, or one that each rank has for itself."""
    if alone:
        return make_driver(framework, **options)
    module = importlib.import_module(f"expkit.drivers.{framework}")
    return getattr(module, DRIVERS[framework])(device="cpu", timeout_s=TIMEOUT_S, **options)


def trainer_of(
    framework: str, alone: bool = False, driver_options: Any = None, **options: Any
) -> Trainer:
    """See `tests.cases.parts.make_trainer`."""
    driver = driver_of(framework, alone, **(driver_options or {}))
    return make_trainer(framework, driver=driver, **options)


def constant(
    framework: str, data: Any, width: int = 1, alone: bool = False, **options: Any
) -> Trainer:
    """A trainer of the model of constant gradients with plain SGD."""
    defaults = {"optimizer": SGD(lr=0.1), "loss": MeanAbsoluteError(), "n_epochs": 1}
    model = make_constant(framework, width)
    return trainer_of(framework, alone, model=model, data=data, **{**defaults, **options})


def in_order(data: Any, **options: Any) -> Data:
    """Data in the order of the set: rank r has every world_size-th sample from the r-th on."""
    return Data(data, sampler=Sequential(), **options)


def make_echo(framework: str) -> Any:
    """A model without parameters whose output is the field ``scores``."""
    module = importlib.import_module(framework)
    base = module.nn.Module if framework == "torch" else module.nn.Layer

    class Echo(base):
        def forward(self, scores):
            return scores

    return Echo()


def freeze(framework: str, model: Any, prefix: str) -> None:
    """Stop training the parameters whose path begins so."""
    for path, parameter in model.named_parameters():
        if path.startswith(prefix):
            if framework == "torch":
                parameter.requires_grad_(False)
            else:
                parameter.stop_gradient = True


def digest(trainer: Trainer) -> int:
    """One number for all bits of the weights."""
    return zlib.crc32(weights(trainer).tobytes())


def outcome(trainer: Trainer) -> dict[str, Any]:
    """What must be the same on all ranks when a run has ended."""
    return trainer.result.to_dict() | {"weights": digest(trainer)}


def store_of(root: str, trainer_rank: int, **options: Any) -> CheckpointStore:
    """A store below a directory of this rank's own, so that it shows who has written."""
    return CheckpointStore(Path(root) / f"by-{trainer_rank}", **options)


def steps_kept(root: str) -> list[int]:
    """The steps of the checkpoints that rank 0 keeps."""
    paths = (Path(root) / "by-0").glob("step-*")
    return sorted(int(path.name.removeprefix("step-")) for path in paths)


def go_on(trainer: Trainer, root: str) -> Trainer:
    """Give a new trainer the last state of rank 0, as a resumed run does."""
    store = CheckpointStore(Path(root) / "by-0")
    trainer.load_state(trainer.driver.group.call_on_main(lambda: store.load("last")[0]))
    return trainer


class Act(Callback):
    """Does something at an event of a step, on one rank alone."""

    def __init__(self, event: str, step: int, rank: int, action: Any) -> None:
        self._step, self._rank, self._action = step, rank, action
        self._event = event

    def _act(self, event: str, context: Any) -> None:
        here = event == self._event and context.driver.rank == self._rank
        # Before the update the step under way is not counted yet.
        number = context.progress.step + (event in ("batch_start", "backward_end", "step_start"))
        if here and number == self._step:
            self._action(context)

    def fit_start(self, context):
        self._act("fit_start", context)

    def batch_start(self, context, batch, indices):
        self._act("batch_start", context)

    def step_start(self, context):
        self._act("step_start", context)

    def step_end(self, context):
        self._act("step_end", context)

    def eval_start(self, context):
        self._act("eval_start", context)

    def eval_end(self, context, metrics):
        self._act("eval_end", context)

    def save(self, context, state):
        self._act("save", context)

    def epoch_end(self, context):
        self._act("epoch_end", context)


class Interrupt(Callback):
    """A stop signal that comes to the last rank in a given step."""

    def __init__(self, step: int | None) -> None:
        self._step = step
        self.trainer: Trainer | None = None

    def batch_start(self, context, batch, indices):
        driver, is_due = context.driver, context.progress.step + 1 == self._step
        if is_due and driver.rank == driver.world_size - 1:
            self.trainer.interrupt("SIGTERM")


def interrupted(trainer: Trainer, interrupt: Interrupt, step: int) -> Trainer:
    """Run until the signal comes."""
    interrupt.trainer = trainer
    result = trainer.fit()
    assert (result.status, result.steps) == ("interrupted", step)
    return trainer


class OwnWindows:
    """A user's own loader, which gives each rank what it says."""

    def __init__(self, *windows: Window) -> None:
        self._windows = windows
        self.steps_per_epoch = len(windows)
        self.signature = {"samples_per_epoch": 0, "samples_per_step": 1}

    def train_loader(self, **options: Any) -> OwnWindows:
        return self

    def eval_loaders(self, **options: Any) -> dict[str, Any]:
        return {}

    def windows(self, epoch: int, start: int = 0) -> Iterator[Window]:
        yield from self._windows[start:]

    def state(self) -> dict[str, Any]:
        return {}

    def load_state(self, state: dict[str, Any]) -> None:
        pass


def batch_of(*gradients: float) -> Batch:
    """A micro-batch for the model of constant gradients."""
    g = np.asarray(gradients, np.float32).reshape(-1, 1)
    return Batch({"g": g, "y": np.zeros(len(g), np.float32)}, np.arange(len(g)))


@contextmanager
def logged(level: int = logging.WARNING) -> Iterator[list[str]]:
    """The messages that the package logs on this rank meanwhile."""
    lines: list[str] = []
    handler = logging.Handler(level)
    handler.emit = lambda record: lines.append(record.getMessage())  # type: ignore[method-assign]
    logger = logging.getLogger("expkit")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel(level)
    try:
        yield lines
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def error_of(function: Any) -> str | None:
    """How a call failed, in one line; None where it did not."""
    try:
        function()
    except Exception as error:
        return f"{type(error).__name__}: {error}"
    return None
