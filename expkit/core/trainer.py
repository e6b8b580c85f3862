"""The training loop."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, Literal, get_args

from expkit.core.batch import TrainLoader
from expkit.core.binding import Binding
from expkit.core.checkpointer import Checkpointer
from expkit.core.driver import Driver, StateTree
from expkit.core.errors import ConfigError, MismatchError, Problem
from expkit.core.evaluator import Evaluator
from expkit.core.events import Callback, Context, EventBus
from expkit.core.limits import Limits
from expkit.core.logger import Logger, NullLogger
from expkit.core.loss_record import LossRecord
from expkit.core.metric import MetricGroup
from expkit.core.monitor import Monitor
from expkit.core.period import Period, PeriodLike
from expkit.core.position import check_position, data_signature
from expkit.core.preflight import (
    check_data,
    check_replicas,
    check_same_data,
    check_store,
    check_targets,
)
from expkit.core.progress import Progress
from expkit.core.result import Result
from expkit.core.schedule import Schedule, ScheduleSet, first_rates
from expkit.core.seeding import derive_seed
from expkit.core.state import check_origin, check_weights, rank_key
from expkit.core.step import Step
from expkit.core.store import MemoryStore, Store
from expkit.core.training_record import TrainingRecord
from expkit.core.validation import Validation

log = logging.getLogger(__name__)

OnException = Literal["auto", "raise", "ignore"]


class Trainer:
    """Trains a model on a driver.

    ``fit`` is the whole story: epochs of steps; after each step, in this order, the record, the
    evaluation, the checkpoint, and the question whether to go on.

    Args:
        model: a plain model of the driver's framework.
        driver: where it runs.
        data: gives the loaders: an object with ``train_loader`` and ``eval_loaders``
            (`expkit.data.Data`).
        optimizer: a spec of `expkit.optimizers`, a native optimizer's partial, or a mapping name ->
            either.
        loss: a spec of `expkit.losses`, a callable ``(outputs, batch) -> loss``, or None where the
            model returns it.
        binding: how the model is called; None = batch fields by name.
        schedule: learning-rate schedule, or one for each optimizer by name.
        metrics: what an evaluation computes besides the loss (`expkit.metrics.MetricSet`).
        callbacks: callbacks in the order in which they are told.
        checkpoint: where states are kept.
        logger: where metrics are recorded.
        monitor: the metric that decides what is best, ``accuracy`` or ``-loss``; None = nothing is.
        seed: of everything random.
        run_dir: where the run writes; for callbacks.
        n_epochs: epochs to train; None = no limit; ``auto`` = 20 where there is no other limit.
        max_steps: optimizer steps to make; None = no limit.
        max_time: training time in seconds after which the run ends; None = no limit.
        accumulate: micro-batches per optimizer step.
        clip_norm: greatest global L2 norm of the gradients; None = no clipping.
        log_every, eval_every, save_every: periods, see `PeriodLike`.
        eval_at_start: evaluate once before training; it does not count for the best.
        on_exception: ``auto`` ends quietly at a requested stop or Ctrl-C and raises all else,
            ``raise`` raises these too, ``ignore`` ends quietly at any error.
        load_best: leave the weights of the best evaluation in the model.
        overfit_batches: train and evaluate on this many batches only; 0 = off.
        limit_train_batches, limit_eval_batches: use no more than this many batches; None = all.

    Raises:
        ConfigError: options that cannot work, before anything is trained.
    """

    def __init__(
        self,
        *,
        model: Any,
        driver: Driver,
        data: Any,
        optimizer: Any,
        loss: Any = None,
        binding: Binding | None = None,
        schedule: Schedule | Mapping[str, Schedule] | None = None,
        metrics: MetricGroup | None = None,
        callbacks: Mapping[str, Callback] | Iterable[Callback] = (),
        checkpoint: Store | None = None,
        logger: Logger | None = None,
        monitor: str | None = None,
        seed: int = 0,
        run_dir: Path | None = None,
        n_epochs: int | Literal["auto"] | None = "auto",
        max_steps: int | None = None,
        max_time: float | None = None,
        accumulate: int = 1,
        clip_norm: float | None = None,
        log_every: PeriodLike = 10,
        eval_every: PeriodLike = "1ep",
        save_every: PeriodLike = "1ep",
        eval_at_start: bool = False,
        on_exception: OnException = "auto",
        load_best: bool = True,
        overfit_batches: int = 0,
        limit_train_batches: int | None = None,
        limit_eval_batches: int | None = None,
    ) -> None:
        self._limits = Limits(n_epochs, max_steps, max_time)
        check_data(data)
        check_store(checkpoint)
        if on_exception not in get_args(OnException):
            message = f"is {on_exception!r}; allowed: {', '.join(get_args(OnException))}"
            raise ConfigError(
                [Problem("trainer.on_exception", message, "trainer.on_exception=auto")]
            )
        self.driver = driver
        driver.setup(seed)
        driver.prepare(model, optimizer, loss, binding)
        if not driver.optimizer_names:
            message = "is null, so nothing would be trained; allowed: a spec of expkit.optimizers"
            raise ConfigError([Problem("optimizer", message, "optimizer=adam")])
        self._loader: TrainLoader = data.train_loader(
            rank=driver.rank,
            world_size=driver.world_size,
            accumulate=accumulate,
            seed=seed,
            limit_batches=limit_train_batches,
            overfit_batches=overfit_batches,
        )
        check_same_data(driver.group, self._loader, data)
        self._signature = data_signature(self._loader, data)
        self.evaluator = Evaluator(
            driver=driver,
            data=data,
            metrics=metrics,
            loss=loss,
            limit_batches=limit_eval_batches,
            overfit_batches=overfit_batches,
            seed=seed,
        )
        check_targets(driver, data, loss)
        steps_per_epoch = self._loader.steps_per_epoch
        self._limits.check_length(steps_per_epoch)
        self.progress = Progress(n_epochs=self._limits.n_epochs, steps_per_epoch=steps_per_epoch)
        self.progress.total_steps = self._limits.total_steps(self.progress)
        self.monitor = None if monitor is None else Monitor.parse(monitor)
        self.context = Context(self.progress, driver, run_dir, self.monitor)
        driver.group.watch(self.context.flags)
        self.events = EventBus(callbacks, driver.rank == 0)
        self.result = Result(monitor=monitor)
        log_period = Period(log_every, "trainer.log_every")
        eval_period = Period(eval_every, "trainer.eval_every")
        self._eval_at_start = eval_at_start
        self._on_exception = on_exception
        self._load_best = load_best
        self._seed = seed
        self._checkpoints = Checkpointer(
            checkpoint or MemoryStore(),
            driver,
            self.events,
            self.context,
            Period(save_every, "checkpoint.save_every"),
        )
        self._logger = logger or NullLogger()
        if monitor is not None and not self.evaluator.has_data:
            log.warning("monitor=%s decides nothing: there is no evaluation set", monitor)
        self._schedules = self._make_schedules(schedule, eval_period)
        self._losses = LossRecord(driver)
        self._step = Step(
            driver,
            self.events,
            self.context,
            self._losses,
            self._schedules,
            clip_norm,
            log_period,
            loss,
        )
        self._record = TrainingRecord(self.context, self._losses, self._logger)
        self._validation = Validation(
            self.evaluator, self.context, self.events, self._logger, self._schedules, eval_period
        )
        self._compared_step = -1
        self._is_whole = False  # between two steps, with all done that was due after the first
        self._interrupted = False  # here, by a signal of which the other ranks may not know
        self._is_cut_short = False  # on all ranks alike

    @property
    def samples_per_step(self) -> int | None:
        """Samples of a whole window, over all ranks; None where it has as many as it has."""
        size: int | None = self._loader.signature["samples_per_step"]
        return size

    # -- the loop ----------------------------------------------------------------------------------

    def fit(self) -> Result:
        """Train to the limits, or until a stop is asked for.

        Returns:
            The result; also kept as ``self.result``.
        """
        try:
            self._fit()
        except BaseException as error:
            self._end_with(error)
        finally:
            self._finish_result()
            self._logger.flush()
        return self.result

    def interrupt(self, reason: str) -> None:
        """End the run after this step as ``interrupted``, saved where a run can go on from it."""
        self._interrupted = True
        self.context.request_stop(reason)

    def _fit(self) -> None:
        progress = self.progress
        progress.start_clock()
        self.events.fire("fit_start", self.context)
        if self._eval_at_start and progress.step == 0:
            self._evaluate(counts=False)
        if progress.epoch_ended:  # restored from a checkpoint at an epoch's very end
            self._end_epoch()
        if self._limits.reached(progress):
            log.info("nothing to train: at %s, with %s", progress, self._limits)
        self._agree()
        while not self._done():
            self._epoch()
        self._agree_on_the_end()
        if self._validation.is_due_at_the_end() and not self._is_cut_short:
            self._evaluate(counts=progress.step > 0)
        self._keep_the_end()
        self._checkpoints.wait()
        self._losses.read()
        self._agree_on_the_end()
        if self._is_cut_short and self._on_exception == "raise":
            raise KeyboardInterrupt(self.context.stop_reason)
        if not self._is_cut_short:
            self._take_best()
            if not self._checkpoints.has_step():  # what was saved has been looked at
                check_weights(self.driver.model_state(), progress.step)
        self.events.fire("fit_end", self.context)

    def _epoch(self) -> None:
        """The (remaining) windows of an epoch, or as many as the limits allow."""
        progress, context, group = self.progress, self.context, self.driver.group
        self.events.fire("epoch_start", context)
        for window in self._loader.windows(progress.epoch, progress.epoch_step):
            self._is_whole = False
            self._step(window)
            self._checkpoints.poll()
            _, save, evaluate = group.answers()
            if self._record.is_due():
                self._record.write()
            if evaluate or self._validation.is_due():
                self._evaluate()
                _, save, _ = group.agree()  # the evaluation may have asked for something itself
            if save or self._checkpoints.is_due():
                self._save()
            self._is_whole = True
            if not progress.epoch_ended and self._done():
                return
        self._end_epoch()

    def _end_epoch(self) -> None:
        self._is_whole = False
        self.progress.begin_epoch()
        self.events.fire("epoch_end", self.context)
        self._is_whole = True
        self._agree()

    def _done(self) -> bool:
        """Whether to leave: decided together, so that all ranks leave at the same step."""
        if self._limits.reached(self.progress):
            return True
        self._look_at_the_clock()
        stop, _, _ = self.driver.group.answers()
        return stop

    def _agree(self) -> None:
        """Between two epochs: let all ranks know now what any of them has asked for."""
        self._look_at_the_clock()
        self.driver.group.agree()

    def _look_at_the_clock(self) -> None:
        if self._limits.is_over_time(self.progress):
            self.context.request_stop(f"trainer.max_time={self._limits.max_time:g} s is over")

    def _agree_on_the_end(self) -> None:
        """Let all ranks know why they leave, so that they do the same from here on."""
        own = (self.context.stop_reason, self._interrupted)
        reasons, interrupted = zip(*self.driver.all_gather(own), strict=True)
        self.context.stop_reason = next(filter(None, reasons), None)
        self._is_cut_short = any(interrupted)

    # -- what is due after a step ------------------------------------------------------------------

    def _evaluate(self, counts: bool = True) -> None:
        """Evaluate the weights as they are after this step."""
        if self.evaluator.has_data:
            self._losses.read()
            self._compare_ranks()
        self._validation.run(counts)

    def _save(self) -> None:
        """Keep the state."""
        self._losses.read()
        self._compare_ranks()
        self._checkpoints.save(self._state_but_callbacks, self._validation.last)

    def _keep_the_end(self) -> None:
        """Save what no checkpoint holds yet: the last steps, or the evaluation after them."""
        _, asked, _ = self.driver.group.agree()
        checkpoints = self._checkpoints
        wanted = asked or not checkpoints.is_on_request
        if self._is_cut_short and checkpoints.is_lasting:
            wanted = True
        if wanted and checkpoints.is_news(self._validation.last):
            self._save()

    def _compare_ranks(self) -> None:
        """See `check_replicas`; once a step."""
        if self._compared_step != self.progress.step:
            self._compared_step = self.progress.step
            check_replicas(self.driver, self.progress.step)

    # -- state -------------------------------------------------------------------------------------

    def state(self) -> StateTree:
        """All that a run needs to go on exactly from here; arrays are host copies.

        All ranks call it; it is complete on rank 0.
        """
        return self._state_but_callbacks(copies=True) | {"callbacks": self.events.state()}

    def _state_but_callbacks(self, copies: bool) -> StateTree:
        state = self.driver.state(copies)
        own = {"rng": state.pop("rng"), "data": self._loader.state()}
        ranks = enumerate(self.driver.all_gather(own))
        return state | {
            "ranks": {rank_key(rank): parts for rank, parts in ranks},
            "origin": {
                "framework": self.driver.framework,
                "world_size": self.driver.world_size,
                "linear_weights": list(self.driver.linear_weights()),
            },
            "trainer": {
                "progress": self.progress.state(),
                "data": self._signature,
                "losses": self._losses.state(),
                "logged": dict(self.context.logged),
                **self._validation.state(),
            },
            "schedules": self._schedules.state(),
        }

    def load_state(self, state: StateTree, source: str = "") -> None:
        """Go on from ``state``; to be called on all ranks, before ``fit``.

        What the store has kept of later steps goes: from here on the run may take another way.

        Args:
            state: what `state` gave.
            source: where it is from and of which step, for people; whoever gives it also tells in
                what the config is other than it was.

        Raises:
            MismatchError: it is of another model, optimizer, data set or framework, or no state.
            ConfigError: it stands where the present config cannot go on from.
        """
        check_origin(state, self.driver.framework)
        try:
            changes = self._take(state)
        except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError) as error:
            raise MismatchError(
                "the checkpoint holds no state that a run can go on from "
                f"({type(error).__name__}: {error}); its weights may be good all the same (try: "
                "init_from=CHECKPOINT in place of resume=CHECKPOINT)"
            ) from error
        self._checkpoints.went_on(self._validation.last)
        self.events.fire("load", self.context, state)
        if source:
            log.info("resumed from %s, %s", source, self.progress.place)
            return
        if changes:
            log.info("the present config rules over the checkpoint: %s", ", ".join(changes))
        log.info("going on after %s", self.progress)

    def _take(self, state: StateTree) -> list[str]:
        """Put each part of a state where it belongs; returns in what the schedules changed."""
        own = state["ranks"].get(rank_key(self.driver.rank), {"rng": {}})
        self.driver.load_state(state | own)
        trainer = state["trainer"]
        self.progress.load_state(trainer["progress"])
        if not own["rng"]:  # there were fewer ranks
            self.driver.setup(derive_seed(self._seed, "step", self.progress.step))
        check_position(self.progress, trainer["data"], self._signature)
        self._loader.load_state(own.get("data", {}))
        self._validation.load_state(trainer)
        self._losses.load_state(trainer["losses"])
        self.context.logged = dict(trainer.get("logged", {}))
        total_steps = self._limits.total_steps(self.progress)
        if total_steps != self.progress.total_steps:  # epochs that are over had other steps
            self.progress.total_steps = total_steps
            self._schedules.prepare(total_steps, self.progress.steps_per_epoch)
        changes = self._schedules.load_state(state["schedules"])
        self.events.load_state(state["callbacks"])
        if bool(state["scaler"]) != self.driver.scales_loss:
            log.info("driver.precision has changed: gradients are scaled from here on, or no more")
        return changes

    def _take_best(self) -> None:
        """Leave the weights of the best evaluation in the model."""
        step = self._validation.best.step
        if self._load_best and step is not None and step != self.progress.step:
            self._checkpoints.take_weights_of(step)

    # -- the end -----------------------------------------------------------------------------------

    def _end_with(self, error: BaseException) -> None:
        """Tell the callbacks, finish writing, and raise where ``on_exception`` says so."""
        try:
            self.events.fire("exception", self.context, error)
            if isinstance(error, Exception):
                self._keep_what_is_whole()
            self._checkpoints.wait_alone()
        except Exception:
            log.exception("while the run ended with %s", type(error).__name__)
        if isinstance(error, KeyboardInterrupt):
            self._interrupted = True
            self.context.stop_reason = self.context.stop_reason or "KeyboardInterrupt"
            if self._on_exception != "raise":
                return
        else:
            self.result.status = "failed"
            self.context.stop_reason = f"{type(error).__name__}: {error}"
            if self._on_exception == "ignore" and isinstance(error, Exception):
                log.error("training ended early: %s", error, exc_info=error)
                return
        raise error

    def _keep_what_is_whole(self) -> None:
        """Save where an error came between two steps: from there a run goes on exactly.

        Inside a step nothing is left that it could go on from: random numbers were drawn, and
        statistics have moved; and where the data set itself has drawn some before it failed, they
        stay drawn. Several ranks are elsewhere than the one that failed.
        """
        checkpoints, is_alone = self._checkpoints, self.driver.world_size == 1
        if not (self._is_whole and is_alone and checkpoints.is_lasting):
            return
        if checkpoints.is_news(self._validation.last):
            self._save()
            checkpoints.wait_alone()
            log.info("saved after step %d, the last before the error", self.progress.step)

    def _finish_result(self) -> None:
        result, progress, validation = self.result, self.progress, self._validation
        if self._interrupted or self._is_cut_short:
            result.status = "interrupted"
        result.reason = self.context.stop_reason
        result.seconds = round(progress.seconds, 3)
        result.epochs, result.steps = progress.epoch, progress.step
        result.skipped_steps = progress.skipped_steps
        result.metrics = dict(validation.last.metrics)
        best = validation.best
        result.best_eval, result.best_epoch, result.best_step = best.metrics, best.epoch, best.step

    def _make_schedules(
        self, schedule: Schedule | Mapping[str, Schedule] | None, eval_every: Period
    ) -> ScheduleSet:
        progress = self.progress
        schedules = ScheduleSet(schedule, first_rates(self.driver))
        schedules.prepare(progress.total_steps, progress.steps_per_epoch)
        is_judged = self.monitor is not None and not eval_every.is_never and self.evaluator.has_data
        if schedules.needs_monitor and not is_judged:
            message = (
                f"{schedules.needs_monitor} follows the monitored metric, but nothing is monitored "
                "or evaluated"
            )
            raise ConfigError(
                [Problem("schedule", message, "monitor=-loss trainer.eval_every=1ep")]
            )
        return schedules
