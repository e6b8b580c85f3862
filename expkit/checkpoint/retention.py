"""Which checkpoints stay: the newest ones, and the best ones besides."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from expkit.core.errors import ConfigError, Problem
from expkit.core.store import CheckpointInfo


@dataclass(frozen=True)
class Retention:
    """How many checkpoints stay.

    Attributes:
        keep_last: how many of the newest; None = all.
        keep_best: how many with the greatest scores besides, of equals the earlier; None = all that
            have a score; 0 = none, and there is no best.

    Raises:
        ConfigError: a number of checkpoints that makes no sense.
    """

    keep_last: int | None
    keep_best: int | None

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        _check_count("keep_last", self.keep_last, 1)
        _check_count("keep_best", self.keep_best, 0)

    def ranked(self, infos: Iterable[CheckpointInfo]) -> list[CheckpointInfo]:
        """Those with a score, the best first; none where no best is kept."""
        if self.keep_best == 0:
            return []
        scored = [(-info.score, info.step, info) for info in infos if info.score is not None]
        return [info for *_, info in sorted(scored, key=lambda entry: entry[:2])]

    def staying(self, infos: Iterable[CheckpointInfo]) -> list[CheckpointInfo]:
        """The newest and the best of them, the newest first."""
        newest_first = sorted(infos, key=lambda info: -info.step)
        newest = {info.step for info in newest_first[: self.keep_last]}
        best = {info.step for info in self.ranked(newest_first)[: self.keep_best]}
        return [info for info in newest_first if info.step in newest | best]


def _check_count(name: str, value: int | None, least: int) -> None:
    if value is None or (type(value) is int and value >= least):
        return
    message = f"{value!r} is no number of checkpoints; allowed: {least} or more, or null for all"
    if name == "keep_last":
        message += " (checkpoint=none keeps none on disk)"
    raise ConfigError([Problem(f"checkpoint.{name}", message, f"checkpoint.{name}=1")])
