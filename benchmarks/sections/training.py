"""What the sections that time a training have in common: systems, equal work, the table."""

from __future__ import annotations

from benchmarks.pairs import Record, paired
from benchmarks.report import Options, Report, median_of
from benchmarks.work import Work

BASELINES = {
    "torch_loop": "torch_loop",
    "torch_limit": "torch_loop",
    "torch_expkit": "torch_loop",
    "paddle_loop": "paddle_loop",
    "paddle_limit": "paddle_loop",
    "paddle_expkit": "paddle_loop",
}
COLUMNS = (
    "system",
    "pairs",
    "us a step",
    "time / loop",
    "processor time / loop",
    "whole training / loop",
    "target",
    "forwards",
    "loss reads",
    "last loss",
    "best accuracy",
)
_LOSS_TOLERANCE = 0.05
_ACCURACY_TOLERANCE = 0.02


def measure_training(
    name: str, title: str, work: Work, targets: dict[str, float], rounds: int, options: Options
) -> Report:
    """Measure all systems on one work.

    Args:
        name: of the section.
        title: of its table.
        work: what is trained.
        targets: system -> greatest ratio to its baseline that is aimed at.
        rounds: default number of pairs.
        options: from the command line.
    """
    if options.quick:
        work = work.shortened()
    systems = {system: BASELINES[system] for system in options.choose(list(BASELINES))}
    pairs, failed = paired(work, systems, options.rounds or (1 if options.quick else rounds))
    report = Report(name, title, COLUMNS, records={"work": vars(work), "pairs": pairs})
    for system, found in pairs.items():
        if system in failed or not found:
            report.problems.append(f"{system} failed: {failed.get(system, 'its baseline failed')}")
            continue
        report.rows.append(row(system, found, targets.get(system)))
        report.problems += differences(system, found, work)
    return report


def row(system: str, pairs: list[tuple[Record, Record]], target: float | None) -> list[str]:
    """A system's line of the table; see `COLUMNS`."""
    own = [record for record, _ in pairs]
    ratios = [
        median_of([mine[key] / other[key] for mine, other in pairs])
        for key in ("step_s", "step_cpu_s", "total_s")
    ]
    last = own[-1]
    return [
        system,
        str(len(own)),
        median_of([1e6 * record["step_s"] for record in own], "{:.0f}"),
        *ratios,
        "" if target is None else f"<= {target:.2f}",
        str(last["forwards"]),
        str(last["loss_reads"]),
        f"{last['last_loss']:.3f}",
        "" if last["best"] is None else f"{last['best']:.3f}",
    ]


def differences(system: str, pairs: list[tuple[Record, Record]], work: Work) -> list[str]:
    """Where a system did other work than it should, or came to something else than its baseline.

    Ranks are compared by the loss of the network that they have trained: what is read meanwhile is
    the loss of one rank here, and of all there.
    """
    problems = []
    forwards = work.forwards * work.ranks
    for mine, other in pairs:
        wanted = {"forwards": forwards, "loss_reads": work.steps // work.log_every}
        for key, count in wanted.items():
            if mine[key] != count:
                problems.append(f"{system}: {mine[key]} {key} in place of {count}")
        tolerances = {"last_loss" if work.ranks == 1 else "final_loss": _LOSS_TOLERANCE}
        if work.evaluates:
            tolerances["best"] = _ACCURACY_TOLERANCE
        for key, tolerance in tolerances.items():
            if abs(mine[key] - other[key]) > tolerance:
                problems.append(f"{system}: {key} {mine[key]}, its baseline {other[key]}")
    return list(dict.fromkeys(problems))
