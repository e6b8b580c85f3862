"""The state of a torch model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import torch
from numpy.typing import NDArray

from benchmarks.saves.subject import ROWS, Subject
from expkit.drivers.torch import TorchDriver


class TorchSubject(Subject):
    """Matrices of a torch module with torch's fused Adam."""

    def __init__(self, num_matrices: int) -> None:
        model = torch.nn.ParameterDict(
            {f"w{i}": torch.nn.Parameter(torch.randn(ROWS, ROWS)) for i in range(num_matrices)}
        )
        self._parameters = list(model.parameters())
        self._gradients = [torch.randn_like(p) * 1e-3 for p in self._parameters]
        self._work = torch.randn(ROWS // 2, ROWS // 2)
        self.driver = TorchDriver("cpu")
        self.driver.prepare(model, partial(self._optimizer), None)
        self._model = model
        self.step()

    def _optimizer(self, parameters: Any) -> torch.optim.Optimizer:
        self._adam = torch.optim.Adam(parameters, fused=True)
        return self._adam

    def step(self) -> None:
        """See `Subject.step`."""
        for _ in range(4):
            self._work @ self._work
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        self.driver.optimizer_step([1.0])

    def _tensors(self) -> list[torch.Tensor]:
        moments = [
            tensor
            for state in self._adam.state_dict()["state"].values()
            for tensor in state.values()
        ]
        return [*self._model.state_dict().values(), *moments]

    def live(self) -> list[NDArray[Any]]:
        """See `Subject.live`."""
        return [tensor.numpy() for tensor in self._tensors()]

    def copier(self) -> Callable[[], None]:
        """See `Subject.copier`."""
        buffers = [torch.zeros_like(tensor) for tensor in self._tensors()]

        def copy() -> None:
            for buffer, tensor in zip(buffers, self._tensors(), strict=True):
                buffer.copy_(tensor)

        return copy

    def save(self, path: Path) -> Sequence[Path]:
        """See `Subject.save`."""
        torch.save({"model": self._model.state_dict(), "optimizer": self._adam.state_dict()}, path)
        return [path]
