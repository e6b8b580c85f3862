"""The callbacks that ship with expkit, one idea a file; ``callbacks=[...]`` switches them on."""

from expkit.callbacks.clip_value import ClipGradientValue
from expkit.callbacks.device_memory import DeviceMemory
from expkit.callbacks.early_stop import EarlyStop
from expkit.callbacks.ema import ExponentialMovingAverage
from expkit.callbacks.learning_rate import LearningRateMonitor
from expkit.callbacks.model_summary import ModelSummary
from expkit.callbacks.nan_guard import NanGuard
from expkit.callbacks.on_best import RunOnBest
from expkit.callbacks.progress_bar import ProgressBar
from expkit.callbacks.throughput import Throughput
from expkit.callbacks.timer import StepTimer

__all__ = [
    "ClipGradientValue",
    "DeviceMemory",
    "EarlyStop",
    "ExponentialMovingAverage",
    "LearningRateMonitor",
    "ModelSummary",
    "NanGuard",
    "ProgressBar",
    "RunOnBest",
    "StepTimer",
    "Throughput",
]
