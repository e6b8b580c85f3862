"""One rank of a run: builds from the config that it is given, and trains or evaluates."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from pathlib import Path

from expkit.builder import Builder, Config
from expkit.checkpoint.find import find_checkpoint
from expkit.core.errors import DataError
from expkit.core.result import Result
from expkit.launch.signals import StopSignals
from expkit.run.directory import RunDirectory
from expkit.run.logs import RunLog

log = logging.getLogger(__name__)


def work(
    config: Config,
    files: Mapping[str, str],
    run: RunDirectory,
    run_log: RunLog,
    signals: StopSignals,
    begin: Callable[[], None],
) -> Result:
    """Carry out the task of a config in a run directory.

    Args:
        config: a checked and resolved config.
        files: the file that each group's option comes from, for errors.
        run: where to write.
        run_log: told of the progress, so that each line names its step.
        signals: stop signals, which end a training in order.
        begin: called when everything is built and restored, right before the work itself.

    Raises:
        ExpkitError: bad input, or what ended the training.
        KeyboardInterrupt: a stop signal before the training began, or a second one.
    """
    builder = Builder(config, run, files)
    signals.restore()
    try:
        builder.logger.describe(run.config_file.read_text(encoding="utf-8"), config)
        if config["task"] == "evaluate":
            result = _evaluate(builder, config, begin)
        else:
            result = _train(builder, config, run_log, signals, begin)
        if result.status == "completed":
            builder.logger.conclude(result.metrics)
        return result
    finally:
        builder.close()


def _train(
    builder: Builder,
    config: Config,
    run_log: RunLog,
    signals: StopSignals,
    begin: Callable[[], None],
) -> Result:
    trainer = builder.trainer()
    run_log.follow(trainer.progress)
    if config["resume"] is not None:
        found = find_checkpoint(Path(config["resume"]), prefer="last")
        trainer.load_state(found.state)
        builder.logger.rewind(trainer.progress.step)
        log.info("resumed from %s", found.description)
    elif config["init_from"] is not None:
        found = find_checkpoint(Path(config["init_from"]), prefer="best")
        trainer.driver.load_model_state(found.state["model"])
        log.info("weights from %s", found.description)
    begin()
    signals.on_stop(trainer.interrupt)
    return trainer.fit()


def _evaluate(builder: Builder, config: Config, begin: Callable[[], None]) -> Result:
    evaluator = builder.evaluator()
    if not evaluator.has_data:
        raise DataError("there is no evaluation set: data.source gave none")
    found = find_checkpoint(Path(config["init_from"]), prefer="best")
    builder.driver.load_model_state(found.state["model"])
    log.info("weights from %s", found.description)
    begin()
    metrics = evaluator.run()
    step, epoch = found.info.step, found.info.epoch
    builder.logger.log("eval", step, epoch, metrics)
    return Result(
        steps=step,
        epochs=epoch,
        metrics=metrics,
        monitor=config["monitor"],
        best_eval=metrics,
        best_epoch=epoch,
        best_step=step,
    )
