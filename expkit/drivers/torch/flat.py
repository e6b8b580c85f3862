"""Gradients of all parameters in one buffer, summed over the ranks by one all-reduce."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from expkit.core.binding import Binding, Call
from expkit.core.errors import DriverError
from expkit.drivers.replicas import names_of
from expkit.drivers.torch.exchange import GradientExchange, unused_error
from expkit.drivers.torch.process_group import ProcessGroup


class FlatExchange(GradientExchange):
    """Copies the gradients into a buffer that is kept between steps, and sums that.

    What ranks have to tell each other besides travels with it: for each parameter whether it has a
    gradient here, and the flags of the group. Parameters that have none on any rank, because they
    are frozen, are left out from the next step on; a rank that has one again says so, and they
    travel too.

    Args:
        group: the ranks.
        model: whose parameters these are.
        find_unused: whether a parameter may be without gradient on some or all ranks.
    """

    loss_factor = 1.0

    def __init__(self, group: ProcessGroup, model: nn.Module, find_unused: bool) -> None:
        self._group = group
        self._model = model
        self._find_unused = find_unused
        self._buffer: FlatBuffer | None = None
        self._left_out: list[Tensor] = []

    def training(self, model: nn.Module, binding: Binding) -> Call:
        """See `GradientExchange.training`."""
        return binding.bind(model, "train_step")

    def begin(self, sync: bool) -> None:
        """Nothing to get ready."""

    def backward(self, total: Tensor) -> None:
        """See `GradientExchange.backward`."""
        total.backward()

    def exchange(
        self, parameters: Sequence[Tensor], passengers: Sequence[Tensor], notice: bool | None
    ) -> tuple[Sequence[Tensor], bool]:
        """See `GradientExchange.exchange`."""
        flags = self._group.raised()
        buffer = self._buffer
        if buffer is None or not buffer.fits(passengers, len(flags) + 2):
            left_out = {id(p) for p in self._left_out}
            sent = [p for p in parameters if id(p) not in left_out]
            buffer = FlatBuffer(self._group, sent, passengers, len(flags) + 2)
            self._buffer = buffer
        again = bool(self._left_out) and any(p.grad is not None for p in self._left_out)
        wait = buffer.sum(passengers, (again, bool(notice), *flags))
        if buffer.is_on_host or self._find_unused or notice is not None:
            told = self._settle(buffer, wait())
            self._group.answer(told[2:])
            return buffer.passengers, told[1]
        # The device is not waited for: what ranks told is looked at when the flags are.
        self._group.answer_later(lambda: self._settle(buffer, wait())[2:])
        return buffer.passengers, False

    def _settle(self, buffer: FlatBuffer, sums: list[float]) -> list[bool]:
        """Act on what the ranks told, and give its second part."""
        if sums == buffer.usual:
            return buffer.nothing_told
        number = len(buffer.parameters)
        counts, told = sums[:number], [count > 0 for count in sums[number:]]
        self._check(buffer, counts)
        if not self._find_unused and 0 in counts:
            pairs = zip(buffer.parameters, counts, strict=True)
            self._left_out += [p for p, count in pairs if not count]
            self._buffer = None
        if told[0]:
            rest = FlatBuffer(self._group, self._left_out, [], 0)
            self._check(rest, rest.sum([], ())())
            self._buffer, self._left_out = None, []
        return told

    def _check(self, buffer: FlatBuffer, counts: list[float]) -> None:
        """Make sure that a parameter is trained on all ranks or on none.

        Args:
            buffer: the gradients.
            counts: for each of its parameters on how many ranks it had a gradient.
        """
        if self._find_unused:
            buffer.keep_used(counts)
            return
        every = self._group.world_size
        rows = list(zip(buffer.parameters, buffer.present, counts, strict=True))
        unused = [p for p, is_present, _ in rows if p.requires_grad and not is_present]
        if unused:
            raise unused_error(names_of(self._model, unused), self._group.rank)
        partly = [p for p, _, count in rows if 0 < count < every]
        if partly:
            raise DriverError(
                f"only some of the {every} ranks have a gradient for "
                f"{names_of(self._model, partly)}: each rank must freeze the same parameters, and "
                "where the loss does not always depend on all of them: "
                "driver.find_unused_parameters=true"
            )


class FlatBuffer:
    """One flat tensor for each type of gradient, kept between steps.

    Args:
        group: the ranks.
        parameters: whose gradients it holds.
        passengers: flat tensors which are summed with them.
        num_told: how many flags travel with them.

    Attributes:
        parameters: as given.
        present: which of them had a gradient on this rank.
        passengers: the sums of the passengers.
        usual: what `sum` gives where all gradients are there and no flag is raised.
        nothing_told: no flag.
        is_on_host: whether the host can look at the sums for nothing.
    """

    def __init__(
        self,
        group: ProcessGroup,
        parameters: Sequence[Tensor],
        passengers: Sequence[Tensor],
        num_told: int,
    ) -> None:
        self._group = group
        self.parameters = list(parameters)
        self.present = self._all_present = [True] * len(parameters)
        self.usual = [float(group.world_size)] * len(parameters) + [0.0] * num_told
        self.nothing_told = [False] * num_told
        self.is_on_host = group.device.type == "cpu"
        tensors = [*self.parameters, *passengers]
        if self.is_on_host:  # ones and zeros, which are added exactly
            self._usual_tail = torch.tensor([1.0] * len(parameters) + [0.0] * num_told)
            tensors.append(self._usual_tail)
        self._flats: list[Tensor] = []
        self._places: list[list[int]] = []
        self._by_place: list[list[Tensor]] = []
        self._views = self._divide(tensors)
        self._passenger_sizes = [tensor.numel() for tensor in passengers]
        start = len(self.parameters)
        self.passengers = self._views[start : start + len(passengers)]

    def fits(self, passengers: Sequence[Tensor], num_told: int) -> bool:
        """Whether it has room for just this."""
        return (
            len(self.nothing_told) == num_told
            and [tensor.numel() for tensor in passengers] == self._passenger_sizes
        )

    @torch.no_grad()
    def sum(self, passengers: Sequence[Tensor], told: Sequence[bool]) -> Callable[[], list[float]]:
        """Sum the gradients, which become views of the buffer.

        Args:
            passengers: are summed too.
            told: this rank's flags.

        Returns:
            Gives for each parameter on how many ranks it had a gradient, for each flag on how many
            it is raised.
        """
        gradients = [p.grad for p in self.parameters]
        self.present = self._all_present
        if any(gradient is None for gradient in gradients):
            self.present = [gradient is not None for gradient in gradients]
            for view, is_present in zip(self._views, self.present, strict=False):
                if not is_present:
                    view.zero_()
        sources: list[Any] = [
            view if gradient is None else gradient
            for view, gradient in zip(self._views, gradients, strict=False)
        ]
        sources += passengers
        is_usual = self.present is self._all_present and not any(told)
        if self.is_on_host:
            tail = self._usual_tail if is_usual else torch.tensor([*self.present, *told])
            sources.append(tail)
            wait = self._views[-1].tolist
        else:
            wait = self._group.sum_in_background([*self.present, *told])
        for flat, place, views in zip(self._flats, self._places, self._by_place, strict=True):
            self._pack(views, [sources[i] for i in place])
            self._group.sum_tensor(flat)
        for parameter, view, is_present in zip(
            self.parameters, self._views, self.present, strict=False
        ):
            if is_present:
                parameter.grad = view
        return wait

    def keep_used(self, counts: list[float]) -> None:
        """Give a gradient to each parameter that has one on some rank, and to no other."""
        for parameter, view, count in zip(self.parameters, self._views, counts, strict=False):
            parameter.grad = view if count else None

    def _pack(self, views: list[Tensor], sources: list[Tensor]) -> None:
        try:
            torch._foreach_copy_(views, sources)
        except RuntimeError as error:
            if not any(source.layout is not torch.strided for source in sources):
                raise
            raise DriverError(
                "sparse gradients do not fit into a flat buffer: driver.gradient_sync=native"
            ) from error

    def _divide(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """Make the flat tensors; the views of them are like ``tensors``."""
        places: dict[tuple[torch.device, torch.dtype], list[int]] = {}
        for index, tensor in enumerate(tensors):
            places.setdefault((tensor.device, tensor.dtype), []).append(index)
        views = list(tensors)
        for (device, dtype), place in places.items():
            sizes = [tensors[index].numel() for index in place]
            flat = torch.zeros(sum(sizes), dtype=dtype, device=device)
            for index, part in zip(place, flat.split(sizes), strict=True):
                views[index] = _like(part, tensors[index])
            self._flats.append(flat)
            self._places.append(place)
            self._by_place.append([views[index] for index in place])
        return views


def _like(part: Tensor, tensor: Tensor) -> Tensor:
    """A view of a part of a buffer with the shape of a tensor, and in its order in memory."""
    expected = 1
    for stride, size in sorted(zip(tensor.stride(), tensor.shape, strict=True)):
        if size != 1 and stride != expected:
            return part.view(tensor.shape)
        expected *= size
    return part.as_strided(tensor.shape, tensor.stride())
