"""The work of one rank: builds from the config of a job, and trains, evaluates or predicts."""

from __future__ import annotations

import logging
import shlex
from collections.abc import Callable
from pathlib import Path
from typing import Literal

from expkit.builder import Builder
from expkit.checkpoint.convert import weights_for
from expkit.checkpoint.find import Found, check_bare, find_checkpoint
from expkit.core.errors import DataError, MismatchError
from expkit.core.evaluator import Evaluator
from expkit.core.predictor import Predictor
from expkit.core.result import Result
from expkit.core.trainer import Trainer
from expkit.job import Job
from expkit.launch.signals import StopSignals
from expkit.outcome import shown
from expkit.run.directory import RunDirectory
from expkit.run.logs import RunLog
from expkit.run.predictions import write_predictions

log = logging.getLogger(__name__)

Pulse = Callable[[], int]
"""A number that changes as long as the work goes on."""


def work(
    job: Job,
    run: RunDirectory,
    run_log: RunLog,
    signals: StopSignals,
    begin: Callable[[], None],
    follow: Callable[[Pulse], None],
) -> Result:
    """Carry out the task of a job.

    Args:
        job: has a checked and resolved config.
        run: where to write.
        run_log: told of the progress, so that each line names its step.
        signals: stop signals, which end a training in order.
        begin: called when everything is built and restored, right before the work itself.
        follow: told how to see whether the work goes on.

    Raises:
        ExpkitError: bad input, or what ended the training.
        KeyboardInterrupt: a stop signal before the training began, or a second one.
    """
    builder = Builder(job.config, run, job.files)
    signals.restore()
    try:
        builder.logger.describe(job.config_text, job.config)
        if job.config["task"] == "evaluate":
            evaluator, found = _evaluator(builder, job)
            follow(lambda: evaluator.num_batches)
            begin()
            result = _evaluate(builder, evaluator, found)
        elif job.config["task"] == "predict":
            predictor, found = _predictor(builder, job)
            follow(lambda: predictor.num_batches)
            begin()
            written = write_predictions(predictor, run.path)
            result = Result(steps=found.info.step, epochs=found.info.epoch, predictions=written)
        else:
            trainer = _trainer(builder, job)
            _tell_ranks(builder, trainer)
            run_log.follow(trainer.progress)
            follow(lambda: trainer.progress.step + trainer.evaluator.num_batches)
            begin()
            run.count_at_least(trainer.progress.seconds_before)
            signals.on_stop(trainer.interrupt)
            result = trainer.fit()
        if result.status == "completed" and job.config["task"] != "predict":
            builder.logger.conclude(result.metrics)
        return result
    finally:
        builder.close()


def _trainer(builder: Builder, job: Job) -> Trainer:
    """The trainer, with the state that the job begins from."""
    trainer, config = builder.trainer(), job.config
    if config["resume"] is not None:
        found = _find(builder, config["resume"], "last")
        _go_on(trainer, found, job)
        builder.logger.rewind(trainer.progress.step)
        return trainer
    if config["init_from"] is not None:
        _take_weights(builder, _find(builder, config["init_from"], "best"))
    if job.begins_anew:
        builder.driver.group.call_on_main(lambda: check_bare(job.open().checkpoints))
        builder.logger.rewind(0)
        log.info("there is no checkpoint to go on from: the run begins anew in its directory")
    return trainer


def _go_on(trainer: Trainer, found: Found, job: Job) -> None:
    """Take over a state; what does not fit is told beside what is other than it was."""
    try:
        trainer.load_state(found.state, found.description)
    except MismatchError as error:
        if job.asked:
            raise MismatchError(f"{error}. To go on, leave out {shlex.join(job.asked)}") from error
        if job.changes:  # a file of the config
            changes = "; ".join(job.changes)
            raise MismatchError(f"{error}. Other than it was: {changes}") from error
        raise


def _tell_ranks(builder: Builder, trainer: Trainer) -> None:
    """Say what several processes share: with data.batch_size a step grows with their number."""
    driver = builder.driver
    if driver.world_size > 1:
        size = trainer.samples_per_step
        share = "the samples of a step" if size is None else f"{size} samples in a step"
        log.info("ranks    %d on %s, %s", driver.world_size, driver.device, share)


def _evaluator(builder: Builder, job: Job) -> tuple[Evaluator, Found]:
    """The evaluator of a model whose weights are there."""
    evaluator = builder.evaluator()
    if not evaluator.has_data:
        raise DataError(
            "there is no evaluation set: data.source gave none; allowed: one that does, or "
            "task=predict for a set without targets"
        )
    found = _find(builder, job.config["init_from"], "best")
    _take_weights(builder, found)
    return evaluator, found


def _predictor(builder: Builder, job: Job) -> tuple[Predictor, Found]:
    """The predictor of a model whose weights are there."""
    predictor = builder.predictor()
    if not predictor.sets:
        raise DataError(
            "there is nothing to predict: data.source gave no set to predict or evaluate"
        )
    found = _find(builder, job.config["init_from"], "best")
    _take_weights(builder, found)
    return predictor, found


def _evaluate(builder: Builder, evaluator: Evaluator, found: Found) -> Result:
    metrics = evaluator.run()
    step, epoch = found.info.step, found.info.epoch
    builder.logger.log("eval", step, epoch, metrics)
    return Result(
        steps=step,
        epochs=epoch,
        metrics=metrics,
        monitor=builder.monitor,
        best_eval=metrics,
        best_epoch=epoch,
        best_step=step,
    )


def _find(builder: Builder, path: str, prefer: Literal["last", "best"]) -> Found:
    """The checkpoint at a path: rank 0 reads it, for all."""
    place = Path(shown(Path(path)))
    return builder.driver.group.call_on_main(lambda: find_checkpoint(place, prefer))


def _take_weights(builder: Builder, found: Found) -> None:
    driver = builder.driver
    driver.load_model_state(weights_for(driver, found.state))
    source = found.state.get("origin", {}).get("framework", driver.framework)
    note = "" if source == driver.framework else f", converted from {source}"
    log.info("weights from %s%s", found.description, note)
