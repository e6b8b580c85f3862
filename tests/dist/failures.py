"""Every way in which a rank can fail, tried with the real command.

``python -m tests.dist.failures --times 10`` prints how often each went as it should, and how long
it took at worst from the fault until nothing of the run was left.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from expkit.launch.rendezvous import is_listening
from tests.dist.project import TWO_PADDLE, TWO_TORCH, Finished, Project, info

SOON_S = 10.0
HANG_S = 8.0


@dataclass(frozen=True)
class Row:
    """A fault and what has to be said about it.

    Attributes:
        what: what the probe does.
        cause: pattern of the line that names it, without the rank.
        evidence: text of the traceback or stack, which is shown once; None where there is none.
        rank: where it happens.
        base: arguments of the command.
        within_s: how long after the fault all has to be gone.
        import_error: whether it is the rank's import of the user's own module that fails instead.
    """

    what: str
    cause: str
    evidence: str | None
    rank: int = 1
    base: Sequence[str] = TWO_TORCH
    within_s: float = SOON_S
    import_error: bool = False

    @property
    def args(self) -> list[str]:
        probe = [f"callbacks.probe.what={self.what}", f"callbacks.probe.rank={self.rank}"]
        patience = [f"driver.timeout_s={HANG_S:.0f}"] if self.within_s > SOON_S else []
        return [*self.base, *([] if self.import_error else probe), *patience]


_RAISED = "CallbackError: callback probe raised in step_end: ValueError: bad sample 7"
_STACK = "in step_end"
_HANG_S = HANG_S + SOON_S

ROWS = {
    "raises": Row("raise", _RAISED, 'raise ValueError("bad sample 7")'),
    "raises on rank 0": Row("raise", _RAISED, 'raise ValueError("bad sample 7")', rank=0),
    "killed": Row("SIGKILL", "killed by SIGKILL", None),
    "killed on rank 0": Row("SIGKILL", "killed by SIGKILL", None, rank=0),
    "exits with 0": Row("exit", r"exited early \(code 0\)", None),
    "SystemExit(3)": Row("leave", "SystemExit: 3", "raise SystemExit(3)"),
    "segmentation fault": Row("segfault", "killed by SIGSEGV", "in _segfault"),
    "halted": Row(
        "SIGSTOP",
        r"no sign of life for \d+ s \(driver\.timeout_s=8\) \(its process is halted\)",
        None,
        within_s=_HANG_S,
    ),
    "busy loop": Row("spin", r"no progress for \d+ s", "in _spin", within_s=_HANG_S),
    "import fails": Row(
        "none", "No module named 'a_module_that_is_not_there'", None, import_error=True
    ),
    "paddle raises": Row("raise", _RAISED, 'raise ValueError("bad sample 7")', base=TWO_PADDLE),
    "paddle killed": Row("SIGKILL", "killed by SIGKILL", None, base=TWO_PADDLE),
}


@dataclass(frozen=True)
class Report:
    """What came of a try.

    Attributes:
        complaints: what was not as it should be.
        seconds: from the fault to the end of the command; None where there was no fault.
        finished: the command.
    """

    complaints: list[str]
    seconds: float | None
    finished: Finished


def attempt(row: Row, directory: Path) -> Report:
    """Let the fault happen."""
    project = Project.make(directory)
    variables = {"FAIL_TO_IMPORT_ON_RANK": str(row.rank)} if row.import_error else {}
    finished = project.run(*row.args, **variables)
    seconds = None if row.import_error else finished.ended - project.fault_at()
    complaints = list(_complaints(row, project, finished, seconds))
    project.kill_all()
    return Report(complaints, seconds, finished)


def _complaints(
    row: Row, project: Project, finished: Finished, seconds: float | None
) -> Iterator[str]:
    if left := project.processes:
        yield f"processes are left: {left}"
    if seconds is not None and seconds > row.within_s:
        yield f"{seconds:.1f} s until the end"
    if finished.code != (2 if row.import_error else 1):
        yield f"exit code {finished.code}"
    run = project.run_directory()
    named = re.findall(rf"^.*rank {row.rank}: .*{row.cause}.*$", finished.err, re.MULTILINE)
    if len(named) != 1:
        yield f"the cause is named {len(named)} times on stderr"
    if row.evidence is not None:
        name = "train.log" if row.rank == 0 else "logs/rank1.log"
        name = name if "raise" in row.evidence else "logs/rank1.out"
        for place, text in (("stderr", finished.text), (name, (run / name).read_text())):
            if (count := text.count(row.evidence)) != 1:
                yield f"the traceback is {count} times in {place}"
    told = info(run)
    if told["status"] != "failed":
        yield f"the status is {told['status']}"
    elif not re.search(row.cause, line := "{type}: {message}".format(**told["error"])):
        yield f"run.json says {line!r}"
    yield from (f"port {port} is listened on" for port in _ports(run) if is_listening(port))


def _ports(run: Path) -> Iterator[int]:
    for file in (run / "seen").glob("rank*.jsonl"):
        address = json.loads(file.read_text().splitlines()[0])["listening"]
        yield from (int(each.rpartition(":")[2], 16) for each in address)


def main() -> int:
    """Try every row so many times."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--times", type=int, default=10)
    parser.add_argument("rows", nargs="*", default=list(ROWS))
    arguments = parser.parse_args()
    print(f"| {'fault':<20} | runs | as it should | worst |\n|---|---|---|---|")
    is_good = True
    for name in arguments.rows:
        good, worst = 0, 0.0
        for _ in range(arguments.times):
            with tempfile.TemporaryDirectory() as directory:
                report = attempt(ROWS[name], Path(directory))
            good += not report.complaints
            worst = max(worst, report.seconds or 0.0)
            for complaint in report.complaints:
                print(f"{name}: {complaint}\n{report.finished.text}", file=sys.stderr)
        is_good = is_good and good == arguments.times
        print(f"| {name:<20} | {arguments.times} | {good} | {worst:.1f} s |", flush=True)
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
