"""The loop that people write by hand with torch: DataLoader, Adam, a loss read now and then."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.systems.torch_network import Network
from benchmarks.work import Outcome, Work, samples

Batches = Iterable[tuple[Tensor, Tensor]]


def train(work: Work, directory: Path) -> Outcome:
    """Train with the usual loaders and the usual optimizer."""
    x, y, x_eval, y_eval = map(torch.from_numpy, samples(work))
    batches = DataLoader(TensorDataset(x, y), batch_size=work.batch_size, shuffle=True)
    held_out = DataLoader(TensorDataset(x_eval, y_eval), batch_size=work.batch_size)
    model = Network()
    optimizer = torch.optim.Adam(model.parameters(), lr=work.lr)
    return loop(work, directory, model, optimizer, batches, held_out)


def loop(
    work: Work,
    directory: Path,
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    batches: Batches,
    held_out: Batches,
) -> Outcome:
    """The loop itself."""
    writer = None
    if work.evaluates:
        from torch.utils.tensorboard import SummaryWriter

        writer = SummaryWriter(directory)
    losses, best, step = [], -1.0, 0
    for epoch in range(work.epochs):
        for x, y in batches:
            optimizer.zero_grad()
            loss = functional.cross_entropy(model(x), y)
            loss.backward()
            optimizer.step()
            step += 1
            if step % work.log_every == 0:
                losses.append(loss.item())
                if writer:
                    writer.add_scalar("train/loss", losses[-1], step)
        if writer:
            accuracy = evaluate(model, held_out)
            writer.add_scalar("eval/accuracy", accuracy, step)
            if accuracy > best:
                best = accuracy
                state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
                torch.save({**state, "epoch": epoch}, directory / "best.pt")
    if writer:
        writer.close()
    return Outcome(losses, best if work.evaluates else None)


@torch.no_grad()
def evaluate(model: nn.Module, held_out: Batches) -> float:
    """Share of right labels."""
    model.eval()
    right = seen = 0
    for x, y in held_out:
        right += int((model(x).argmax(1) == y).sum())
        seen += len(y)
    model.train()
    return right / seen
