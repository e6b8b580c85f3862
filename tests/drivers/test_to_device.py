"""How the arrays of a batch become tensors."""

from __future__ import annotations

import numpy as np
import pytest


def on_torch(fields):
    torch = pytest.importorskip("torch")
    from expkit.drivers.torch.device import to_device

    return to_device(fields, torch.device("cpu"))


def on_paddle(fields):
    pytest.importorskip("paddle")
    from expkit.drivers.paddle.device import to_device

    return to_device(fields, "cpu")


@pytest.fixture(params=[on_torch, on_paddle], ids=["torch", "paddle"])
def to_device(request):
    return request.param


@pytest.mark.parametrize(
    "kind", ["float32", "float64", "float16", "int64", "int32", "uint8", "bool"]
)
def test_an_array_keeps_its_type_and_values(to_device, kind):
    array = np.array([[0, 1, 2], [3, 0, 5]], dtype=kind)
    tensor = to_device({"x": array})["x"]
    assert tensor.numpy().dtype == array.dtype
    np.testing.assert_array_equal(tensor.numpy(), array)


def test_a_cpu_tensor_shares_its_array(to_device):
    array = np.zeros(3, dtype=np.float32)
    tensor = to_device({"x": array})["x"]
    array[1] = 7.0
    assert tensor.tolist() == [0.0, 7.0, 0.0]


def test_a_read_only_array_is_copied_so_that_nothing_writes_to_it(to_device):
    array = np.zeros(3, dtype=np.float32)
    array.flags.writeable = False
    tensor = to_device({"x": array})["x"]
    tensor += 1
    assert array.tolist() == [0.0, 0.0, 0.0]


def test_a_transposed_array_keeps_its_values(to_device):
    array = np.arange(6.0, dtype=np.float32).reshape(2, 3).T
    tensor = to_device({"x": array})["x"]
    assert (tensor * 2).tolist() == (array * 2).tolist()


def test_a_tensor_outlives_its_array(to_device):
    tensor = to_device({"x": np.full(1000, 3.0, dtype=np.float32)})["x"]
    np.full(1000, 4.0, dtype=np.float32)
    assert float(tensor.sum()) == 3000.0


def test_nested_fields_are_converted_and_text_is_not(to_device):
    text = np.array(["a", "b"])
    fields = to_device({"in": {"x": np.zeros(2)}, "words": text, "names": ["a", "b"]})
    assert fields["in"]["x"].shape[0] == 2
    assert fields["words"] is text
    assert fields["names"] == ["a", "b"]
