"""The fastest distributed loop found for Paddle: arrays in memory, gradients as one tensor."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import paddle
from paddle import Tensor, distributed
from paddle.distributed import fleet

from benchmarks.systems.paddle_network import final_loss, loss_of, network
from benchmarks.work import Outcome, Work, samples


def train(work: Work, directory: Path) -> Outcome:  # noqa: ARG001 - nothing is written
    """Train without a wrapper and a DataLoader; one exchange a step."""
    if not distributed.is_initialized():
        fleet.init(is_collective=True)
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    x, y, _, _ = samples(work)
    model = network(work)
    parameters = model.parameters()
    for parameter in parameters:
        distributed.broadcast(parameter, 0)
    optimizer = paddle.optimizer.Adam(work.lr, parameters=parameters)
    losses, step = [], 0
    for epoch in range(work.epochs):
        order = np.random.RandomState(epoch).permutation(len(x))
        batches = order.reshape(-1, ranks, work.batch_size)[:, rank]
        for number, chosen in enumerate(batches, 1):
            loss = loss_of(model(paddle.to_tensor(x[chosen])), paddle.to_tensor(y[chosen]))
            loss.backward()
            if number % work.accumulate == 0 or number == len(batches):
                _exchange(parameters, ranks * work.accumulate)
                optimizer.step()
                optimizer.clear_grad(set_to_zero=False)
                step += 1
                if step % work.log_every == 0:
                    losses.append(float(loss))
    final = final_loss(model, paddle.to_tensor(x), paddle.to_tensor(y))
    return Outcome(losses, final=final)


@paddle.no_grad()
def _exchange(parameters: list[Tensor], count: int) -> None:
    """Make each gradient the mean over all micro-batches of all ranks."""
    flat = paddle.concat([parameter.grad.flatten() for parameter in parameters])
    distributed.all_reduce(flat)
    parts = (flat / count).split([math.prod(parameter.shape) for parameter in parameters])
    for parameter, part in zip(parameters, parts, strict=True):
        parameter.grad = part.reshape(parameter.shape)
