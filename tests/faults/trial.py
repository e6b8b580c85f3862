"""A run that is killed and goes on until it is done, and is compared with one left in peace."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from expkit.core.errors import ExpkitError
from tests.faults.children import Child, Launcher
from tests.faults.kills import FAILED, LONG_S, STOPPED, Peace, Way
from tests.faults.phases import Moment, phase, resumed_at
from tests.faults.report import BACKGROUND, INLINE, Report
from tests.faults.traces import Traces, last_step, leftovers
from tests.faults.training import SAVE_EVERY

SOON_S = 10.0
"""How long the rest of a run may outlive the part that was killed."""


@dataclass
class Owed:
    """What the next resume must come up to.

    Attributes:
        reached: the last step before.
        most: how many of the steps may be made again.
    """

    reached: int
    most: int


class Trial:
    """One run.

    Args:
        directory: its own; it stays where there is a problem.
        launcher: gives its command lines.
        argv: the first command line, without its place.
        background: whether checkpoints are written behind the loop's back.
        steps: how many the whole run makes.
        goes_back: whether the next resume is to be from the oldest checkpoint.
        report: where it is counted.
    """

    def __init__(
        self,
        directory: Path,
        launcher: Launcher,
        argv: list[str],
        *,
        background: bool,
        steps: int,
        goes_back: Callable[[], bool],
        report: Report,
    ) -> None:
        self.directory = directory
        self._outputs, self._output = directory / "outputs", directory / "output.txt"
        self._launcher, self._steps, self._goes_back = launcher, steps, goes_back
        self._mode = BACKGROUND if background else INLINE
        self._argv = [*argv, f"checkpoint.{self._mode}", f"output_dir={self._outputs}"]
        # A save that is under way does not count: it may be one more.
        self._most = SAVE_EVERY * (2 if background else 1)
        self._report = report
        self._owed: Owed | None = None
        self._problems: list[str] = []
        self._moment = Moment.of(self._outputs)

    def carry_out(self, ways: Iterator[Way], undisturbed: Traces) -> None:
        """Launch it until it is done.

        Args:
            ways: what happens to each launch; from then on it is left in peace.
            undisturbed: what it must have left then.
        """
        self.directory.mkdir(parents=True)
        while self._launch(ways) != 0 and not self._problems:
            pass
        if not self._problems:
            self._compare(undisturbed)
        self._report.trials += 1
        if self._problems:
            place = str(self.directory)
            self._report.problems += [f"{problem} [{place}]" for problem in self._problems]
        else:
            shutil.rmtree(self.directory)

    @property
    def run(self) -> Path:
        """The run directory."""
        assert self._moment.run is not None, "it was never made"
        return self._moment.run

    def _launch(self, ways: Iterator[Way]) -> int | None:
        before = self._moment
        argv, goes_back = self._next_command(before)
        way = next(ways, None) or Peace()
        child = self._launcher.start(argv, self._output, way.trap)
        try:
            way.carry_out(child, before, self._outputs)
            code = child.wait(LONG_S)
            self._see_off(child, code, way)
        finally:
            child.kill_all()
        self._moment = after = Moment.of(self._outputs)
        self._report.launches += 1
        self._look_at_the_start(before, after, goes_back)
        if code not in (0, None) and not self._problems:
            self._count(way, before, after, code)
            self._owe(before, after, code, goes_back)
        return code

    def _next_command(self, before: Moment) -> tuple[list[str], bool]:
        """The same again, going on; or going on from further back."""
        if not before.can_go_on:
            if before.run is not None:
                shutil.rmtree(before.run)
                self._moment = Moment.of(self._outputs)
            return self._argv, False
        goes_back = len(before.checkpoints) > 1 and self._goes_back()
        return [f"resume={before.checkpoints[0] if goes_back else before.run}"], goes_back

    def _see_off(self, child: Child, code: int | None, way: Way) -> None:
        if code is None:
            self._problems.append(f"no end after {LONG_S:.0f} s")
        elif code != 0 and not (code in way.codes and self._is_told(code)):
            self._problems.append(f"exit code {code}: {' / '.join(self._said[-4:])}")
        deadline = time.monotonic() + SOON_S
        while left := child.left:
            if time.monotonic() > deadline:
                self._problems.append(f"{SOON_S:.0f} s later still there: {left}")
                child.kill_all()
                break
            time.sleep(0.01)

    def _is_told(self, code: int) -> bool:
        """Whether what ended the rest of a run was that a part of it was killed, and it says so."""
        return code != FAILED or any("killed by SIGKILL" in line for line in self._said[-4:])

    @property
    def _said(self) -> list[str]:
        return self._output.read_text(errors="replace").splitlines()

    def _look_at_the_start(self, before: Moment, after: Moment, goes_back: bool) -> None:
        """Compare where a launch began with how far the ones before it had come."""
        said = after.said_since(before)
        step = resumed_at(said)
        self._report.resumes += step is not None
        self._report.returns += goes_back and step is not None
        if rejected := said.count("skipped checkpoint"):
            self._report.rejected += rejected
            self._problems.append("a checkpoint was passed over as damaged")
        if step is None and not before.checkpoints and after.records != before.records:
            step = 0  # anew
        owed = self._owed
        if goes_back or step is not None:
            self._owed = None
        if goes_back or step is None or owed is None:
            return
        redone = owed.reached - step
        self._report.redone[self._mode].append(redone)
        if not 0 <= redone <= owed.most:
            self._problems.append(
                f"went on from step {step}, but step {owed.reached} had been reached: "
                f"{redone} steps again, allowed are {owed.most}"
            )

    def _owe(self, before: Moment, after: Moment, code: int, goes_back: bool) -> None:
        """Remember how far a launch has come that did not come to its end.

        One that was killed while it went back may have left records beyond its checkpoints; they
        say nothing of the launches after it, as long as these write none.
        """
        has_begun = self._owed is None and after.run is not None and after.records != before.records
        if has_begun and not (goes_back and resumed_at(after.said_since(before)) is None):
            most = 0 if code == STOPPED else self._most
            self._owed = Owed(last_step(self.run), most)

    def _count(self, way: Way, before: Moment, after: Moment, code: int) -> None:
        if code == STOPPED:
            self._report.stops += 1
            return
        at = phase(before, after, self._steps)
        self._report.kills[at] += 1
        if way.trap is not None:
            self._report.points[way.trap.point] += 1
        if at == "resuming" and not set(after.checkpoints) <= set(before.checkpoints):
            self._problems.append("a run that did not go on has left other checkpoints")

    def _compare(self, undisturbed: Traces) -> None:
        try:
            found = undisturbed.differences(Traces.of(self.run))
        except ExpkitError as error:
            found = [f"what is left cannot be read: {error}"]
        self._report.different += bool(found)
        self._problems += found
        if left := leftovers(self.run):
            self._problems.append(f"left over: {', '.join(left)}")
