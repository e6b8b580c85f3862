"""The contract of a driver as tests."""

from __future__ import annotations

from expkit.testing.facts.evaluation import EvaluationFacts
from expkit.testing.facts.gradients import GradientFacts
from expkit.testing.facts.life import LifeFacts
from expkit.testing.facts.optimizers import OptimizerFacts
from expkit.testing.facts.state import StateFacts


class DriverSuite(GradientFacts, EvaluationFacts, OptimizerFacts, StateFacts, LifeFacts):
    """Facts that hold on every driver of a single process.

    A subclass whose name begins with ``Test`` supplies ``make_driver`` and ``make_model``, and
    pytest runs each fact on them. Facts that name no framework of their own are measured in NumPy:
    gradients by finite differences, windows by one large batch.

    Example:
        In ``test_my_driver.py``::

            from expkit.testing import DriverSuite
            from expkit.testing.steps import CLASSES, FEATURES

            class TestMyDriver(DriverSuite):
                def make_driver(self, **options):
                    return MyDriver(**{"device": "cpu", **options})

                def make_model(self, *, dropout=0.0, norm="none", hidden=(5,)):
                    return MyPerceptron(FEATURES, hidden, CLASSES, dropout=dropout, norm=norm)
    """
