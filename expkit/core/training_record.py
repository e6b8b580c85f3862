"""What is written of the steps of a training."""

from __future__ import annotations

from expkit.core.context import Context
from expkit.core.logger import Logger
from expkit.core.loss_record import LossRecord


class TrainingRecord:
    """Writes the training records: the loss, and what callbacks have logged.

    Args:
        context: what the callbacks see; says when a record is due.
        losses: the losses since the last one.
        logger: where it goes.
    """

    def __init__(self, context: Context, losses: LossRecord, logger: Logger) -> None:
        self._context = context
        self._losses = losses
        self._logger = logger

    def is_due(self) -> bool:
        """Whether there is something to write after this step."""
        return self._context.log_due or self._context.progress.epoch_ended

    def write(self) -> None:
        """Write the record of the steps since the last one, and of the epoch at its end."""
        context, progress = self._context, self._context.progress
        metrics: dict[str, float] = {}
        if context.log_due:
            loss = self._losses.interval_mean()
            if loss is not None:
                metrics["loss"] = context.metrics["loss"] = loss
            metrics |= context.logged
            context.logged = {}
        if progress.epoch_ended:
            loss = self._losses.epoch_mean()
            if loss is not None:
                metrics["epoch_loss"] = loss
        if metrics:
            self._logger.log("train", progress.step, progress.epoch, metrics)
