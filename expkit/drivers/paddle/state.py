"""Weights and random state of Paddle as host arrays, and back."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import ml_dtypes
import numpy as np
import paddle
from numpy.typing import NDArray
from paddle import Tensor, nn

from expkit.core.host_memory import HOST_MEMORY
from expkit.core.seeding import host_rng_state, load_host_rng_state
from expkit.core.state import check_same_paths, check_same_shape


def to_host(tensor: Tensor) -> NDArray[Any]:
    """A host copy of an output. bfloat16, with which NumPy computes slowly, becomes float32."""
    if tensor.dtype == paddle.bfloat16:
        tensor = tensor.astype("float32")
    array: NDArray[Any] = tensor.numpy()
    return array


def state_array(tensor: Tensor, copies: bool = True) -> NDArray[Any]:
    """A part of the state, to the last bit: a host copy, in memory that is used again.

    Args:
        tensor: on any device.
        copies: False = the memory of the tensor itself, where that is on the host.
    """
    is_bfloat16 = tensor.dtype == paddle.bfloat16
    if is_bfloat16:
        tensor = tensor.view("int16")
    # Where NumPy can look at the tensor itself it copies faster than Paddle, and into old memory.
    num_bytes = math.prod(tensor.shape) * tensor.element_size()
    if num_bytes >= HOST_MEMORY.least_bytes and tensor.place.is_cpu_place():
        own = np.from_dlpack(tensor.detach())
        array = HOST_MEMORY.copy(own) if copies else own
    else:
        array = tensor.numpy()
    return array.view(ml_dtypes.bfloat16) if is_bfloat16 else array


def from_host(array: NDArray[Any]) -> Tensor:
    """A tensor with the content of an array from `state_array` or a checkpoint."""
    if array.dtype == ml_dtypes.bfloat16:
        return paddle.to_tensor(array.view(np.int16)).view("bfloat16")
    return paddle.to_tensor(array)


def model_tensors(model: nn.Layer) -> dict[str, Tensor]:
    """Parameters and persistent buffers by path, each once: recurrent layers list some twice."""
    seen: set[int] = set()
    tensors: dict[str, Tensor] = {}
    for path, tensor in model.state_dict().items():
        if id(tensor) not in seen:
            seen.add(id(tensor))
            tensors[path] = tensor
    return tensors


def model_state(model: nn.Layer, copies: bool = True) -> dict[str, NDArray[Any]]:
    """Parameters and persistent buffers by path as host arrays; see `state_array`."""
    return {path: state_array(tensor, copies) for path, tensor in model_tensors(model).items()}


def load_model_state(model: nn.Layer, state: Mapping[str, NDArray[Any]]) -> None:
    """Copy weights into a model, in place.

    Raises:
        CheckpointError: paths or shapes differ; names the first of them.
    """
    own = model_tensors(model)
    check_same_paths(own, state)
    for path, tensor in own.items():
        check_same_shape(path, tuple(tensor.shape), state[path].shape)
        tensor.set_value(from_host(np.asarray(state[path])).astype(tensor.dtype))


def rng_state() -> dict[str, Any]:
    """The generators of Python, NumPy and Paddle."""
    generators = []
    for generator in paddle.get_rng_state():
        device, seed, offset, words = generator.__getstate__()
        generators.append(
            {
                "device": device,
                "seed": seed,
                "offset": offset,
                "words": np.array(words, dtype=np.uint8),
            }
        )
    return host_rng_state() | {"paddle": {str(i): state for i, state in enumerate(generators)}}


def load_rng_state(state: Mapping[str, Any]) -> None:
    """Take back what `rng_state` gave."""
    load_host_rng_state(state)
    states = []
    for present, saved in zip(paddle.get_rng_state(), state["paddle"].values(), strict=True):
        words = np.asarray(saved["words"], dtype=np.uint8).tolist()
        kind: Any = type(present)
        made = kind.__new__(kind)
        made.__setstate__((saved["device"], saved["seed"], saved["offset"], words))
        states.append(made)
    paddle.set_rng_state(states)


@contextmanager
def untouched_rng() -> Iterator[None]:
    """Leaves Paddle's generators as they were."""
    state = paddle.get_rng_state()
    try:
        yield
    finally:
        paddle.set_rng_state(state)
