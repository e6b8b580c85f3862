"""Two processes that train one model: what the exchange of gradients and the loop cost."""

from __future__ import annotations

from benchmarks.pairs import paired
from benchmarks.ranks import Ranks
from benchmarks.report import Options, Report
from benchmarks.sections.training import COLUMNS, differences, row
from benchmarks.work import Work

BASELINES = {
    "torch_ranks_loop": "torch_ranks_loop",
    "torch_ranks_limit": "torch_ranks_loop",
    "torch_ranks_expkit": "torch_ranks_loop",
    "paddle_ranks_loop": "paddle_ranks_loop",
    "paddle_ranks_limit": "paddle_ranks_loop",
    "paddle_ranks_expkit": "paddle_ranks_loop",
}
WORKS = {
    "mlp": Work(ranks=2),
    "mlp, accumulate 4": Work(ranks=2, accumulate=4),
    "transformer, accumulate 4": Work(
        "transformer", epochs=6, batch_size=16, log_every=1, accumulate=4, ranks=2
    ),
}
ROUNDS = dict(zip(WORKS, (8, 8, 3), strict=True))
TARGETS = {
    "torch_ranks_expkit": dict(zip(WORKS, (0.85, 0.80, 1.02), strict=True)),
    "paddle_ranks_expkit": dict(zip(WORKS, (0.95, 0.95, 1.02), strict=True)),
}
_SHOWN = COLUMNS[:-1]  # nothing is evaluated


def measure(options: Options) -> Report:
    """Each work with each system right beside the loop of its framework."""
    title = "two processes on gloo; a step is one exchange of gradients"
    report = Report("ranks", title, ("training", *_SHOWN, "final loss"))
    systems = {system: BASELINES[system] for system in options.choose(list(BASELINES))}
    for name, full in WORKS.items():
        work = full.shortened() if options.quick else full
        rounds = options.rounds or (1 if options.quick else ROUNDS[name])
        pairs, failed = paired(work, systems, rounds, start=Ranks)
        report.records[name] = {"work": vars(work), "pairs": pairs}
        for system, found in pairs.items():
            if system in failed or not found:
                reason = failed.get(system, "its baseline failed")
                report.problems.append(f"{name}: {system} failed: {reason}")
                continue
            target = TARGETS.get(system, {}).get(name)
            final = f"{found[-1][0]['final_loss']:.3f}"
            report.rows.append([name, *row(system, found, target)[: len(_SHOWN)], final])
            problems = differences(system, found, work)
            report.problems += [f"{name}: {problem}" for problem in problems]
    return report
