"""Gradients summed by Paddle's DataParallel, bucket by bucket during the backward."""

from __future__ import annotations

import inspect
import zlib
from collections.abc import Mapping, Sequence
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import paddle
from paddle import Tensor, nn

from expkit.core.binding import Binding, Call
from expkit.core.errors import ConfigError, DriverError, Problem
from expkit.drivers.paddle.exchange import unused_error
from expkit.drivers.paddle.process_group import ProcessGroup
from expkit.drivers.replicas import GradientExchange

_OURS = ("self", "layers", "strategy", "find_unused_parameters", "group")
_ALLOWED = tuple(
    name for name in inspect.signature(paddle.DataParallel.__init__).parameters if name not in _OURS
)

FORWARD_ONLY = ""
"""The step of a model that is called through its forward, whatever steps it has."""


_reducers: WeakKeyDictionary[nn.Layer, list[Any]] = WeakKeyDictionary()
"""All reducers that a model has had: its parameters call them, idle or not, to its end."""


def check_arguments(arguments: Mapping[str, Any]) -> None:
    """Raise ConfigError for arguments that `paddle.DataParallel` shall not get."""
    problems = []
    for name, value in arguments.items():
        key = f"driver.data_parallel.{name}"
        if name not in _ALLOWED:
            message = f"is no option; allowed: {', '.join(_ALLOWED)}"
            problems.append(Problem(key, message, f"~{key}"))
        elif isinstance(value, bool) or not isinstance(value, (int, float)) or value <= 0:
            problems.append(Problem(key, f"is {value!r}; allowed: a number above 0, in MB"))
    if problems:
        raise ConfigError(problems)


class NativeExchange(GradientExchange):
    """Wraps the model in `paddle.DataParallel`, or takes the user's wrapper.

    The wrapper averages over the ranks; losses are therefore multiplied with their number.

    Args:
        group: the ranks.
        model: the plain model.
        wrapper: its user's wrapper; None = one is made.
        find_unused: whether a parameter may be without gradient on some or all ranks.
        arguments: more arguments of `paddle.DataParallel`.
    """

    def __init__(
        self,
        group: ProcessGroup,
        model: nn.Layer,
        wrapper: paddle.DataParallel | None = None,
        find_unused: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> None:
        self._group = group
        self._model = model
        self._wrapper: Any = wrapper
        self._find_unused = find_unused if wrapper is None else wrapper.find_unused_parameters
        self._arguments = dict(arguments or {})
        self._parameters = model.parameters()
        self._trained: list[bool] | None = None
        self._flags: list[bool] = []
        self.loss_factor = float(group.world_size if wrapper is None else wrapper.group.world_size)

    def training(self, model: nn.Layer, binding: Binding) -> Call:
        """See `GradientExchange.training`."""
        if self._wrapper is not None:
            return binding.bind(model, FORWARD_ONLY, call=self._wrapper)
        # The wrapper calls a forward: that of a shell reaches the model's own steps.
        self._wrapper = paddle.DataParallel(
            _Shell(model, binding.bind(model, "train_step")),
            find_unused_parameters=self._find_unused,
            **self._arguments,
        )
        self._keep_reducer()
        call: Call = self._wrapper
        return call

    def begin(self, sync: bool) -> None:
        """See `GradientExchange.begin`; before a window's last forward the ranks agree."""
        if sync:
            self._agree()
        self._wrapper.grad_need_sync = sync

    def exchange(
        self, parameters: Sequence[Tensor], passengers: Sequence[Tensor], notice: bool | None
    ) -> tuple[Sequence[Tensor], bool]:
        """See `GradientExchange.exchange`; gradients have been summed in the backward."""
        if not self._find_unused:
            # Here Paddle is silent, and the ranks would drift apart.
            unused = [p for p in parameters if p.grad is None and not p.stop_gradient]
            if unused:
                raise unused_error(self._model, unused, self._group.rank)
        for passenger in passengers:
            self._group.sum_tensor(passenger)
        self._group.answer(self._flags)
        return passengers, notice is not None and self._group.any_rank(notice)

    def _agree(self) -> None:
        """Tell each other the flags, and make sure that all train the same parameters.

        Paddle would end the process, or wait in vain, where they do not.
        """
        trained = [not parameter.stop_gradient for parameter in self._parameters]
        own = zlib.crc32(bytes(trained))
        numbers = paddle.to_tensor(np.array([own, -own, *self._group.raised()], dtype=np.int64))
        greatest, least, *flags = self._group.tell(numbers)
        if greatest != -least:
            raise DriverError(
                "the ranks do not train the same parameters: each rank must freeze, and train "
                "again, the same ones at the same step"
            )
        self._flags = [flag > 0 for flag in flags]
        if self._trained is not None and trained != self._trained:
            self._wrapper.init_reducer()  # the old one waits for gradients that do not come
            self._keep_reducer()
        self._trained = trained

    def _keep_reducer(self) -> None:
        _reducers.setdefault(self._model, []).append(self._wrapper._reducer)


class _Shell(nn.Layer):
    """A model whose forward is a bound call of another."""

    def __init__(self, model: nn.Layer, call: Call) -> None:
        super().__init__()
        self.model = model
        self.call = call

    def forward(self, fields: Mapping[str, Any]) -> Mapping[str, Any]:
        return self.call(fields)
