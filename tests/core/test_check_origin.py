from __future__ import annotations

import pytest

from expkit.core.errors import MismatchError
from expkit.core.state import check_origin
from tests.cases.parts import make_trainer


def test_a_run_goes_on_from_its_own_state():
    state = make_trainer().state()
    check_origin(state, "numpy")
    check_origin({key: state[key] for key in state if key != "origin"}, "numpy")  # an older one


def test_a_state_of_another_framework_is_refused_with_a_way_out():
    state = make_trainer().state()
    with pytest.raises(MismatchError, match=r"on numpy, this one is on torch.*init_from=RUN"):
        check_origin(state, "torch")


def test_weights_alone_are_no_state_to_go_on_from():
    state = make_trainer().state()
    weights = {key: state[key] for key in ("model", "origin")}
    lacks = "it lacks optimizer, scaler, ranks, trainer, schedules, callbacks; its weights"
    with pytest.raises(MismatchError, match=lacks):
        check_origin(weights, "numpy")
