"""Starting up: what a user waits for before anything is trained."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import Any

from benchmarks.commands import CommandError, timed
from benchmarks.pairs import ROOT
from benchmarks.report import Options, Report, median_of

log = logging.getLogger(__name__)

Record = dict[str, Any]

COLUMNS = (
    "command",
    "pairs",
    "to first step / script",
    "whole command / script",
    "target",
    "to first step s",
    "whole command s",
    "processor s",
)
_TRAINING = (
    "-m",
    "expkit",
    "trainer.max_steps=1",
    "model.hidden=[128]",
    "+callbacks.first_step._target_=first_step.FirstStep",
)
_RANKS = 2
_TORCHRUN = ("-m", "torch.distributed.run", "--standalone", f"--nproc_per_node={_RANKS}")
_PADDLE_LAUNCH = (
    "-m",
    "paddle.distributed.launch",
    f"--nproc_per_node={_RANKS}",
    "--log_level=ERROR",
    "--log_dir=logs",
)


@dataclass(frozen=True)
class Command:
    """Something to time.

    Attributes:
        arguments: of the interpreter.
        baseline: name of the script that does the same; empty where nothing does.
        target: greatest ratio to the baseline, or where there is none greatest time in seconds.
        exit_code: how it ends.
        ranks: processes that make the step; the last one's counts.
    """

    arguments: tuple[str, ...]
    baseline: str = ""
    target: float | None = None
    exit_code: int = 0
    ranks: int = 1


COMMANDS = {
    "torch_script": Command(("-m", "benchmarks.scripts.torch_script"), "torch_script"),
    "torch_expkit": Command((*_TRAINING, "driver=torch"), "torch_script", 1.10),
    "paddle_script": Command(("-m", "benchmarks.scripts.paddle_script"), "paddle_script"),
    "paddle_expkit": Command((*_TRAINING, "driver=paddle"), "paddle_script", 1.10),
    "torch_ranks_script": Command(
        (*_TORCHRUN, "-m", "benchmarks.scripts.torch_ranks_script"),
        "torch_ranks_script",
        ranks=_RANKS,
    ),
    "torch_ranks_expkit": Command(
        (*_TRAINING, "driver=torch_ddp", f"driver.num_processes={_RANKS}"),
        "torch_ranks_script",
        0.90,
        ranks=_RANKS,
    ),
    "paddle_ranks_script": Command(
        (*_PADDLE_LAUNCH, str(ROOT / "benchmarks" / "scripts" / "paddle_ranks_script.py")),
        "paddle_ranks_script",
        ranks=_RANKS,
    ),
    "paddle_ranks_expkit": Command(
        (*_TRAINING, "driver=paddle_fleet", f"driver.num_processes={_RANKS}"),
        "paddle_ranks_script",
        0.90,
        ranks=_RANKS,
    ),
    "help": Command(("-m", "expkit", "--help"), target=0.7),
    "config": Command(("-m", "expkit", "--cfg", "job"), target=0.7),
    "refusal": Command(("-m", "expkit", "optimizer.lr=fast"), target=0.7, exit_code=2),
}


def measure(options: Options) -> Report:
    """Each command right beside its script, and alone where it has none."""
    title = "from the command to the first optimizer step, files in the page cache"
    report = Report("start", title, COLUMNS)
    rounds = options.rounds or (1 if options.quick else 5)
    for name in options.choose(list(COMMANDS)):
        command = COMMANDS[name]
        try:
            _time(command)  # fills the page cache
            pairs = [_pair(command, number) for number in range(rounds)]
        except CommandError as error:
            report.problems.append(f"{name}: {error}")
            continue
        report.records[name] = pairs
        report.rows.append(_row(name, command, pairs))
        log.info("%s measured", name)
    return report


def _time(command: Command) -> Record:
    record = timed(command.arguments, command.exit_code)
    if command.baseline and record["marks"] != command.ranks:
        raise CommandError(f"{record['marks']} processes made a step in place of {command.ranks}")
    return record


def _pair(command: Command, number: int) -> tuple[Record, Record | None]:
    """Which of the two goes first alternates."""
    if not command.baseline:
        return _time(command), None
    baseline = COMMANDS[command.baseline]
    if number % 2:
        own = _time(command)
        return own, _time(baseline)
    other = _time(baseline)
    return _time(command), other


def _row(name: str, command: Command, pairs: list[tuple[Record, Record | None]]) -> list[str]:
    own = [record for record, _ in pairs]
    ratios = {
        key: [mine[key] / other[key] for mine, other in pairs if other is not None]
        for key in ("first_step_s", "wall_s")
    }
    unit = "" if command.baseline else " s"
    return [
        name,
        str(len(own)),
        *map(median_of, ratios.values()),
        "" if command.target is None else f"<= {command.target:.2f}{unit}",
        median_of([record["first_step_s"] for record in own if command.baseline]),
        *(median_of([record[key] for record in own]) for key in ("wall_s", "cpu_s")),
    ]
