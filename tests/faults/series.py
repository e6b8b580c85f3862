"""Many trials, and the run that they are compared with."""

from __future__ import annotations

import itertools
import random
import shutil
import time
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from tests.faults.children import Launcher
from tests.faults.kills import LONG_S, Choice, InTrap, Pace, Way, wait_until
from tests.faults.phases import Moment
from tests.faults.report import Report
from tests.faults.traces import Traces
from tests.faults.training import NUM_PROCESSES, command_line
from tests.faults.traps import POINTS, Trap, points_of
from tests.faults.trial import Trial

_MOST_KILLS = 12
"""How often a run is killed before it is left to come to its end."""
_BACK = 0.1
"""The share of resumes that go back to the oldest checkpoint."""
_MOST_PROBLEMS = 10
"""After how many no more is tried."""


class Series:
    """Trials of one driver.

    Args:
        driver: of the runs.
        directory: where they are made.
        steps: of each run.
        seed: of the random moments.
        is_real: whether each launch is a real command; several processes always are.
    """

    def __init__(
        self, driver: str, directory: Path, *, steps: int, seed: int, is_real: bool
    ) -> None:
        self._driver, self._steps, self._directory = driver, steps, directory
        self._argv = command_line(driver, steps)
        self._num_processes = NUM_PROCESSES[driver]
        self._chance = random.Random(f"{driver} {seed}")
        directory.mkdir(parents=True, exist_ok=True)
        self._launcher = Launcher(
            directory,
            is_real=is_real or self._num_processes > 1,
            has_ranks=self._num_processes > 1,
        )
        self._report = Report(driver)
        self._numbers = itertools.count()

    def carry_out(self, kills: int, points: Sequence[str] = ()) -> Report:
        """Kill at each of the points once, then at random moments until there are enough kills."""
        began = time.monotonic()
        if not self._launcher.is_real:
            place = f"output_dir={self._directory / 'warm-up'}"
            self._launcher.warm_up([*self._argv, place, "trainer.max_steps=21"])
            shutil.rmtree(self._directory / "warm-up")
        undisturbed, pace = self._in_peace()
        for number, name in enumerate(points):
            self._come_to(name, kills_parent=number % 2 > 0, undisturbed=undisturbed)
        ways = Choice(self._chance, pace, steps=self._steps, num_processes=self._num_processes)
        with suppress(KeyboardInterrupt):  # Ctrl-C ends a long series with what it has found
            while self._is_wanted(kills):
                launches = itertools.takewhile(lambda _: self._is_wanted(kills), range(_MOST_KILLS))
                self._trial(map(ways, launches), undisturbed, self._at_times)
        self._report.conclude()
        self._report.seconds = time.monotonic() - began
        return self._report

    @property
    def points(self) -> list[str]:
        """All that its launches come to."""
        has_ranks = self._num_processes > 1
        first = points_of(is_first=True, has_ranks=has_ranks)
        return list(dict.fromkeys((*first, *points_of(is_first=False, has_ranks=has_ranks))))

    def _is_wanted(self, kills: int) -> bool:
        """Whether there shall be another kill."""
        return self._report.num_kills < kills and len(self._report.problems) < _MOST_PROBLEMS

    def _at_times(self) -> bool:
        return self._chance.random() < _BACK

    def _come_to(self, name: str, *, kills_parent: bool, undisturbed: Traces) -> None:
        """Trials that go straight to a point; one of a resume is come to from two checkpoints."""
        has_ranks = self._num_processes > 1
        traps = [Trap(name, POINTS[name].usual, kills_parent and has_ranks)]
        is_resumed = POINTS[name].launch == "resumed"
        if is_resumed:
            traps.insert(0, Trap("half a record", 33))
        for back in (False, True) if is_resumed else (False,):
            first = iter((back,))
            ways = (InTrap(trap, has_ranks) for trap in traps)
            self._trial(ways, undisturbed, lambda first=first: next(first, False))
        if self._report.points[name] < 1 + is_resumed:
            self._report.problems.append(f"a launch did not come to the point {name!r}")

    def _in_peace(self) -> tuple[Traces, Pace]:
        """What a run leaves that nothing happens to, and how long a launch takes."""
        traces, pace = self._undisturbed(self._launcher)
        if not self._launcher.is_real:
            real, _ = self._undisturbed(Launcher(self._directory, is_real=True))
            found = real.differences(traces)
            self._report.problems += [f"a copy is not the real command: {text}" for text in found]
        return traces, pace

    def _undisturbed(self, launcher: Launcher) -> tuple[Traces, Pace]:
        outputs, said = self._directory / "undisturbed", self._directory / "undisturbed.txt"
        child = launcher.start([*self._argv, f"output_dir={outputs}"], said)
        wait_until(child, lambda: Moment.of(outputs).records != (0, 0))
        ready = time.monotonic() - child.began
        if child.wait(LONG_S) != 0:
            raise RuntimeError(said.read_text())
        pace = Pace(ready, time.monotonic() - child.began - ready)
        run = Moment.of(outputs).run
        assert run is not None, "a completed command has made a run"
        traces = Traces.of(run)
        shutil.rmtree(outputs)
        return traces, pace

    def _trial(
        self, ways: Iterable[Way], undisturbed: Traces, goes_back: Callable[[], bool]
    ) -> None:
        number = next(self._numbers)
        trial = Trial(
            self._directory / f"{number:05d}",
            self._launcher,
            self._argv,
            background=number % 3 > 0,
            steps=self._steps,
            goes_back=goes_back,
            report=self._report,
        )
        trial.carry_out(iter(ways), undisturbed)
