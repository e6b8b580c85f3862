"""Precision, recall and F1 of spans: entities, chunks, words."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, DataError, Problem
from expkit.core.metric import HostArrays, Metric
from expkit.metrics.f1 import precision_recall_f1
from expkit.metrics.labels import LabelReader

_OUTSIDE, _BEGIN, _INSIDE, _END, _SINGLE = range(5)
_LETTERS = {
    "B": _BEGIN,
    "I": _INSIDE,
    "M": _INSIDE,
    "E": _END,
    "L": _END,
    "S": _SINGLE,
    "U": _SINGLE,
}
_UNTYPED = "_"


class SpanF1(Metric):
    """F1 of spans under the metric's own name, with ``name/precision`` and ``name/recall``.

    A predicted span is right where a true one has the same first token, last token and type. The
    counts are over all spans (micro): precision = right / predicted, recall = right / true. A ratio
    0 / 0 is 0, or NaN where there is no span at all.

    The letters of the tags tell the scheme: B, I and O (BIO of either kind), with E and S (BIOES;
    BILOU writes L and U for them), or B, M, E and S (words of a segmented text). A sequence that
    breaks its scheme is read as conlleval (Tjong Kim Sang and Buchholz 2000) and seqeval's default
    mode do: a span begins at each B and S, at what follows an E, an S or an O, and where the type
    changes.

    All is NaN where a score of a position that counts is NaN: one unknown tag may end or join spans
    on both of its sides.

    Args:
        tags: name of each tag in the order of ids: ``O``, ``B-PER``, ``I-PER``, or without types
            ``B``, ``I``; None = no spans are counted and nothing is reported.
        output: model output with tag ids, or with scores, tags last.
        target: field with the true tag ids.
        ignore_index: id of positions that do not count, such as padding; None = all count.
        per_type: whether each type is reported too, as ``name/PER``, ``name/precision/PER``.
    """

    def __init__(
        self,
        tags: Sequence[str] | None = None,
        output: str = "output",
        target: str = "y",
        ignore_index: int | None = None,
        per_type: bool = False,
    ) -> None:
        self.needs = (output,)
        self._output = output
        self._target = target
        self._reader = LabelReader("SpanF1", output, target, ignore_index)
        self._per_type = per_type
        pairs = [] if tags is None else _parse(tags)
        self._types = list(dict.fromkeys(kind for letter, kind in pairs if letter != _OUTSIDE))
        taken = {"precision", "recall"}.intersection(self._types)
        if per_type and taken:
            message = f"per_type of SpanF1 would report the type {min(taken)!r} under a taken name"
            raise ConfigError([Problem("metrics", message, "metrics.<name>.per_type=false")])
        self._letter_of = np.array([letter for letter, _ in pairs], dtype=np.int64)
        self._type_of = np.array(
            [self._types.index(kind) if letter != _OUTSIDE else -1 for letter, kind in pairs],
            dtype=np.int64,
        )
        self.reset()

    def reset(self) -> None:
        """Empty counts: right, predicted and true spans in rows, types in columns."""
        self.state = {"counts": np.zeros((3, len(self._types)))}

    def update(
        self, outputs: HostArrays, fields: Mapping[str, Any], weights: NDArray[np.float32] | None
    ) -> None:
        """Count the spans of a batch."""
        if not self._types:
            return
        labels = self._reader.compare(outputs, fields)
        predicted, true = labels.predicted, labels.true
        if true.ndim != 2:
            raise DataError(
                f"SpanF1: field {self._target!r} has the shape {true.shape}; allowed: tag ids "
                "(N, T), one row a sequence"
            )
        factors = np.ones(len(true)) if weights is None else weights.astype(np.float64)
        counted = np.broadcast_to((factors != 0)[:, None], true.shape)
        if labels.kept is not None:
            counted = counted & labels.kept
        rows = np.nonzero(counted)[0]
        first = np.diff(rows, prepend=-1) != 0
        true = self._checked(true[counted], f"field {self._target!r}")
        if labels.unknown is not None and labels.unknown[counted].any():
            self.state["counts"] += np.nan
            return
        predicted = self._checked(predicted[counted], f"output {self._output!r}")
        true_start, true_stop, true_type = self._spans(true, first)
        start, stop, kind = self._spans(predicted, first)
        # Two spans of one sequence never begin at the same position: the start finds the true one.
        stop_from = np.zeros(len(rows), dtype=np.int64)  # 0: no true span begins here
        type_from = np.zeros(len(rows), dtype=np.int64)
        stop_from[true_start] = true_stop
        type_from[true_start] = true_type
        right = (stop_from[start] == stop) & (type_from[start] == kind)
        self.state["counts"] += [
            np.bincount(types, factors[rows[starts]], minlength=len(self._types))
            for types, starts in (
                (kind[right], start[right]),
                (kind, start),
                (true_type, true_start),
            )
        ]

    def compute(self) -> dict[str, float]:
        """F1, precision and recall; nothing without tags."""
        if not self._types:
            return {}
        counts = self.state["counts"]
        together = precision_recall_f1(counts.sum(axis=1, keepdims=True))
        numbers = {name: float(value[0]) for name, value in together.items()}
        if self._per_type:
            for name, values in precision_recall_f1(counts).items():
                for kind, value in zip(self._types, values, strict=True):
                    numbers[f"{name}/{kind}" if name else kind] = float(value)
        return numbers

    def _checked(self, ids: NDArray[Any], where: str) -> NDArray[np.int64]:
        size = len(self._letter_of)
        wrong = ids[(ids < 0) | (ids >= size)]
        if len(wrong):
            raise DataError(
                f"SpanF1 met the tag id {wrong[0]} in {where}; allowed by its {size} tags: 0 to "
                f"{size - 1}; to leave positions out: metrics.<name>.ignore_index={wrong[0]}"
            )
        return ids.astype(np.int64)

    def _spans(
        self, ids: NDArray[np.int64], first: NDArray[np.bool_]
    ) -> tuple[NDArray[np.int64], NDArray[np.int64], NDArray[np.int64]]:
        """Start, stop (the position behind the last) and type of each span.

        Args:
            ids: tag ids of all sequences, one behind the other.
            first: where a sequence begins.
        """
        letter, kind = self._letter_of[ids], self._type_of[ids]
        before = np.where(first, _OUTSIDE, np.roll(letter, 1))
        inside = letter != _OUTSIDE
        begins = inside & (
            np.isin(letter, (_BEGIN, _SINGLE))
            | np.isin(before, (_OUTSIDE, _END, _SINGLE))
            | (kind != np.roll(kind, 1))
        )
        start = np.flatnonzero(begins)
        breaks = np.append(np.flatnonzero(begins | ~inside), len(ids))
        stop = breaks[np.searchsorted(breaks, start, side="right")]
        return start, stop, kind[start]


def _parse(tags: Sequence[str]) -> list[tuple[int, str]]:
    """Letter and type of each tag.

    Raises:
        ConfigError: no list of tags of one of the schemes.
    """
    allowed = (
        "a list of different names in the order of ids, each O or one of "
        f"{', '.join(_LETTERS)}, with -TYPE or without, and not O alone"
    )
    pairs = []
    names = [] if isinstance(tags, str) or not isinstance(tags, Sequence) else list(tags)
    for name in names:
        letter, dash, kind = str(name).partition("-")
        if name == "O":
            pairs.append((_OUTSIDE, ""))
        elif letter in _LETTERS and bool(dash) == bool(kind):
            pairs.append((_LETTERS[letter], kind or _UNTYPED))
    different = len(set(map(str, names)))
    if (
        len(pairs) < len(names)
        or different < len(names)
        or all(letter == _OUTSIDE for letter, _ in pairs)
    ):
        message = f"tags of SpanF1 is {tags!r}; allowed: {allowed}"
        raise ConfigError([Problem("metrics", message, "metrics.<name>.tags=[O,B-PER,I-PER]")])
    return pairs
