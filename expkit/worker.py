"""One rank of a run: builds from the config that it is given, trains or evaluates, and says what came of it."""

from __future__ import annotations

import logging
from pathlib import Path

from expkit.build import Builder, Config
from expkit.checkpoint.find import find_checkpoint
from expkit.core.result import Result
from expkit.launch.signals import StopSignals
from expkit.run.directory import RunDirectory
from expkit.run.logs import RunLog

log = logging.getLogger(__name__)


def work(config: Config, run: RunDirectory, run_log: RunLog, signals: StopSignals) -> Result:
    """Carry out the task of a config in a run directory.

    Args:
        config: a checked and resolved config.
        run: where to write.
        run_log: told of the progress, so that each line names its step.
        signals: stop signals, which end a training in order.

    Raises:
        ExpkitError: bad input, or what ended the training.
        KeyboardInterrupt: a stop signal before the training began, or a second one.
    """
    builder = Builder(config, run)
    try:
        if config["task"] == "evaluate":
            return _evaluate(builder, config)
        return _train(builder, config, run, run_log, signals)
    finally:
        builder.close()


def _train(
    builder: Builder, config: Config, run: RunDirectory, run_log: RunLog, signals: StopSignals
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
    signals.on_stop(trainer.interrupt)
    return trainer.fit()


def _evaluate(builder: Builder, config: Config) -> Result:
    evaluator = builder.evaluator()
    found = find_checkpoint(Path(config["init_from"]), prefer="best")
    builder.driver.load_model_state(found.state["model"])
    log.info("weights from %s", found.description)
    metrics = evaluator.run()
    builder.logger.log("eval", found.info.step, found.info.epoch, metrics)
    return Result(
        steps=found.info.step, epochs=found.info.epoch, metrics=metrics, monitor=config["monitor"]
    )
