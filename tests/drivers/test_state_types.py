"""Weights, accumulators and averages of every type come back to the last bit, through the files."""

from __future__ import annotations

import importlib
import json

import ml_dtypes
import numpy as np
import pytest

from expkit.checkpoint.tensors import decode, encode
from expkit.losses import CrossEntropy
from expkit.optimizers import Adam

BFLOAT16 = np.dtype(ml_dtypes.bfloat16)
TYPES = {
    "bfloat16": "BF16",
    "float16": "F16",
    "float32": "F32",
    "float64": "F64",
    "int64": "I64",
    "uint8": "U8",
    "bool": "BOOL",
}
SHAPES = {"scalar": (), "empty": (0, 3), "row": (7,), "big": (1024, 1025)}


def numbers(dtype, shape):
    """Random bits of a type, but for those that are no number."""
    random = np.random.default_rng(0)
    if dtype == "bool":
        return random.integers(0, 2, shape).astype(bool)
    kind = BFLOAT16 if dtype == "bfloat16" else np.dtype(dtype)
    count = int(np.prod(shape, dtype=int)) * kind.itemsize
    found = np.frombuffer(random.bytes(count), kind).reshape(shape)
    with np.errstate(invalid="ignore"):
        return found if kind.kind in "iu" else np.where(np.isnan(found), kind.type(-0.0), found)


class TorchTools:
    """Tensors in a module, and what is in them."""

    def __init__(self):
        self.torch = pytest.importorskip("torch")
        self.driver_class = importlib.import_module("expkit.drivers.torch").TorchDriver

    def model(self, dtype, arrays):
        model = self.torch.nn.Module()
        model.weight = self.torch.nn.Parameter(self.torch.ones(3, dtype=self.torch.float32))
        for name, array in arrays.items():
            tensor = self.torch.tensor(array.view(np.int16) if dtype == "bfloat16" else array)
            model.register_buffer(name, tensor.view(getattr(self.torch, dtype)))
        return model

    def half(self, model):
        return model.bfloat16()


class PaddleTools:
    """Tensors in a layer, and what is in them."""

    def __init__(self):
        self.paddle = pytest.importorskip("paddle")
        self.driver_class = importlib.import_module("expkit.drivers.paddle").PaddleDriver

    def model(self, dtype, arrays):
        model = self.paddle.nn.Layer()
        model.weight = model.create_parameter([3])
        for name, array in arrays.items():
            as_int = array.view(np.int16) if dtype == "bfloat16" else array
            tensor = self.paddle.to_tensor(as_int)
            model.register_buffer(name, tensor.view("bfloat16") if dtype == "bfloat16" else tensor)
        return model

    def half(self, model):
        return model.bfloat16()


TOOLS = {"torch": TorchTools, "paddle": PaddleTools}


@pytest.fixture(params=TOOLS)
def tools(request):
    return TOOLS[request.param]()


def prepared(tools, model, optimizer=None):
    driver = tools.driver_class(device="cpu")
    driver.setup(0)
    driver.prepare(model, optimizer, CrossEntropy())
    return driver


def files(state):
    return {part.name: b"".join(map(bytes, part.chunks)) for part in encode(state)}


def codes(content):
    """The types that a file of arrays says that it has."""
    size = int.from_bytes(content[:8], "little")
    return {name: entry["dtype"] for name, entry in json.loads(content[8 : 8 + size]).items()}


@pytest.mark.parametrize("dtype", TYPES)
def test_each_type_comes_back_to_the_last_bit(tools, dtype):
    arrays = {name: numbers(dtype, shape) for name, shape in SHAPES.items()}
    state = prepared(tools, tools.model(dtype, arrays)).state()
    written = files({"model": state["model"]})
    assert {codes(written["model.safetensors"])[name] for name in SHAPES} == {TYPES[dtype]}
    zeros = {name: np.zeros_like(array) for name, array in arrays.items()}
    other = prepared(tools, tools.model(dtype, zeros))
    other.load_model_state(decode(written)["model"])
    for name, array in other.model_state().items():
        if name in arrays:
            assert (array.dtype.name, array.shape) == (dtype, SHAPES[name])
            assert array.tobytes() == arrays[name].tobytes()


@pytest.mark.parametrize("dtype", TYPES)
def test_without_copies_big_arrays_are_the_memory_of_the_model(tools, dtype):
    arrays = {name: numbers(dtype, shape) for name, shape in SHAPES.items()}
    driver = prepared(tools, tools.model(dtype, arrays))
    shared, again = (driver.state(copies=False)["model"] for _ in range(2))
    assert np.shares_memory(shared["big"], again["big"])
    for name, array in driver.model_state().items():
        assert (shared[name].dtype, shared[name].shape) == (array.dtype, array.shape)
        assert shared[name].tobytes() == array.tobytes()
        assert not np.shares_memory(shared[name], array)


def test_bfloat16_takes_half_the_bytes_of_float32(tools):
    arrays = {"big": numbers("bfloat16", SHAPES["big"])}
    state = prepared(tools, tools.model("bfloat16", arrays)).model_state()
    assert state["big"].nbytes == 2 * state["big"].size


def test_float32_files_load_into_bfloat16_models_and_back(tools):
    half = {"big": numbers("bfloat16", SHAPES["big"])}
    full = {"big": half["big"].astype(np.float32)}
    for arrays, dtype, state in ((half, "bfloat16", full), (full, "float32", half)):
        zeros = {"big": np.zeros_like(arrays["big"])}
        driver = prepared(tools, tools.model(dtype, zeros))
        given = {"weight": np.ones(3, np.float32)} | state
        driver.load_model_state(decode(files({"model": given}))["model"])
        assert driver.model_state()["big"].tobytes() == arrays["big"].tobytes()


def test_a_state_stays_as_it_is_when_the_model_changes(tools):
    """Whether an array is big or small, nothing of the state shares memory with the model."""
    arrays = {name: numbers("float32", shape) for name, shape in SHAPES.items()}
    driver = prepared(tools, tools.model("float32", arrays))
    state = driver.model_state()
    driver.load_model_state({path: np.zeros_like(array) for path, array in state.items()})
    for name, array in arrays.items():
        assert state[name].tobytes() == array.tobytes()


def test_accumulators_of_bfloat16_stay_what_they_are():
    tools = TorchTools()
    states, written = [], {}
    for seed in (0, 1):
        tools.torch.manual_seed(seed)
        model = tools.half(tools.torch.nn.Linear(1024, 513))
        driver = prepared(tools, model, Adam(lr=0.01))
        if states:
            driver.load_state(states[0] | {"optimizer": decode(written)["optimizer"]})
        else:
            for parameter in model.parameters():
                parameter.grad = tools.torch.randn_like(parameter)
            assert driver.optimizer_step([1.0])
        states.append(driver.state())
        written = files(states[0])
    assert codes(written["model.safetensors"])["weight"] == "BF16"
    for key, array in states[0]["optimizer"]["default"].items():
        assert array.dtype == (np.float32 if key.endswith("/step") else BFLOAT16)
        assert states[1]["optimizer"]["default"][key].tobytes() == array.tobytes()
        assert np.any(array)


def test_averages_of_bfloat16_stay_what_they_are(tools):
    model = tools.half(tools.model("float32", {}))
    average = prepared(tools, model).average_parameters()
    for array in (average.state()["weight"], average.parameters()["weight"]):
        assert array.dtype == BFLOAT16
    wanted = numbers("bfloat16", (3,))
    average.load_state(decode(files({"model": {"weight": wanted}}))["model"])
    assert average.state()["weight"].tobytes() == wanted.tobytes()


def test_numpy_models_take_weights_of_bfloat16():
    from expkit.drivers.numpy import NumpyDriver
    from expkit.models.numpy import Mlp

    driver = NumpyDriver()
    driver.prepare(Mlp(in_features=3, hidden=[], out_features=2), None, CrossEntropy())
    wanted = {
        path: numbers("bfloat16", array.shape) for path, array in driver.model_state().items()
    }
    driver.load_model_state(wanted)
    for path, array in driver.model_state().items():
        assert array.dtype == np.float32
        assert array.tobytes() == wanted[path].astype(np.float32).tobytes()


def test_outputs_of_bfloat16_are_computed_with_in_float32(tools):
    module = importlib.import_module(tools.driver_class.__module__.rpartition(".")[0] + ".state")
    arrays = {"row": numbers("bfloat16", (7,))}
    host = module.to_host(tools.model("bfloat16", arrays).row)
    assert host.dtype == np.float32
    np.testing.assert_array_equal(host, arrays["row"].astype(np.float32))
