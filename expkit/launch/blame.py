"""Which rank's failure is the cause, and which are only what followed from it."""

from __future__ import annotations

import re
import signal
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import IntEnum

from expkit.launch.control import BEAT_S
from expkit.launch.signals import exit_code_of
from expkit.launch.vitals import Vitals

_MISSED_BEATS = 3
_WAITS = re.compile(r'File "[^"]*(/distributed/|/process_group\.py)')


@dataclass(frozen=True)
class RankFailure:
    """How a rank failed.

    Attributes:
        rank: its number.
        what: in a few words: ``ValueError: bad sample 7``, ``killed by SIGKILL``.
        traceback: of the error; where a rank has reported none, the stacks that it wrote when it
            crashed or hung, and else its last lines on stderr; may be empty.
        exit_code: of its process, negative for a signal, or what it said that this would be; None
            where the supervisor ended it.
        is_shown: whether the traceback stands on the console already, as output of the rank.
        is_reported: whether the rank has reported it itself, as an error of its own.
    """

    rank: int
    what: str
    traceback: str
    exit_code: int | None
    is_shown: bool = False
    is_reported: bool = False


class Kind(IntEnum):
    """Kinds of failures, the likeliest cause first."""

    DEATH = 0
    ERROR = 1
    HANG = 2
    CONSEQUENCE = 3
    STOPPED = 4


@dataclass(frozen=True)
class Sign:
    """Something by which a rank shows that it will not get to its end."""

    kind: Kind
    at: float
    rank: int
    what: str


@dataclass(frozen=True)
class Rules:
    """By what a rank is judged.

    Attributes:
        timeout_s: seconds without a sign of life, or without progress, that are too many.
        stops: signals that all ranks were asked to stop by; whoever ends by them has not failed.
        first_done_at: when the first rank was done.
    """

    timeout_s: float
    stops: Collection[signal.Signals] = ()
    first_done_at: float | None = None


def sign_of(vitals: Vitals, rules: Rules, now: float) -> Sign | None:
    """The sign by which a rank shows that it failed; None for one that is done or gets on."""
    if vitals.error is not None:
        is_cause = not vitals.error["is_consequence"]
        followed = Kind.STOPPED if rules.stops else Kind.CONSEQUENCE
        kind = Kind.ERROR if is_cause else followed
        return Sign(kind, vitals.error_at, vitals.rank, vitals.error["what"])
    if vitals.done_at is not None:
        return None
    if vitals.exit_code is not None:
        return _sign_of_death(vitals, vitals.exit_code, rules)
    if max(now - vitals.beat_at, _idle_s(vitals, rules, now)) < rules.timeout_s:
        return None
    return _suspicion(vitals, rules, now)


def failures_of(ranks: Sequence[Vitals], rules: Rules, now: float) -> tuple[RankFailure, ...]:
    """The failures of all ranks, the cause first; empty where none has failed.

    Args:
        ranks: all of them, after some time for all signs to come in.
        rules: by which they are judged.
        now: on the monotonic clock.
    """
    signs = [sign for vitals in ranks if (sign := sign_of(vitals, rules, now)) is not None]
    signs = sorted(signs, key=lambda sign: (sign.kind, sign.at, sign.rank))
    signs = [sign for sign in signs if sign.kind is not Kind.STOPPED]
    if not signs:
        return ()
    if signs[0].kind >= Kind.HANG:
        # Whoever waits for a stuck rank is stuck as well, and his time may be up before its.
        suspects = [vitals for vitals in ranks if not vitals.is_accounted_for]
        suspects.sort(key=lambda vitals: _innocence(vitals, rules, now))
        hangs = [_suspicion(vitals, rules, now) for vitals in suspects]
        signs = hangs + [sign for sign in signs if sign.kind is Kind.CONSEQUENCE]
    return tuple(_failure(ranks[sign.rank], sign) for sign in signs)


def _sign_of_death(vitals: Vitals, code: int, rules: Rules) -> Sign:
    expected = {0, *(-stop for stop in rules.stops), *map(exit_code_of, rules.stops)}
    if rules.stops and (vitals.is_given_up or code in expected):
        return Sign(Kind.STOPPED, vitals.exited_at, vitals.rank, "stopped")
    if code == 0:
        return Sign(Kind.DEATH, vitals.exited_at, vitals.rank, "exited early (code 0)")
    if code > 0:
        return Sign(Kind.DEATH, vitals.exited_at, vitals.rank, f"exited with code {code}")
    # Libraries abort a process when a peer is gone, so an abort can be a consequence. It then
    # comes after the error which is the cause.
    kind = Kind.ERROR if -code == signal.SIGABRT else Kind.DEATH
    return Sign(kind, vitals.exited_at, vitals.rank, f"killed by {_name(-code)}")


def _idle_s(vitals: Vitals, rules: Rules, now: float) -> float:
    """Seconds without progress; a rank that tells no pulse has until others are done."""
    if vitals.pulse is not None:
        return now - vitals.progress_at
    return 0.0 if rules.first_done_at is None else now - rules.first_done_at


def _is_silent(vitals: Vitals, rules: Rules, now: float) -> bool:
    return now - vitals.beat_at >= min(_MISSED_BEATS * BEAT_S, rules.timeout_s)


def _innocence(vitals: Vitals, rules: Rules, now: float) -> tuple[bool, bool, int, int]:
    """A key that sorts ranks which hang: the one that the others wait for comes first."""
    waits = _WAITS.search(vitals.stacks.decode(errors="replace")) is not None
    return (not _is_silent(vitals, rules, now), waits, vitals.pulse or 0, vitals.rank)


def _suspicion(vitals: Vitals, rules: Rules, now: float) -> Sign:
    idle_s = _idle_s(vitals, rules, now)
    if _is_silent(vitals, rules, now):
        what = f"no sign of life for {now - vitals.beat_at:.0f} s "
        what += f"(driver.timeout_s={rules.timeout_s:g})"
        what += " (its process is halted)" if vitals.is_halted else ""
    elif idle_s >= BEAT_S:
        what = f"no progress for {idle_s:.0f} s (driver.timeout_s={rules.timeout_s:g})"
    else:
        what = "gave the other ranks no answer"
    return Sign(Kind.HANG, now, vitals.rank, what)


def _failure(vitals: Vitals, sign: Sign) -> RankFailure:
    code = vitals.exit_code
    if vitals.error is not None:
        said = vitals.error["exit_code"]
        traceback = vitals.error["traceback"].rstrip()
        code = code if said is None else said
        is_own = sign.kind is Kind.ERROR
        return RankFailure(sign.rank, sign.what, traceback, code, is_reported=is_own)
    stacks = vitals.stacks.decode(errors="replace").strip()
    if stacks:
        return RankFailure(sign.rank, sign.what, stacks, code)
    return RankFailure(sign.rank, sign.what, vitals.stderr.rstrip(), code, vitals.is_shown)


def _name(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"
