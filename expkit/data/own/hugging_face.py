"""What has to be known of Hugging Face's streams, by the attributes that they have."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from expkit.core.errors import DataError

_SHUFFLE_BUFFER = "BufferShuffledExamplesIterable"
_LARGEST_SEED = 2**64
"""Without a seed NumPy draws one of 128 bits, which is practically never below."""


def is_of_hugging_face(value: Any) -> bool:
    """Whether it is a stream of theirs."""
    is_theirs = type(value).__module__.startswith("datasets.")
    return is_theirs and hasattr(value, "state_dict") and hasattr(value, "load_state_dict")


def is_split(dataset: Any) -> bool:
    """Whether it is a stream of which each node has a part."""
    return getattr(dataset, "_distributed", None) is not None


def has_shuffle_buffer(value: Any) -> bool:
    """Whether it has samples in a buffer, which its state leaves out."""
    return any(type(part).__name__ == _SHUFFLE_BUFFER for part in _parts(value))


def check_seeded(value: Any, what: str) -> None:
    """Make sure that a stream is shuffled, or mixed, with a seed of the user's.

    Without one it draws its own when it is made: a second run reads other samples, and one that
    resumes goes on in another order.

    Raises:
        DataError: it has drawn one.
    """
    for part in _parts(value):
        bits = getattr(getattr(part, "generator", None), "bit_generator", None)
        entropy = getattr(getattr(bits, "seed_seq", None), "entropy", None)
        if isinstance(entropy, int) and entropy >= _LARGEST_SEED:
            raise DataError(
                f"{what} is shuffled without a seed, so each run would read it in another order "
                "and none could resume; allowed: .shuffle(seed=...), or the seed of what mixes "
                f"it, an integer below 2**64 (this one is {entropy})"
            )


def _parts(value: Any) -> Iterator[Any]:
    """What a stream is made of, outermost first; nothing for what is no stream of theirs."""
    parts = [getattr(value, "_ex_iterable", None)] if is_of_hugging_face(value) else []
    while parts:
        part = parts.pop()
        if part is not None:
            yield part
            parts += [getattr(part, "ex_iterable", None), *getattr(part, "ex_iterables", ())]
