"""Names of runs and jobs: they become part of paths, shell commands and overrides as they are."""

from __future__ import annotations

import re

from expkit.core.errors import RunDirectoryError

MAX_NAME_CHARS = 80
_NAME = re.compile(r"\w[\w.+-]*")  # letters and digits of any script
_OTHER = re.compile(r"[^\w.+-]+")


def check_name(name: str) -> str:
    """``name``, if it can name a run.

    Raises:
        RunDirectoryError: it is too long, or a path, a shell or an override would misread it.
    """
    if not _NAME.fullmatch(name) or len(name) > MAX_NAME_CHARS:
        shown = name if len(name) <= MAX_NAME_CHARS else f"{name[:20]}... ({len(name)} characters)"
        raise RunDirectoryError(
            f"name is {shown!r}; allowed: letters, digits and _ . + -, a letter, digit or _ first, "
            f"at most {MAX_NAME_CHARS} characters (try: name={to_name(name)})"
        )
    return name


def to_name(text: str) -> str:
    """A name close to ``text``, such as ``lr-0.1-model-mlp`` of ``lr=0.1,model=mlp``."""
    name = _OTHER.sub("-", text).strip("-+.")[:MAX_NAME_CHARS].strip("-+.")
    return name or "run"
