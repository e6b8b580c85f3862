"""Ways to kill a run: when, and which of its processes."""

from __future__ import annotations

import os
import random
import signal
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from tests.faults.children import Child
from tests.faults.phases import Moment
from tests.faults.traps import POINTS, USUAL, Trap, points_of

LONG_S = 120.0
"""How long any launch may take: far above what it needs on a busy machine."""
GRACE_S = 0.2
_LOOK_S = 0.001

COMMAND, ALL = "command", "all"
"""Which processes are killed; else ``rank 0`` and so on."""

KILLED, STOPPED, FAILED = -signal.SIGKILL, 128 + signal.SIGTERM, 1
"""Exit codes: killed; stopped in order; ended because a part of it was killed."""


@dataclass(frozen=True)
class Pace:
    """How long a launch takes, in seconds: to its first record, and from there to its end."""

    ready_s: float
    training_s: float


class Way(ABC):
    """Deals with one launch.

    Attributes:
        codes: exit codes besides 0 with which the launch may end.
        trap: where it kills itself.
    """

    codes: frozenset[int] = frozenset()
    trap: Trap | None = None

    @abstractmethod
    def carry_out(self, child: Child, before: Moment, outputs: Path) -> None:
        """Wait for the time, and kill.

        Args:
            child: the launch.
            before: what there was when it began.
            outputs: where its run is.
        """


class Peace(Way):
    """Lets it come to its end."""

    def carry_out(self, child: Child, before: Moment, outputs: Path) -> None:
        """Do nothing."""


class InTrap(Way):
    """Lets it fall into a trap.

    Args:
        trap: set in the only process, or in rank 0.
        has_ranks: whether the command consists of ranks.
    """

    def __init__(self, trap: Trap, has_ranks: bool) -> None:
        self.trap = trap
        self.codes = frozenset((FAILED if has_ranks and not trap.kills_parent else KILLED,))

    def carry_out(self, child: Child, before: Moment, outputs: Path) -> None:
        """Do nothing."""


When = Callable[[Child, Moment, Path], bool]


class Strike(Way):
    """Kills after some time.

    Args:
        when: waits for it; says whether the launch still runs.
        target: which processes.
        is_graceful: whether a SIGTERM to the command comes a moment before.
    """

    def __init__(self, when: When, target: str, *, is_graceful: bool = False) -> None:
        self._when, self._target, self._is_graceful = when, target, is_graceful
        codes = {KILLED} if target in (COMMAND, ALL) else {KILLED, FAILED}
        self.codes = frozenset(codes | {STOPPED, -signal.SIGTERM} if is_graceful else codes)

    def carry_out(self, child: Child, before: Moment, outputs: Path) -> None:
        """Wait, and kill what still runs."""
        if not self._when(child, before, outputs):
            return
        if self._is_graceful:
            os.kill(child.pid, signal.SIGTERM)
            if child.wait(GRACE_S) is not None:
                return
        if self._target == ALL:
            child.kill_all()
        elif self._target == COMMAND:
            child.kill()
        else:
            rank = child.ranks.get(int(self._target.removeprefix("rank ")))
            with suppress(ProcessLookupError):
                os.kill(child.pid if rank is None else rank, signal.SIGKILL)


def after_start(seconds: float) -> When:
    """So long after it was started."""
    return lambda child, _before, _outputs: child.wait(seconds) is None


def after_first_record(seconds: float) -> When:
    """So long after the records of the run have changed."""

    def when(child: Child, before: Moment, outputs: Path) -> bool:
        return (
            wait_until(child, lambda: Moment.of(outputs).records != before.records)
            and child.wait(seconds) is None
        )

    return when


def wait_until(child: Child, condition: Callable[[], bool]) -> bool:
    """Look again and again; false where the child ends before."""
    deadline = time.monotonic() + LONG_S
    while time.monotonic() < deadline:
        if child.wait(_LOOK_S) is not None:
            return False
        if condition():
            return True
    return False


def at_the_end(steps: int, seconds: float) -> When:
    """So long after the last checkpoint is there."""

    def is_last(outputs: Path) -> bool:
        checkpoints = Moment.of(outputs).checkpoints
        return bool(checkpoints) and checkpoints[-1].name == f"step-{steps:08d}"

    return lambda child, _before, outputs: (
        wait_until(child, lambda: is_last(outputs)) and child.wait(seconds) is None
    )


class Choice:
    """Chooses ways at random.

    Args:
        chance: decides.
        pace: of an undisturbed launch.
        steps: of the whole run.
        num_processes: ranks of the run.
    """

    def __init__(
        self,
        chance: random.Random,
        pace: Pace,
        *,
        steps: int,
        num_processes: int,
    ) -> None:
        self._chance, self._pace, self._steps = chance, pace, steps
        self._targets = [COMMAND]
        if num_processes > 1:
            self._targets += [ALL, *(f"rank {rank}" for rank in range(num_processes))]
        self._kinds: dict[Callable[[int, str], Way], float] = {
            self._in_a_save: 0.35,
            self._while_training: 0.22,
            self._soon: 0.15,
            self._before_training: 0.1,
            self._at_the_end: 0.08,
            self._with_grace: 0.1,
        }

    def __call__(self, launch: int) -> Way:
        """The way for a launch of a trial, counted from 0; targets take turns."""
        (kind,) = self._chance.choices(list(self._kinds), self._kinds.values())
        return kind(launch, self._targets[launch % len(self._targets)])

    def _in_a_save(self, launch: int, target: str) -> Way:
        has_ranks = len(self._targets) > 1
        names = points_of(is_first=launch == 0, has_ranks=has_ranks)
        (name,) = self._chance.choices(names, [POINTS[name].weight for name in names])
        usual = POINTS[name].usual
        occurrence = usual if usual < USUAL else self._chance.randint(1, 10)
        trap = Trap(name, occurrence, kills_parent=has_ranks and target in (COMMAND, ALL))
        return InTrap(trap, has_ranks)

    def _while_training(self, launch: int, target: str) -> Way:
        return Strike(after_first_record(self._chance.uniform(0, self._pace.training_s)), target)

    def _soon(self, launch: int, target: str) -> Way:
        share = 0.02 if launch == 0 else 0.2
        seconds = self._chance.uniform(0.0, share * self._pace.training_s)
        return Strike(after_first_record(seconds), target)

    def _before_training(self, launch: int, target: str) -> Way:
        return Strike(after_start(self._chance.uniform(0.2, 1.0) * self._pace.ready_s), target)

    def _at_the_end(self, launch: int, target: str) -> Way:
        return Strike(at_the_end(self._steps, self._chance.uniform(0.0, 0.02)), target)

    def _with_grace(self, launch: int, target: str) -> Way:
        when = after_first_record(self._chance.uniform(0.0, self._pace.training_s))
        return Strike(when, ALL if len(self._targets) > 1 else COMMAND, is_graceful=True)
