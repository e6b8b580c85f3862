"""The fastest distributed loop found for torch: arrays in memory, all gradients in one buffer."""

from __future__ import annotations

from pathlib import Path

import torch
from torch import Tensor, distributed, nn

from benchmarks.systems.torch_network import final_loss, loss_of, network
from benchmarks.work import Outcome, Work, samples


def train(work: Work, directory: Path) -> Outcome:  # noqa: ARG001 - nothing is written
    """Train without a wrapper and a DataLoader; one exchange a step."""
    if not distributed.is_initialized():
        distributed.init_process_group("gloo")
    rank, ranks = distributed.get_rank(), distributed.get_world_size()
    x, y, _, _ = map(torch.from_numpy, samples(work))
    model = network(work)
    gradients = _buffer(model)
    optimizer = torch.optim.Adam(model.parameters(), lr=work.lr, fused=True)
    losses, step = [], 0
    for epoch in range(work.epochs):
        order = torch.randperm(len(x), generator=torch.Generator().manual_seed(epoch))
        batches = order[rank::ranks].split(work.batch_size)
        for number, chosen in enumerate(batches, 1):
            loss = loss_of(model(x.index_select(0, chosen)), y.index_select(0, chosen))
            loss.backward()
            if number % work.accumulate == 0 or number == len(batches):
                distributed.all_reduce(gradients)
                gradients.div_(ranks * work.accumulate)
                optimizer.step()
                gradients.zero_()
                step += 1
                if step % work.log_every == 0:
                    losses.append(loss.item())
    return Outcome(losses, final=final_loss(model, x, y))


def _buffer(model: nn.Module) -> Tensor:
    """One tensor of which the gradients are views; all ranks begin with rank 0's weights."""
    parameters = list(model.parameters())
    sizes = [parameter.numel() for parameter in parameters]
    buffer = torch.zeros(sum(sizes))
    for parameter, part in zip(parameters, buffer.split(sizes), strict=True):
        distributed.broadcast(parameter.data, 0)
        parameter.grad = part.view_as(parameter)
    return buffer
