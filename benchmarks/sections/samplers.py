"""A shuffled order: first index, seek, indices per second and memory, by the length of the data."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

from benchmarks.orders import CHECK, MEASURE, MEMORY, ORDERS, Shuffle
from benchmarks.pairs import Record, Worker, WorkError
from benchmarks.report import Options, Report, median_of

log = logging.getLogger(__name__)

COLUMNS = (
    "order",
    "samples",
    "pairs",
    "first index ms",
    "seek to 9/10 ms",
    "million indices/s, one by one",
    "the same in blocks",
    "process grows MB",
    "other",
    "other's first / own",
    "other's seek / own",
    "other's grows MB",
)
TARGETS = "targets: first index and seek 0.2 ms, 15 million indices/s in blocks, 0 MB at any length"
ALONE = (4096, 8192, 10**9, 10**12, 2**40 + 1)  # lengths for which nothing else has the memory
BESIDE = (10**6, 10**7)
_QUICK = 10**5
_ROUNDS = 5
_CHECKED = 10**6  # up to which whole epochs are looked at

Pair = tuple[Record, Record | None]


def measure(options: Options) -> Report:
    """expkit beside each of torch's samplers, and alone where these would need too much memory."""
    report = Report("samplers", f"a shuffled order ({TARGETS})", COLUMNS)
    rounds = options.rounds or (1 if options.quick else _ROUNDS)
    for other in options.choose([name for name in ORDERS if name != "expkit"]):
        for length in (_QUICK,) if options.quick else BESIDE:
            _measure(report, length, rounds, other)
    for length in (2**33 + 1,) if options.quick else ALONE:
        _measure(report, length, rounds, None)
    return report


def _measure(report: Report, length: int, rounds: int, other: str | None) -> None:
    name = f"expkit {length:,}" + (f" / {other}" if other else "")
    try:
        with _workers(length, other) as workers:
            memory = [worker.train(MEMORY) for worker in workers]
            if length <= _CHECKED:
                checked = zip(("expkit", other), workers, strict=False)
                report.problems += [
                    f"{one} of {length} samples gives some not once"
                    for one, worker in checked
                    if not worker.train(CHECK)["is_permutation"]
                ]
            pairs = [_pair(workers, number) for number in range(rounds)]
    except WorkError as error:
        report.problems.append(f"{name}: {error}")
        return
    report.records[name] = {"memory": memory, "pairs": pairs}
    report.rows.append(row(length, other, pairs, memory))
    log.info("%s measured", name)


@contextmanager
def _workers(length: int, other: str | None) -> Iterator[list[Worker]]:
    """Fresh processes, for what they need grows from what they had."""
    with ExitStack() as stack:
        workers = []
        for name in ("expkit", other):
            if name is not None:
                worker = Worker(name, Shuffle(length), module="benchmarks.orders")
                stack.callback(worker.close)
                workers.append(worker)
        yield workers


def _pair(workers: list[Worker], number: int) -> Pair:
    """Which of the two goes first alternates."""
    records = {place: workers[place].train(MEASURE) for place in _places(len(workers), number)}
    return records[0], records.get(1)


def _places(count: int, number: int) -> list[int]:
    places = list(range(count))
    return places[::-1] if number % 2 else places


def row(length: int, other: str | None, pairs: list[Pair], memory: list[Record]) -> list[str]:
    """A line of the table; see `COLUMNS`."""
    own = [mine for mine, _ in pairs]
    ratios = [
        median_of([theirs[key] / mine[key] for mine, theirs in pairs if theirs], "{:.0f}")
        for key in ("first_s", "seek_s")
    ]
    grown = [f"{record['process_bytes'] / 1e6:.1f}" for record in memory]
    return [
        "expkit",
        f"{length:,}",
        str(len(pairs)),
        *(median_of([1e3 * record[key] for record in own], "{:.3f}") for key in _TIMES),
        *(median_of([record[key] / 1e6 for record in own], "{:.1f}") for key in _RATES),
        grown[0],
        other or "",
        *ratios,
        grown[1] if other else "",
    ]


_TIMES = ("first_s", "seek_s")
_RATES = ("indices_s", "in_blocks_s")
