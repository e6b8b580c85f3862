"""The model of the suites of facts."""

from __future__ import annotations

from expkit.testing.steps import CLASSES, FEATURES


def perceptron(mlp, *, dropout=0.0, norm="none", hidden=(5,)):
    """A perceptron as `expkit.testing.subject.Subject.make_model` wants it, of this class."""
    return mlp(
        in_features=FEATURES,
        hidden=hidden,
        out_features=CLASSES,
        activation="tanh",
        dropout=dropout,
        norm=norm,
    )
