"""Where a run comes from: the versions and the source state that made it."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

_GIT_TIMEOUT_S = 2.0
_PACKAGES = (
    "expkit",
    "numpy",
    "hydra-core",
    "torch",
    "paddlepaddle",
    "paddlepaddle-gpu",
    "safetensors",
)


def package_versions() -> dict[str, str]:
    """Python and the installed packages that matter, without importing any of them."""
    versions = {"python": platform.python_version()}
    for package in _PACKAGES:
        try:
            versions[package] = importlib.metadata.version(package)
        except importlib.metadata.PackageNotFoundError:
            continue
    return versions


def git_state(directory: Path) -> dict[str, Any] | None:
    """Commit and cleanness of the working tree around ``directory``.

    Returns:
        ``{"commit": hash or None before the first one, "dirty": whether tracked files differ}``;
        None outside a working tree, without git, and where git takes longer than two seconds.
    """
    command = [
        *("git", "--no-optional-locks", "-C", os.fspath(directory)),
        *("status", "--porcelain=v2", "--branch", "--untracked-files=no"),
    ]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_GIT_TIMEOUT_S,
            check=True,
        )
    except (OSError, subprocess.SubprocessError):
        return None
    lines = answer.stdout.decode(errors="replace").splitlines()
    commit = None
    for line in lines:
        if line.startswith("# branch.oid ") and not line.endswith("(initial)"):
            commit = line.split()[2]
    return {"commit": commit, "dirty": any(not line.startswith("#") for line in lines)}


class ProvenanceReader:
    """Finds versions and git state beside the start of a run, which takes tens of milliseconds.

    Args:
        directory: whose git state is wanted.
        deliver: called from a thread with ``{"versions": ..., "git": ...}``.
    """

    def __init__(self, directory: Path, deliver: Callable[[dict[str, Any]], None]) -> None:
        self._directory = directory
        self._deliver = deliver
        self._thread = threading.Thread(target=self._read, name="provenance", daemon=True)
        self._thread.start()

    def wait(self) -> None:
        """Wait for the delivery, but never for long."""
        self._thread.join(2 * _GIT_TIMEOUT_S)

    def _read(self) -> None:
        self._deliver({"versions": package_versions(), "git": git_state(self._directory)})
