"""One optimizer step."""

from __future__ import annotations

import logging
import math
from typing import Any

from expkit.core.batch import Window
from expkit.core.driver import Driver
from expkit.core.errors import ConfigError, ExpkitError, Problem
from expkit.core.events import Context, EventBus
from expkit.core.failure import raise_failure
from expkit.core.loss_record import LossRecord
from expkit.core.loss_term import LossTerm
from expkit.core.period import Period
from expkit.core.schedule import ScheduleSet

log = logging.getLogger(__name__)


class Step:
    """Makes the update of a window.

    Its gradient is that of (sum of losses) / (sum of weights) over the micro-batches and ranks.

    Args:
        driver: where the model runs.
        events: told of each part of the step.
        context: what the callbacks see; its progress is counted here.
        losses: where the losses are kept until somebody reads them.
        schedules: the learning rates.
        clip_norm: greatest global L2 norm of the gradients; None = no clipping.
        log_every: steps whose record will be written.
        loss: the model's, whose targets are looked at when a step fails.

    Raises:
        ConfigError: a norm that nothing can be clipped to.
    """

    def __init__(
        self,
        driver: Driver,
        events: EventBus,
        context: Context,
        losses: LossRecord,
        schedules: ScheduleSet,
        clip_norm: float | None,
        log_every: Period,
        loss: Any = None,
    ) -> None:
        if clip_norm is not None and not 0 < clip_norm < math.inf:
            message = f"is {clip_norm!r}; allowed: a finite number above 0, or null for no clipping"
            raise ConfigError([Problem("trainer.clip_norm", message, "trainer.clip_norm=1.0")])
        self._driver = driver
        self._events = events
        self._context = context
        self._losses = losses
        self._schedules = schedules
        self._clip_norm = clip_norm
        self._log_every = log_every
        self._loss = loss

    def __call__(self, window: Window) -> None:
        """Make one step, and count it.

        Raises:
            StepError: something in the step failed; names the samples.
        DataError: it failed, and the loss cannot take its targets; names the first one.
        """
        context, driver, events = self._context, self._driver, self._events
        scale = 1.0 / window.weight
        batch = last = window.batches[-1]
        terms: list[LossTerm] = []
        try:
            for batch in window.batches:
                for handler in events.batch_start:
                    handler(context, batch, batch.indices)
                outputs = driver.forward(batch, batch is last)
                for handler in events.loss_start:
                    handler(context, outputs, batch)
                loss = driver.loss(outputs, batch)
                for handler in events.backward_start:
                    handler(context, loss)
                driver.backward(loss, scale)
                for handler in events.backward_end:
                    handler(context, loss)
                terms.append(loss)
                if batch is last:
                    self._update(window, terms)
                for handler in events.batch_end:
                    handler(context)
        except ExpkitError:
            raise
        except Exception as error:
            what = f"step {context.progress.step + 1}"
            raise_failure(what, batch, error, driver, self._loss)

    def _update(self, window: Window, terms: list[LossTerm]) -> None:
        """Clip, update, count; a callback or an overflow may leave the update out."""
        context, events, progress = self._context, self._events, self._context.progress
        for handler in events.step_start:
            handler(context)
        if context.skip_requested:
            context.skip_requested = False
            self._driver.discard_gradients()
            progress.skipped_steps += 1
        else:
            if self._clip_norm is not None:
                self._driver.clip_gradients(self._clip_norm)
            update = progress.step - progress.skipped_steps + 1
            if not self._driver.optimizer_step(self._schedules.factors(update)):
                progress.skipped_steps += 1
                log.warning(
                    "step %d: the gradients overflowed, its update is left out", progress.step + 1
                )
            self._losses.add(terms, progress.step + 1)
        progress.step += 1
        progress.epoch_step += 1
        progress.ends_epoch = window.ends_epoch
        progress.samples += window.weight
        context.log_due = self._log_every.due(progress)
        for handler in events.step_end:
            handler(context)
