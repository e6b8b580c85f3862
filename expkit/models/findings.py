"""What is wrong with the arguments of a model: one message for each kind of fault."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, final

import numpy as np

from expkit.core.errors import ConfigError, Problem


@final
class Findings:
    """Collects what is wrong with the arguments of a model, so that one error tells all of it."""

    def __init__(self) -> None:
        self.problems: list[Problem] = []

    def add(self, argument: str, message: str, hint: str) -> None:
        """Note a fault, and the override that mends it."""
        self.problems.append(Problem(f"model.{argument}", message, hint))

    def positive(self, **arguments: Any) -> None:
        """Sizes: whole numbers from 1."""
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
        """A list of sizes."""
        if not isinstance(value, Sequence) or isinstance(value, str):
            self.add(argument, f"is {value!r}; allowed: a list of whole numbers from 1", hint)
        elif not value and not allow_empty:
            self.add(argument, "is an empty list; allowed: at least one entry", hint)
        elif not all(_is_size(entry) for entry in value):
            self.add(argument, f"is {list(value)!r}; allowed: whole numbers from 1", hint)
        elif distinct and len(set(value)) < len(value):
            self.add(argument, f"is {list(value)!r}; allowed: each entry once", hint)

    def choice(self, argument: str, value: Any, allowed: Sequence[str], hint: str = "") -> None:
        """One of a few names."""
        if value not in allowed:
            message = f"is {value!r}; allowed: {', '.join(allowed)}"
            self.add(argument, message, hint or f"model.{argument}={allowed[0]}")

    def probability(self, argument: str, value: Any) -> None:
        """A share that is dropped: less than all."""
        number = isinstance(value, int | float) and not isinstance(value, bool)
        if not (number and 0 <= value < 1):
            message = f"is {value!r}; allowed: numbers from 0 to below 1"
            self.add(argument, message, f"model.{argument}=0.1")

    def token(self, pad_id: Any, **vocab_sizes: Any) -> None:
        """The token for padding, which all vocabularies have; told once."""
        whole = isinstance(pad_id, int | np.integer) and not isinstance(pad_id, bool)
        for name, size in vocab_sizes.items():
            if not whole or (_is_size(size) and not 0 <= pad_id < size):
                message = f"is {pad_id!r}; allowed: a token from 0 to below {name}={size!r}"
                self.add("pad_id", message, "model.pad_id=0")
                return

    def heads(self, n_heads: int, d_model: int) -> None:
        """Heads that divide the width; told only where all else is right."""
        if not self.problems and d_model % n_heads:
            divisors = [n for n in range(1, d_model + 1) if d_model % n == 0]
            nearest = min(divisors, key=lambda n: (abs(n - n_heads), n))
            message = (
                f"is {n_heads}, which does not divide d_model={d_model}; allowed: a divisor of it"
            )
            self.add("n_heads", message, f"model.n_heads={nearest}")

    def tagging(self, vocab_size: Any, ngram_vocab_size: Any, crf: Any, pad_id: Any) -> None:
        """What all taggers have."""
        self.token(pad_id, vocab_size=vocab_size, ngram_vocab_size=ngram_vocab_size or None)
        if not _is_size(ngram_vocab_size) and (ngram_vocab_size != 0 or ngram_vocab_size is False):
            message = f"is {ngram_vocab_size!r}; allowed: whole numbers from 0"
            self.add("ngram_vocab_size", message, "model.ngram_vocab_size=0")
        if not isinstance(crf, bool):
            self.add("crf", f"is {crf!r}; allowed: true, false", "model.crf=true")

    def report(self) -> None:
        """Raise a ConfigError if anything was noted."""
        if self.problems:
            raise ConfigError(self.problems)


def _is_size(value: Any) -> bool:
    return isinstance(value, int | np.integer) and not isinstance(value, bool) and bool(value >= 1)
