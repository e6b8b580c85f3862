"""One run from its config to its outcome: directory, log, status, result."""

from __future__ import annotations

import logging
import sys
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from omegaconf import OmegaConf

from expkit.build import Config
from expkit.core.errors import ConfigError, ExpkitError
from expkit.core.result import Result
from expkit.launch.signals import StopSignals
from expkit.run.directory import RunDirectory
from expkit.run.logs import RunLog
from expkit.worker import work

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Outcome:
    """What a run leaves behind.

    Attributes:
        status: ``completed``, ``interrupted`` or ``failed``.
        exit_code: of a command that is this run alone.
        objective: the monitored metric of the best evaluation; None without.
        directory: the run directory.
        seconds: how long it took, building included.
        error: type and message of what ended it; None where nothing did.
    """

    status: str
    exit_code: int
    objective: float | None
    directory: Path
    seconds: float
    error: str | None = None


def run_job(
    config: Config, overrides: Sequence[str], run: RunDirectory, argv: Sequence[str]
) -> Outcome:
    """Run a checked config in a new (or resumed) run directory; errors end in the outcome, not in a traceback.

    Args:
        config: resolved.
        overrides: as the user gave them.
        run: the directory.
        argv: the command line, to be kept.
    """
    if config["resume"] is None:
        run.write_config(OmegaConf.to_yaml(OmegaConf.create(dict(config))), overrides)
    run.start(
        argv=argv,
        task=config["task"],
        driver=config["driver"]["framework"],
        world_size=1,
        seed=config["seed"],
        name=config["name"],
        tags=config["tags"],
    )
    with RunLog(run.path) as run_log, StopSignals() as signals:
        try:
            log.info("run      %s", _shown(run.path))
            result = work(config, run, run_log, signals)
        except KeyboardInterrupt as stop:
            reason = str(stop) or "KeyboardInterrupt"
            run.interrupt(reason)
            log.warning("interrupted by %s", reason)
            return _outcome(run, "interrupted", signals.exit_code, None, reason)
        except Exception as error:
            return _failed(run, error)
        return _ended(run, result, signals)


def _ended(run: RunDirectory, result: Result, signals: StopSignals) -> Outcome:
    """Say and keep how a run ended that ended by itself."""
    if (
        result.status == "failed"
    ):  # trainer.on_exception=ignore: the error was logged, the command goes on
        run.fail(RuntimeError(result.reason), "")
        return _outcome(run, "failed", 0, result.objective, result.reason)
    if result.status == "interrupted":
        run.interrupt(result.reason or "stop", result.to_dict())
        log.warning(
            "interrupted by %s after step %d; go on with: python -m expkit resume=%s",
            result.reason,
            result.steps,
            _shown(run.path),
        )
        return _outcome(run, "interrupted", signals.exit_code, result.objective, result.reason)
    run.complete(result.to_dict())
    for line in _summary(run, result):
        log.info(line)
    return _outcome(run, "completed", 0, result.objective, None)


def _failed(run: RunDirectory, error: Exception) -> Outcome:
    """An error that expkit raises on purpose is told in its own words, any other with its traceback."""
    text = "".join(traceback.format_exception(error))
    run.fail(error, text)
    log.debug("traceback", exc_info=error)
    cause = error.__cause__ if isinstance(error, ExpkitError) else error
    if isinstance(error, ExpkitError):
        log.error("%s", error)
    if cause is not None and not isinstance(cause, ExpkitError):
        log.error("%s", "".join(traceback.format_exception(cause)).rstrip())
    log.error("failed; the log and the status are in %s", _shown(run.path))
    exit_code = error.exit_code if isinstance(error, ExpkitError) else 1
    kind = "ConfigError" if isinstance(error, ConfigError) else type(error).__name__
    return _outcome(run, "failed", exit_code, None, f"{kind}: {error}".splitlines()[0])


def _outcome(
    run: RunDirectory, status: str, exit_code: int, objective: float | None, error: str | None
) -> Outcome:
    return Outcome(status, exit_code, objective, run.path, run.info()["seconds"], error)


def _summary(run: RunDirectory, result: Result) -> list[str]:
    """The last lines of a run: what it came to, how long it took, where to look."""
    lines = []
    if result.reason:
        lines.append(f"stopped  {result.reason}")
    if result.best_eval and result.objective is not None and result.monitor:
        name = result.monitor.removeprefix("-")
        place = f"step {result.best_step}, epoch {(result.best_epoch or 0) + 1}"
        lines.append(f"best     {name} {result.objective:.4f} at {place}")
    if result.metrics:
        shown = "  ".join(f"{name} {value:.4f}" for name, value in result.metrics.items())
        lines.append(f"{'last' if result.best_eval else 'eval'}     {shown}")
    lines.append(f"time     {result.seconds:.1f} s, {result.steps} steps")
    if run.tensorboard.is_dir():
        lines.append(f"curves   tensorboard --logdir {_shown(run.path)}")
    return lines


def _shown(path: Path) -> str:
    """A path as it can be typed from here."""
    try:
        return str(path.relative_to(Path.cwd()))
    except ValueError:
        return str(path)


def print_error(message: str) -> None:
    """Tell the user what is wrong, on standard error."""
    sys.stderr.write(message.rstrip() + "\n")
