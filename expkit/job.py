"""A job: all that a run is made from, decided once and then the same on every rank."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf

from expkit.changes import asked_for, changes_of
from expkit.checkpoint.find import begins_anew, check_resumable, check_source
from expkit.checkpoint.search import newest_step
from expkit.config.schema import is_distributed
from expkit.config.validation import Composition
from expkit.core.errors import CheckpointError, ConfigError, Problem
from expkit.data.sources.bundled import check_bundled
from expkit.launch.devices import ranks_of
from expkit.launch.installed import check_installed
from expkit.launch.output import check_directory
from expkit.outcome import end_is_lost, nothing_left, shown
from expkit.run.directory import RunDirectory
from expkit.run.history import key_of, run_of, saved_config, saved_overrides


@dataclass(frozen=True)
class Job:
    """What a run is made from. It goes to other processes as JSON.

    Attributes:
        config: the resolved config.
        driver: the name of the driver's option.
        files: the file that each group's option comes from, for errors.
        overrides: those of the command line.
        argv: the command line.
        path: the run directory.
        changes: for a run that goes on: what is other than it was, a line each; None for a new run.
        asked: of the arguments, those for which its checkpoint may be of something else.
        attempt: how often its ranks were started before.
    """

    config: dict[str, Any]
    driver: str
    files: Mapping[str, str]
    overrides: tuple[str, ...]
    argv: tuple[str, ...]
    path: str
    changes: tuple[str, ...] | None = None
    asked: tuple[str, ...] = ()
    attempt: int = 0

    @property
    def is_distributed(self) -> bool:
        """Whether its driver runs in several processes."""
        return is_distributed(self.config)

    def open(self) -> RunDirectory:
        """The run directory."""
        return RunDirectory(Path(self.path))

    @property
    def begins_anew(self) -> bool:
        """Whether an earlier process was at work in its directory, to no avail."""
        is_first = self.changes is None and self.attempt == 0
        return self.config["resume"] is None and not is_first

    @property
    def config_text(self) -> str:
        """The config as YAML."""
        return OmegaConf.to_yaml(OmegaConf.create(dict(self.config)))

    def keep_config(self) -> None:
        """Write the config and its overrides into the run directory, as they shall hold from now.

        Raises:
            RunDirectoryError: they cannot be written.
        """
        kept, overrides = self, list(self.overrides)
        if self.changes is not None:
            path = Path(self.path)
            kept = replace(self, config=lasting(self.config, saved_config(path)))
            before = [text for text in saved_overrides(path) if key_of(text) == "init_from"]
            overrides = [*before, *(text for text in overrides if key_of(text) != "resume")]
        self.open().write_config(kept.config_text, overrides)

    def again(self) -> Job:
        """The job after its ranks have failed: from the last checkpoint, where there is one."""
        try:
            check_source(Path(self.path))
        except CheckpointError:
            return replace(self, attempt=self.attempt + 1)
        config = {**self.config, "resume": self.path}
        return replace(self, config=config, attempt=self.attempt + 1)

    def to_json(self) -> str:
        """The job as text."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> Job:
        """The job that ``to_json`` wrote."""
        content = json.loads(text)
        changes = content["changes"]
        lists = {key: tuple(content[key]) for key in ("overrides", "argv", "asked")}
        return cls(**{**content, **lists, "changes": None if changes is None else tuple(changes)})


def lasting(config: Mapping[str, Any], before: Mapping[str, Any]) -> dict[str, Any]:
    """What of a config holds each time a run goes on, given the one that its directory keeps."""
    return {**config, "resume": None, "init_from": before.get("init_from")}


def check_beginning(composition: Composition) -> None:
    """Look for what a run needs that is not in its config, before anything is made.

    Raises:
        ConfigError: the framework is not installed, there is no run or checkpoint to begin with, a
            new directory is named for a run that goes on, or there are no such devices.
        MissingDataError: the package with the data is not installed.
    """
    config = composition.config
    driver = config["driver"]
    check_installed(driver["framework"])
    source = config["data"].get("source")
    if isinstance(source, Mapping):
        check_bundled(str(source.get("_target_")))
    for key, check in (("resume", check_resumable), ("init_from", check_source)):
        _look(key, config[key], check)
    if config["resume"] is not None and "run.dir" in composition.hydra:
        message = "has no effect beside resume, which goes on in the run's own directory"
        raise ConfigError([Problem("hydra.run.dir", message, "init_from=... for a new run")])
    if is_distributed(config):
        devices = ranks_of(driver["num_processes"], driver["device"])
        if driver["backend"] == "nccl" and "cpu" in devices:
            message = "is 'nccl', which connects GPUs, but this machine shows none"
            raise ConfigError([Problem("driver.backend", message, "driver.backend=gloo")])
        check_directory(driver["worker_output"])


def _look(key: str, path: str | None, check: Callable[[Path], None]) -> None:
    if path is not None:
        try:
            check(Path(path))
        except CheckpointError as error:
            raise ConfigError([Problem(key, str(error))]) from error


def make_job(composition: Composition, argv: Sequence[str]) -> Job | None:
    """The job of a command line, with its run directory: a new one, or that of the run to go on.

    Returns:
        None where the run that would go on has nothing left to do, which is then said.

    Raises:
        ConfigError, MissingDataError: see `check_beginning`.
        RunDirectoryError: the directory cannot be made, or there is no such run.
    """
    check_beginning(composition)
    config = composition.config
    if config["resume"] is not None:
        return _going_on(composition, argv)
    exact = composition.hydra.get("run.dir")
    if exact is not None:
        run = RunDirectory.at(Path(exact))
    else:
        run = RunDirectory.create(Path(config["output_dir"]), config["name"])
    return new_job(composition, run, argv)


def new_job(composition: Composition, run: RunDirectory, argv: Sequence[str]) -> Job:
    """The job of a new run in its directory."""
    job = _describe(composition, run.path, argv)
    job.keep_config()
    return job


def _going_on(composition: Composition, argv: Sequence[str]) -> Job | None:
    path = Path(composition.config["resume"])
    run = RunDirectory.open(run_of(path))
    job = _describe(composition, run.path, argv)
    before = saved_config(run.path)
    if begins_anew(path):
        job = replace(job, config=lasting(job.config, before))
        _look("init_from", job.config["init_from"], check_source)
    changes = changes_of(run.path, before, lasting(job.config, before), composition)
    info = run.info()
    if info["status"] == "completed" and not changes:
        kept = _kept_before_end(run, info, job.config)
        if kept is None:
            sys.stdout.write(nothing_left(run.path, info) + "\n")
            return None
        sys.stdout.write(end_is_lost(run.path, info, kept) + "\n")
    given = [text for text in argv if text in composition.overrides]
    return replace(job, changes=changes, asked=asked_for(run.path, changes, given))


def _kept_before_end(
    run: RunDirectory, info: Mapping[str, Any], config: Mapping[str, Any]
) -> int | None:
    """The step of a completed run's last checkpoint, where its end should be in one but is not.

    That is so where the last save has failed, or its manifest is damaged. A run that makes
    checkpoints on request only may end without.
    """
    steps, last = (info.get("result") or {}).get("steps"), newest_step(run.checkpoints)
    if config["checkpoint"].get("save_every") is None or last is None:
        return None
    return last if isinstance(steps, int) and last < steps else None


def _describe(composition: Composition, path: Path, argv: Sequence[str]) -> Job:
    config = composition.config
    return Job(
        config=config,
        driver=composition.choices.get("driver", config["driver"]["framework"]),
        files=_files(composition),
        overrides=composition.overrides,
        argv=tuple(argv),
        path=str(path),
    )


def _files(composition: Composition) -> dict[str, str]:
    """The file of each group, as it can be typed, but where the command line itself names code."""
    given = {key_of(text) for text in composition.overrides}
    return {
        group: shown(Path(file))
        for group, file in composition.files.items()
        if f"{group}._target_" not in given
    }
