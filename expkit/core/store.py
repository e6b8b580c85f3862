"""Where checkpoints go: the contract of a store, and the one that only remembers."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from expkit.core.collective import Collective
from expkit.core.errors import NoCheckpointError
from expkit.core.state import check_weights


@dataclass(frozen=True)
class CheckpointInfo:
    """What a checkpoint says of itself.

    Attributes:
        path: its directory; None for one in memory.
        step: optimizer steps made when it was saved.
        epoch: the 0-based epoch it belongs to.
        metrics: the metrics of the last evaluation before it.
        score: the monitored value, oriented so that larger is better; None when it cannot be
            ranked.
    """

    path: Path | None
    step: int
    epoch: int
    metrics: Mapping[str, float] = field(default_factory=dict)
    score: float | None = None


class Store(ABC):
    """Keeps states of a run and finds the last and the best again.

    Attributes:
        is_lasting: whether another process can go on from what is kept.
        needs_copies: whether `save` returns before it has done with the arrays.
    """

    is_lasting: bool = True
    needs_copies: bool = True

    @abstractmethod
    def save(
        self,
        state: Mapping[str, Any],
        *,
        step: int,
        epoch: int,
        metrics: Mapping[str, float],
        score: float | None,
    ) -> None:
        """Keep a state tree; where the store needs copies, it owns them from here on.

        It keeps none whose weights hold NaN (`expkit.core.state.check_weights`).
        """

    @abstractmethod
    def poll(self) -> None:
        """Raise what has gone wrong behind the loop's back; asked after each step."""

    @abstractmethod
    def go_back(self, step: int) -> None:
        """Forget what was saved after ``step``, where a run that goes on begins another way."""

    @abstractmethod
    def last(self) -> CheckpointInfo | None:
        """The newest valid checkpoint."""

    @abstractmethod
    def best(self) -> CheckpointInfo | None:
        """The valid checkpoint with the greatest score."""

    @abstractmethod
    def load(self, where: Literal["last", "best"] | Path) -> tuple[dict[str, Any], CheckpointInfo]:
        """A verified state tree.

        Raises:
            NoCheckpointError: there is none.
            CheckpointError: what there is is damaged.
        """

    @abstractmethod
    def wait(self) -> None:
        """Wait until everything is written; raises what went wrong."""

    @abstractmethod
    def close(self) -> None:
        """Wait and release; safe to call twice."""


class MemoryStore(Store):
    """Writes nothing: remembers the weights of the best evaluation until the run ends."""

    is_lasting = False

    def __init__(self) -> None:
        self._info: CheckpointInfo | None = None
        self._state: dict[str, Any] = {}

    def save(
        self,
        state: Mapping[str, Any],
        *,
        step: int,
        epoch: int,
        metrics: Mapping[str, float],
        score: float | None,
    ) -> None:
        """Remember the weights if no earlier ones were as good."""
        if score is None or math.isnan(score):
            return
        best = self._info.score if self._info else None
        if best is None or score > best:
            check_weights(state["model"], step)
            self._info = CheckpointInfo(None, step, epoch, dict(metrics), score)
            self._state = {"model": state["model"]}

    def poll(self) -> None:
        """Nothing goes on behind the loop's back."""

    def go_back(self, step: int) -> None:
        """Nothing of an earlier process is here."""

    def last(self) -> CheckpointInfo | None:
        """None: only the best is remembered."""
        return None

    def best(self) -> CheckpointInfo | None:
        """The best so far."""
        return self._info

    def load(self, where: Literal["last", "best"] | Path) -> tuple[dict[str, Any], CheckpointInfo]:
        """The weights of the best."""
        if where != "best" or self._info is None:
            raise NoCheckpointError(
                f"no checkpoint {where!r}: this run keeps none on disk "
                "(checkpoint=default keeps them)"
            )
        return self._state, self._info

    def wait(self) -> None:
        """Nothing is under way."""

    def close(self) -> None:
        """Nothing to release."""


class SharedStore:
    """The store of rank 0, for all ranks: it writes and reads, what it reads goes to all.

    Each method but ``poll`` and ``wait_alone`` is a collective.

    Args:
        store: used on rank 0 only.
        group: the ranks.

    Attributes:
        is_lasting, needs_copies: see `Store`.
    """

    def __init__(self, store: Store, group: Collective) -> None:
        self.is_lasting, self.needs_copies = store.is_lasting, store.needs_copies
        self._store = store
        self._group = group

    def save(self, state: Mapping[str, Any], **about: Any) -> None:
        """See `Store.save`; the state of rank 0 is kept, and the others wait until it is taken."""
        self._group.call_on_main(lambda: self._store.save(state, **about))

    def poll(self) -> None:
        """See `Store.poll`; no collective, for it is asked after each step."""
        if self._group.rank == 0:
            self._store.poll()

    def go_back(self, step: int) -> None:
        """See `Store.go_back`."""
        self._group.call_on_main(lambda: self._store.go_back(step))

    def load_best(self) -> tuple[dict[str, Any], CheckpointInfo] | None:
        """The best checkpoint, see `Store.load`; None where there is none."""

        def load() -> tuple[dict[str, Any], CheckpointInfo] | None:
            try:
                return self._store.load("best")
            except NoCheckpointError:
                return None

        return self._group.call_on_main(load)

    def wait(self) -> None:
        """See `Store.wait`."""
        self._group.call_on_main(self._store.wait)

    def wait_alone(self) -> None:
        """Wait on this rank, asking nobody: for a run that ends with an error."""
        if self._group.rank == 0:
            self._store.wait()
