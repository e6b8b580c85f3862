"""Weights are looked at before they are kept."""

from __future__ import annotations

import ml_dtypes
import numpy as np
import pytest

from expkit.core.errors import NonFiniteLossError
from expkit.core.state import check_weights

FLOATS = [np.float16, np.float32, np.float64, np.complex64, ml_dtypes.bfloat16]


@pytest.mark.parametrize("dtype", FLOATS, ids=lambda dtype: np.dtype(dtype).name)
@pytest.mark.parametrize("shape", [(), (3,), (2, 700)])
def test_weights_of_no_float_type_may_hold_nan(dtype, shape):
    weights = np.ones(shape, dtype)
    check_weights({"w": weights}, 7)
    weights[(-1,) * len(shape)] = np.nan
    with pytest.raises(NonFiniteLossError, match="layer holds NaN after step 7"):
        check_weights({"good": np.ones(3, dtype), "layer": weights}, 7)


def test_a_signalling_nan_of_bfloat16_is_one():
    weights = np.array([0x3F80, 0x7F81], np.uint16).view(ml_dtypes.bfloat16)
    with pytest.raises(NonFiniteLossError):
        check_weights({"w": weights}, 1)


@pytest.mark.parametrize("dtype", [*FLOATS, np.int64, np.bool_, np.uint8])
def test_other_weights_are_left_alone(dtype):
    infinite = [-np.inf, 1] if np.dtype(dtype).kind in "fV" else [0, 1]
    check_weights({"w": np.array(infinite, dtype), "empty": np.empty((0, 2), dtype)}, 1)
