"""Tells how far a run is."""
# ruff: noqa: ARG002 - a handler takes what its event brings

from __future__ import annotations

import logging
import math
import sys
from collections.abc import Iterator, Mapping
from time import monotonic
from typing import Literal, final

from expkit.callbacks.announce import announce
from expkit.callbacks.live_bar import Bar, NoBar, RichBar
from expkit.callbacks.pace import Pace, duration, three_digits
from expkit.callbacks.refusal import refuse
from expkit.core.events import Callback, Context

log = logging.getLogger(__name__)

Style = Literal["auto", "bar", "plain", "none"]

_STYLES = ("auto", "bar", "plain", "none")
_EPOCH_GAP_S = 0.5
_MOST_METRICS = 6


@final
class ProgressBar(Callback):
    """Says step, loss, metrics, speed and the time left, in lines and in a bar on a terminal.

    A line is logged at the end of an epoch (of very short ones the first, then not each), every
    ``every_s`` seconds within a long epoch, and at the end of the run. Rank 0 alone speaks.

    Parts of a metric, such as ``f1/precision``, are left to the records.

    Args:
        style: ``auto`` = lines, and a bar besides if standard output is a terminal; ``bar`` = both
            in any case; ``plain`` = lines only; ``none`` = neither.
        every_s: seconds between two lines within an epoch.
    """

    run_on = "main"

    def __init__(self, style: Style = "auto", every_s: float = 30.0) -> None:
        if style not in _STYLES:
            refuse("progress", "style", style, ", ".join(_STYLES), "plain")
        if not every_s > 0.0:
            refuse("progress", "every_s", every_s, "numbers greater than 0", 30)
        self._style = style
        self._every_s = every_s
        self._bar: Bar = NoBar()
        self._pace = Pace(0, 0.0)
        self._line_at = 0.0
        self._line_step = 0
        self._has_told_an_epoch = False
        self._eval_shown_at = -math.inf
        self._next = math.inf

    def fit_start(self, context: Context) -> None:
        """Put up the bar."""
        now = monotonic()
        self._pace = Pace(context.progress.step, now)
        self._line_at, self._line_step = now, context.progress.step
        self._has_told_an_epoch = False
        terminal = sys.stdout is not None and sys.stdout.isatty()
        if self._style == "bar" or (self._style == "auto" and terminal):
            self._bar = RichBar(force=self._style == "bar")
            self._bar.show(context.progress, "starting")
        self._schedule(now)

    def step_end(self, context: Context) -> None:
        """Look at the clock: all that an ordinary step pays."""
        now = monotonic()
        if context.stop_reason is not None:  # an interrupted run may leave without another event
            self._close_bar()
        if now < self._next:
            return
        if now - self._line_at >= self._every_s:
            self._write_line(context, now)
        self._bar.show(context.progress, *self._texts(context, now))
        self._schedule(now)

    def eval_start(self, context: Context) -> None:
        """Say what takes so long, but not at each of many short evaluations."""
        now = monotonic()
        if now - self._eval_shown_at >= self._bar.redraw_s:
            self._bar.show(context.progress, "evaluating")
            self._eval_shown_at = now

    def epoch_end(self, context: Context) -> None:
        """Write the epoch's line."""
        now = monotonic()
        is_first = not self._has_told_an_epoch and self._line_step != context.progress.step
        if is_first or now - self._line_at >= _EPOCH_GAP_S:
            self._write_line(context, now)
            self._schedule(now)
        self._has_told_an_epoch = True

    def exception(self, context: Context, error: BaseException) -> None:
        """Leave a clean screen."""
        self._close_bar()

    def fit_end(self, context: Context) -> None:
        """Write the last line."""
        self._close_bar()
        if self._line_step != context.progress.step:
            self._write_line(context, monotonic())

    def _close_bar(self) -> None:
        self._bar.close()
        self._bar = NoBar()

    def _schedule(self, now: float) -> None:
        """When a step has something to do next."""
        if self._style == "none":
            return
        line = self._line_at + self._every_s
        self._next = min(line, now + self._bar.redraw_s)

    def _write_line(self, context: Context, now: float) -> None:
        if self._style == "none":
            return
        progress = context.progress
        # Between two epochs the one that has ended is meant.
        epoch = progress.epoch if progress.epoch_step == 0 else progress.epoch + 1
        epochs = "" if progress.n_epochs is None else f"/{progress.n_epochs}"
        steps = "" if progress.total_steps is None else f"/{progress.total_steps}"
        position = f"epoch {epoch}{epochs} step {progress.step}{steps}"
        announce(log, f"{position} | {self._text(context, now, _MOST_METRICS)}")
        self._line_at, self._line_step = now, progress.step

    def _texts(self, context: Context, now: float) -> Iterator[str]:
        """What may stand beside a bar: ever fewer metrics, then ever fewer parts."""
        text = ""
        for most in range(_MOST_METRICS, -1, -1):
            text = self._text(context, now, most)
            yield text
        while text:
            text = text.rpartition(" | ")[0]
            yield text

    def _text(self, context: Context, now: float, most_metrics: int) -> str:
        progress, pace = context.progress, self._pace
        parts = []
        if "loss" in context.metrics:
            parts.append(f"loss {context.metrics['loss']:.4g}")
        if numbers := _numbers(context, most_metrics):
            parts.append(f"eval {numbers}")
        if progress.skipped_steps:
            parts.append(f"{progress.skipped_steps} skipped")
        speed, left = pace.steps_per_s(progress, now), pace.seconds_left(progress, now)
        if speed is not None:
            shown = three_digits(speed)
            parts.append(f"{shown} {'step' if shown == '1' else 'steps'}/s")
        parts.append(f"{duration(pace.elapsed(now))} elapsed")
        if left is not None:
            parts.append(f"{duration(left)} left")
        return " | ".join(parts)


def _numbers(context: Context, most: int) -> str:
    """Metrics of the last evaluation, the monitored one first, no more than ``most``."""
    metrics: Mapping[str, float] = context.eval_metrics
    monitored = context.monitor.name if context.monitor else ""
    # The names of a set of several begin with its own name, and each set has a loss.
    sets = tuple(name.removesuffix("loss") for name in metrics if name.endswith("/loss"))
    whole = [name for name in metrics if name == monitored or not _is_part(name, sets)]
    names = sorted(whole, key=lambda name: name != monitored)
    shown = " ".join(f"{name} {metrics[name]:.4g}" for name in names[:most])
    more = len(names) - most
    return f"{shown} and {more} more" if shown and more > 0 else shown


def _is_part(name: str, sets: tuple[str, ...]) -> bool:
    """Whether a metric is one of several numbers of a metric, as in ``f1/precision``."""
    own_set = next((prefix for prefix in sets if name.startswith(prefix)), "")
    return "/" in name.removeprefix(own_set)
