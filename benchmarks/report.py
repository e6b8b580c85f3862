"""What a section comes to: a table for people, records for programs."""

from __future__ import annotations

import json
import os
import platform
import statistics
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from importlib import metadata
from pathlib import Path
from typing import Any

_PACKAGES = ("expkit", "torch", "paddlepaddle", "numpy", "hydra-core")


@dataclass(frozen=True)
class Options:
    """What the command line asks of a section.

    Attributes:
        rounds: paired rounds; None = the section's own number.
        quick: one round of little work.
        only: names of the systems to measure besides their baselines; empty = all.
    """

    rounds: int | None = None
    quick: bool = False
    only: frozenset[str] = frozenset()

    def choose(self, names: Sequence[str]) -> list[str]:
        """The systems that are asked for."""
        unknown = self.only - set(names)
        if unknown:
            raise SystemExit(f"no system {', '.join(unknown)}; there are: {', '.join(names)}")
        return [name for name in names if not self.only or name in self.only]


@dataclass
class Report:
    """The outcome of a section.

    Attributes:
        name: of the section.
        title: what was measured.
        columns: heads of the table.
        rows: its lines.
        records: every single measurement.
        problems: systems that failed or did other work than their baseline.
    """

    name: str
    title: str
    columns: Sequence[str]
    rows: list[Sequence[str]] = field(default_factory=list)
    records: dict[str, Any] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def text(self) -> str:
        """The table in Markdown."""
        rule = ["---"] * len(self.columns)
        lines = [f"| {' | '.join(row)} |" for row in (self.columns, rule, *self.rows)]
        return "\n".join([f"**{self.name}**: {self.title}", "", *lines, *self.problems])

    def save(self, directory: Path) -> None:
        """Write ``<name>.md`` and ``<name>.json``, with what the figures depend on."""
        directory.mkdir(parents=True, exist_ok=True)
        (directory / f"{self.name}.md").write_text(self.text() + "\n")
        content = {
            "time": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "python": platform.python_version(),
            "machine": platform.machine(),
            "cores": os.cpu_count(),
            "load": os.getloadavg(),
            "versions": {name: _version(name) for name in _PACKAGES},
            "problems": self.problems,
            "records": self.records,
        }
        (directory / f"{self.name}.json").write_text(json.dumps(content, indent=1) + "\n")


def median_of(values: Sequence[float], pattern: str = "{:.2f}") -> str:
    """``median [quartile - quartile]``; a dash for no value."""
    if not values:
        return "-"
    if len(values) == 1:
        return pattern.format(values[0])
    low, middle, high = statistics.quantiles(values, n=4, method="inclusive")
    return "{} [{} - {}]".format(*(pattern.format(value) for value in (middle, low, high)))


def _version(package: str) -> str | None:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return None
