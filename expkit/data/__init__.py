"""Data sets, the order of their samples, and the batches that training and evaluation see."""

from __future__ import annotations

from expkit.data.bucketed import Bucketed
from expkit.data.collate import Collate
from expkit.data.concat import ConcatDataset
from expkit.data.dataset import ArrayDataset, Dataset, ItemDataset, as_dataset
from expkit.data.mixed import Mixed
from expkit.data.own.loader import OwnLoader
from expkit.data.own.sampler import OwnSampler
from expkit.data.own.stream import Stream
from expkit.data.padding import Pad
from expkit.data.ragged import Ragged
from expkit.data.randomness import sample_seeds
from expkit.data.sampler import Random, Sampler, Sequential, Sorted
from expkit.data.sets import Data
from expkit.data.splits import Splits, as_splits
from expkit.data.weighted import Weighted

__all__ = [
    "ArrayDataset",
    "Bucketed",
    "Collate",
    "ConcatDataset",
    "Data",
    "Dataset",
    "ItemDataset",
    "Mixed",
    "OwnLoader",
    "OwnSampler",
    "Pad",
    "Ragged",
    "Random",
    "Sampler",
    "Sequential",
    "Sorted",
    "Splits",
    "Stream",
    "Weighted",
    "as_dataset",
    "as_splits",
    "sample_seeds",
]
