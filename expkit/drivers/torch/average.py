"""A moving average of torch parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import nn

from expkit.core.driver import ParameterAverage
from expkit.core.state import check_same_paths
from expkit.drivers.torch.layout import Layout
from expkit.drivers.torch.state import from_host, model_state


class TorchParameterAverage(ParameterAverage):
    """Follows the floating-point parameters of a module, on its device."""

    def __init__(self, layout: Layout, model: nn.Module) -> None:
        self._layout = layout
        self._parameters = {p: t for p, t in layout.parameters(model).items() if t.requires_grad}
        self._average = {path: p.detach().clone() for path, p in self._parameters.items()}

    @torch.no_grad()
    def update(self, decay: float) -> None:
        """See `ParameterAverage.update`."""
        torch._foreach_lerp_(
            list(self._average.values()), list(self._parameters.values()), 1.0 - decay
        )

    @torch.no_grad()
    def swap(self) -> None:
        """See `ParameterAverage.swap`."""
        for path, parameter in self._parameters.items():
            kept = parameter.detach().clone()
            parameter.copy_(self._average[path])
            self._average[path].copy_(kept)

    def state(self) -> dict[str, NDArray[Any]]:
        """See `ParameterAverage.state`."""
        return self._layout.gather(lambda: model_state(self._average))

    def parameters(self) -> dict[str, NDArray[Any]]:
        """See `ParameterAverage.parameters`."""
        return self._layout.gather(lambda: model_state(self._parameters))

    @torch.no_grad()
    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """See `ParameterAverage.load_state`."""
        check_same_paths(self._average, state)
        own = self._layout.part(state)
        for path, tensor in self._average.items():
            tensor.copy_(from_host(np.array(own[path])))
