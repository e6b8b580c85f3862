"""The training as a user of expkit's Python API writes it: default callbacks, metrics.jsonl."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from benchmarks.work import Outcome, Work, samples
from expkit.callbacks import ProgressBar
from expkit.checkpoint import CheckpointStore
from expkit.core.driver import Driver
from expkit.core.logger import Logger
from expkit.core.trainer import Trainer
from expkit.data import Data
from expkit.losses import CrossEntropy
from expkit.metrics import Accuracy, MetricSet
from expkit.optimizers import Adam
from expkit.run.board import TensorBoardLogger
from expkit.run.loggers import LoggerGroup
from expkit.run.records import JsonLinesLogger, read_records


def fit(work: Work, directory: Path, driver: Driver, model: Any) -> Outcome:
    """Train, and read the losses from the run's records, which rank 0 keeps."""
    x, y, x_eval, y_eval = samples(work)
    loggers: list[Logger] = [JsonLinesLogger(directory)] if driver.rank == 0 else []
    options: dict[str, Any] = {"eval_every": None}
    if work.evaluates:
        loggers.append(TensorBoardLogger(directory))
        options = {
            "metrics": MetricSet({"accuracy": Accuracy()}),
            "monitor": "accuracy",
            "checkpoint": CheckpointStore(directory / "checkpoints"),
        }
    logger = LoggerGroup(loggers)
    trainer = Trainer(
        model=model,
        driver=driver,
        data=Data(
            train={"x": x, "y": y},
            eval={"x": x_eval, "y": y_eval} if work.evaluates else None,
            batch_size=work.batch_size,
        ),
        optimizer=Adam(lr=work.lr),
        loss=CrossEntropy(),
        callbacks=[ProgressBar()],
        logger=logger,
        run_dir=directory,
        n_epochs=work.epochs,
        accumulate=work.accumulate,
        log_every=work.log_every,
        save_every=None,  # on a new best alone, as the loops written by hand do
        **options,
    )
    result = trainer.fit()
    logger.close()
    if not loggers:
        return Outcome([])
    records = [record for record in read_records(loggers[0].path) if record.split == "train"]
    losses = [record.metrics["loss"] for record in records if "loss" in record.metrics]
    return Outcome(losses, result.objective)
