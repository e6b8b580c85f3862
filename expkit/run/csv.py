"""metrics.csv: the numbers of a run for spreadsheets and data frames, one number a line."""

from __future__ import annotations

import csv
import io
from collections.abc import Mapping
from pathlib import Path

from expkit.core.logger import Split
from expkit.run.lines import LineFile, keep_lines
from expkit.run.loggers import FileLogger
from expkit.run.logs import escape_control

CSV_FILE = "metrics.csv"
COLUMNS = ("step", "epoch", "split", "name", "value")


class CsvLogger(FileLogger):
    """Appends the columns step, epoch, split, name and value; the first line names them.

    Args:
        directory: the run directory.
    """

    def __init__(self, directory: Path) -> None:
        super().__init__(directory / CSV_FILE)
        self._file = LineFile(self.path)
        self._has_header = False

    def rewind(self, step: int) -> None:
        """Drop the lines of later steps."""
        self._file.close()

        def wanted(line: bytes) -> bool:
            first = line.split(b",", 1)[0]
            return not first.isdigit() or (len(first) < 20 and int(first) <= step)

        keep_lines(self.path, wanted)

    def _record(self, split: Split, step: int, epoch: int, metrics: Mapping[str, float]) -> None:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        if not self._has_header and not (self.path.exists() and self.path.stat().st_size):
            writer.writerow(COLUMNS)
        for name, value in metrics.items():
            # A line break inside a quoted name would make two lines of one.
            name = escape_control(" ".join(name.splitlines()))
            writer.writerow((step, epoch, split, name, float(value)))
        self._file.append(text.getvalue().encode())
        self._has_header = True

    def _release(self) -> None:
        self._file.close()
