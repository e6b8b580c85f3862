"""Regression on tables."""

from __future__ import annotations

import gzip

import numpy as np
from numpy.typing import NDArray

from expkit.data.sources.bundled import read_bundled
from expkit.data.splits import Splits, split


def diabetes(split_seed: int = 0) -> Splits:
    """Progression of diabetes after one year, from 10 measurements of 442 patients.

    B. Efron et al., "Least angle regression", Annals of Statistics 32 (2004), as bundled with
    scikit-learn. The target stays in its own unit (25 to 346), so that errors are in that unit too.

    Args:
        split_seed: seed of the 80/20 split.

    Returns:
        Sets of 353 and 89 samples: ``x`` float32 of shape (n, 10) with the training set's mean 0
            and standard
        deviation 1, ``y`` float32.
    """
    features, targets = read_bundled(
        "scikit-learn",
        "1.4",
        [
            "sklearn/datasets/data/diabetes_data_raw.csv.gz",
            "sklearn/datasets/data/diabetes_target.csv.gz",
        ],
        "41f4db25d0c16788823b82430b8dfe015615d4b1ff15c1539d62ed3b967d8789",
    )
    raw = np.fromstring(gzip.decompress(features).decode("ascii"), sep=" ").reshape(-1, 10)
    y = np.fromstring(gzip.decompress(targets).decode("ascii"), sep=" ").astype(np.float32)
    return _standardised(raw, y, split_seed)


def autompg(split_seed: int = 0) -> Splits:
    """Fuel consumption of 392 cars of the years 1970 to 1982, in miles per gallon.

    J. R. Quinlan, "Auto MPG", UCI Machine Learning Repository (1993), as the package mlxtend holds
    it: without the cars whose power is unknown. The 7 features are cylinders, displacement,
    horsepower, weight, acceleration, year and origin; the name of the car is left out.

    Args:
        split_seed: seed of the 80/20 split.

    Returns:
        Sets of 313 and 79 samples: ``x`` float32 of shape (n, 7) with the training set's mean 0
            and standard deviation 1, ``y`` float32, in miles per gallon (9 to 46.6).
    """
    (packed,) = read_bundled(
        "mlxtend",
        "0.25.0",
        ["mlxtend/data/data/autompg.csv.gz"],
        "deb41efe69faf7bcbae72a2e4f0eb1dfed9b2151171251ae64c67ed8da33eec3",
    )
    cells = [line.split(",") for line in gzip.decompress(packed).decode("ascii").splitlines()]
    raw = np.array([row[:7] for row in cells], dtype=np.float64)
    y = np.array([row[-1] for row in cells], dtype=np.float32)
    return _standardised(raw, y, split_seed)


def _standardised(raw: NDArray[np.float64], y: NDArray[np.float32], seed: int) -> Splits:
    """An 80/20 split; the features have mean 0 and standard deviation 1 in the training set."""
    train, test = split(len(y), 0.2, seed)
    x = ((raw - raw[train].mean(axis=0)) / raw[train].std(axis=0)).astype(np.float32)
    return Splits({"x": x[train], "y": y[train]}, {"x": x[test], "y": y[test]})
