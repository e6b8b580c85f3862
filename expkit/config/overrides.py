"""Overrides of the command line: parsed one by one, so that one mistake does not hide the next."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, get_origin

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, IntervalSweep, Override, RangeSweep
from hydra.errors import HydraException

from expkit.config.catalog import Catalog
from expkit.config.left_out import FILLED
from expkit.config.limits import MAX_JOBS, MAX_OVERRIDES, check_override_text, override_key
from expkit.config.schema import CLOSED, LISTED, LISTS, NEEDED, OPTIONAL, RunConfig, kinds
from expkit.config.suggestion import listing, literal, nearest, show
from expkit.core.errors import Problem

COMMANDS = ("init", "verify", "convert")
"""The commands beside a run, for one that is misspelt."""
SWEEPER = "hydra/sweeper"
"""The group of what makes jobs of a sweep's values."""
_FAR = 2**63

_OF_HYDRA = {
    False: ("hydra.run.dir",),
    True: ("hydra.sweep.dir", "hydra.sweeper.", "hydra.launcher."),
}
"""The keys of Hydra's own config that have an effect, without and with ``-m``."""


@dataclass(frozen=True)
class Assignment:
    """One override with the values it stands for: one, or several in a sweep.

    Attributes:
        key: config key or group.
        mark: ``""`` change, ``+`` add, ``++`` add or change, ``~`` delete.
        values: what is assigned, in turn.
        text: the override as it was given.
        is_group: whether it chooses options of a group.
        is_native: whether it is for Hydra alone (``hydra.*``, a group at another package).
        count: how many jobs of a sweep it makes; a range stands for more than its `values`.
    """

    key: str
    mark: str
    values: tuple[Any, ...]
    text: str
    is_group: bool
    is_native: bool
    count: int = 1

    @property
    def group(self) -> str:
        """The first part of the key."""
        return self.key.split(".")[0]

    @property
    def is_void(self) -> bool:
        """Whether it chooses nothing where nothing is chosen: ``experiment=null``."""
        return self.key in OPTIONAL and self.mark == "" and self.values == (None,)

    def line(self, number: int = 0) -> str:
        """The override with one of its values, as Hydra reads it; for choices of options."""
        # "+experiment=x" means "experiment=x": the defaults list has a place for it already.
        # "+callbacks=x" is left as it is: it adds to the list.
        mark = (
            ""
            if self.mark == "+" and self.group in LISTED and self.group not in LISTS
            else self.mark
        )
        if len(self.values) > 1:
            return f"{mark}{self.key}={literal(self.values[number])}"
        return mark + self.text.lstrip("+~")


def parse(
    texts: Sequence[str], catalog: Catalog, multirun: bool
) -> tuple[list[Assignment], list[Problem]]:
    """Parse overrides.

    Args:
        texts: the overrides.
        catalog: the options there are.
        multirun: whether an override may name several values.

    Returns:
        The good ones, and what is wrong with the others.
    """
    if len(texts) > MAX_OVERRIDES:
        return [], [
            Problem(
                "overrides",
                f"{len(texts)} are too many; allowed: {MAX_OVERRIDES}; put them into a file",
            )
        ]
    parser = OverridesParser.create()
    good: list[Assignment] = []
    problems: list[Problem] = []
    for text in texts:
        problem = check_override_text(text)
        if problem is None:
            try:
                parsed = parser.parse_override(text)
            except (HydraException, RecursionError, ValueError) as error:
                problem = _grammar(text, error)
            else:
                problem = _endless_range(parsed)
            if problem is None:
                assignment = _assignment(parsed, text, catalog)
                found = list(_check(parsed, assignment, catalog, multirun))
                problems += found
                good += [] if found else [assignment]
        if problem is not None:
            problems.append(problem)
    if multirun:
        problems += _check_jobs(good)
    return good, problems


def _assignment(parsed: Override, text: str, catalog: Catalog) -> Assignment:
    key = str(parsed.key_or_group)
    is_native = parsed.is_hydra_override() or parsed.package is not None
    is_group = key in catalog.groups
    mark = (
        "~"
        if parsed.is_delete()
        else "+"
        if parsed.is_add()
        else "++"
        if parsed.is_force_add()
        else ""
    )
    values = tuple(_values(parsed, catalog))
    return Assignment(key, mark, values, text, is_group, is_native, _count(parsed, len(values)))


def _count(parsed: Override, n_values: int) -> int:
    """The number of values, found without making those of a range."""
    value: Any = parsed._value
    if isinstance(value, RangeSweep):
        start, stop, step = _ends(value)
        return max(0, math.ceil((Fraction(stop) - Fraction(start)) / Fraction(step)))
    return n_values if parsed.is_sweep_override() else 1


def _ends(value: RangeSweep) -> tuple[float, float, float]:
    """Start, stop and step; the parser leaves none of them out."""
    return value.start or 0, value.stop or 0, value.step


def _endless_range(parsed: Override) -> Problem | None:
    value: Any = parsed._value
    if isinstance(value, RangeSweep) and (
        value.step == 0 or not all(-_FAR < each < _FAR for each in _ends(value))
    ):
        message = "is a range without end; allowed: numbers of 64 bits, and a step that is not 0"
        return Problem(str(parsed.key_or_group), message)
    return None


def _check_jobs(good: Sequence[Assignment]) -> Iterator[Problem]:
    """Refuse a grid that is too large before it is expanded: that alone could fill the memory."""
    if any(each.key == SWEEPER and each.values != ("basic",) for each in good):
        return  # another sweeper than Hydra's own draws from the values, it makes no grid
    jobs = math.prod(each.count for each in good)
    if jobs > MAX_JOBS:
        factors = " x ".join(f"{each.count:,} of {each.key}" for each in good if each.count > 1)
        number = f"{jobs:,}" if jobs < 10**30 else "more than 10^30"
        message = f"makes {number} jobs ({factors}); allowed: {MAX_JOBS:,}; give fewer values"
        yield Problem("-m", message)


def _values(parsed: Override, catalog: Catalog) -> Iterator[Any]:
    """The values of an override; of a range only its ends, which are as good as all."""
    value: Any = parsed._value
    if not parsed.is_sweep_override():
        yield parsed.value()
    elif isinstance(value, IntervalSweep):
        yield from (value.start, value.end)
    elif isinstance(value, Glob):
        yield from value.filter(catalog.choices(str(parsed.key_or_group)))
    elif isinstance(value, RangeSweep):
        numbers = value.range()
        yield from (
            (numbers[0], numbers[-1]) if isinstance(numbers, range) and numbers else (value.start,)
        )
    else:
        for item in parsed.sweep_iterator():
            yield Override._convert_value(item)


def _check(
    parsed: Override, given: Assignment, catalog: Catalog, multirun: bool
) -> Iterator[Problem]:
    """What can be seen before anything is composed."""
    if given.key == "hydra.searchpath":
        yield Problem(given.key, "is not used; allowed: --config-dir DIRECTORY", "")
    elif given.key.startswith("hydra.") and not given.key.startswith(_OF_HYDRA[multirun]):
        used = listing(_OF_HYDRA[multirun])
        where = "with -m" if multirun else "without -m"
        yield Problem(given.key, f"has no effect; what is used of Hydra's own {where}: {used}")
    elif given.is_native:
        return
    elif not given.key:
        yield Problem(show(given.text), "has no key before the =; allowed: key=value, group=option")
    elif parsed.is_sweep_override() and not multirun:
        value = given.text.partition("=")[2]
        message = (
            f"{show(value)} is a sweep; allowed: one value, [...] for a list, or -m to run each"
        )
        is_list = not given.is_group or given.group in LISTS
        yield Problem(
            given.key, message, f"{given.key}=[{value}]" if is_list else f"-m {given.text}"
        )
    elif parsed.is_sweep_override() and not given.count:
        yield Problem(given.key, f"{show(given.text.partition('=')[2])} stands for no value at all")
    elif given.is_group:
        yield from _check_choice(given, catalog)
    elif given.mark == "+" and is_fixed(given.key) and given.group not in FILLED:
        yield Problem(given.key, "is no key to be added: it is fixed", given.text.lstrip("+"))
    elif given.mark == "~" and is_fixed(given.key):
        yield Problem(
            given.key, "is a fixed key, it can only be given another value", f"{given.key}=..."
        )


def is_fixed(key: str) -> bool:
    """Whether the schema has a key, and not as one that maps names of the user's choice."""
    group, _, name = key.rpartition(".")
    known = kinds(CLOSED.get(group, RunConfig)) if group in CLOSED or not group else {}
    return name in known and get_origin(known[name]) is not dict


def _check_choice(given: Assignment, catalog: Catalog) -> Iterator[Problem]:
    group, choices = given.key, catalog.choices(given.key)
    if given.mark == "~":
        return
    for value in given.values:
        names = value if isinstance(value, list) else [value]
        wrong = [name for name in names if name not in choices]
        if given.is_void:
            continue
        if not wrong:
            if isinstance(value, list) and group not in LISTS:
                yield Problem(
                    group, f"{literal(value)} is a list; allowed: one of {listing(choices)}"
                )
            continue
        mended = [name if name in choices else nearest(str(name), choices) for name in names]
        hint = (
            f"{group}={literal(mended if isinstance(value, list) else mended[0])}"
            if all(mended)
            else ""
        )
        removes = f", or ~{group} for none" if value is None and group not in NEEDED else ""
        shown = "null" if value is None else show(wrong[0])
        yield Problem(group, f"no option {shown}; allowed: {listing(choices)}{removes}", hint)


def _grammar(text: str, error: BaseException) -> Problem:
    key, equals, value = text.partition("=")
    shown = override_key(text)
    if not equals and not key.startswith("~"):
        command = nearest(key, COMMANDS)
        message = "is no override; allowed: key=value, group=option, +key=value, ~key"
        return Problem(shown, message, f"expkit {command}" if command else "")
    reason = (str(error).splitlines() or [type(error).__name__])[0]
    quotable = value.isprintable() and len(value) <= 80 and not value.startswith(("[", "{"))
    hint = f"'{key}=\"{value}\"'" if value and quotable and '"' not in value else ""
    message = f"{show(value)} can't be parsed ({reason[:120]}); quote text with = , : or brackets"
    return Problem(shown, message, hint)
