"""From a config to objects: the only place that knows both, and the only caller of instantiate."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import hydra.utils
from hydra.errors import InstantiationException

from expkit.config.targets import check_targets, locate
from expkit.core.binding import Binding
from expkit.core.driver import Driver
from expkit.core.errors import ConfigError, ExpkitError, Problem
from expkit.core.evaluator import Evaluator
from expkit.core.predictor import Predictor
from expkit.core.schedule import Schedule
from expkit.core.store import Store
from expkit.core.trainer import Trainer
from expkit.data import Data, as_splits
from expkit.metrics import MetricSet
from expkit.run.directory import RunDirectory
from expkit.run.loggers import LoggerGroup
from expkit.run.records import JsonLinesLogger

Config = Mapping[str, Any]

CONSUMED = {
    "driver": ("framework", "num_processes", "max_restarts", "worker_output"),
    "checkpoint": ("save_every",),
    "trainer": ("input_mapping", "output_mapping", "whole_batch", "predict_outputs"),
}
"""Keys of a group's nodes that the builder itself reads."""
SUPPLIED = {
    "checkpoint": ("root",),
    "logger": ("directory",),
    "trainer": ("model", "driver", "data", "optimizer"),
}
"""Arguments that the builder adds to those of a group's nodes."""


class Builder:
    """Makes the parts of a run in the order in which they need each other.

    The driver comes first and is seeded, so that a model which draws its own initial weights draws
    the same ones in every run; a model with ``initialize(seed)`` fills its weights by that, the
    same ones on every driver.

    Args:
        config: a resolved config.
        run: where the run writes.
        files: the file that each group's option comes from, for errors.

    Attributes:
        driver: the driver.
        logger: metrics.jsonl and the configured loggers; on ranks other than 0 there are none.
        monitor: the monitored metric.
    """

    def __init__(
        self, config: Config, run: RunDirectory, files: Mapping[str, str] | None = None
    ) -> None:
        self._config = config
        self._run = run
        self._files = files or {}
        check_targets(config, supplied=SUPPLIED, consumed=CONSUMED, files=self._files)
        self.driver = make_driver(config, self._files)
        self.driver.setup(config["seed"])
        self.monitor: str | None = config["monitor"]
        self.logger = self._logger()
        self._store: Store | None = None
        self._opened: Data | None = None

    def trainer(self) -> Trainer:
        """The trainer, ready to fit."""
        config = self._config
        options = _options(config["trainer"], CONSUMED["trainer"])
        trainer_class = locate(config["trainer"]["_target_"], "trainer")
        self._store = self._make_store()
        trainer: Trainer = trainer_class(
            model=self._model(),
            driver=self.driver,
            data=self._data(),
            optimizer=self._one_or_many("optimizer"),
            loss=self._optional("loss"),
            binding=self._binding(),
            schedule=self._schedule(),
            metrics=MetricSet(self._by_name("metrics")),
            callbacks=self._by_name("callbacks"),
            checkpoint=self._store,
            logger=self.logger,
            monitor=self.monitor,
            seed=config["seed"],
            run_dir=self._run.path,
            save_every=config["checkpoint"].get("save_every"),
            **options,
        )
        return trainer

    def evaluator(self) -> Evaluator:
        """An evaluator of the configured model on the configured data."""
        return Evaluator(metrics=MetricSet(self._by_name("metrics")), **self._evaluated())

    def predictor(self) -> Predictor:
        """A predictor of the configured model on the configured data."""
        outputs = self._config["trainer"].get("predict_outputs") or ()
        return Predictor(outputs=outputs, **self._evaluated())

    def close(self) -> None:
        """Finish writing and give everything back; safe to call twice."""
        if self._store is not None:
            self._store.close()
        if self._opened is not None:
            self._opened.close()
        self.logger.close()
        self.driver.shutdown()

    def _evaluated(self) -> dict[str, Any]:
        """What an evaluator and a predictor have in common."""
        trainer = self._config["trainer"]
        return {
            "driver": self.driver,
            "model": self._model(),
            "loss": self._optional("loss"),
            "binding": self._binding(),
            "data": self._data(),
            "limit_batches": trainer.get("limit_eval_batches"),
            "overfit_batches": trainer.get("overfit_batches", 0),
            "seed": self._config["seed"],
        }

    def _model(self) -> Any:
        model = self._instance("model")
        if hasattr(model, "initialize"):
            model.initialize(self._config["seed"])
        return model

    def _data(self) -> Data:
        node = self._config["data"]
        splits = as_splits(self._make(node["source"], "data.source"))
        options = _options(node, ("source", "info", "collate"))
        collate = node.get("collate") and self._make(node["collate"], "data.collate")
        sampler = self._instance("sampler")
        is_for_prediction = self._config["task"] == "predict" and splits.predict is not None
        held_out = splits.predict if is_for_prediction else splits.eval
        data = Data(splits.train, held_out, sampler=sampler, collate=collate, **options)
        self._opened = data
        return data

    def _binding(self) -> Binding:
        trainer = self._config["trainer"]
        return Binding(
            inputs=trainer.get("input_mapping") or {},
            outputs=trainer.get("output_mapping") or {},
            whole_batch=trainer.get("whole_batch", False),
        )

    def _schedule(self) -> Schedule | Mapping[str, Schedule] | None:
        made = self._one_or_many("schedule")
        if isinstance(made, Mapping):
            return {name: self._as_schedule(each) for name, each in made.items()}
        return None if made is None else self._as_schedule(made)

    def _as_schedule(self, made: Any) -> Schedule:
        """A schedule, or the framework's own scheduler (``_partial_: true``) read as one."""
        if isinstance(made, Schedule):
            return made
        adapter = f"expkit.drivers.{self.driver.framework}.schedules.NativeSchedule"
        native: Schedule = self._make({"_target_": adapter, "factory": made}, "schedule")
        return native

    def _make_store(self) -> Store:
        node = _options(self._config["checkpoint"], CONSUMED["checkpoint"], keep_target=True)
        if node["_target_"].rpartition(".")[2] != "MemoryStore":
            node["root"] = self._run.checkpoints
        store: Store = self._make(node, "checkpoint")
        return store

    def _logger(self) -> LoggerGroup:
        if self.driver.rank:
            return LoggerGroup([])
        nodes: Mapping[str, Any] = self._config.get("logger") or {}
        recorder = JsonLinesLogger(self._run.path)
        loggers = [
            self._make({**node, "directory": self._run.path}, f"logger.{name}")
            for name, node in nodes.items()
        ]
        return LoggerGroup([recorder, *loggers])

    def _make(self, node: Config, key: str) -> Any:
        return instantiate(node, key, self._files.get(key.split(".")[0], ""))

    def _instance(self, group: str) -> Any:
        """The object of a group."""
        node = _options(self._config[group], CONSUMED.get(group, ()), keep_target=True)
        return self._make(node, group)

    def _optional(self, group: str) -> Any:
        """The object of a group; None where its option is empty."""
        return self._make(self._config[group], group) if self._config.get(group) else None

    def _by_name(self, group: str) -> dict[str, Any]:
        """The objects of a group that maps names to them."""
        nodes: Mapping[str, Any] = self._config.get(group) or {}
        return {name: self._make(node, f"{group}.{name}") for name, node in nodes.items() if node}

    def _one_or_many(self, group: str) -> Any:
        """One object, a mapping name -> object, or None where the group is empty."""
        node = self._config.get(group)
        if not node:
            return None
        return self._make(node, group) if "_target_" in node else self._by_name(group)


def make_driver(config: Config, files: Mapping[str, str]) -> Driver:
    """The driver of a config, which takes its place among the ranks.

    Args:
        config: a resolved config.
        files: the file that each group's option comes from, for errors.
    """
    node = _options(config["driver"], CONSUMED["driver"], keep_target=True)
    driver: Driver = instantiate(node, "driver", files.get("driver", ""))
    return driver


def _options(node: Config, leave_out: tuple[str, ...], keep_target: bool = False) -> dict[str, Any]:
    """The keys of a node that are arguments of what it builds."""
    dropped = leave_out if keep_target else (*leave_out, "_target_")
    return {str(key): value for key, value in node.items() if key not in dropped}


def instantiate(node: Config, key: str, file: str = "") -> Any:
    """Build what a node describes, nested nodes included.

    Args:
        node: the node.
        key: its config key, for errors.
        file: config file that the node comes from, for errors.

    Raises:
        ConfigError: the target refused its arguments; names the key and the file, and the target's
            own error is chained.
    """
    try:
        return hydra.utils.instantiate(dict(node), _convert_="all")
    except InstantiationException as error:
        cause = error.__cause__ or error
        if isinstance(cause, ExpkitError):
            raise cause from cause.__cause__
        message = f"{node['_target_']} failed: {type(cause).__name__}: {cause}"
        where = f"{key} ({file})" if file else key
        raise ConfigError([Problem(where, message)]) from cause
