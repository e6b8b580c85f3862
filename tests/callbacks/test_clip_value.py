from __future__ import annotations

import pytest

from expkit.callbacks import ClipGradientValue
from expkit.core.errors import ConfigError
from tests.callbacks.stub_run import step


def test_gradients_are_clipped_by_value_once_a_step(context):
    callback = ClipGradientValue(0.25)
    step(context, callback, 1.0, 2.0)
    step(context, callback, 1.0)
    assert context.driver.clipped == [{"max_norm": None, "max_value": 0.25}] * 2


@pytest.mark.parametrize("max_value", [0.0, -1.0, float("nan"), float("inf")])
def test_value_that_clips_nothing_or_everything_is_refused(max_value):
    with pytest.raises(ConfigError, match=r"callbacks\.clip_value\.max_value=1\.0"):
        ClipGradientValue(max_value)
