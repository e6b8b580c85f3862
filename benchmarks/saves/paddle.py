"""The state of a Paddle model."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import paddle
from numpy.typing import NDArray

from benchmarks.saves.subject import ROWS, Subject
from expkit.drivers.paddle import PaddleDriver


class Matrices(paddle.nn.Layer):
    """Weights alone."""

    def __init__(self, num_matrices: int) -> None:
        super().__init__()
        for i in range(num_matrices):
            self.add_parameter(f"w{i}", self.create_parameter([ROWS, ROWS]))


class PaddleSubject(Subject):
    """Matrices of a Paddle layer with Paddle's Adam."""

    def __init__(self, num_matrices: int) -> None:
        self._model = Matrices(num_matrices)
        self._parameters = self._model.parameters()
        self._gradients = [paddle.randn([ROWS, ROWS]) * 1e-3 for _ in self._parameters]
        self._work = paddle.randn([ROWS // 2, ROWS // 2])
        self.driver = PaddleDriver("cpu")
        self.driver.prepare(self._model, partial(self._optimizer), None)
        self.step()

    def _optimizer(self, parameters: Any) -> paddle.optimizer.Optimizer:
        self._adam = paddle.optimizer.Adam(
            parameters=parameters, learning_rate=1e-3, use_multi_tensor=True
        )
        return self._adam

    def step(self) -> None:
        """See `Subject.step`."""
        for _ in range(4):
            paddle.matmul(self._work, self._work)
        for parameter, gradient in zip(self._parameters, self._gradients, strict=True):
            parameter.grad = gradient
        self.driver.optimizer_step([1.0])

    def live(self) -> list[NDArray[Any]]:
        """See `Subject.live`."""
        states = [*self._model.state_dict().values(), *self._adam.state_dict().values()]
        tensors = [one for one in states if isinstance(one, paddle.Tensor)]
        return [np.from_dlpack(tensor.detach()) for tensor in tensors]

    def copier(self) -> Callable[[], None]:
        """See `Subject.copier`; NumPy copies faster than Paddle does."""
        buffers = [np.zeros_like(array) for array in self.live()]

        def copy() -> None:
            for buffer, array in zip(buffers, self.live(), strict=True):
                np.copyto(buffer, array)

        return copy

    def save(self, path: Path) -> Sequence[Path]:
        """See `Subject.save`."""
        files = path.with_suffix(".pdparams"), path.with_suffix(".pdopt")
        paddle.save(self._model.state_dict(), str(files[0]))
        paddle.save(self._adam.state_dict(), str(files[1]))
        return files
