"""Real ranks for tests: processes that are started once and call functions together."""

from __future__ import annotations

import selectors
import signal
import time
from collections.abc import Mapping
from types import TracebackType
from typing import Any

from expkit.core.errors import ExpkitError
from expkit.launch.environment import find_place, torch_variables
from expkit.launch.rendezvous import Framework, PaddleRendezvous
from expkit.testing.rank_process import RankProcess
from expkit.testing.wire import decode, encode


class RanksError(ExpkitError):
    """A function failed on a rank.

    Attributes:
        rank: the rank to blame: one that died, else the first that raised, else one that was late.
        error: what happened there, in one line.
        failures: rank -> one line, of all ranks that failed.
        results: rank -> result, of all ranks that did not.
    """

    def __init__(
        self, failures: Mapping[int, str], details: Mapping[int, str], results: Mapping[int, Any]
    ) -> None:
        self.rank, self.error = next(iter(failures.items()))
        self.failures = dict(failures)
        self.results = dict(results)
        super().__init__(f"rank {self.rank}: {self.error}\n{details.get(self.rank, '')}".rstrip())


class RankPool:
    """Fresh Python processes, one for each rank of a world, that call the same function at once.

    They live as long as the pool, and so does the process group that the first driver in them
    joins; they are gone at the latest when the process that made the pool is.

    Args:
        framework: whose variables tell a process its rank: ``torch`` or ``paddle``.
        world_size: how many ranks.
        variables: more environment variables for all of them.

    Example:
        >>> with RankPool("torch", 2) as pool:  # doctest: +SKIP
        ...     pool.run("my_tests.checks:rank_and_size", scale=10)
        [[0, 20], [10, 20]]
    """

    def __init__(
        self, framework: Framework, world_size: int, variables: Mapping[str, str] | None = None
    ) -> None:
        self.framework = framework
        self.world_size = world_size
        self._variables = dict(variables or {})
        self._ranks: list[RankProcess] = []
        self._broken: str | None = None
        self._start()

    def run(
        self, function: str, *, timeout_s: float = 60.0, settle_s: float = 3.0, **kwargs: Any
    ) -> list[Any]:
        """Call a function on all ranks.

        Args:
            function: ``module:name``, importable where the pool was made.
            timeout_s: how long the slowest rank may take.
            settle_s: how long the other ranks may take once one has failed.
            **kwargs: the function's arguments, the same on all ranks; see `wire.encode`.

        Returns:
            The results by rank.

        Raises:
            RanksError: it raised on a rank, a rank died or was late. Where some rank has not
                answered, the pool can only be started anew.
        """
        if self._broken is not None:
            raise RanksError({0: f"the pool needs restart(), since {self._broken}"}, {}, {})
        request = encode({"function": function, "kwargs": kwargs})
        self._broken = "its last run was broken off"  # for as long as it has not ended
        answers = self._ask(request, time.monotonic() + timeout_s, settle_s)
        self._broken = None
        if all("result" in answer for answer in answers):
            return [answer["result"] for answer in answers]
        raise self._failure(answers)

    @property
    def is_broken(self) -> bool:
        """Whether it must be started anew before it can run anything."""
        return self._broken is not None

    def restart(self) -> None:
        """End the processes and start others, with no memory of the old."""
        self.close()
        self._start()

    def close(self) -> None:
        """End all processes, and what they have started; may be called twice."""
        ranks, self._ranks = self._ranks, []
        for rank in ranks:
            # Ranks that wait for nothing may leave by themselves, and write what they measured.
            rank.ask_to_leave() if self._broken is None else rank.kill()
        deadline = time.monotonic() + 3.0
        for rank in ranks:
            rank.end(deadline)
        self._rendezvous.close()
        self._broken = "it is closed"

    def __enter__(self) -> RankPool:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def _start(self) -> None:
        # It keeps ports free for whoever names them, as both frameworks do.
        self._rendezvous = PaddleRendezvous(self.world_size, attempt=0)
        for rank in range(self.world_size):
            variables = self._rendezvous.variables(rank)
            if self.framework == "torch":
                place = find_place(variables)
                assert place is not None  # these are the variables of one
                variables = torch_variables(place)
            self._ranks.append(RankProcess(variables | self._variables))
        self._broken = None

    def _ask(self, request: str, deadline: float, settle_s: float) -> list[dict[str, Any]]:
        """Send a request to all ranks and collect their answers.

        Returns:
            One answer for each rank; ``{"late": True}`` or ``{"died": exit code}`` where there is
            none. Answers carry ``at``, the number of answers that came before.
        """
        answers: dict[int, dict[str, Any]] = {}
        with selectors.DefaultSelector() as selector:
            for number, rank in enumerate(self._ranks):
                selector.register(rank.answers, selectors.EVENT_READ, number)
                rank.send(request)
            while len(answers) < self.world_size:
                ready = selector.select(max(0.0, deadline - time.monotonic()))
                if not ready:
                    break
                for key, _ in ready:
                    number = key.data
                    line = self._ranks[number].answers.readline()
                    answer = decode(line) if line else {"died": self._ranks[number].exit_code()}
                    answers[number] = answer | {"at": len(answers)}
                    selector.unregister(key.fileobj)
                    if "result" not in answer:
                        deadline = min(deadline, time.monotonic() + settle_s)
        return [answers.get(number, {"late": True}) for number in range(self.world_size)]

    def _failure(self, answers: list[dict[str, Any]]) -> RanksError:
        """The error for answers of which some are no results; tells whether the pool is broken."""
        failed = [rank for rank, answer in enumerate(answers) if "result" not in answer]
        # Who died is the cause, who raised first is likely to be; who is late waits for them.
        failed.sort(key=lambda rank: _blame(answers[rank]))
        failures, details = {}, {}
        for rank in failed:
            answer = answers[rank]
            if "error" in answer:
                failures[rank], details[rank] = answer["error"], answer["traceback"]
                continue
            if "died" in answer:
                failures[rank] = f"died, {_exit_text(answer['died'])}"
            else:
                failures[rank] = "did not answer in time"
                self._ranks[rank].dump_stacks()
            details[rank] = self._ranks[rank].printed()
            self._broken = self._broken or f"rank {rank} {failures[rank]}"
        results = {
            rank: answer["result"] for rank, answer in enumerate(answers) if "result" in answer
        }
        return RanksError(failures, details, results)


def _blame(answer: Mapping[str, Any]) -> tuple[int, int]:
    order = 0 if "died" in answer else 1 if "error" in answer else 2
    return order, answer.get("at", 0)


def _exit_text(code: int) -> str:
    return f"killed by {signal.Signals(-code).name}" if code < 0 else f"exit code {code}"
