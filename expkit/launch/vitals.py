"""What the supervisor knows of a rank: its signs of life, its reports, how it ended."""

from __future__ import annotations

import json
import logging
from dataclasses import dataclass, field
from typing import Any

log = logging.getLogger(__name__)

_LINE_BYTES = 1 << 24


@dataclass
class Vitals:
    """The state of one rank; times are on the monotonic clock.

    Attributes:
        rank: its number.
        beat_at: when the last sign of life came; before the first one, when it was started.
        has_opened: whether any sign has come.
        pulse: the last one told; None where the rank tells none.
        progress_at: when the pulse changed last.
        error: what it has reported to have failed.
        error_at: when.
        outcome: what it has reported as its result.
        done_at: when it said that all is done.
        exit_code: of its process, negative for a signal; None while it runs.
        exited_at: when.
        is_given_up: whether it was killed at a stop signal, not having taken up its work.
        is_halted: whether its process was found not to run, as after SIGSTOP.
        stacks: what it has written when it crashed, or when it was asked.
        stderr: its last lines there, where the supervisor reads them.
        is_shown: whether these lines are on the console.
    """

    rank: int
    beat_at: float
    has_opened: bool = False
    pulse: int | None = None
    progress_at: float = 0.0
    error: dict[str, Any] | None = None
    error_at: float = 0.0
    outcome: dict[str, Any] | None = None
    done_at: float | None = None
    exit_code: int | None = None
    exited_at: float = 0.0
    is_given_up: bool = False
    is_halted: bool = False
    stacks: bytearray = field(default_factory=bytearray)
    stderr: str = ""
    is_shown: bool = False
    _rest: bytes = b""

    @property
    def is_accounted_for(self) -> bool:
        """Whether it is known how this rank ended, or that it is about to end."""
        return self.exit_code is not None or self.done_at is not None or self.error is not None

    def receive(self, data: bytes, now: float) -> None:
        """Take in a piece of what the rank writes on its control pipe."""
        *lines, self._rest = (self._rest + data).split(b"\n")
        if len(self._rest) > _LINE_BYTES:
            self._rest = b""
        for line in lines:
            try:
                [(kind, value)] = json.loads(line).items()
            except (ValueError, AttributeError):
                log.warning("rank %d said what is not a message: %.80r", self.rank, line)
                continue
            self._take(kind, value, now)

    def _take(self, kind: str, value: Any, now: float) -> None:
        self.beat_at = now
        self.has_opened = True
        if kind == "beat":
            if value != self.pulse:
                self.pulse, self.progress_at = value, now
        elif kind == "error":
            if self.error is None:
                self.error, self.error_at = value, now
        elif kind == "outcome":
            self.outcome, self.done_at = value, now
        elif kind == "done":
            self.done_at = now
