"""Collectives and flags on ranks."""

from __future__ import annotations

import time
from typing import Any, cast

import numpy as np
from numpy.typing import NDArray

from expkit.core.collective import ReduceOp
from expkit.testing.rank_checks.subject import Description, NamedSubject
from expkit.testing.steps import batch_of, step


def place(subject: Description) -> list[int]:
    """Rank, local rank and world size, before anything else is called."""
    driver = NamedSubject(**subject).make_driver()
    return [driver.rank, driver.local_rank, driver.world_size]


def reduced(subject: Description, arrays: list[NDArray[Any]]) -> dict[str, Any]:
    """This rank's array reduced in each way; and whether it was left as it was."""
    driver = NamedSubject(**subject).make_driver()
    own = arrays[driver.rank].copy()
    found: dict[str, Any] = {
        "sum": driver.all_reduce(own),
        "min": driver.all_reduce(own, "min"),
        "max": driver.all_reduce(own, "max"),
    }
    return found | {"unchanged": bool(np.array_equal(own, arrays[driver.rank]))}


def unknown_reduction(subject: Description) -> str:
    """What is said about a way of reducing that there is not; no rank may wait for another."""
    driver = NamedSubject(**subject).make_driver()
    try:
        driver.all_reduce(np.ones(1), cast(ReduceOp, "mean"))
    except ValueError as error:
        return str(error)
    return "nothing"


def gathered(subject: Description) -> list[Any]:
    """Nested values of different sizes, the largest on the last rank."""
    driver = NamedSubject(**subject).make_driver()
    rank = driver.rank
    return driver.all_gather(
        {"rank": rank, "text": "ü" * rank * 1000, "nested": [{"array": np.arange(rank * 500)}]}
    )


def broadcasts(subject: Description) -> list[Any]:
    """What each rank in turn sends to all."""
    driver = NamedSubject(**subject).make_driver()
    own = {"from": driver.rank, "array": np.full(driver.rank + 1, 0.1), "text": "x" * driver.rank}
    return [driver.broadcast(own, src) for src in range(driver.world_size)]


def any_of(subject: Description) -> list[bool]:
    """Whether any rank has set its flag: none, each in turn, all."""
    driver = NamedSubject(**subject).make_driver()
    ranks = range(driver.world_size)
    turns = [driver.group.any_rank(driver.rank == rank) for rank in ranks]
    return [driver.group.any_rank(False), *turns, driver.group.any_rank(True)]


def barrier_times(subject: Description, slow: int) -> list[float]:
    """When this rank came to a barrier and when it left; rank ``slow`` comes late."""
    driver = NamedSubject(**subject).make_driver()
    driver.barrier()
    if driver.rank == slow:
        time.sleep(0.2)
    came = time.monotonic()
    driver.barrier()
    return [came, time.monotonic()]


def calls_on_main(subject: Description) -> dict[str, Any]:
    """A call on rank 0 that works, one that raises, and collectives after that."""
    group = NamedSubject(**subject).make_driver().group
    calls = []

    def works() -> dict[str, Any]:
        calls.append("works")
        return {"array": np.arange(3), "text": "done"}

    def fails() -> None:
        calls.append("fails")
        raise OSError("disk full")

    answer = group.call_on_main(works)
    said = ""
    try:
        group.call_on_main(fails)
    except Exception as error:
        said = f"{type(error).__name__}: {error}"
    group.barrier()
    total = int(group.all_reduce(np.array([group.rank]))[0])
    return {"answer": answer, "said": said, "total": total, "calls": calls}


def flags(subject: Description) -> dict[str, Any]:
    """The answers about flags that single ranks raise, before and after exchanges."""
    driver = NamedSubject(**subject).prepared()
    group = driver.group
    raised = [False, False, False]
    found: dict[str, Any] = {}

    def exchange() -> None:
        batches = [batch_of(range(3)), batch_of(range(3, 5))]
        step(driver, batches, weight=5.0 * driver.world_size)

    group.watch(lambda: tuple(raised))
    found["at first"] = group.answers()
    raised[0] = group.rank == group.world_size - 1
    found["agreed at first"] = group.agree()
    found["answered at first"] = group.answers()
    raised[0] = False
    exchange()
    found["none raised"] = group.answers()
    raised[1] = group.rank == group.world_size - 1
    found["raised since"] = group.answers()
    exchange()
    found["raised before"] = group.answers()
    raised[:] = [group.rank == 0, False, True]
    found["agreed"] = group.agree()
    found["answered then"] = group.answers()
    raised[:] = [False, False, False]
    exchange()
    found["taken back"] = group.answers()
    group.watch(tuple)
    exchange()
    found["none watched"] = group.answers()
    driver.shutdown()
    return found
