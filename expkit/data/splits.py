"""What a data source returns, and how samples are split between training and evaluation."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NoReturn

import numpy as np
from numpy.typing import NDArray

from expkit.core.batch import Indices
from expkit.core.errors import DataError
from expkit.core.seeding import derive_seed
from expkit.data.permutation import keyed_permutation

_HELD_OUT = ("validation", "test")
_SETS = frozenset(("train", "eval", "predict"))


@dataclass(frozen=True)
class Splits:
    """The sets of a data source; each one is anything that `expkit.data.as_dataset` takes.

    Attributes:
        train: samples to train on, or None.
        eval: samples to evaluate on, a mapping name -> data set for several sets, or None.
        predict: samples to predict, which need no targets; a mapping for several sets; None = those
            of ``eval``.
    """

    train: Any
    eval: Any = None
    predict: Any = None


def as_splits(source: Any) -> Splits:
    """Splits from what a source function returned: `Splits`, such a mapping, or a pair."""
    if isinstance(source, Splits):
        return source
    if isinstance(source, Mapping) and source and set(source) <= _SETS:
        return Splits(source.get("train"), source.get("eval"), source.get("predict"))
    if isinstance(source, tuple) and len(source) == 2:
        return Splits(*source)
    if isinstance(source, Mapping) and "train" in source:
        refuse_dict_of_splits(source, "data.source gave")
    keys = f" with the keys {', '.join(map(str, source))}" if isinstance(source, Mapping) else ""
    raise DataError(
        f"data.source gave {type(source).__name__}{keys}; allowed: expkit.data.Splits, a dict with "
        "the keys train, eval and predict, or a pair (train, eval)"
    )


def refuse_dict_of_splits(source: Mapping[Any, Any], what: str) -> NoReturn:
    """Say how a dict of splits, such as Hugging Face's, is given.

    Raises:
        DataError: always.
    """
    held_out = [name for name in source if name != "train"]
    chosen = next((name for name in _HELD_OUT if name in held_out), held_out[0])
    raise DataError(
        f"{what} {type(source).__name__} with the keys {', '.join(map(str, source))}; allowed: "
        "a dict with the keys train, eval and predict, such as "
        f'{{"train": d["train"], "eval": d["{chosen}"]}}'
    )


def split(
    length: int, fraction: float, seed: int, labels: NDArray[np.integer[Any]] | None = None
) -> tuple[Indices, Indices]:
    """Indices of a seeded random split, each part in ascending order.

    Args:
        length: how many samples.
        fraction: share of the second part; its size is rounded up.
        seed: of the choice.
        labels: class of each sample; where given, each class is split in the same proportion (sizes
            by largest remainder, ties to the class that comes first).

    Returns:
        The first part (training), and the second (evaluation).
    """
    wanted = math.ceil(length * fraction - 1e-9)  # 0.2 * 35 is 7.000000000000001
    classes = np.zeros(length, dtype=np.int64) if labels is None else labels
    names, counts = np.unique(classes, return_counts=True)
    sizes, rest = np.divmod(counts * wanted, length)
    most_left_out = np.argsort(-rest, kind="stable")[: wanted - int(sizes.sum())]
    sizes[most_left_out] += 1
    chosen = np.zeros(length, dtype=bool)
    for name, count, size in zip(names.tolist(), counts.tolist(), sizes.tolist(), strict=True):
        order = keyed_permutation(count, derive_seed(seed, "split", name))
        chosen[np.flatnonzero(classes == name)[order.block(0, size)]] = True
    return np.flatnonzero(~chosen), np.flatnonzero(chosen)
