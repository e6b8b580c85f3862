"""Weights and random state of torch as host arrays, and back."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import cache
from typing import Any

import ml_dtypes
import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from expkit.core.errors import ConfigError, Problem
from expkit.core.host_memory import HOST_MEMORY
from expkit.core.seeding import host_rng_state, load_host_rng_state
from expkit.core.state import check_same_paths, check_same_shape


def to_host(tensor: Tensor) -> NDArray[Any]:
    """A host copy of an output. bfloat16, with which NumPy computes slowly, becomes float32."""
    tensor = tensor.detach()
    if tensor.dtype is torch.bfloat16:
        tensor = tensor.float()
    return tensor.cpu().numpy().copy()


def state_array(tensor: Tensor, copies: bool = True) -> NDArray[Any]:
    """A part of the state, to the last bit: a host copy, in memory that is used again.

    Args:
        tensor: on any device.
        copies: False = the memory of the tensor itself, where that is on the host.
    """
    tensor = tensor.detach()
    dtype = _host_type(tensor.dtype)
    if copies or tensor.device.type != "cpu":
        array = HOST_MEMORY.empty(tensor.shape, dtype)
        from_host(array).copy_(tensor)
        return array
    bits = tensor.view(torch.int16) if tensor.dtype is torch.bfloat16 else tensor
    return bits.numpy().view(dtype)


def from_host(array: NDArray[Any]) -> Tensor:
    """A tensor in the memory of an array from `state_array` or a checkpoint."""
    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.int16)).view(torch.bfloat16)
    return torch.from_numpy(array)


@cache
def _host_type(dtype: torch.dtype) -> np.dtype[Any]:
    if dtype is torch.bfloat16:
        return np.dtype(ml_dtypes.bfloat16)
    return torch.empty(0, dtype=dtype).numpy().dtype


def model_state(tensors: Mapping[str, Tensor], copies: bool = True) -> dict[str, NDArray[Any]]:
    """What `state_tensors` gave as host arrays; see `state_array`."""
    return {path: state_array(tensor, copies) for path, tensor in tensors.items()}


def state_tensors(model: nn.Module) -> dict[str, Tensor]:
    """Parameters and persistent buffers by path, not copied.

    Raises:
        ConfigError: the model keeps something else in its state.
    """
    state = model.state_dict()
    foreign = [path for path, value in state.items() if not isinstance(value, Tensor)]
    if foreign:
        raise ConfigError(
            [
                Problem(
                    "model",
                    f"keeps {', '.join(foreign[:3])} in its state, which is no tensor; a "
                    "checkpoint holds tensors only: make it a buffer (register_buffer)",
                )
            ]
        )
    return state


def load_model_state(tensors: Mapping[str, Tensor], state: Mapping[str, NDArray[Any]]) -> None:
    """Copy weights into what `state_tensors` gave, in place.

    Raises:
        CheckpointError: paths or shapes differ; names the first of them.
    """
    check_same_paths(tensors, state)
    with torch.no_grad():
        for path, tensor in tensors.items():
            array = np.ascontiguousarray(state[path]).reshape(state[path].shape)
            check_same_shape(path, tuple(tensor.shape), array.shape)
            tensor.copy_(from_host(array))


def rng_state(device: torch.device) -> dict[str, Any]:
    """The generators of Python, NumPy, torch and, where it is one, the CUDA device."""
    state = host_rng_state() | {"torch": torch.get_rng_state().numpy().copy()}
    if device.type == "cuda":
        state["cuda"] = torch.cuda.get_rng_state(device).numpy().copy()
    return state


@contextmanager
def untouched_rng(device: torch.device) -> Iterator[None]:
    """Leaves torch's generators as they were."""
    cpu = torch.get_rng_state()
    cuda = torch.cuda.get_rng_state(device) if device.type == "cuda" else None
    try:
        yield
    finally:
        torch.set_rng_state(cpu)
        if cuda is not None:
            torch.cuda.set_rng_state(cuda, device)


def load_rng_state(state: Mapping[str, Any], device: torch.device) -> None:
    """Take back what `rng_state` gave."""
    load_host_rng_state(state)
    torch.set_rng_state(torch.from_numpy(np.array(state["torch"], dtype=np.uint8)))
    if device.type == "cuda" and "cuda" in state:
        torch.cuda.set_rng_state(torch.from_numpy(np.array(state["cuda"], dtype=np.uint8)), device)
