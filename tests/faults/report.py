"""What a series of trials came to."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from statistics import fmean

from tests.faults.phases import IN_A_SAVE, PHASES

INLINE, BACKGROUND = "background=false", "background=true"


@dataclass
class Report:
    """Counts, and what was not as it should be.

    Attributes:
        driver: of the runs.
        trials: runs that came to their end.
        launches: starts of the command, in all.
        resumes: of these, those that went on from a checkpoint.
        returns: of these, those that went back to the oldest one.
        stops: those that a signal ended in order.
        kills: those that were killed, by what they were at.
        points: by the point at which they killed themselves.
        redone: for each resume, how many steps were made again; where the loop waits until a
            checkpoint is written, and where it does not.
        rejected: checkpoints that were passed over as damaged.
        different: trials whose traces are not those of the run left in peace.
        problems: all that was not as it should be.
        seconds: how long it took.
    """

    driver: str
    trials: int = 0
    launches: int = 0
    resumes: int = 0
    returns: int = 0
    stops: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    points: Counter[str] = field(default_factory=Counter)
    redone: dict[str, list[int]] = field(default_factory=lambda: {INLINE: [], BACKGROUND: []})
    rejected: int = 0
    different: int = 0
    problems: list[str] = field(default_factory=list)
    seconds: float = 0.0

    @property
    def num_kills(self) -> int:
        """Kills that landed."""
        return self.kills.total()

    def conclude(self) -> None:
        """Look whether the trials have tried anything."""
        if not any(self.kills[name] for name in IN_A_SAVE):
            self.problems.append("no kill fell into a save: nothing was tried")

    def lines(self) -> Iterator[str]:
        """The report as text."""
        yield f"| {self.driver} | count |"
        yield "|---|---|"
        rows = {
            "trials": self.trials,
            "launches": self.launches,
            "kills": self.num_kills,
            **{f"- {name}": self.kills[name] for name in PHASES},
            "stopped in order": self.stops,
            "resumes": self.resumes,
            "- from the oldest checkpoint": self.returns,
            **{
                f"steps redone, {mode}": f"at most {max(steps)}, mean {fmean(steps):.2f}"
                for mode, steps in self.redone.items()
                if steps
            },
            "checkpoints rejected": self.rejected,
            "different results": self.different,
            "seconds": f"{self.seconds:.0f}",
        }
        yield from (f"| {name} | {count} |" for name, count in rows.items())
        if self.points:
            yield "killed by themselves: " + ", ".join(
                f"{name} {count}" for name, count in sorted(self.points.items())
            )
        yield from (f"PROBLEM: {problem}" for problem in self.problems)
