"""A driver and a model by the names of the functions that make them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from expkit.core.driver import Driver
from expkit.losses import CrossEntropy
from expkit.optimizers import SGD, Adam, AdamW, Optimizer
from expkit.testing.rank_server import find
from expkit.testing.subject import Subject

Description = Mapping[str, Any]
"""A `NamedSubject` on its way to a rank."""

_OPTIMIZERS: dict[str, type[Optimizer]] = {"sgd": SGD, "adam": Adam, "adamw": AdamW}


@dataclass(frozen=True)
class NamedSubject(Subject):
    """A subject that every process can make for itself.

    Attributes:
        driver: ``module:function`` that makes a driver with the options given.
        model: ``module:function`` that makes a model, see `Subject.make_model`.
        options: of the driver, besides those of a single fact.
    """

    driver: str
    model: str
    options: Mapping[str, Any] = field(default_factory=dict)

    @property
    def description(self) -> dict[str, Any]:
        """What makes it again elsewhere."""
        return asdict(self)

    def make_driver(self, **options: Any) -> Driver:
        """See `Subject.make_driver`."""
        driver: Driver = find(self.driver)(**{**self.options, **options})
        return driver

    def make_model(self, **options: Any) -> Any:
        """See `Subject.make_model`."""
        return find(self.model)(**options)


def optimizer_of(description: Mapping[str, Any] | None) -> Optimizer | None:
    """The optimizer of ``{"name": "adam", "lr": 0.01}``; None stays None."""
    if description is None:
        return None
    options = dict(description)
    return _OPTIMIZERS[options.pop("name")](**options)


def loss_of(ignore_index: int | None) -> CrossEntropy:
    """Cross entropy in which samples with this label do not count."""
    return CrossEntropy(ignore_index=ignore_index)
