"""Image classification."""

from __future__ import annotations

import gzip

import numpy as np

from expkit.data.sources.bundled import read_bundled
from expkit.data.splits import Splits, split

_PIXELS = 64


def digits(split_seed: int = 0, flat: bool = False) -> Splits:
    """Handwritten digits: 1,797 grey images of 8x8 pixels in 10 classes.

    The test part of "Optical Recognition of Handwritten Digits" (E. Alpaydin and C. Kaynak, UCI
    Machine Learning Repository, 1998), as bundled with scikit-learn. The file is ordered by writer,
    hence a stratified random split.

    Args:
        split_seed: seed of the 80/20 split.
        flat: 64 pixels in a row, in place of an image with 1 channel.

    Returns:
        Sets of 1,437 and 360 samples: ``x`` float32 in [0, 1] of shape (n, 1, 8, 8), ``y`` int64.
    """
    (packed,) = read_bundled(
        "scikit-learn",
        "1.4",
        ["sklearn/datasets/data/digits.csv.gz"],
        "09f66e6debdee2cd2b5ae59e0d6abbb73fc2b0e0185d2e1957e9ebb51e23aa22",
    )
    text = gzip.decompress(packed).decode("ascii").strip().replace("\n", ",")
    rows = np.fromstring(text, dtype=np.int64, sep=",").reshape(-1, _PIXELS + 1)
    y = rows[:, _PIXELS].copy()
    x = rows[:, :_PIXELS].astype(np.float32) / np.float32(16)
    if not flat:
        x = x.reshape(-1, 1, 8, 8)
    train, test = split(len(y), 0.2, split_seed, labels=y)
    return Splits({"x": x[train], "y": y[train]}, {"x": x[test], "y": y[test]})
