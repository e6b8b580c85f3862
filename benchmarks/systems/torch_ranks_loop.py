"""The distributed loop that people write with torch: DistributedDataParallel and its sampler."""

from __future__ import annotations

import contextlib
from pathlib import Path

import torch
from torch import distributed
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from benchmarks.systems.torch_network import final_loss, loss_of, network
from benchmarks.work import Outcome, Work, samples


def train(work: Work, directory: Path) -> Outcome:  # noqa: ARG001 - nothing is written
    """Train; gradients are exchanged with the last micro-batch of a step."""
    if not distributed.is_initialized():
        distributed.init_process_group("gloo")
    x, y, _, _ = map(torch.from_numpy, samples(work))
    dataset = TensorDataset(x, y)
    sampler = DistributedSampler(dataset, shuffle=True)
    batches = DataLoader(dataset, batch_size=work.batch_size, sampler=sampler)
    model = DistributedDataParallel(network(work))
    optimizer = torch.optim.Adam(model.parameters(), lr=work.lr)
    losses, step = [], 0
    for epoch in range(work.epochs):
        sampler.set_epoch(epoch)
        for number, (features, targets) in enumerate(batches, 1):
            is_last = number % work.accumulate == 0 or number == len(batches)
            with contextlib.nullcontext() if is_last else model.no_sync():
                loss = loss_of(model(features), targets)
                (loss / work.accumulate).backward()
            if is_last:
                optimizer.step()
                optimizer.zero_grad()
                step += 1
                if step % work.log_every == 0:
                    losses.append(loss.item())
    return Outcome(losses, final=final_loss(model, x, y))
