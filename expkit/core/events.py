"""Callbacks: who is told of a run while it goes on, and when."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Literal

import numpy as np

from expkit.core.batch import Batch, Indices
from expkit.core.context import Context
from expkit.core.errors import CallbackError, ConfigError, ExpkitError, Problem
from expkit.core.filter import Filter
from expkit.core.loss_term import LossTerm
from expkit.core.naming import name_of

__all__ = ["EVENTS", "Callback", "Context", "EventBus", "Handler", "name_callbacks", "on"]

log = logging.getLogger(__name__)

EVENTS = (
    "fit_start",
    "epoch_start",
    "batch_start",
    "loss_start",
    "backward_start",
    "backward_end",
    "step_start",
    "step_end",
    "batch_end",
    "eval_start",
    "eval_end",
    "save",
    "load",
    "epoch_end",
    "exception",
    "fit_end",
)
"""Every event, in the order in which a run fires them."""


class Callback:
    """Overrides the events it needs; the others cost nothing.

    Attributes:
        run_on: ``all`` ranks, or only ``main`` (rank 0).
        gives_copies: whether what ``state`` gives is nobody else's; else it is copied.
    """

    run_on: Literal["all", "main"] = "all"
    gives_copies: bool = False

    def fit_start(self, context: Context) -> None:
        """Before the first epoch, after the state was restored."""

    def epoch_start(self, context: Context) -> None:
        """Before the first (remaining) step of an epoch."""

    def batch_start(self, context: Context, batch: Batch, indices: Indices) -> None:
        """Before a micro-batch goes through the model."""

    def loss_start(self, context: Context, outputs: Mapping[str, Any], batch: Batch) -> None:
        """Between the model's forward and the loss."""

    def backward_start(self, context: Context, loss: LossTerm) -> None:
        """Between the loss and the backward."""

    def backward_end(self, context: Context, loss: LossTerm) -> None:
        """After the backward of a micro-batch."""

    def step_start(self, context: Context) -> None:
        """Gradients are complete; before clipping and the update."""

    def step_end(self, context: Context) -> None:
        """After the update; the step is counted."""

    def batch_end(self, context: Context) -> None:
        """After a micro-batch, and after the update that its window's last one brings."""

    def eval_start(self, context: Context) -> None:
        """Before an evaluation."""

    def eval_end(self, context: Context, metrics: Mapping[str, float]) -> None:
        """After an evaluation, with its metrics."""

    def save(self, context: Context, state: dict[str, Any]) -> None:
        """A checkpoint is about to be written; ``state`` may be added to.

        Its arrays may be those of the model: they are neither to be changed nor to be kept.
        """

    def load(self, context: Context, state: Mapping[str, Any]) -> None:
        """A checkpoint was read."""

    def epoch_end(self, context: Context) -> None:
        """After an epoch's last step, its evaluation and its checkpoint.

        A run that is resumed from that checkpoint fires it again, since the checkpoint was written
        before it.
        """

    def exception(self, context: Context, error: BaseException) -> None:
        """The run ends with an error."""

    def fit_end(self, context: Context) -> None:
        """After training, with the weights that stay."""

    def state(self) -> dict[str, Any]:
        """What must survive a restart: arrays and JSON values; empty when nothing.

        All ranks are asked, so that a callback may gather here what the ranks hold. What rank 0
        answers is kept, and given to all ranks when the run goes on, on however many.
        """
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave."""


Handler = Callable[..., None]


class _Filtered(Callback):
    """Calls a function at some of an event's calls; their number survives a restart."""

    def __init__(self, function: Handler, event: str, event_filter: Filter) -> None:
        self._function = function
        self._is_of_epoch_start = event == "epoch_start"
        self._filter = event_filter
        self._num_calls = 0

    def handle(self, *args: Any) -> None:
        """Count the call, and pass it on where the filter says so."""
        if self._is_of_epoch_start and args[0].progress.epoch_step:
            return  # the rest of an epoch whose start was counted before the restart
        self._num_calls += 1
        if self._filter.passes(self._num_calls):
            self._function(*args)

    def state(self) -> dict[str, Any]:
        """How often the event came."""
        return {"num_calls": self._num_calls}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave."""
        self._num_calls = int(state["num_calls"])


def on(
    event: str,
    *,
    every: int | None = None,
    once: int | None = None,
    when: Callable[[int], bool] | None = None,
    run_on: Literal["all", "main"] = "all",
) -> Callable[[Handler], Callback]:
    """Make a callback of a function.

    The calls of the event are counted over the whole run, whatever stops and restarts it.

    Args:
        event: one of `EVENTS`.
        every: run at each ``every``-th call of the event.
        once: run at that call only; the first is 1.
        when: run where ``when(number of the call)`` is true.
        run_on: ``all`` ranks or only ``main``.

    Example:
        >>> @on("step_end", every=100)
        ... def note(context):
        ...     print(context.progress.step)
    """
    if event not in EVENTS:
        raise ValueError(f"event is {event!r}; allowed: {', '.join(EVENTS)}")
    if run_on not in ("all", "main"):
        raise ValueError(f"run_on is {run_on!r}; allowed: all, main")
    event_filter = Filter(every, once, when)

    def decorate(function: Handler) -> Callback:
        # A class with exactly this one event, so that all other events stay free of cost.
        name = getattr(function, "__name__", "function_callback")
        about = {"run_on": run_on, "__doc__": function.__doc__}
        made: Callback
        if event_filter.is_open:
            made = type(name, (Callback,), about | {event: staticmethod(function)})()
        else:
            kind = type(name, (_Filtered,), about | {event: _Filtered.handle})
            made = kind(function, event, event_filter)
        return made

    return decorate


class EventBus:
    """Calls the callbacks of a run in their given order.

    Each event is an attribute holding a tuple of handlers, so that the loop iterates over nothing
    where no callback overrides the event.
    """

    batch_start: tuple[Handler, ...]
    loss_start: tuple[Handler, ...]
    backward_start: tuple[Handler, ...]
    backward_end: tuple[Handler, ...]
    step_start: tuple[Handler, ...]
    step_end: tuple[Handler, ...]
    batch_end: tuple[Handler, ...]

    def __init__(
        self, callbacks: Mapping[str, Callback] | Iterable[Callback], is_main: bool
    ) -> None:
        if not isinstance(callbacks, Mapping):
            callbacks = name_callbacks(callbacks)
        self.callbacks: dict[str, Callback] = dict(callbacks)
        problems = [
            Problem(f"callbacks.{name}", f"is {name_of(one)}, which is no Callback")
            for name, one in self.callbacks.items()
            if not isinstance(one, Callback)
        ]
        if problems:
            raise ConfigError(problems)
        for event in EVENTS:
            setattr(self, event, ())
        for name, callback in self.callbacks.items():
            if callback.run_on == "main" and not is_main:
                continue
            for event in EVENTS:
                if getattr(type(callback), event, None) is not getattr(Callback, event):
                    handler = _named(name, event, getattr(callback, event))
                    setattr(self, event, (*getattr(self, event), handler))

    def fire(self, event: str, *args: Any) -> None:
        """Call every handler of an event."""
        for handler in getattr(self, event):
            handler(*args)

    def state(self) -> dict[str, Any]:
        """The state of each callback that has one, by name."""
        states: dict[str, Any] = {}
        for name, callback in self.callbacks.items():
            state = _named(name, "state", _state_of)(callback)
            if state:
                states[name] = state
        return states

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Give each callback its state back; callbacks that are new start afresh.

        Raises:
            CallbackError: one cannot take it; it may be that of another callback by that name.
        """
        gone = sorted(set(state) - set(self.callbacks))
        if gone:
            log.warning(
                "the checkpoint has the state of callbacks that this run lacks: %s; it is dropped",
                ", ".join(gone),
            )
        for name, callback in self.callbacks.items():
            if name in state:
                _named(name, "load_state", callback.load_state)(state[name])


def name_callbacks(callbacks: Iterable[Callback]) -> dict[str, Callback]:
    """Names for a plain list of callbacks: the class name, numbered where it repeats."""
    named: dict[str, Callback] = {}
    for callback in callbacks:
        base = name = type(callback).__name__
        number = 2
        while name in named:
            name = f"{base}_{number}"
            number += 1
        named[name] = callback
    return named


def _state_of(callback: Callback) -> Any:
    """Its state, which may be written while training goes on."""
    state = callback.state()
    return state if callback.gives_copies else _copied(state)


def _copied(tree: Any) -> Any:
    """A state tree that shares neither arrays nor containers."""
    if isinstance(tree, Mapping):
        return {key: _copied(value) for key, value in tree.items()}
    if isinstance(tree, (list, tuple)):
        return [_copied(value) for value in tree]
    return tree.copy() if isinstance(tree, np.ndarray) else tree


def _named(name: str, method: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """The method of a callback, with the callback's name in the error it may raise."""

    def call(*args: Any) -> Any:
        try:
            return function(*args)
        except ExpkitError:
            raise
        except Exception as error:
            message = f"callback {name} raised in {method}: {type(error).__name__}: {error}"
            raise CallbackError(message) from error

    return call
