"""The driver: the few verbs below which tensors live; above them all is NumPy and Python."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Batch
from expkit.core.binding import Binding
from expkit.core.collective import Collective, ReduceOp
from expkit.core.loss_term import LossTerm

StateTree = dict[str, Any]
"""A nested dict with NumPy arrays and JSON values as leaves."""


class ParameterAverage(ABC):
    """A second copy of the parameters that follows them slowly: an exponential moving average."""

    @abstractmethod
    def update(self, decay: float) -> None:
        """Average = decay * average + (1 - decay) * parameter."""

    @abstractmethod
    def swap(self) -> None:
        """Exchange the parameters of the model and the average."""

    @abstractmethod
    def state(self) -> dict[str, NDArray[Any]]:
        """The average by parameter path, as host copies."""

    @abstractmethod
    def parameters(self) -> dict[str, NDArray[Any]]:
        """The parameters that it follows by path, as host copies."""

    @abstractmethod
    def load_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take back what ``state`` gave."""


class Driver(ABC):
    """Runs a plain model of one framework on its devices.

    The contract that `expkit.testing` checks on every driver:

    - After the backward of a window's last micro-batch the gradients are those of (sum of losses) /
      (sum of weights) over all ranks and the whole window, equal on all ranks.
    - Nothing is communicated before the last micro-batch of a window.
    - State is keyed by parameter path, never by index or generated name.

    Attributes:
        framework: ``torch``, ``paddle`` or ``numpy``.
        device: the device by name, such as ``cpu`` or ``cuda:0``.
        scales_loss: whether gradients may overflow by design (fp16); the driver itself then leaves
            the update out.
        evaluates_together: whether all ranks must evaluate equally many batches, for each holds
            only a part of the model.
        group: the ranks; a world of one for single-device drivers.
    """

    framework: str
    device: str
    scales_loss: bool = False
    evaluates_together: bool = False
    group: Collective

    # -- who am I ----------------------------------------------------------------------------------

    @property
    def rank(self) -> int:
        """Number of this process over all machines."""
        return self.group.rank

    @property
    def local_rank(self) -> int:
        """Number of this process on its machine."""
        return self.group.local_rank

    @property
    def world_size(self) -> int:
        """Processes in all."""
        return self.group.world_size

    # -- collectives: what the group does ----------------------------------------------------------

    def all_reduce(self, array: NDArray[Any], op: ReduceOp = "sum") -> NDArray[Any]:
        """See `Collective.all_reduce`."""
        return self.group.all_reduce(array, op)

    def all_gather(self, value: Any) -> list[Any]:
        """See `Collective.all_gather`."""
        return self.group.all_gather(value)

    def broadcast(self, value: Any, src: int = 0) -> Any:
        """See `Collective.broadcast`."""
        return self.group.broadcast(value, src)

    def barrier(self) -> None:
        """See `Collective.barrier`."""
        self.group.barrier()

    # -- life --------------------------------------------------------------------------------------

    @abstractmethod
    def setup(self, seed: int) -> None:
        """Take the device; seed Python, NumPy and the framework by seed and rank. Repeatable."""

    @abstractmethod
    def shutdown(self) -> None:
        """Give everything back. Safe to call twice and after an error."""

    @abstractmethod
    def prepare(
        self, model: Any, optimizers: Any, loss: Any, binding: Binding | None = None
    ) -> None:
        """Take a model, the optimizers that train it and its loss.

        Args:
            model: a plain model of this driver's framework.
            optimizers: None (evaluation only), one optimizer, or a mapping name -> optimizer; each
                an `expkit.optimizers` spec or a native optimizer's partial.
            loss: an `expkit.losses` spec, any callable ``(outputs, batch) -> loss`` on framework
                tensors, or None when the model returns its own.
            binding: how the model is called; None = fields by name.

        Raises:
            ConfigError: model of another framework, unknown optimizer, pattern that matches no
                parameter.
        """

    @property
    @abstractmethod
    def optimizer_names(self) -> tuple[str, ...]:
        """Names of the optimizers in the order of ``optimizer_step``'s factors; may be none."""

    # -- the step ----------------------------------------------------------------------------------

    @abstractmethod
    def forward(self, batch: Batch, sync: bool) -> Mapping[str, Any]:
        """Training forward of one micro-batch; ``sync`` is True on the last of its window.

        Returns:
            The model's outputs by name, on the device. A model that returns a bare tensor gives
            ``{"output": it}``.
        """

    @abstractmethod
    def loss(self, outputs: Mapping[str, Any], batch: Batch) -> LossTerm:
        """The loss of what ``forward`` just gave for ``batch``."""

    @abstractmethod
    def backward(self, loss: LossTerm, scale: float) -> None:
        """Add the gradient of (sum of weighted losses) * scale.

        After the last micro-batch of a window the gradients are final.
        """

    @abstractmethod
    def clip_gradients(self, max_norm: float | None = None, max_value: float | None = None) -> Any:
        """Clip by global L2 norm, or each entry by value.

        Returns:
            The global L2 norm before clipping, as a scalar that ``float()`` reads from the device.
        """

    @abstractmethod
    def optimizer_step(self, factors: Sequence[float]) -> bool:
        """Update the parameters and clear the gradients.

        Args:
            factors: one per optimizer, in order; each multiplies the base rate of every parameter
                group.

        Returns:
            False where loss scaling found an overflow and the update was left out (on all ranks
            alike).
        """

    @abstractmethod
    def discard_gradients(self) -> None:
        """Clear the gradients without an update."""

    @abstractmethod
    def read_losses(self, terms: Sequence[LossTerm]) -> NDArray[np.float64]:
        """Bring losses to the host, all at once.

        Returns:
            Shape (len(terms), 2): weighted sum of the losses, and sum of the weights, of this rank.
        """

    @abstractmethod
    def evaluate_step(self, batch: Batch, needs: frozenset[str]) -> dict[str, NDArray[Any]]:
        """Evaluate one batch without a trace: mode, gradients, random state and statistics stay.

        Args:
            batch: the samples.
            needs: names of outputs to bring to the host; ``loss`` stands for the loss per sample.

        Returns:
            Host arrays by name, first axis = samples. ``loss`` has shape (n,), and ``loss_weight``
            (n,) comes with it where the loss counts tokens: the sum over tokens in ``loss``, their
            weight in ``loss_weight``.
        """

    @abstractmethod
    def learning_rates(self) -> dict[str, float]:
        """The rates used by the last update.

        Named ``lr`` for one group, else ``lr/<optimizer>`` or ``lr/<optimizer>/<group>``.
        """

    # -- state -------------------------------------------------------------------------------------

    @abstractmethod
    def model_state(self) -> dict[str, NDArray[Any]]:
        """Parameters and buffers by path, as host copies.

        Where ranks hold parts of the model all of them must call it.
        """

    @abstractmethod
    def load_model_state(self, state: Mapping[str, NDArray[Any]]) -> None:
        """Take parameters and buffers.

        Raises:
            CheckpointError: a missing or unexpected path, or another shape; names them.
        """

    @abstractmethod
    def state(self, copies: bool = True) -> StateTree:
        """All that must survive: ``model``, ``optimizer``, ``scaler``, ``rng`` (this rank's).

        All ranks call it. It is complete on rank 0; on others all but ``rng`` may be empty.

        Args:
            copies: False = its arrays may be the memory of the model and the optimizer, for one who
                has done with them before the next step.
        """

    @abstractmethod
    def load_state(self, state: StateTree) -> None:
        """Take back what ``state`` gave, before the first step or at any later time.

        All ranks call it with the complete tree; where ``rng`` is empty the generators stay.
        """

    @abstractmethod
    def linear_weights(self) -> tuple[str, ...]:
        """Paths of the weights of linear layers.

        PyTorch keeps them as (out, in), Paddle and NumPy as (in, out); all else is alike.
        """

    @abstractmethod
    def unwrap(self) -> Any:
        """The user's own model object."""

    @abstractmethod
    def average_parameters(self) -> ParameterAverage:
        """Start a `ParameterAverage` from the present parameters."""

    @abstractmethod
    def memory_bytes(self) -> int | None:
        """Greatest device memory used so far; None where the device does not tell."""
