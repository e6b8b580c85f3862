from __future__ import annotations

import numpy as np
import pytest

from expkit.core.binding import Binding, own_loss_or
from expkit.core.errors import DataError


class Model:
    def forward(self, a, b=10):
        return {"sum": a + b}

    def __call__(self, *args, **kwargs):
        return self.forward(*args, **kwargs)


def bound(model=None, **rules):
    return Binding(**rules).bind(model or Model(), "train_step")


def test_fields_go_to_the_parameters_of_their_names():
    assert bound()({"a": 1, "b": 2}) == {"sum": 3}


def test_fields_that_are_not_named_are_left_out():
    assert bound()({"a": 1, "b": 2, "index": 9}) == {"sum": 3}


def test_a_parameter_with_a_default_may_be_missing():
    assert bound()({"a": 1}) == {"sum": 11}


def test_the_choice_follows_the_fields_that_are_there():
    call = bound()
    assert call({"a": 1}) == {"sum": 11}
    assert call({"a": 1, "b": 2}) == {"sum": 3}
    assert call({"b": 5, "a": 1}) == {"sum": 6}


def test_a_missing_field_is_told_with_function_field_and_what_is_there():
    with pytest.raises(
        DataError, match=r"Model\.forward needs the field 'a'.*it has: x, y\. Rename"
    ):
        bound()({"x": 1, "y": 2})


def test_a_function_of_any_names_gets_all_fields():
    class Any(Model):
        def forward(self, **fields):
            return {"names": sorted(fields)}

    assert bound(Any())({"a": 1, "z": 2}) == {"names": ["a", "z"]}


def test_the_whole_batch_goes_as_one_argument():
    class Whole(Model):
        def forward(self, batch):
            return {"sum": sum(batch.values())}

    assert bound(Whole(), whole_batch=True)({"a": 1, "z": 2}) == {"sum": 3}


def test_a_step_of_the_model_comes_first_and_gets_the_whole_batch():
    class Steps(Model):
        def train_step(self, batch):
            return {"loss": batch["z"]}

    assert bound(Steps())({"z": 7}) == {"loss": 7}
    assert Binding().bind(Steps(), "evaluate_step")({"a": 1}) == {"sum": 11}


def test_another_callable_stands_in_for_the_model_with_the_models_signature():
    call = Binding().bind(Model(), "train_step", lambda **fields: {"got": fields})
    assert call({"a": 1, "index": 3}) == {"got": {"a": 1}}


def test_inputs_and_outputs_are_renamed():
    call = bound(inputs={"image": "a"}, outputs={"sum": "output"})
    assert call({"image": 1, "b": 1}) == {"output": 2}


def test_renaming_what_is_not_there_is_an_error_with_what_is():
    with pytest.raises(DataError, match=r"input_mapping.*'image'.*it has: a"):
        bound(inputs={"image": "a"})({"a": 1})
    with pytest.raises(DataError, match=r"output_mapping.*'logits'.*it returns: sum"):
        bound(outputs={"logits": "output"})({"a": 1})


def test_a_bare_value_is_called_output():
    class Bare(Model):
        def forward(self, a):
            return a

    assert bound(Bare())({"a": 5}) == {"output": 5}


@pytest.mark.parametrize("value", [None, (1, 2), [1]])
def test_other_returns_are_refused(value):
    class Odd(Model):
        def forward(self, a):
            return value

    with pytest.raises(DataError, match=r"Odd returned .*; allowed: one tensor"):
        bound(Odd())({"a": 5})


def test_a_users_loss_may_leave_the_weights_out():
    values, weights = np.ones(2), np.zeros(2)
    assert own_loss_or(lambda outputs, fields: values)({}, {}) == (values, None)
    assert own_loss_or(lambda outputs, fields: (values, weights))({}, {}) == (values, weights)


def test_the_models_own_loss_comes_first():
    found = own_loss_or(lambda outputs, fields: 3)({"loss": np.ones(2), "loss_weight": 4}, {})
    assert found[1] == 4


def test_a_missing_loss_lists_the_outputs():
    with pytest.raises(DataError, match="it returns: a, b"):
        own_loss_or(None)({"a": 1, "b": 2}, {})
