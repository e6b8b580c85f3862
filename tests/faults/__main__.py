"""``python -m tests.faults --kills 1000 --driver torch``: kills runs, and compares what comes out.

Each trial is a run that is killed at random moments and goes on, in the same directory, until it
is done. Then its last and its best checkpoint, bit for bit, its records, TensorBoard's points and
its result have to be those of a run that was left in peace. Without ``--real`` the launches of a
driver that is one process are copies of this one, which has imported all: hundreds a minute.
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.faults.series import Series
from tests.faults.training import NUM_PROCESSES
from tests.faults.traps import POINTS


def main() -> int:
    """Run the trials and print the report."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--driver", choices=NUM_PROCESSES, default="torch")
    parser.add_argument("--kills", type=int, default=1000, help="at least so many that land")
    parser.add_argument("--steps", type=int, default=303, help="of each run")
    parser.add_argument("--seed", type=int, default=0, help="of the random moments")
    parser.add_argument("--real", action="store_true", help="each launch is python -m expkit")
    parser.add_argument(
        "--points",
        nargs="*",
        choices=POINTS,
        metavar="POINT",
        help="first once at each of these points of a save and a resume; none named = at all",
    )
    parser.add_argument("--directory", type=Path, help="where; what has a problem stays")
    arguments = parser.parse_args()
    directory = arguments.directory or Path(tempfile.mkdtemp(prefix="faults-", dir=_memory()))
    series = Series(
        arguments.driver,
        directory.absolute(),
        steps=arguments.steps,
        seed=arguments.seed,
        is_real=arguments.real,
    )
    points = series.points if arguments.points == [] else arguments.points or ()
    report = series.carry_out(arguments.kills, points)
    for line in report.lines():
        print(line)
    if report.problems:
        return 1
    shutil.rmtree(directory)
    return 0


def _memory() -> str | None:
    """A directory in memory: the page cache outlives a killed process just as well."""
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


if __name__ == "__main__":
    sys.exit(main())
