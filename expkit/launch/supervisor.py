"""The parent of the ranks on one machine: starts them, watches them, and ends them together."""

from __future__ import annotations

import dataclasses
import math
import selectors
import signal
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from expkit.launch.blame import Kind, RankFailure, Rules, Sign, failures_of, sign_of
from expkit.launch.forwarding import Forwarding
from expkit.launch.output import Console, routes
from expkit.launch.ranks import RankProcess, Recipe
from expkit.launch.rendezvous import Framework, Rendezvous, open_rendezvous
from expkit.launch.signals import exit_code_of
from expkit.launch.vitals import Vitals

__all__ = ["Ended", "RankFailure", "Supervisor"]

_TICK_S = 0.25
_SETTLE_S = 0.3
_STACKS_S = 0.5
_EXIT_S = 5.0
"""How long a rank may take to exit when all ranks are done, and to die when it is killed."""


@dataclass(frozen=True)
class Ended:
    """How a set of ranks ended.

    Attributes:
        exit_code: for the whole command.
        outcome: what rank 0 reported as its result, if it did.
        failures: of the ranks that failed, the cause first; empty where all went well, and where
            all were stopped by a signal.
        stopped_by: the signal to this process that was passed on first.
    """

    exit_code: int
    outcome: dict[str, Any] | None
    failures: tuple[RankFailure, ...]
    stopped_by: signal.Signals | None


class Supervisor:
    """Runs the ranks of a job once. It imports no framework and never trains.

    Args:
        command: the program that each rank runs; it opens a `Control` first of all.
        job: text that each rank reads on its stdin.
        framework: whose variables tell the ranks their place.
        num_processes: how many ranks.
        logs: directory for ``rank1.out`` and so on: what ranks print.
        worker_output: what of it is on the console: all, only_error, ignore; or a directory for
            the files, rank 0's among them, and nothing on the console but rank 0.
        timeout_s: how long a rank may give no sign of life, or make no progress.
        grace_s: how long ranks may take to end after SIGTERM.
        attempt: how often they were started before.
        devices: the device of each rank, from `ranks_of`.
    """

    def __init__(
        self,
        *,
        command: Sequence[str],
        job: str,
        framework: Framework,
        num_processes: int,
        logs: Path,
        worker_output: str,
        timeout_s: float,
        grace_s: float = 3.0,
        attempt: int = 0,
        devices: Sequence[str] | None = None,
    ) -> None:
        self._recipe = Recipe(
            command, job, framework, devices, routes(worker_output, logs), num_processes
        )
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._attempt = attempt

    def run(self) -> Ended:
        """Start the ranks, wait for them, and leave nothing behind.

        While it runs in the main thread, SIGINT, SIGTERM, SIGHUP and SIGUSR1 are passed on to the
        ranks; a second signal gives them ``grace_s``, a third none.

        Raises:
            OSError: they cannot be started.
        """
        with ExitStack() as stack:
            console = stack.enter_context(Console())
            signals = stack.enter_context(Forwarding())
            recipe = self._recipe
            rendezvous = open_rendezvous(recipe.framework, recipe.world_size, self._attempt)
            stack.callback(rendezvous.close)
            selector = stack.enter_context(selectors.DefaultSelector())
            watch = _Watch(
                recipe, rendezvous, console, signals, selector, self._timeout_s, self._grace_s
            )
            stack.callback(watch.close)
            return watch.run()


class _Watch:
    """One run of the ranks."""

    def __init__(
        self,
        recipe: Recipe,
        rendezvous: Rendezvous,
        console: Console,
        signals: Forwarding,
        selector: selectors.BaseSelector,
        timeout_s: float,
        grace_s: float,
    ) -> None:
        self._recipe = recipe
        self._rendezvous = rendezvous
        self._console = console
        self._signals = signals
        self._selector = selector
        self._timeout_s = timeout_s
        self._grace_s = grace_s
        self._ranks: list[RankProcess] = []
        self._stops: list[signal.Signals] = []
        self._kill_at = math.inf
        selector.register(signals.descriptor, selectors.EVENT_READ, lambda: None)

    def run(self) -> Ended:
        """From the start to the end."""
        self._start()
        failures: tuple[RankFailure, ...] = ()
        while not failures:
            self._pump(self._has_ended)
            failures = self._settle()
            if self._has_ended():  # else a rank that seemed to hang has gone on meanwhile
                break
        self._end()
        return self._ended(failures)

    def close(self) -> None:
        """Kill and reap what is left."""
        for rank in self._ranks:
            rank.close()

    # -- starting ----------------------------------------------------------------------------------

    def _start(self) -> None:
        for number in range(self._recipe.world_size):
            rank = RankProcess(
                number, self._recipe, self._rendezvous, self._console, self._selector
            )
            self._ranks.append(rank)

    # -- watching ----------------------------------------------------------------------------------

    def _pump(self, is_over: Callable[[], bool], seconds: float = math.inf) -> None:
        """Take in what comes from ranks and by signals, until something holds or time is up."""
        deadline = time.monotonic() + seconds
        while not is_over() and (now := time.monotonic()) < deadline:
            for key, _ in self._selector.select(min(_TICK_S, deadline - now)):
                key.data()
            for number in self._signals.take():
                self._pass_on(number)

    def _pass_on(self, number: signal.Signals) -> None:
        self._stops.append(number)
        for rank in self._ranks:
            rank.send(number)
        if len(self._stops) > 1:
            patience = self._grace_s if len(self._stops) == 2 else 0.0
            self._kill_at = min(self._kill_at, time.monotonic() + patience)

    def _has_ended(self) -> bool:
        """Whether there is nothing more to wait for."""
        if self._must_kill() or self._signs():
            return True
        if not self._any_alive():
            return True
        done = [vitals.done_at for vitals in self._vitals if vitals.done_at is not None]
        return len(done) == len(self._ranks) and time.monotonic() - max(done) >= _EXIT_S

    def _must_kill(self) -> bool:
        return time.monotonic() >= self._kill_at

    def _any_alive(self) -> bool:
        return any(rank.is_alive for rank in self._ranks)

    @property
    def _vitals(self) -> list[Vitals]:
        return [rank.vitals for rank in self._ranks]

    @property
    def _rules(self) -> Rules:
        done = [vitals.done_at for vitals in self._vitals if vitals.done_at is not None]
        return Rules(self._timeout_s, self._stops, min(done, default=None))

    def _signs(self) -> list[Sign]:
        rules, now = self._rules, time.monotonic()
        signs = (sign_of(vitals, rules, now) for vitals in self._vitals)
        return [sign for sign in signs if sign is not None]

    # -- ending ------------------------------------------------------------------------------------

    def _settle(self) -> tuple[RankFailure, ...]:
        """What failed: the first sign may be a victim's, so there is some time for others to come.

        If nothing but consequences is known, there is more: their cause is still to come. A rank
        that hangs says nothing of itself, so it is asked where it is.
        """
        if self._worst() is Kind.STOPPED:
            return ()
        self._pump(self._is_clear, _SETTLE_S)
        self._pump(lambda: self._is_clear() or self._worst() < Kind.CONSEQUENCE, self._grace_s)
        worst, rules, now = self._worst(), self._rules, time.monotonic()
        if worst not in (Kind.HANG, Kind.CONSEQUENCE):
            return failures_of(self._vitals, rules, now)
        for rank in self._ranks:
            rank.ask_for_stacks()
        # Judged by what they are now: the question may wake a rank. The copies share the stacks.
        vitals = [dataclasses.replace(each) for each in self._vitals]
        self._pump(self._is_clear, _STACKS_S)
        return failures_of(vitals, rules, now)

    def _worst(self) -> Kind:
        """The likeliest cause among the signs there are; ``STOPPED`` where nothing has failed."""
        return min((sign.kind for sign in self._signs()), default=Kind.STOPPED)

    def _is_clear(self) -> bool:
        """Whether no rank has anything more to tell."""
        return self._must_kill() or all(vitals.is_accounted_for for vitals in self._vitals)

    def _end(self) -> None:
        """End what still runs: in order, then by force; and what ranks have left behind."""
        if self._any_alive():
            for rank in self._ranks:
                rank.output.mute()
                rank.end(signal.SIGTERM)
            self._pump(lambda: self._must_kill() or not self._any_alive(), self._grace_s)
        for rank in self._ranks:
            rank.end(signal.SIGKILL)
        self._pump(lambda: not self._any_alive(), _EXIT_S)

    def _ended(self, failures: tuple[RankFailure, ...]) -> Ended:
        main = self._ranks[0].vitals
        stopped_by = self._stops[0] if self._stops else None
        if failures:
            code = max(1, failures[0].exit_code or 1)
        else:
            code = 0 if stopped_by is None else exit_code_of(stopped_by)
            code = (main.outcome or {}).get("exit_code", code)
        return Ended(code, main.outcome, failures, stopped_by)
