"""Size and depth limits, kept before a parser that would choke sees the text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from expkit.config.suggestion import show
from expkit.core.errors import Problem

MAX_FILE_BYTES = 1_000_000
MAX_OVERRIDE_LENGTH = 4_000
MAX_OVERRIDES = 1_000
MAX_JOBS = 10_000
MAX_DEPTH = 32
MAX_VALUES = 100_000
MAX_INTERPOLATIONS = 1_000

_OPENING = re.compile(r"[\[({]|\$\{")


def check_override_text(text: str) -> Problem | None:
    """Refuse an override that the grammar's parser would take seconds for."""
    key = override_key(text)
    if len(text) > MAX_OVERRIDE_LENGTH:
        return Problem(
            key,
            f"has {len(text)} characters; allowed: {MAX_OVERRIDE_LENGTH}; put it into a file",
        )
    if len(_OPENING.findall(text)) > MAX_DEPTH and _depth(text) > MAX_DEPTH:
        return Problem(key, f"brackets are nested more than {MAX_DEPTH} deep")
    if "\x00" in text:
        return Problem(key, "a NUL character is allowed nowhere")
    return None


def override_key(text: str) -> str:
    """The part of an override before its ``=``, fit to be shown."""
    key = text.partition("=")[0].strip().lstrip("+~")
    return key if key.isprintable() and 0 < len(key) <= 80 else show(key)


def _depth(text: str) -> int:
    deepest = depth = 0
    for character in text:
        depth += (character in "[{(") - (character in "]})")
        deepest = max(deepest, depth)
    return deepest


def check_files(paths: Iterable[Path]) -> Iterator[Problem]:
    """Check users' YAML files: size, encoding, syntax, depth, double keys, expansion of aliases."""
    for path in paths:
        try:
            size = path.stat().st_size
            if not path.is_file():
                yield Problem(str(path), "is no regular file")
            elif size > MAX_FILE_BYTES:
                yield Problem(
                    str(path), f"has {size} bytes; a config file may have {MAX_FILE_BYTES}"
                )
            else:
                yield from _check_text(str(path), path.read_text(encoding="utf-8"))
        except OSError as error:
            yield Problem(str(path), f"can't be read: {error.strerror}")
        except UnicodeDecodeError as error:
            yield Problem(
                str(path),
                f"is not UTF-8 text: byte {error.object[error.start]:#04x} at {error.start}",
            )


def _check_text(name: str, text: str) -> Iterator[Problem]:
    import yaml

    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        message = _Scan().run(yaml.parse(text, Loader=loader))
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" in line {mark.line + 1}" if mark is not None else ""
        reason = getattr(error, "problem", None) or getattr(error, "reason", "") or str(error)
        message = f"is not valid YAML{where}: {str(reason).splitlines()[0]}"
    except RecursionError:
        message = f"is nested more than {MAX_DEPTH} deep"
    if message:
        yield Problem(name, message)


class _Scan:
    """One pass over the events of a YAML text; nothing is expanded or built."""

    def __init__(self) -> None:
        self._open: list[_Node] = []
        self._sizes: dict[str, int] = {}

    def run(self, events: Iterable[object]) -> str | None:
        """What is wrong, or None."""
        import yaml

        for event in events:
            message = None
            if isinstance(event, yaml.AliasEvent):
                size = self._sizes.get(str(event.anchor))
                message = self._value(size or 1, None)
                if size is None:
                    message = f"refers to {show(event.anchor)}, which stands nowhere before it"
            elif isinstance(event, yaml.ScalarEvent):
                if event.anchor:
                    self._sizes[event.anchor] = 1
                message = self._value(1, event.value)
            elif isinstance(event, yaml.MappingStartEvent | yaml.SequenceStartEvent):
                self._open.append(_Node(isinstance(event, yaml.MappingStartEvent), event.anchor))
                if len(self._open) > MAX_DEPTH:
                    message = f"is nested more than {MAX_DEPTH} deep"
            elif isinstance(event, yaml.MappingEndEvent | yaml.SequenceEndEvent):
                node = self._open.pop()
                if node.anchor:
                    self._sizes[node.anchor] = node.size
                message = self._value(node.size, None)
            if message:
                mark = getattr(event, "start_mark", None)
                return message + (f" (line {mark.line + 1})" if mark is not None else "")
        return None

    def _value(self, size: int, scalar: str | None) -> str | None:
        """Count a finished value into the node that holds it."""
        if not self._open:
            return None
        node = self._open[-1]
        node.size += size
        if node.size > MAX_VALUES:
            return f"expands to more than {MAX_VALUES} values"
        if node.is_mapping:
            is_key, node.awaits_value = not node.awaits_value, not node.awaits_value
            if is_key and scalar is not None:
                if scalar in node.keys:
                    return f"has the key {show(scalar)} twice"
                node.keys.add(scalar)
        return None


class _Node:
    """A mapping or sequence that is not yet closed."""

    def __init__(self, is_mapping: bool, anchor: str | None) -> None:
        self.is_mapping = is_mapping
        self.anchor = anchor
        self.size = 1
        self.awaits_value = False
        self.keys: set[str] = set()
