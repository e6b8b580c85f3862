"""Data sets, the order of their samples, and the batches that training and evaluation see."""

from __future__ import annotations

from expkit.data.collate import Collate, Pad
from expkit.data.dataset import ArrayDataset, Dataset, ItemDataset, as_dataset
from expkit.data.sampler import Random, Sampler, Sequential, Sorted
from expkit.data.sets import Data
from expkit.data.splits import Splits, as_splits

__all__ = [
    "ArrayDataset",
    "Collate",
    "Data",
    "Dataset",
    "ItemDataset",
    "Pad",
    "Random",
    "Sampler",
    "Sequential",
    "Sorted",
    "Splits",
    "as_dataset",
    "as_splits",
]
