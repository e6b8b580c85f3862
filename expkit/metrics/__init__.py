"""Metrics: sums over batches and ranks that become numbers at the end. NumPy alone."""

from expkit.metrics.accuracy import Accuracy
from expkit.metrics.auroc import AUROC
from expkit.metrics.confusion import ConfusionMatrix
from expkit.metrics.f1 import PrecisionRecallF1
from expkit.metrics.foreign import ForeignMetric
from expkit.metrics.gathered import GatheredMetric
from expkit.metrics.loss import MeanLoss, Perplexity
from expkit.metrics.mean import MeanMetric
from expkit.metrics.r2 import R2
from expkit.metrics.regression import MeanAbsoluteError, MeanSquaredError, RootMeanSquaredError
from expkit.metrics.set import MetricSet
from expkit.metrics.span_f1 import SpanF1
from expkit.metrics.top_k import TopKAccuracy

__all__ = [
    "AUROC",
    "R2",
    "Accuracy",
    "ConfusionMatrix",
    "ForeignMetric",
    "GatheredMetric",
    "MeanAbsoluteError",
    "MeanLoss",
    "MeanMetric",
    "MeanSquaredError",
    "MetricSet",
    "Perplexity",
    "PrecisionRecallF1",
    "RootMeanSquaredError",
    "SpanF1",
    "TopKAccuracy",
]
