"""Callbacks: what may be told of a run while it goes on, and what a callback may ask for."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, Literal

from expkit.core.batch import Batch, Indices
from expkit.core.collective import Flags
from expkit.core.driver import Driver, LossTerm
from expkit.core.errors import CallbackError, ConfigError, ExpkitError, Problem
from expkit.core.monitor import Monitor
from expkit.core.naming import name_of
from expkit.core.progress import Progress

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


class Context:
    """What a callback sees of the run, and all that it may ask for.

    Attributes:
        progress: where the run stands.
        metrics: the latest metrics of training by name, such as ``loss``.
        eval_metrics: the metrics of the last evaluation.
        driver: the driver, for its verbs (weights, collectives).
        run_dir: where the run writes, or None when nothing is written.
        monitor: the metric that decides what is best; None where nothing is monitored.
        log_due: True from ``step_end`` on in a step whose training record is written.
        stop_reason: why the run shall end; None while it goes on.
    """

    def __init__(
        self,
        progress: Progress,
        driver: Driver,
        run_dir: Path | None = None,
        monitor: Monitor | None = None,
    ) -> None:
        self.progress = progress
        self.driver = driver
        self.run_dir = run_dir
        self.monitor = monitor
        self.log_due = False
        self.metrics: dict[str, float] = {}
        self.eval_metrics: dict[str, float] = {}
        self.logged: dict[str, float] = {}
        self.stop_reason: str | None = None
        self.save_requested = False
        self.eval_requested = False
        self.skip_requested = False

    def log(self, values: Mapping[str, float]) -> None:
        """Add numbers to the next training record."""
        self.logged.update(values)

    def request_stop(self, reason: str) -> None:
        """Ask for the end of the run after this step. Any rank may ask; all leave together.

        With several ranks what is asked for travels with the gradients: asked after them, in
        ``step_end``, it takes effect one step later. The same holds for the other requests.
        """
        self.stop_reason = reason

    def request_save(self) -> None:
        """Ask for a checkpoint after this step."""
        self.save_requested = True

    def request_eval(self) -> None:
        """Ask for an evaluation after this step."""
        self.eval_requested = True

    def flags(self) -> Flags:
        """What was asked for on this rank: to stop, to save, to evaluate."""
        return (self.stop_reason is not None, self.save_requested, self.eval_requested)

    def skip_step(self) -> None:
        """Ask before the update, on all ranks alike, that this window's gradients are dropped."""
        self.skip_requested = True


class Callback:
    """Overrides the events it needs; the others cost nothing.

    Attributes:
        run_on: ``all`` ranks, or only ``main`` (rank 0).
    """

    run_on: Literal["all", "main"] = "all"

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
        """A checkpoint is about to be written; ``state`` may be added to."""

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
        """What must survive a restart: arrays and JSON values; empty when nothing."""
        return {}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave."""


Handler = Callable[..., None]


class Filter:
    """Lets a handler run at some of its event's calls only."""

    def __init__(
        self,
        every: int | None = None,
        once: int | None = None,
        when: Callable[[int], bool] | None = None,
    ) -> None:
        given = [choice for choice in (every, once, when) if choice is not None]
        if len(given) > 1:
            raise ValueError("give one of every, once, when")
        for name, value in (("every", every), ("once", once)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be 1 or more")
        self.every = every
        self.once = once
        self.when = when

    def wrap(self, handler: Handler) -> Handler:
        """A handler that counts its calls from 1 and passes on those that are let through."""
        if self.every is None and self.once is None and self.when is None:
            return handler
        calls = 0

        def filtered(*args: Any) -> None:
            nonlocal calls
            calls += 1
            if self.when is not None:
                passed = self.when(calls)
            elif self.once is not None:
                passed = calls == self.once
            else:
                passed = self.every is not None and calls % self.every == 0
            if passed:
                handler(*args)

        return filtered


def on(
    event: str,
    *,
    every: int | None = None,
    once: int | None = None,
    when: Callable[[int], bool] | None = None,
    run_on: Literal["all", "main"] = "all",
) -> Callable[[Handler], Callback]:
    """Make a callback of a function.

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
        kind = type(
            getattr(function, "__name__", "function_callback"),
            (Callback,),
            {
                event: staticmethod(event_filter.wrap(function)),
                "run_on": run_on,
                "__doc__": function.__doc__,
            },
        )
        made: Callback = kind()
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
        states = {name: callback.state() for name, callback in self.callbacks.items()}
        return {name: state for name, state in states.items() if state}

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Give each callback its state back; callbacks that are new start afresh."""
        for name, callback in self.callbacks.items():
            if name in state:
                callback.load_state(state[name])


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


def _named(name: str, event: str, handler: Handler) -> Handler:
    """The handler, with its callback's name in the error it may raise."""

    def call(*args: Any) -> None:
        try:
            handler(*args)
        except ExpkitError:
            raise
        except Exception as error:
            message = f"callback {name} raised in {event}: {type(error).__name__}: {error}"
            raise CallbackError(message) from error

    return call
