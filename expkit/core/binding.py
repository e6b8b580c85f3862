"""How a plain model is called: batch fields go to its parameters by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from expkit.core.errors import DataError

Call = Callable[[Mapping[str, Any]], Mapping[str, Any]]
"""Takes the fields of a batch, gives the model's outputs by name."""


@dataclass(frozen=True)
class Binding:
    """Rules for calling a model.

    A model that has ``train_step(batch)`` (``evaluate_step(batch)`` in evaluation) is called
    through it with the whole batch; else its ``forward`` is called with the fields whose names
    match its parameters. Fields that it does not name are left out.

    Attributes:
        inputs: renames fields before the call: ``{"image": "x"}`` hands the field ``image`` over as
            ``x``.
        outputs: renames outputs after the call: ``{"logits": "output"}``.
        whole_batch: hand the whole batch to ``forward`` as its one argument.
    """

    inputs: Mapping[str, str] = field(default_factory=dict)
    outputs: Mapping[str, str] = field(default_factory=dict)
    whole_batch: bool = False

    def bind(self, model: Any, step: str, call: Callable[..., Any] | None = None) -> Call:
        """The call of a model.

        Args:
            model: has ``forward`` or the method named by ``step``.
            step: ``train_step`` or ``evaluate_step``.
            call: what to call in place of ``model`` for its forward (a wrapped model).
        """
        if hasattr(model, step):
            function = getattr(model, step)
            inner: Callable[[Mapping[str, Any]], Any] = function
        elif self.whole_batch:
            inner = call or model
        else:
            inner = _ByName(type(model).__name__ + ".forward", model.forward, call or model)
        return _named_outputs(_renamed(inner, self.inputs), self.outputs, type(model).__name__)


class _ByName:
    """Calls a function with the fields that its parameters name; they are looked up once."""

    def __init__(
        self, name: str, signature_of: Callable[..., Any], call: Callable[..., Any]
    ) -> None:
        self._name = name
        self._call = call
        parameters = inspect.signature(signature_of).parameters.values()
        self._takes_all = any(p.kind is p.VAR_KEYWORD for p in parameters)
        named = [p for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]
        self._required = [p.name for p in named if p.default is p.empty]
        self._optional = [p.name for p in named if p.default is not p.empty]
        self._chosen: dict[tuple[str, ...], tuple[str, ...]] = {}

    def __call__(self, fields: Mapping[str, Any]) -> Any:
        names = self._chosen.get(tuple(fields))
        if names is None:
            names = self._choose(fields)
        return self._call(**{name: fields[name] for name in names})

    def _choose(self, fields: Mapping[str, Any]) -> tuple[str, ...]:
        missing = [name for name in self._required if name not in fields]
        if missing:
            there = ", ".join(map(str, fields))
            raise DataError(
                f"{self._name} needs the field {missing[0]!r}, which the batch does not have; "
                f"it has: {there}. Rename one with trainer.input_mapping="
                f"{{<field>: {missing[0]}}}, or give the parameter a default"
            )
        names = list(fields) if self._takes_all else [*self._required, *self._optional]
        chosen = tuple(name for name in names if name in fields)
        self._chosen[tuple(fields)] = chosen
        return chosen


def _renamed(
    call: Callable[[Mapping[str, Any]], Any], names: Mapping[str, str]
) -> Callable[[Mapping[str, Any]], Any]:
    if not names:
        return call

    def renamed(fields: Mapping[str, Any]) -> Any:
        absent = [name for name in names if name not in fields]
        if absent:
            raise DataError(
                f"trainer.input_mapping renames the field {absent[0]!r}, which the batch does not "
                f"have; it has: {', '.join(map(str, fields))}"
            )
        return call({names.get(name, name): value for name, value in fields.items()})

    return renamed


def _named_outputs(
    call: Callable[[Mapping[str, Any]], Any], names: Mapping[str, str], model: str
) -> Call:
    def named(fields: Mapping[str, Any]) -> Mapping[str, Any]:
        outputs = call(fields)
        if not isinstance(outputs, Mapping):
            if outputs is None or isinstance(outputs, (tuple, list)):
                raise DataError(
                    f"{model} returned {type(outputs).__name__}; allowed: one tensor, which is "
                    "then called 'output', or a dict of tensors by name"
                )
            return _output_names(names, {"output": outputs}, model)
        return _output_names(names, outputs, model)

    return named


def _output_names(
    names: Mapping[str, str], outputs: Mapping[str, Any], model: str
) -> Mapping[str, Any]:
    if not names:
        return outputs
    absent = [name for name in names if name not in outputs]
    if absent:
        raise DataError(
            f"trainer.output_mapping renames the output {absent[0]!r}, which {model} does not "
            f"return; it returns: {', '.join(map(str, outputs))}"
        )
    return {names.get(name, name): value for name, value in outputs.items()}


LossFunction = Callable[[Mapping[str, Any], Mapping[str, Any]], Any]
"""Takes the outputs and the fields of a batch, gives values, or (values, weights)."""


def own_loss_or(configured: LossFunction | None) -> Callable[..., tuple[Any, Any]]:
    """The loss that a model returns as ``loss`` (and ``loss_weight``), else the configured one.

    The result takes the outputs and the fields of a batch as framework tensors and gives (values,
    weights); without weights each sample has one value, whatever its size, or all have a mean.
    """

    def loss(outputs: Mapping[str, Any], fields: Mapping[str, Any]) -> tuple[Any, Any]:
        if "loss" in outputs:
            found: Any = (outputs["loss"], outputs.get("loss_weight"))
        elif configured is not None:
            found = configured(outputs, fields)
        else:
            raise missing_loss(outputs)
        values, weights = found if isinstance(found, tuple) else (found, None)
        if weights is None and values.ndim > 1:
            values = values.flatten(1).mean(1)
        return values, weights

    return loss


def missing_loss(outputs: Mapping[str, Any]) -> DataError:
    """The error for a model that returns no loss where no loss is configured."""
    return DataError(
        "the model returns no 'loss' and loss=none computes none; "
        f"it returns: {', '.join(map(str, outputs))}. Choose a loss (loss=cross_entropy), "
        "or rename an output with trainer.output_mapping={<output>: loss}"
    )
