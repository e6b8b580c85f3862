"""Which groups and options there are, expkit's own and the user's. Knows nothing of Hydra."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from expkit.core.errors import ConfigError, Problem


def _package_directory() -> Path:
    """``conf`` inside the package, as a wheel has it, else beside the package, as a clone has it.

    Found by the place of this file, not by an import, so that a clone works without an install.
    """
    package = Path(__file__).resolve().parents[1]
    inside = package / "conf"
    return inside if (inside / "config.yaml").is_file() else package.parent / "conf"


PACKAGE_DIRECTORY = _package_directory()
LOCAL = "local"
"""The group of the untracked overrides; it has one option, ``default``, taken where it exists."""

_KEY = re.compile(r"(?P<indent> *)(?P<name>[^\s#'\"\[{-][^:#]*):(?:\s+(?P<rest>.*))?$")
_OVERRIDE = re.compile(r"override /(\w+): *(\w+)")
_COMMENT = re.compile(
    r"""(?P<value>(?:'[^']*'|"[^"]*"|[^'"#]|(?<=\S)\#)*?)\s*(?:(?<!\S)\#\s*(?P<comment>.*))?$"""
)


@dataclass(frozen=True)
class Key:
    """A key of a config file: dotted path, value as written (empty for a parent), comment."""

    path: str
    value: str
    comment: str


@dataclass(frozen=True)
class Option:
    """One choice of a group: a file.

    Attributes:
        group: such as ``model``.
        name: such as ``cnn``.
        path: the file.
    """

    group: str
    name: str
    path: Path

    @property
    def is_shared(self) -> bool:
        """Whether it is only a part of other options: its file name begins with ``_``."""
        return self.path.name.startswith("_")

    @cached_property
    def text(self) -> str:
        """The file's text; the check of user files reports unreadable characters."""
        return self.path.read_text(encoding="utf-8", errors="replace")

    @cached_property
    def description(self) -> str:
        """The file's first comment line."""
        for line in self.text.splitlines():
            if line.startswith("#") and "@package" not in line:
                return line.lstrip("# ").strip()
        return ""

    @cached_property
    def keys(self) -> tuple[Key, ...]:
        """The keys below the group, but not those of its defaults list."""
        return tuple(read_keys(self.text))


class Catalog:
    """The options of every group along a search path; an earlier directory comes first.

    Attributes:
        directories: where to look, in order.
        groups: options by group and name.
        hidden: pairs (file, file it stands before).
    """

    def __init__(self, directories: Sequence[Path]) -> None:
        self.directories = tuple(directories)
        self.groups: dict[str, dict[str, Option]] = {}
        self.hidden: list[tuple[Path, Path]] = []
        for directory in self.directories:
            for path in sorted(directory.glob("*/**/*.yaml")):
                self._add(directory, path)

    def _add(self, directory: Path, path: Path) -> None:
        group, *rest = path.relative_to(directory).with_suffix("").parts
        if group == "hydra":
            return
        name = "/".join(rest)
        options = self.groups.setdefault(group, {})
        if name in options:
            self.hidden.append((options[name].path, path))
        else:
            options[name] = Option(group, name, path)

    @property
    def user_files(self) -> list[Path]:
        """The files that did not come with expkit."""
        paths = [option.path for options in self.groups.values() for option in options.values()]
        own = [
            path
            for path in paths
            if path.is_relative_to(PACKAGE_DIRECTORY) and path.parent.name != LOCAL
        ]
        return sorted(set(paths) - set(own))

    def choices(self, group: str) -> list[str]:
        """The names that may be chosen."""
        return [name for name, option in self.groups.get(group, {}).items() if not option.is_shared]

    def find(self, group: str, choice: str | None, key: str = "") -> Path | None:
        """The file of a key: the chosen option's, else the first option's that has the key."""
        options = self.groups.get(group, {})
        if choice in options:
            return options[choice].path
        for option in options.values():
            if any(entry.path == key for entry in option.keys):
                return option.path
        return None

    def with_key(self, group: str, key: str) -> list[str]:
        """The options of a group whose file has a key."""
        options = self.groups.get(group, {}).values()
        return [
            option.name for option in options if any(entry.path == key for entry in option.keys)
        ]

    def used_with(self, group: str, choice: str) -> set[tuple[str, str]]:
        """Groups and options that an experiment chooses beside an option."""
        used: set[tuple[str, str]] = set()
        for experiment in self.groups.get("experiment", {}).values():
            chosen = set(_OVERRIDE.findall(experiment.text))
            if (group, choice) in chosen:
                used |= chosen
        return used


def user_directories(config_dir: str | None = None, cwd: Path | None = None) -> list[Path]:
    """The user's config directories: ``--config-dir``, then ``./conf`` unless it is expkit's own.

    Raises:
        ConfigError: ``config_dir`` is no directory, or one of them has a ``config.yaml``, which
            would replace the whole of expkit's.
    """
    found: list[Path] = []
    if config_dir is not None:
        directory = Path(config_dir).absolute()
        if not directory.is_dir():
            raise ConfigError([Problem("--config-dir", f"no such directory: {directory}")])
        found.append(directory.resolve())
    usual = (cwd or Path.cwd()) / "conf"
    if usual.is_dir():
        found.append(usual.resolve())
    found = [path for path in dict.fromkeys(found) if path != PACKAGE_DIRECTORY]
    for directory in found:
        primary = directory / "config.yaml"
        if primary.exists():
            better = directory / LOCAL / "default.yaml"
            message = f"would replace expkit's own; put your defaults into {better}, or rename it"
            raise ConfigError([Problem(str(primary), message)])
    return found


def make_catalog(config_dir: str | None = None) -> Catalog:
    """The catalog of the present directory."""
    return Catalog([*user_directories(config_dir), PACKAGE_DIRECTORY])


def read_keys(text: str) -> Iterator[Key]:
    """The keys of a YAML text with their comments, read line by line (block style)."""
    parents: list[tuple[int, str]] = []
    skipped_indent: int | None = None
    for line in text.splitlines():
        match = _KEY.match(line)
        if match is None:
            continue
        indent, name = len(match["indent"]), match["name"].strip()
        if skipped_indent is not None and indent > skipped_indent:
            continue
        skipped_indent = indent if name in ("defaults", "hydra") else None
        if skipped_indent is not None:
            continue
        while parents and parents[-1][0] >= indent:
            parents.pop()
        path = ".".join([*(parent for _, parent in parents), name])
        rest = _COMMENT.match(match["rest"] or "")
        value, comment = (
            (rest["value"].strip(), rest["comment"] or "") if rest else (match["rest"], "")
        )
        yield Key(path, value, comment.strip())
        parents.append((indent, name))
