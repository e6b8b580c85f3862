from __future__ import annotations

import pytest

from expkit.core.errors import ConfigError
from expkit.core.loss_scale import LossScale


def after(*finite, initial=1024.0, growth_every=2):
    scale = LossScale(initial, growth_every)
    for each in finite:
        scale.update(each)
    return scale


def test_good_steps_in_a_row_double_the_scale():
    assert after(True).value == 1024
    assert after(True, True).value == 2048
    assert after(*[True] * 4).value == 4096


def test_an_overflow_halves_the_scale_and_starts_the_count_again():
    assert after(True, False, True).value == 512
    assert after(True, False, True, True).value == 1024


def test_four_good_steps_from_65536_are_262144_and_come_back():
    """Case 15."""
    scale = after(*[True] * 5, initial=65536.0)
    assert scale.state() == {"value": 262144.0, "good_steps": 1}
    other = LossScale(growth_every=2)
    other.load_state(scale.state())
    other.update(True)
    assert other.value == 524288


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"initial": 0.0}, "loss_scale"),
        ({"initial": float("nan")}, "loss_scale"),
        ({"growth_every": 0}, "loss_scale_growth_every"),
    ],
)
def test_options_that_scale_nothing_are_refused(options, key):
    with pytest.raises(ConfigError, match=rf"driver\.{key}: is "):
        LossScale(**options)
