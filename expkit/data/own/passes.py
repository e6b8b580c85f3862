"""Reading what only knows its beginning: epoch by epoch, each with its own random numbers.

A source is an iterable that begins anew whenever it is asked for an iterator, or a generator
function. While it is read the global generators are seeded by (seed, epoch, position), so that what
it draws is the same on all ranks and in a second run, and nothing of the run's is drawn.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from typing import Any, final

import numpy as np

from expkit.core.errors import DataError, ExpkitError
from expkit.core.seeding import derive_seed
from expkit.data.own.hugging_face import check_seeded, has_shuffle_buffer, is_of_hugging_face
from expkit.data.own.state import from_plain, to_plain
from expkit.data.randomness import begin_sample, reading, seeds_at

_AT_ITS_BEGINNING = -1


@final
class Source:
    """What is read again and again from its beginning.

    Args:
        iterable: an object with ``__iter__``, or a generator function. ``set_epoch(epoch)`` is
            called before each epoch where there is one, here and on ``parts``; and where one has a
            torch generator of its own as ``generator``, that is seeded.
        what: what it is, for errors: ``the training stream``.
        unit: what it gives: ``samples``.
        parts: other objects that its order depends on.
        read: makes the iterator; None = ``iter``, or a call of the generator function.
        convert: what is made of each that it gives.

    Raises:
        DataError: it can be read only once, or is shuffled without a seed.
    """

    def __init__(
        self,
        iterable: Any,
        what: str,
        unit: str = "samples",
        *,
        parts: tuple[Any, ...] = (),
        read: Callable[[Any], Iterator[Any]] | None = None,
        convert: Callable[[Any], Any] | None = None,
    ) -> None:
        if is_used_up(iterable):
            raise DataError(
                f"{what} is a {type(iterable).__name__}, which can be read once only, and each "
                "epoch begins anew; allowed: the generator function that made it, not called, or "
                "an object with __iter__"
            )
        self.what, self.unit = what, unit
        self.convert = convert
        self._iterable = iterable
        self._parts = (iterable, *parts)
        self._read = read or _iterator
        self._pass: Pass | None = None
        for part in self._parts:
            check_seeded(part, what)
        self._loses_samples = any(has_shuffle_buffer(part) for part in self._parts)

    def begin(self, seed: int, epoch: int, position: int = 0, state: Any = None) -> Pass:
        """Begin to read an epoch.

        Args:
            seed: the run's seed.
            epoch: which one.
            position: how much of it had been read when ``state`` was taken.
            state: what `Pass.state` gave; None = from the beginning.
        """
        key, kept = derive_seed(seed, "pass", epoch), from_plain(state)
        with reading(seeds_at(key, np.array([_AT_ITS_BEGINNING]))):
            try:
                for part in self._parts:
                    begin_epoch(part, seed, epoch)
                if kept is not None and has_state(self._iterable):
                    self._iterable.load_state_dict(kept)
                iterator = self._read(self._iterable)
                if kept is not None and not has_state(self._iterable):
                    iterator.load_state_dict(kept)  # type: ignore[attr-defined]
            except Exception as error:
                raise _unreadable(self.what, error) from error
        keepers = [each for each in (self._iterable, iterator) if has_state(each)]
        keeper = keepers[0] if keepers and not self._loses_samples else None
        self._pass = Pass(self, iterator, key, position, keeper)
        return self._pass

    def close(self) -> None:
        """Leave the epoch that is being read."""
        if self._pass is not None:
            self._pass.close()

    def forget(self) -> None:
        """Let each later pass begin at the beginning.

        A stream of Hugging Face's would go on from a state whenever it comes to that epoch.
        """
        if is_of_hugging_face(self._iterable):
            self._iterable.load_state_dict({})


@final
class Pass:
    """One epoch of a source, as far as it has been read.

    Args:
        source: what is read.
        iterator: gives what comes next.
        key: see below.
        position: see below.
        keeper: has the state of the iterator; None = nobody has.

    Attributes:
        position: how much of the epoch has been read.
        key: of the random numbers of this epoch, see `expkit.data.randomness.seeds_at`.
    """

    def __init__(
        self, source: Source, iterator: Iterator[Any], key: int, position: int, keeper: Any
    ) -> None:
        self.position = position
        self.key = key
        self._source = source
        self._iterator = iterator
        self._keeper = keeper

    @contextmanager
    def reading(self) -> Iterator[None]:
        """While some are taken; afterwards all generators are as they were."""
        with reading(seeds_at(self.key, np.array([self.position]))):
            yield

    def take(self, number: int) -> list[Any]:
        """The next so many; fewer at the end.

        Each is read with seeds of its own, wherever the stretch begins.

        Raises:
            DataError: they cannot be read; says after how many.
        """
        taken: list[Any] = []
        if number == 0:
            return taken
        seeds = seeds_at(self.key, np.arange(self.position, self.position + number))
        source, convert = self._source, self._source.convert
        try:
            for place in range(number):
                begin_sample(seeds, place)
                item = next(self._iterator)
                taken.append(item if convert is None else convert(item))
                self.position += 1
        except StopIteration:
            pass
        except ExpkitError:
            raise
        except Exception as error:
            what = f"{source.what}, after {self.position} {source.unit},"
            raise _unreadable(what, error) from error
        return taken

    def state(self) -> Any:
        """Where it stands, as arrays and JSON values; None where it cannot tell exactly."""
        if self._keeper is None:
            return None
        try:
            state = self._keeper.state_dict()
        except Exception as error:
            message = f"{self._source.what} cannot say where it stands: state_dict() failed: "
            raise DataError(f"{message}{type(error).__name__}: {error}") from error
        return to_plain(state, self._source.what)

    def close(self) -> None:
        """Read no more."""
        if isinstance(self._iterator, Generator):
            self._iterator.close()


def begin_epoch(part: Any, seed: int, epoch: int) -> None:
    """Tell the epoch to a part of somebody's own, and seed a torch generator that it has."""
    if hasattr(part, "set_epoch"):
        part.set_epoch(epoch)
    generator = getattr(part, "generator", None)
    if generator is not None and hasattr(generator, "manual_seed"):
        generator.manual_seed(derive_seed(seed, "generator", epoch))


def is_used_up(iterable: Any) -> bool:
    """Whether it is an iterator that can never begin anew.

    A class of somebody's own that is its own iterator may begin anew in ``__iter__``.
    """
    is_iterator = hasattr(iterable, "__next__")
    return is_iterator and (
        inspect.isgenerator(iterable)
        or type(iterable).__module__ in ("builtins", "itertools", "_io", "_csv")
    )


def _unreadable(what: str, error: Exception) -> DataError:
    return DataError(f"{what} cannot be read: {type(error).__name__}: {error}")


def _iterator(iterable: Any) -> Iterator[Any]:
    if inspect.isgeneratorfunction(iterable):
        made: Iterator[Any] = iterable()
        return made
    return iter(iterable)


def has_state(value: Any) -> bool:
    """Whether it can be brought back to where it stood."""
    return hasattr(value, "state_dict") and hasattr(value, "load_state_dict")
