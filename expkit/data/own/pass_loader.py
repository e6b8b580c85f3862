"""Loaders of what only knows its beginning: they read it through, and resume where it can."""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from contextlib import closing
from typing import Any, Protocol, final

from expkit.core.batch import Batch, Window
from expkit.core.errors import DataError
from expkit.data.own.passes import Pass, Source

log = logging.getLogger(__name__)

_BEGINNING = {"step": 0, "items": 0, "samples": 0, "source": None}


class Assembly(Protocol):
    """Makes windows and evaluation batches of what a source gives."""

    def count(self, items: list[Any]) -> int:
        """How many samples they are."""

    def window(self, items: list[Any], first: int, key: int) -> Window:
        """This rank's window of the items of a step.

        Args:
            items: what all ranks share.
            first: number of the first sample in the epoch.
            key: of the epoch's random numbers.
        """

    def batch(self, items: list[Any], first: int, key: int) -> Batch | None:
        """This rank's part of an evaluation batch; None = it has none."""


@final
class PassLoader:
    """Training windows of a source that is read through; see `expkit.core.batch.TrainLoader`.

    One unit is read ahead, so that the last window of an epoch is known to be the last.

    Args:
        source: what is read.
        assembly: makes the windows.
        size: items of a step.
        unit: items that must be there for the epoch to go on; of the last step only whole units
            count.
        limit: items after which an epoch ends at the latest; None = none.
        seed: the run's seed.
        repeats: whether each epoch is the first one.
        steps_per_epoch: optimizer steps in one epoch; None = not known.
        signature: what a position in an epoch depends on.
    """

    def __init__(
        self,
        source: Source,
        assembly: Assembly,
        *,
        size: int,
        unit: int = 1,
        limit: int | None = None,
        seed: int = 0,
        repeats: bool = False,
        steps_per_epoch: int | None = None,
        signature: Mapping[str, Any],
    ) -> None:
        self._source = source
        self._assembly = assembly
        self._size = size
        self._unit = unit
        self._limit = limit
        self._seed = seed
        self._repeats = repeats
        self._steps = steps_per_epoch
        self._signature = {**signature, "seed": seed}
        self._state: dict[str, Any] = {}

    @property
    def steps_per_epoch(self) -> int | None:
        """Optimizer steps in one epoch, where they are known."""
        return self._steps

    @property
    def signature(self) -> dict[str, Any]:
        """How an epoch is cut into steps, as JSON values: what a position in it depends on."""
        return dict(self._signature)

    def state(self) -> dict[str, Any]:
        """The source's own state after the last window, and which window that was.

        Empty where there is none: then what lies before is read again.
        """
        return dict(self._state)

    def load_state(self, state: Mapping[str, Any]) -> None:
        """Take back what ``state`` gave."""
        self._state = dict(state)

    def windows(self, epoch: int, start: int = 0) -> Iterator[Window]:
        """The windows of an epoch from step ``start`` on."""
        state = self._state
        is_there = start > 0 and (state.get("epoch"), state.get("step")) == (epoch, start)
        place: Mapping[str, Any] = state if is_there else _BEGINNING
        with closing(self._begin(epoch, place["items"], place["source"])) as reading:
            step, samples = place["step"], place["samples"]
            if step < start:
                samples = self._leave_out(reading, epoch, start)
                step = start
            try:
                yield from self._remaining(reading, epoch, step, samples)
            finally:
                if is_there:
                    self._source.forget()

    def _begin(self, epoch: int, position: int = 0, state: Any = None) -> Pass:
        return self._source.begin(self._seed, 0 if self._repeats else epoch, position, state)

    def _leave_out(self, reading: Pass, epoch: int, steps: int) -> int:
        """Read the items of the first steps as they were read before; returns their samples."""
        number = steps * self._size
        log.info(
            "%s: its state is not kept, so %d %s are read again to come to step %d of epoch %d",
            *(self._source.what, number, self._source.unit, steps, epoch + 1),
        )
        samples = 0
        with reading.reading():
            for _ in range(steps):
                items = self._take(reading, self._unit)
                items += self._take(reading, self._size - len(items))
                samples += self._assembly.count(items)
        if reading.position < number:
            raise DataError(
                f"{self._source.what} ended after {reading.position} {self._source.unit}; the run "
                f"stood after {number} of them in this epoch"
            )
        return samples

    def _remaining(self, reading: Pass, epoch: int, step: int, samples: int) -> Iterator[Window]:
        with reading.reading():
            items = self._take(reading, self._unit)
        self._check_whole(items, step)
        while items:
            with reading.reading():
                items += self._take(reading, self._size - len(items))
                state = None if self._repeats else reading.state()
                position = reading.position
                is_full = len(items) == self._size
                following = self._take(reading, self._unit) if is_full else []
            is_last = len(following) < self._unit
            items = items[: len(items) - len(items) % self._unit]
            window = self._assembly.window(items, samples, reading.key)
            window.ends_epoch = is_last and self._steps is None
            step, samples = step + 1, samples + self._assembly.count(items)
            self._check_length(step, is_last)
            place = {"epoch": epoch, "step": step, "items": position, "samples": samples}
            self._state = {} if state is None or is_last else {**place, "source": state}
            yield window
            items = [] if is_last else following

    def _take(self, reading: Pass, number: int) -> list[Any]:
        return reading.take(_within(self._limit, reading, number))

    def _check_whole(self, items: list[Any], step: int) -> None:
        """Make sure that there is a step to make."""
        what, unit = self._source.what, self._source.unit
        if not items:
            gave = f"ended, with the run standing after {step} steps of it" if step else "is empty"
            raise DataError(
                f"{what} {gave}; allowed: at least 1 of its {unit} in each epoch (what can be read "
                "once only is empty the next time)"
            )
        if len(items) < self._unit:
            raise DataError(
                f"{what} has {len(items)} {unit}, fewer than one batch of {self._unit}, and "
                "data.drop_last=true leaves them out; allowed: data.drop_last=false, or a batch of "
                f"at most {len(items)}"
            )

    def _check_length(self, step: int, is_last: bool) -> None:
        if self._steps is not None and is_last != (step == self._steps):
            gave = f"ended after {step}" if is_last else f"goes on after {step}"
            raise DataError(
                f"{self._source.what} says by its length that an epoch has {self._steps} steps, "
                f"but it {gave}; allowed: a __len__ that is true, or none"
            )


@final
class PassShardLoader:
    """A rank's part of an evaluation set that is read through, in order.

    Args:
        source: what is read.
        assembly: makes the batches.
        size: items of a batch over all ranks.
        limit: items after which it ends at the latest; None = none.
        seed: of what it draws; the same each time.
    """

    def __init__(
        self,
        source: Source,
        assembly: Assembly,
        *,
        size: int,
        limit: int | None = None,
        seed: int = 0,
    ) -> None:
        self._source = source
        self._assembly = assembly
        self._size = size
        self._limit = limit
        self._seed = seed

    def batches(self) -> Iterator[Batch]:
        """This rank's batches, from the beginning; none where its part is empty."""
        samples = 0
        with closing(self._source.begin(self._seed, 0)) as reading:
            while number := _within(self._limit, reading, self._size):
                with reading.reading():
                    items = reading.take(number)
                if not items:
                    break
                batch = self._assembly.batch(items, samples, reading.key)
                samples += self._assembly.count(items)
                if batch is not None:
                    yield batch
        if not samples:
            raise DataError(f"{self._source.what} is empty; allowed: at least 1 sample")


def _within(limit: int | None, reading: Pass, number: int) -> int:
    """As many as may be read of the next so many."""
    return number if limit is None else min(number, limit - reading.position)
