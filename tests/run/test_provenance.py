from __future__ import annotations

import platform
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from expkit.run import provenance
from expkit.run.provenance import ProvenanceReader, git_state, package_versions


def git(directory, *args):
    identity = ["-c", "user.name=n", "-c", "user.email=n@example.org", "-c", "commit.gpgsign=false"]
    command = ["git", "-C", str(directory), *identity, *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def repository(tmp_path):
    git(tmp_path, "init", "-q")
    (tmp_path / "a.txt").write_text("one")
    git(tmp_path, "add", "a.txt")
    return tmp_path


def test_git_state_is_commit_and_whether_tracked_files_differ(repository):
    assert git_state(repository) == {"commit": None, "dirty": True}
    git(repository, "commit", "-q", "-m", "first")
    commit = git(repository, "rev-parse", "HEAD")
    assert git_state(repository) == {"commit": commit, "dirty": False}
    (repository / "untracked.txt").write_text("")
    assert git_state(repository) == {"commit": commit, "dirty": False}
    (repository / "a.txt").write_text("two")
    assert git_state(repository) == {"commit": commit, "dirty": True}


def test_outside_a_working_tree_there_is_no_git_state(tmp_path):
    assert git_state(tmp_path) is None


def test_without_git_there_is_no_git_state(repository, monkeypatch):
    monkeypatch.setenv("PATH", "")
    assert git_state(repository) is None


def test_a_git_that_hangs_is_not_waited_for(tmp_path, monkeypatch):
    slow = tmp_path / "git"
    slow.write_text("#!/bin/sh\nexec sleep 10\n")
    slow.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/usr/bin:/bin")
    monkeypatch.setattr(provenance, "_GIT_TIMEOUT_S", 0.1)
    assert git_state(tmp_path) is None


def test_versions_are_found_without_importing(monkeypatch):
    versions = package_versions()
    assert versions["python"] == platform.python_version()
    assert versions["numpy"] == np.__version__
    code = (
        "import sys; from expkit.run.provenance import package_versions; package_versions()\n"
        "print(not {'torch', 'paddle', 'numpy'} & set(sys.modules))"
    )
    answer = subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        check=True,
        cwd=Path(__file__).parents[2],
    )
    assert answer.stdout.strip() == "True"


def test_absent_packages_are_left_out(monkeypatch):
    monkeypatch.setattr(provenance, "_PACKAGES", ("numpy", "no-such-package"))
    assert set(package_versions()) == {"python", "numpy"}


def test_the_reader_delivers_both(repository):
    found = []
    reader = ProvenanceReader(repository, found.append)
    reader.wait()
    assert found == [{"versions": package_versions(), "git": git_state(repository)}]
