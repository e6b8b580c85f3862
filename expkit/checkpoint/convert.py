"""Weights as another framework keeps them.

The layers of PyTorch, Paddle and the NumPy models keep the same arrays but for these:

- the weight of a linear layer is (out, in) in PyTorch and (in, out) in the others;
- Paddle's own batch normalisation names its statistics ``_mean`` and ``_variance``, and counts no
  batches; its instance normalisation has ``scale`` for ``weight``, and its PReLU ``_weight``;
- PyTorch's attention packs the weights of queries, keys and values into ``in_proj_weight``.

`convert_state` changes what the framework alone decides. Names that depend on the model, for one of
Paddle may have either batch normalisation, are found when its weights are taken: `weights_for`.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from expkit.core.driver import Driver
from expkit.core.errors import CheckpointError, MismatchError

FRAMEWORKS = ("torch", "paddle", "numpy")

Arrays = dict[str, NDArray[Any]]

_MEAN, _VARIANCE, _COUNT = "running_mean", "running_var", "num_batches_tracked"
_OTHER_NAMES = {
    "_mean": (_MEAN,),
    "_variance": (_VARIANCE,),
    "scale": ("weight",),
    "_weight": ("weight",),
    "weight": ("scale", "_weight"),
}
"""The last part of a path, and what another framework calls the same array."""
_PACKED = {
    **{
        f"in_proj_{one}": tuple(f"{each}_proj.{one}" for each in "qkv")
        for one in ("weight", "bias")
    },
    **{f"{each}_proj_weight": (f"{each}_proj.weight",) for each in "qkv"},
}
"""What PyTorch's attention keeps as bare parameters, and the layers they are elsewhere.

It packs three into one where queries, keys and values have the same width.
"""


def convert_state(state: Mapping[str, Any], framework: str) -> dict[str, Any]:
    """The weights of a state tree in the layout of another framework.

    Args:
        state: has ``model`` and ``origin``, as `Trainer.state` gives them.
        framework: ``torch``, ``paddle`` or ``numpy``.

    Returns:
        A state tree of ``model`` and ``origin`` alone: of an optimizer, of counters and of random
        states nothing goes along.

    Raises:
        CheckpointError: see `weights_of`.
        MismatchError: the state does not say what it is of, is of that framework already, or holds
            a linear weight that cannot be converted.
    """
    model, origin = weights_of(state), _origin(state)
    source, listed = _known(origin, "framework"), _linear_weights(origin)
    if source == framework:
        raise MismatchError(f"the checkpoint is of {framework} already")
    weights, linear = _in_common_names(model, listed, source)
    if "torch" in (source, framework):
        weights |= {path: _transposed(path, weights) for path in linear}
    changed = {"framework": framework, "linear_weights": linear, "converted_from": source}
    return {"model": weights, "origin": {**origin, **changed}}


def weights_for(driver: Driver, state: Mapping[str, Any]) -> Arrays:
    """The weights of a state tree of any framework as the model of a driver wants them.

    All ranks call it.

    Raises:
        CheckpointError, MismatchError: see `convert_state`; or an array is the weight of a linear
            layer in one of the two models only.
    """
    if _origin(state).get("framework", driver.framework) != driver.framework:
        state = convert_state(state, driver.framework)
    weights, origin = weights_of(state), _origin(state)
    if "converted_from" not in origin:
        return weights
    source, linear = _known(origin, "converted_from"), set(_linear_weights(origin))
    paths = list(driver.model_state())
    fitted = _in_names_of(paths, weights, linear, driver.framework)
    common = [path for path in paths if path in fitted]
    _check_kinds(common, linear, set(driver.linear_weights()), source)
    return fitted


def weights_of(state: Mapping[str, Any]) -> Arrays:
    """The weights in a state tree: an array by each parameter path.

    Raises:
        CheckpointError: there is something else.
    """
    model = state.get("model")
    if not isinstance(model, dict):
        raise CheckpointError(f"the checkpoint holds no weights: model is {_kind(model)}")
    for path, array in model.items():
        if not isinstance(array, np.ndarray):
            raise CheckpointError(
                f"the checkpoint holds no weights: {path!r:.80} in model is {_kind(array)}, "
                "where an array should be"
            )
    return model


def _kind(value: Any) -> str:
    return "absent" if value is None else f"of type {type(value).__name__}"


def _origin(state: Mapping[str, Any]) -> Mapping[str, Any]:
    """What a state says of where it comes from: nothing in those of earlier versions.

    Raises:
        MismatchError: it is something else.
    """
    origin = state.get("origin", {})
    if not isinstance(origin, Mapping):
        raise _unknown_origin()
    return origin


def _known(origin: Mapping[str, Any], key: str) -> str:
    """A framework that an origin names."""
    name = origin.get(key)
    if name not in FRAMEWORKS:
        raise _unknown_origin()
    return str(name)


def _linear_weights(origin: Mapping[str, Any]) -> list[str]:
    listed = origin.get("linear_weights")
    if not isinstance(listed, list) or not all(isinstance(path, str) for path in listed):
        raise _unknown_origin()
    return listed


def _unknown_origin() -> MismatchError:
    return MismatchError(
        "the checkpoint does not say its framework and which of its weights are those of linear "
        "layers, as checkpoints of earlier versions do not: it cannot be converted"
    )


def _transposed(path: str, weights: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """A linear weight in the other layout."""
    array = weights.get(path)
    if array is None:
        raise MismatchError(
            f"{path} is the weight of a linear layer and not in the checkpoint, where something "
            "else stands for it (a parametrization?), so it cannot be converted"
        )
    if array.ndim != 2:
        raise MismatchError(f"{path} has shape {array.shape}, which no linear layer's weight has")
    return np.ascontiguousarray(array.T)


# -- names that the framework decides ------------------------------------------------------------


def _in_common_names(
    model: Mapping[str, NDArray[Any]], listed: list[str], source: str
) -> tuple[Arrays, list[str]]:
    """The arrays under names that suit all frameworks, and which of them are linear weights."""
    weights: Arrays = {}
    linear = dict.fromkeys(listed)
    for path, array in model.items():
        prefix, name = _split(path)
        parts = [prefix + part for part in _PACKED.get(name, ())]
        is_attention = source == "torch" and f"{prefix}out_proj.weight" in linear
        if parts and is_attention and array.ndim and len(array) % len(parts) == 0:
            weights |= zip(parts, np.split(array, len(parts)), strict=True)
            linear |= dict.fromkeys(part for part in parts if part.endswith(".weight"))
        elif source == "paddle" and name == "_mean" and f"{prefix}_variance" in model:
            weights[prefix + _MEAN] = array
        elif source == "paddle" and name == "_variance" and f"{prefix}_mean" in model:
            weights[prefix + _VARIANCE] = array
            weights[prefix + _COUNT] = np.zeros((), np.int64)  # Paddle does not count
        else:
            weights[path] = array
    return weights, list(linear)


# -- names that the model decides ----------------------------------------------------------------


def _in_names_of(
    paths: Collection[str], weights: Arrays, linear: Collection[str], framework: str
) -> Arrays:
    """The arrays under the names of a model; what has no place there keeps its own."""
    rest, taken = dict(weights), {*paths, *linear}
    fitted: Arrays = {}
    for path in paths:
        prefix, name = _split(path)
        if path in rest:
            fitted[path] = rest.pop(path)
            continue
        for other in _OTHER_NAMES.get(name, ()):
            if prefix + other in rest and prefix + other not in taken:
                fitted[path] = rest.pop(prefix + other)
                break
        parts = [prefix + part for part in _PACKED.get(name, ())]
        if parts and all(part in rest for part in parts):
            arrays = [_packable(rest.pop(part), framework) for part in parts]
            fitted[path] = _packed(path, arrays)
    for path in [path for path in rest if _split(path)[1] == _COUNT]:
        if f"{_split(path)[0]}_mean" in taken:
            del rest[path]
    return fitted | rest


def _packable(array: NDArray[Any], framework: str) -> NDArray[Any]:
    """A projection or its bias as PyTorch's attention packs it: (out, in)."""
    return array if framework == "torch" else array.T


def _packed(path: str, arrays: list[NDArray[Any]]) -> NDArray[Any]:
    try:
        return np.concatenate(arrays)
    except (TypeError, ValueError) as error:
        shapes = ", ".join(str(array.shape) for array in arrays)
        raise MismatchError(f"{path} cannot be made of arrays of shape {shapes}") from error


def _check_kinds(
    paths: Collection[str], linear: Collection[str], own: Collection[str], source: str
) -> None:
    """Refuse what one of two models multiplies as a linear layer and the other in its own way."""
    for path in paths:
        if (path in linear) != (path in own):
            here, there = ("in " + source, "here") if path in linear else ("here", "in " + source)
            raise MismatchError(
                f"{path} is the weight of a linear layer {here} and another kind of array {there}: "
                "whether it has to be transposed cannot be told"
            )


def _split(path: str) -> tuple[str, str]:
    """The prefix, with its dot, and the last part."""
    stem, dot, name = path.rpartition(".")
    return stem + dot, name
