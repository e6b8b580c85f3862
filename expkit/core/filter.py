"""Which calls of an event a handler wants."""

from __future__ import annotations

from collections.abc import Callable


class Filter:
    """Lets some of an event's calls pass.

    Args:
        every: each ``every``-th call.
        once: that call only; the first is 1.
        when: the calls for whose number it is true.

    Raises:
        ValueError: more than one is given, or a number below 1.
    """

    def __init__(
        self,
        every: int | None = None,
        once: int | None = None,
        when: Callable[[int], bool] | None = None,
    ) -> None:
        given = [choice for choice in (every, once, when) if choice is not None]
        if len(given) > 1:
            raise ValueError("give one of every, once, when")
        for name, value in (("every", every), ("once", once)):
            if value is not None and value < 1:
                raise ValueError(f"{name} is {value}; it must be 1 or more")
        self.every = every
        self.once = once
        self.when = when

    @property
    def is_open(self) -> bool:
        """Whether all calls pass."""
        return self.every is None and self.once is None and self.when is None

    def passes(self, number: int) -> bool:
        """Whether the call of a number, counted from 1, passes."""
        if self.when is not None:
            return self.when(number)
        if self.once is not None:
            return number == self.once
        return self.every is None or number % self.every == 0
