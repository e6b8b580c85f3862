"""Regression on tables."""

from __future__ import annotations

import gzip

import numpy as np

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
    train, test = split(len(y), 0.2, split_seed)
    x = ((raw - raw[train].mean(axis=0)) / raw[train].std(axis=0)).astype(np.float32)
    return Splits({"x": x[train], "y": y[train]}, {"x": x[test], "y": y[test]})
