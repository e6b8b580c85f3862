"""The distributed loop that people write with Paddle: fleet, DataParallel and its sampler."""

from __future__ import annotations

import contextlib
from pathlib import Path

import paddle
from paddle import distributed
from paddle.distributed import fleet
from paddle.io import DataLoader, DistributedBatchSampler

from benchmarks.systems.paddle_loop import Arrays
from benchmarks.systems.paddle_network import final_loss, loss_of, network
from benchmarks.work import Outcome, Work, samples


def train(work: Work, directory: Path) -> Outcome:  # noqa: ARG001 - nothing is written
    """Train; gradients are exchanged with the last micro-batch of a step."""
    if not distributed.is_initialized():
        fleet.init(is_collective=True)
    x, y, _, _ = samples(work)
    dataset = Arrays(x, y)
    sampler = DistributedBatchSampler(dataset, work.batch_size, shuffle=True)
    batches = DataLoader(dataset, batch_sampler=sampler)
    model = paddle.DataParallel(network(work))
    optimizer = paddle.optimizer.Adam(work.lr, parameters=model.parameters())
    losses, step = [], 0
    for epoch in range(work.epochs):
        sampler.set_epoch(epoch)
        for number, (features, targets) in enumerate(batches, 1):
            is_last = number % work.accumulate == 0 or number == len(sampler)
            with contextlib.nullcontext() if is_last else model.no_sync():
                loss = loss_of(model(features), targets)
                (loss / work.accumulate).backward()
            if is_last:
                optimizer.step()
                optimizer.clear_grad()
                step += 1
                if step % work.log_every == 0:
                    losses.append(float(loss))
    final = final_loss(model, paddle.to_tensor(x), paddle.to_tensor(y))
    return Outcome(losses, final=final)
