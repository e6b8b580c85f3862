"""A moving average of Paddle parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import nn

from expkit.core.driver import ParameterAverage
from expkit.core.state import check_same_paths
from expkit.drivers.paddle.state import from_host, state_array


class PaddleParameterAverage(ParameterAverage):
    """Follows the trainable parameters of a layer, on its device."""

    def __init__(self, model: nn.Layer) -> None:
        self._parameters = {p: t for p, t in model.named_parameters() if not t.stop_gradient}
        self._average = {path: tensor.detach().clone() for path, tensor in self._parameters.items()}

    @paddle.no_grad()
    def update(self, decay: float) -> None:
        """See `ParameterAverage.update`."""
        for path, average in self._average.items():
            average.lerp_(self._parameters[path], 1.0 - decay)

    @paddle.no_grad()
    def swap(self) -> None:
        """See `ParameterAverage.swap`."""
        for path, parameter in self._parameters.items():
            kept = parameter.detach().clone()
            parameter.set_value(self._average[path])
            self._average[path].set_value(kept)

    def state(self) -> dict[str, NDArray[Any]]:
        """See `ParameterAverage.state`."""
        return {path: state_array(tensor) for path, tensor in self._average.items()}

    def parameters(self) -> dict[str, NDArray[Any]]:
        """See `ParameterAverage.parameters`."""
        return {path: state_array(tensor) for path, tensor in self._parameters.items()}

    @paddle.no_grad()
    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """See `ParameterAverage.load_state`."""
        check_same_paths(self._average, state)
        for path, tensor in self._average.items():
            tensor.set_value(from_host(np.asarray(state[path])).astype(tensor.dtype))
