"""When the state of a run is kept, and which of the kept weights it ends with."""

from __future__ import annotations

import logging
from collections.abc import Callable

from expkit.core.driver import Driver, StateTree
from expkit.core.events import Context, EventBus
from expkit.core.period import Period
from expkit.core.store import SharedStore, Store
from expkit.core.validation import Evaluation

log = logging.getLogger(__name__)


class Checkpointer:
    """Keeps the states of a run; all ranks call it alike, but for `poll`.

    Args:
        store: where they are kept; used on rank 0.
        driver: holds the model.
        events: told of each save and load.
        context: what the callbacks see; says where the run stands.
        every: when a checkpoint is due.

    Attributes:
        is_on_request: whether only what asks for a checkpoint gets one.
        is_lasting: whether another process can go on from what is kept.
    """

    def __init__(
        self, store: Store, driver: Driver, events: EventBus, context: Context, every: Period
    ) -> None:
        self._store = SharedStore(store, driver.group)
        self._driver = driver
        self._events = events
        self._context = context
        self._every = every
        self._kept = (0, -1)  # the step and the evaluation that the last checkpoint holds
        self.is_on_request = every.is_never
        self.is_lasting = store.is_lasting

    def is_due(self) -> bool:
        """Whether a checkpoint is due after this step."""
        return self._every.due(self._context.progress)

    def has_step(self) -> bool:
        """Whether the weights after this step are kept."""
        return self._kept[0] == self._context.progress.step > 0

    def is_news(self, evaluation: Evaluation) -> bool:
        """Whether a checkpoint made now would hold more than the last one."""
        step = self._context.progress.step
        return step > 0 and self._kept != (step, evaluation.step)

    def save(self, take_state: Callable[[bool], StateTree], evaluation: Evaluation) -> None:
        """Keep the state of the run.

        Args:
            take_state: gives it, but for the state of the callbacks; told whether copies are needed
                (`Driver.state`).
            evaluation: the last one; what it gave is kept beside the weights that it is of.

        Raises:
            CheckpointError: this save, or the one before it, failed.
            NonFiniteLossError: the weights hold NaN; they are not kept.
        """
        progress = self._context.progress
        self._context.save_requested = False
        self._store.wait()  # one state at a time is held in memory
        state = take_state(self._store.needs_copies)
        self._events.fire("save", self._context, state)
        state["callbacks"] = self._events.state()  # those that count saves have counted this one
        is_of_these = evaluation.step == progress.step
        self._store.save(
            state,
            step=progress.step,
            epoch=progress.latest_epoch,
            metrics=evaluation.metrics if is_of_these else {},
            score=evaluation.score if is_of_these else None,
        )
        self._kept = (progress.step, evaluation.step)

    def went_on(self, evaluation: Evaluation) -> None:
        """The run goes on from a checkpoint: what was kept of later steps goes."""
        self._kept = (self._context.progress.step, evaluation.step)
        self._store.go_back(self._context.progress.step)

    def poll(self) -> None:
        """Raise what has gone wrong behind the loop's back; no collective."""
        self._store.poll()

    def wait(self) -> None:
        """Wait until everything is written."""
        self._store.wait()

    def wait_alone(self) -> None:
        """Wait on this rank, asking nobody: for a run that ends with an error."""
        self._store.wait_alone()

    def take_weights_of(self, step: int) -> None:
        """Give the model the weights of the best evaluation.

        Args:
            step: of that evaluation. Where no checkpoint has them the weights stay, which is said.
        """
        found = self._store.load_best()
        if found is None or found[1].step != step:
            log.warning(
                "the weights of the best evaluation (step %d) are in none of the checkpoints that "
                "this run keeps; those of step %d stay",
                step,
                self._context.progress.step,
            )
            return
        state, _ = found
        self._driver.load_model_state(state["model"])
        self._events.fire("load", self._context, state)
