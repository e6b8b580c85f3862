"""Tables of the package `datasets` (Hugging Face), read column by column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, final

from expkit.core.batch import Indices, listed
from expkit.core.errors import DataError
from expkit.data.collate import IDENTITY, Collate


@final
class TableDataset:
    """A ``datasets.Dataset``: the rows of a batch are read at once, as NumPy arrays.

    A format or transform of its own is kept. Real numbers become float32, as the package has it;
    those of a field ``id`` stay as they are.

    Args:
        table: the data set.
        collate: pads the columns whose rows differ in length.

    Attributes:
        table: the data set with the format in which it is read.
        draws: whether reading may draw random numbers: with a transform of its own.
    """

    def __init__(self, table: Any, collate: Collate | None = None) -> None:
        kind = table.format["type"]
        self.table = table.with_format("numpy") if kind is None else table
        self.draws = kind == "custom"
        # Where the format is ours, identities are read without one: it would round them.
        named = kind is None and IDENTITY in table.column_names
        self._identities = table.select_columns(IDENTITY) if named else None
        self._collate = collate or Collate()

    def __len__(self) -> int:
        return len(self.table)

    def fetch(self, indices: Indices) -> Mapping[str, Any]:
        """These rows.

        Raises:
            DataError: they cannot be read, or do not fit together.
        """
        numbers = indices.tolist()
        try:
            columns = self.table[numbers]
            if self._identities is not None:
                columns = {**columns, IDENTITY: list(self._identities[numbers][IDENTITY])}
            return self._collate.columns(columns)
        except Exception as error:
            what = (
                str(error) if isinstance(error, DataError) else f"{type(error).__name__}: {error}"
            )
            raise DataError(f"samples {listed(numbers)} cannot be read: {what}") from error


def is_table(source: Any) -> bool:
    """Whether something is a ``datasets.Dataset``."""
    return all(hasattr(source, name) for name in ("with_format", "column_names", "__len__"))
