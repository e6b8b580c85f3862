"""Trains one set of weights and uses its moving average."""
# ruff: noqa: ARG002 - a handler takes what its event brings

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from expkit.callbacks.refusal import refuse
from expkit.core.driver import ParameterAverage
from expkit.core.events import Callback, Context


@final
class ExponentialMovingAverage(Callback):
    """Averages the trainable parameters: average = decay * average + (1 - decay) * parameter.

    Only training sees the raw parameters. What is evaluated, what a checkpoint holds as the model,
    and what is left after training is the average, so that metrics and weights always belong
    together. The raw parameters are in the state of this callback: a resumed run goes on exactly.

    Args:
        decay: how slowly the average follows, in [0, 1); near 1 for long runs.
        warmup: follow faster in the beginning, so that the first weights are soon forgotten: the
            decay of update n is min(decay, (1 + n) / (10 + n)), the rule of TensorFlow's
            ``ExponentialMovingAverage`` with ``num_updates``.
    """

    gives_copies = True

    def __init__(self, decay: float = 0.999, warmup: bool = True) -> None:
        if not 0.0 <= decay < 1.0:
            refuse("ema", "decay", decay, "numbers from 0 up to, but not including, 1", 0.999)
        self._decay = decay
        self._warmup = warmup
        self._average: ParameterAverage | None = None
        self._restored: Mapping[str, Any] | None = None
        self._num_updates = 0
        self._evaluating = False
        self._weights_taken = False

    def fit_start(self, context: Context) -> None:
        """Begin at the present parameters; of a restored run these are the average."""
        self._average = context.driver.average_parameters()
        self._num_updates = _num_updates(context)
        self._weights_taken = False
        if self._restored is not None:
            self._average.load_state(self._restored)
            self._average.swap()
            self._restored = None

    def step_end(self, context: Context) -> None:
        """Follow the parameters, unless the update was left out."""
        count = _num_updates(context)
        if count == self._num_updates:
            return
        self._num_updates = count
        decay = min(self._decay, (1 + count) / (10 + count)) if self._warmup else self._decay
        self._parameters.update(decay)

    def eval_start(self, context: Context) -> None:
        """Evaluate the average."""
        self._parameters.swap()
        self._evaluating = True

    def eval_end(self, context: Context, metrics: Mapping[str, float]) -> None:
        """Go on training the raw parameters."""
        self._leave_evaluation()

    def exception(self, context: Context, error: BaseException) -> None:
        """An evaluation that failed must not leave the two exchanged."""
        self._leave_evaluation()

    def save(self, context: Context, state: dict[str, Any]) -> None:
        """Make the average the model of the checkpoint."""
        state["model"] = {**state["model"], **self._parameters.state()}

    def load(self, context: Context, state: Mapping[str, Any]) -> None:
        """The model now has the weights of a checkpoint, which are averages."""
        self._weights_taken = True

    def fit_end(self, context: Context) -> None:
        """Leave the average in the model, unless the best checkpoint, an average too, was taken."""
        if not self._weights_taken:
            self._parameters.swap()

    def state(self) -> dict[str, Any]:
        """The raw parameters by path."""
        if self._average is None:
            return {} if self._restored is None else {"parameters": dict(self._restored)}
        return {"parameters": self._average.parameters()}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave, at the start of training."""
        self._restored = state["parameters"]

    @property
    def _parameters(self) -> ParameterAverage:
        assert self._average is not None, "fit_start comes first"
        return self._average

    def _leave_evaluation(self) -> None:
        if self._evaluating:
            self._parameters.swap()
            self._evaluating = False


def _num_updates(context: Context) -> int:
    return context.progress.step - context.progress.skipped_steps
