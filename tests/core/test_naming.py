from __future__ import annotations

from functools import partial

import pytest

from expkit.core.naming import name_of


class Deferred(partial):
    """A partial of another class, as Hydra makes it."""


class Called:
    def __call__(self) -> None: ...


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (Called, f"{__name__}.Called"),
        (Called(), f"{__name__}.Called"),
        (pytest.importorskip, "_pytest.outcomes.importorskip"),
        (partial(Called), f"{__name__}.Called"),
        (Deferred(Called), f"{__name__}.Called"),
        (partial(Deferred(Called), 1), f"{__name__}.Called"),
        (3, "int"),
        (len, "len"),
    ],
)
def test_a_partial_is_called_what_it_calls(given, name):
    assert name_of(given) == name
