"""Gradients of all parameters in one buffer, summed over the ranks by one all-reduce."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import paddle
from paddle import Tensor, nn

from expkit.core.binding import Binding, Call
from expkit.core.errors import DriverError
from expkit.drivers.paddle.exchange import partly_error, unused_error
from expkit.drivers.paddle.process_group import ProcessGroup
from expkit.drivers.replicas import GradientExchange


class Lane:
    """Tensors side by side in one buffer, and numbers of the host behind them.

    Args:
        shapes: of the tensors.
        dtype: of the buffer.
        num_numbers: how many numbers travel along.

    Attributes:
        memory: the buffer.
        views: the parts of it that have the shapes.
        numbers: what the host writes; `load` brings it to the buffer.
    """

    def __init__(
        self, shapes: Sequence[Sequence[int]], dtype: str = "float32", num_numbers: int = 0
    ) -> None:
        sizes = [math.prod(shape) for shape in shapes]
        bounds = np.concatenate([[0], np.cumsum(sizes, dtype=np.int64)]).tolist()
        self.memory = paddle.zeros([bounds[-1] + num_numbers], dtype)
        self.views = [
            self.memory[start : start + size].reshape(list(shape))
            for start, size, shape in zip(bounds[:-1], sizes, shapes, strict=True)
        ]
        self.numbers = np.zeros(num_numbers, dtype)
        self._host = paddle.from_dlpack(self.numbers) if num_numbers else None
        self._behind = self.memory[bounds[-1] :]

    def load(self) -> None:
        """Write the numbers behind the tensors."""
        self._behind.copy_(self._host, False)

    def read(self) -> np.ndarray:
        """The numbers that came back."""
        array: np.ndarray = self._behind.numpy()
        return array


class FlatExchange(GradientExchange):
    """Copies the gradients into a buffer that is kept between steps, and sums that.

    What the ranks have to tell each other besides travels at the buffer's end: for each parameter
    whether it has a gradient here, a notice, and the flags of the group. The buffer's layout never
    changes, so that no rank can send what another does not expect.

    Args:
        group: the ranks.
        model: whose parameters these are.
        find_unused: a parameter may be without gradient on some or all ranks.

    Raises:
        DriverError: a layer has sparse gradients.
    """

    loss_factor = 1.0

    def __init__(self, group: ProcessGroup, model: nn.Layer, find_unused: bool) -> None:
        sparse = [
            path for path, layer in model.named_sublayers() if getattr(layer, "_sparse", False)
        ]
        if sparse:
            raise DriverError(
                f"the layer {sparse[0]} has sparse gradients, which the ranks cannot add up; "
                "make it with sparse=False"
            )
        self._group = group
        self._model = model
        self._find_unused = find_unused
        self._layout: _Layout | None = None

    def training(self, model: nn.Layer, binding: Binding) -> Call:
        """See `GradientExchange.training`."""
        return binding.bind(model, "train_step")

    def begin(self, sync: bool) -> None:
        """Nothing to get ready."""

    def exchange(
        self, parameters: Sequence[Tensor], passengers: Sequence[Tensor], notice: bool | None
    ) -> tuple[Sequence[Tensor], bool]:
        """See `GradientExchange.exchange`."""
        flags = self._group.raised()
        layout = self._layout
        if layout is None or not layout.fits(parameters, passengers, flags):
            layout = self._layout = _Layout(parameters, passengers, flags)
        gradients = [parameter.grad for parameter in parameters]
        lane = layout.main
        lane.numbers[:] = (*(g is not None for g in gradients), bool(notice), *flags)
        layout.copy_in(gradients, passengers)
        lane.load()
        for memory in layout.memories:
            self._group.sum_tensor(memory)
        told = lane.read()
        used = told[: len(gradients)]
        if (used != self._group.world_size).any():
            self._settle(layout, gradients, used)
        else:
            layout.hand_out(gradients)
        noticed, *answers = (told[len(gradients) :] > 0).tolist()
        self._group.answer(answers)
        return layout.passengers, noticed

    def _settle(
        self, layout: _Layout, gradients: Sequence[Tensor | None], used: np.ndarray
    ) -> None:
        """Some parameter has no gradient on some rank; all ranks know, and do the same."""
        parameters = layout.parameters
        if not self._find_unused:
            pairs = list(zip(parameters, gradients, strict=True))
            unused = [p for p, g in pairs if g is None and not p.stop_gradient]
            if unused:
                raise unused_error(self._model, unused, self._group.rank)
            partly = (used > 0) & (used < self._group.world_size)
            if partly.any():
                raise partly_error(
                    self._model, [parameters[i] for i in np.flatnonzero(partly).tolist()]
                )
        for index in np.flatnonzero(used).tolist():
            if gradients[index] is None:  # another rank has one: here it counted as zero
                parameters[index].grad = paddle.zeros_like(parameters[index])
        layout.hand_out(
            [p.grad if n else None for p, n in zip(parameters, used.tolist(), strict=True)]
        )


class _Layout:
    """Where each gradient has its place; float64 is added up as such, all else as float32."""

    def __init__(
        self, parameters: Sequence[Tensor], passengers: Sequence[Tensor], flags: Sequence[bool]
    ) -> None:
        self.parameters = parameters
        self._num_flags = len(flags)
        self._passenger_shapes = [p.shape for p in passengers]
        wide = [p.dtype == paddle.float64 for p in parameters]
        shapes = [p.shape for p in parameters]
        narrow_shapes = [shape for shape, is_wide in zip(shapes, wide, strict=True) if not is_wide]
        wide_shapes = [shape for shape, is_wide in zip(shapes, wide, strict=True) if is_wide]
        self.main = Lane(
            narrow_shapes + self._passenger_shapes, "float32", len(parameters) + 1 + len(flags)
        )
        side = Lane(wide_shapes, "float64")
        self.memories = [self.main.memory] + ([side.memory] if any(wide) else [])
        narrow_views, wide_views = iter(self.main.views), iter(side.views)
        self._views = [next(wide_views if is_wide else narrow_views) for is_wide in wide]
        self.passengers = list(narrow_views)
        self._converts = [p.dtype not in (paddle.float32, paddle.float64) for p in parameters]

    def fits(
        self, parameters: Sequence[Tensor], passengers: Sequence[Tensor], flags: Sequence[bool]
    ) -> bool:
        """Whether it was made for these."""
        return (
            parameters is self.parameters
            and len(flags) == self._num_flags
            and [p.shape for p in passengers] == self._passenger_shapes
        )

    def copy_in(self, gradients: Sequence[Tensor | None], passengers: Sequence[Tensor]) -> None:
        """Bring the gradients to their places; one that is missing counts as zero."""
        for view, gradient, converts in zip(self._views, gradients, self._converts, strict=True):
            if gradient is None:
                view.zero_()
            else:
                view.copy_(gradient.astype(view.dtype) if converts else gradient, False)
        for view, passenger in zip(self.passengers, passengers, strict=True):
            view.copy_(passenger, False)

    def hand_out(self, gradients: Sequence[Tensor | None]) -> None:
        """Let the gradients be what is at their places: no copy, where the type is the same."""
        for view, gradient, converts in zip(self._views, gradients, self._converts, strict=True):
            if gradient is None:
                continue
            if converts:
                gradient.copy_(view.astype(gradient.dtype), False)
            else:
                view._share_buffer_to(gradient)
