"""What the arguments of the bundled models may be: one place for all frameworks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from expkit.core.errors import ConfigError, DataError, Problem

ACTIVATIONS = ("relu", "gelu", "tanh")
TASKS = ("classification", "language_model")


def check_mlp(
    *,
    in_features: int,
    out_features: int,
    hidden: Sequence[int],
    activation: str,
    dropout: float,
    norm: str,
    norms: Sequence[str] = ("none", "batch", "layer"),
    norm_hint: str = "model.norm=none",
) -> None:
    """Refuse arguments that no `Mlp` can be made of.

    Raises:
        ConfigError: names every argument that is wrong.
    """
    found = _Findings()
    found.positive(in_features=in_features, out_features=out_features)
    found.sizes("hidden", hidden, "model.hidden=[128]", allow_empty=True)
    found.choice("activation", activation, ACTIVATIONS)
    found.probability("dropout", dropout)
    found.choice("norm", norm, norms, norm_hint)
    found.report()


def check_cnn(
    *,
    in_channels: int,
    image_size: tuple[int, ...],
    channels: Sequence[int],
    hidden: int,
    out_features: int,
    dropout: float,
    norm: str,
) -> None:
    """Refuse arguments that no `Cnn` can be made of.

    Raises:
        ConfigError: names every argument that is wrong.
    """
    found = _Findings()
    found.positive(in_channels=in_channels, hidden=hidden, out_features=out_features)
    found.sizes("channels", channels, "model.channels=[32,64]")
    found.sizes("image_size", image_size, "model.image_size=[28,28]")
    found.probability("dropout", dropout)
    found.choice("norm", norm, ("none", "batch"))
    if not found.problems:
        smallest = 2 ** len(channels)
        if len(image_size) != 2:
            message = f"is {list(image_size)}; allowed: one size, or height and width"
            found.add("image_size", message, "model.image_size=[28,28]")
        elif min(image_size) < smallest:
            message = (
                f"has {len(channels)} entries, each of which halves the image, and "
                f"{list(image_size)} is too small; "
                f"allowed: sizes of at least {smallest}, or fewer channels"
            )
            found.add("channels", message, f"model.channels=[{channels[0]}]")
    found.report()


def check_text_cnn(
    *,
    vocab_size: int,
    embedding_dim: int,
    kernel_sizes: Sequence[int],
    num_filters: int,
    out_features: int,
    dropout: float,
    pad_id: int,
) -> None:
    """Refuse arguments that no `TextCnn` can be made of.

    Raises:
        ConfigError: names every argument that is wrong.
    """
    found = _Findings()
    found.positive(
        vocab_size=vocab_size,
        embedding_dim=embedding_dim,
        num_filters=num_filters,
        out_features=out_features,
    )
    found.sizes("kernel_sizes", kernel_sizes, "model.kernel_sizes=[3,4,5]", distinct=True)
    found.probability("dropout", dropout)
    found.token(pad_id, vocab_size)
    found.report()


def check_transformer(
    *,
    vocab_size: int,
    max_length: int,
    out_features: int,
    d_model: int,
    n_heads: int,
    n_layers: int,
    d_ff: int,
    dropout: float,
    task: str,
    pad_id: int,
) -> None:
    """Refuse arguments that no `Transformer` can be made of.

    Raises:
        ConfigError: names every argument that is wrong.
    """
    found = _Findings()
    found.positive(
        vocab_size=vocab_size,
        max_length=max_length,
        out_features=out_features,
        d_model=d_model,
        n_heads=n_heads,
        n_layers=n_layers,
        d_ff=d_ff,
    )
    found.probability("dropout", dropout)
    found.choice("task", task, TASKS)
    found.token(pad_id, vocab_size)
    if not found.problems and d_model % n_heads:
        divisors = [n for n in range(1, d_model + 1) if d_model % n == 0]
        nearest = min(divisors, key=lambda n: (abs(n - n_heads), n))
        message = f"is {n_heads}, which does not divide d_model={d_model}; allowed: a divisor of it"
        found.add("n_heads", message, f"model.n_heads={nearest}")
    found.report()


def check_length(length: int, max_length: int) -> None:
    """Refuse a sequence that has more tokens than the model has positions.

    Raises:
        DataError: names both lengths.
    """
    if length > max_length:
        raise DataError(
            f"x has sequences of {length} tokens, but the model has max_length={max_length} "
            f"positions; allowed: at most {max_length} tokens (try: model.max_length={length})"
        )


class _Findings:
    """Collects what is wrong, so that one error tells all of it."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, argument: str, message: str, hint: str) -> None:
        self.problems.append(Problem(f"model.{argument}", message, hint))

    def positive(self, **arguments: Any) -> None:
        for argument, value in arguments.items():
            if not _is_size(value):
                self.add(argument, f"is {value!r}; allowed: whole numbers from 1", "")

    def sizes(
        self,
        argument: str,
        value: Any,
        hint: str,
        allow_empty: bool = False,
        distinct: bool = False,
    ) -> None:
        if not isinstance(value, Sequence) or isinstance(value, str):
            self.add(argument, f"is {value!r}; allowed: a list of whole numbers from 1", hint)
        elif not value and not allow_empty:
            self.add(argument, "is an empty list; allowed: at least one entry", hint)
        elif not all(_is_size(entry) for entry in value):
            self.add(argument, f"is {list(value)!r}; allowed: whole numbers from 1", hint)
        elif distinct and len(set(value)) < len(value):
            self.add(argument, f"is {list(value)!r}; allowed: each entry once", hint)

    def choice(self, argument: str, value: Any, allowed: Sequence[str], hint: str = "") -> None:
        if value not in allowed:
            message = f"is {value!r}; allowed: {', '.join(allowed)}"
            self.add(argument, message, hint or f"model.{argument}={allowed[0]}")

    def probability(self, argument: str, value: Any) -> None:
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0 <= value < 1):
            message = f"is {value!r}; allowed: numbers from 0 to below 1"
            self.add(argument, message, f"model.{argument}=0.1")

    def token(self, pad_id: Any, vocab_size: Any) -> None:
        whole = isinstance(pad_id, int | np.integer) and not isinstance(pad_id, bool)
        if not whole or (_is_size(vocab_size) and not 0 <= pad_id < vocab_size):
            message = f"is {pad_id!r}; allowed: a token from 0 to below vocab_size={vocab_size!r}"
            self.add("pad_id", message, "model.pad_id=0")

    def report(self) -> None:
        if self.problems:
            raise ConfigError(self.problems)


def _is_size(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)
