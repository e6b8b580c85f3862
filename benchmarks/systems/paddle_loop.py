"""The loop that people write by hand with Paddle: DataLoader, Adam, a loss read now and then."""

from __future__ import annotations

import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from paddle import Tensor, nn
from paddle.io import DataLoader, Dataset
from paddle.nn import functional

from benchmarks.systems.paddle_network import Network
from benchmarks.work import Outcome, Work, samples

Batches = Iterable[tuple[Tensor, Tensor]]


class Arrays(Dataset):
    """Samples out of two arrays."""

    def __init__(self, x: np.ndarray, y: np.ndarray) -> None:
        self._x, self._y = x, y

    def __len__(self) -> int:
        return len(self._x)

    def __getitem__(self, index: int) -> tuple[np.ndarray, np.ndarray]:
        return self._x[index], self._y[index]


class Scalars:
    """What people write to TensorBoard with where torch's writer is not there."""

    def __init__(self, directory: Path) -> None:
        from tensorboard.compat.proto import event_pb2, summary_pb2
        from tensorboard.summary.writer.event_file_writer import EventFileWriter

        self._events, self._summaries = event_pb2, summary_pb2
        self._writer = EventFileWriter(str(directory))

    def add(self, tag: str, value: float, step: int) -> None:
        summary = self._summaries.Summary()
        summary.value.add(tag=tag, simple_value=value)
        event = self._events.Event(wall_time=time.time(), step=step, summary=summary)
        self._writer.add_event(event)

    def close(self) -> None:
        self._writer.close()


def train(work: Work, directory: Path) -> Outcome:
    """Train with the usual loaders and the usual optimizer."""
    x, y, x_eval, y_eval = samples(work)
    batches = DataLoader(Arrays(x, y), batch_size=work.batch_size, shuffle=True)
    held_out = DataLoader(Arrays(x_eval, y_eval), batch_size=work.batch_size)
    return loop(work, directory, Network(), batches, held_out)


def loop(
    work: Work, directory: Path, model: nn.Layer, batches: Batches, held_out: Batches
) -> Outcome:
    """The loop itself."""
    optimizer: Any = paddle.optimizer.Adam(work.lr, parameters=model.parameters())
    scalars = Scalars(directory) if work.evaluates else None
    losses, best, step = [], -1.0, 0
    for epoch in range(work.epochs):
        for x, y in batches:
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            optimizer.clear_grad()
            step += 1
            if step % work.log_every == 0:
                losses.append(float(loss))
                if scalars:
                    scalars.add("train/loss", losses[-1], step)
        if scalars:
            accuracy = evaluate(model, held_out)
            scalars.add("eval/accuracy", accuracy, step)
            if accuracy > best:
                best = accuracy
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                paddle.save({**state, "epoch": epoch}, str(directory / "best.pdparams"))
    if scalars:
        scalars.close()
    return Outcome(losses, best if work.evaluates else None)


@paddle.no_grad()
def evaluate(model: nn.Layer, held_out: Batches) -> float:
    """Share of right labels."""
    model.eval()
    right = seen = 0
    for x, y in held_out:
        right += int((model(x).argmax(1) == y).sum())
        seen += len(y)
    model.train()
    return right / seen
