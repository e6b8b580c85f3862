"""How fast a run goes, and how long it will take."""

from __future__ import annotations

from expkit.core.progress import Progress


class Pace:
    """Steps per second of this process, everything included, and the time left at that speed.

    Args:
        step: the step at which it begins to count.
        now: seconds on a monotonic clock.
    """

    def __init__(self, step: int, now: float) -> None:
        self._step = step
        self._began = now

    def elapsed(self, now: float) -> float:
        """Seconds since the beginning."""
        return now - self._began

    def steps_per_s(self, progress: Progress, now: float) -> float | None:
        """Mean speed; None before there is one."""
        steps, seconds = progress.step - self._step, self.elapsed(now)
        return steps / seconds if steps > 0 and seconds > 0.0 else None

    def seconds_left(self, progress: Progress, now: float) -> float | None:
        """Seconds to the last step, never negative; None where the end or the speed is unknown."""
        speed, total = self.steps_per_s(progress, now), progress.total_steps
        if speed is None or total is None:
            return None
        return max(total - progress.step, 0) / speed


def duration(seconds: float) -> str:
    """``1:02:03`` or ``2:03``."""
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


def three_digits(value: float) -> str:
    """Three significant digits, and never an exponent for a large number: ``1,040``."""
    rounded = float(f"{value:.3g}")
    return f"{rounded:,.0f}" if rounded >= 100 else f"{rounded:g}"
