"""What must hold between keys: combinations that cannot work, options without effect."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from expkit.config.schema import FLEET_STRATEGY, NEEDED, SEVERAL, is_distributed
from expkit.config.suggestion import listing, nearest
from expkit.core.errors import ConfigError, Problem
from expkit.core.monitor import Monitor
from expkit.models import numpy as numpy_models

Config = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """What a rule looks at.

    Attributes:
        config: a resolved config whose single keys are right.
        given: the keys that the command line sets; what is only a default may be without effect.
    """

    config: Config
    given: Collection[str]

    def __getitem__(self, key: str) -> Any:
        """A top-level key of the config."""
        return self.config[key]


Rule = Callable[[Case], Iterator[Problem]]


def check_rules(config: Config, given: Collection[str]) -> Iterator[Problem]:
    """Check a config whose single keys are right; see `Case` for the arguments."""
    missing = [group for group in NEEDED if not config.get(group)]
    for group in missing:
        yield Problem(group, "no option is chosen, but no run can do without one")
    if not missing:
        for rule in RULES:
            yield from rule(Case(config, given))


def _has_an_end(case: Case) -> Iterator[Problem]:
    trainer = case["trainer"]
    if case["task"] == "train" and all(
        trainer.get(key) is None for key in ("n_epochs", "max_steps", "max_time")
    ):
        message = "n_epochs, max_steps and max_time are all null: it would never end"
        yield Problem("trainer", message, "trainer.max_steps=1000")


def _one_batch_size(case: Case) -> Iterator[Problem]:
    data, accumulate = case["data"], case["trainer"].get("accumulate", 1)
    whole = data.get("global_batch_size")
    if whole is None:
        return
    if "data.batch_size" in case.given and "data.global_batch_size" in case.given:
        message = "has no effect beside data.global_batch_size; give one of the two"
        yield Problem("data.batch_size", message, f"data.global_batch_size={whole}")
    if whole < accumulate:
        message = (
            f"is {whole}; trainer.accumulate={accumulate} micro-batches need {accumulate} or more"
        )
        yield Problem("data.global_batch_size", message, f"data.global_batch_size={accumulate}")


def _workers_read_ahead(case: Case) -> Iterator[Problem]:
    if "data.prefetch" in case.given and not case["data"].get("num_workers"):
        message = "has no effect with data.num_workers=0: the training process reads"
        yield Problem("data.prefetch", message, "data.num_workers=2")


def _one_beginning(case: Case) -> Iterator[Problem]:
    if case["resume"] is not None and case["init_from"] is not None:
        message = "has no effect beside resume, which takes all state; give one of the two"
        yield Problem("init_from", message, "init_from=null")


def _weights_to_use(case: Case) -> Iterator[Problem]:
    task = case["task"]
    if task == "train":
        return
    if case["init_from"] is None:
        message = f"task={task} needs trained weights: the directory of a run or checkpoint"
        yield Problem("init_from", message, "init_from=outputs/2026-11-30/07-12-03-digits")
    used = {
        f"trainer.{key}"
        for key in (
            *("limit_eval_batches", "overfit_batches"),
            *("input_mapping", "output_mapping", "whole_batch"),
            "predict_outputs",
        )
    }
    for key in case.given:
        if key.split(".")[0] in ("trainer", "optimizer", "schedule") and key not in used:
            yield Problem(
                key, f"has no effect with task={task}, which does not train", "task=train"
            )


def _outputs_are_predicted(case: Case) -> Iterator[Problem]:
    key, task = "trainer.predict_outputs", case["task"]
    if key in case.given and task != "predict":
        yield Problem(key, f"has no effect with task={task}", "task=predict")


def _numpy_limits(case: Case) -> Iterator[Problem]:
    driver = case["driver"]
    if driver.get("framework") != "numpy":
        return
    for key, allowed in (("precision", ("fp32",)), ("device", ("cpu", "auto"))):
        value = driver.get(key, allowed[0])
        if value not in allowed:
            message = f"is {value!r}; driver=numpy allows: {listing(allowed)}"
            yield Problem(f"driver.{key}", message, f"driver.{key}={allowed[0]}")


def _numpy_has_the_model(case: Case) -> Iterator[Problem]:
    package, _, name = str(case["model"].get("_target_")).rpartition(".")
    if package != numpy_models.__name__ or name in numpy_models.__all__:
        return
    try:
        getattr(numpy_models, name)
    except AttributeError as error:  # the package's own words: what it has, where the others are
        yield Problem("model", str(error), "model=mlp")


def _paddle_limits(case: Case) -> Iterator[Problem]:
    """What is known before the device is: ``auto`` is left to the driver."""
    driver = case["driver"]
    device, precision = str(driver.get("device")), driver.get("precision", "fp32")
    if driver.get("framework") == "paddle" and device.startswith("cpu") and precision != "fp32":
        message = f"is {precision!r}; driver=paddle with driver.device={device} allows: fp32"
        yield Problem("driver.precision", message, "driver.precision=fp32")


def _one_device(case: Case) -> Iterator[Problem]:
    driver = case["driver"]
    if not is_distributed(case.config) and not isinstance(driver.get("device", "auto"), str):
        message = f"is {driver['device']!r}: a driver of one process takes one device by its name"
        several = SEVERAL.get(str(driver.get("framework")), SEVERAL["torch"])
        yield Problem("driver.device", message, f"driver={several}")


def _ranks_fit_the_driver(case: Case) -> Iterator[Problem]:
    """What drivers with several processes cannot do, or do without effect."""
    driver, trainer = case["driver"], case["trainer"]
    if not is_distributed(case.config):
        return
    if trainer.get("on_exception") == "ignore":
        message = "is 'ignore', but a rank that goes on alone would leave the others waiting"
        yield Problem("trainer.on_exception", message, "trainer.on_exception=auto")
    if driver.get("backend") == "nccl" and driver.get("device") == "cpu":
        message = "is 'nccl', which connects GPUs, with driver.device=cpu"
        yield Problem("driver.backend", message, "driver.backend=gloo")
    if driver.get("data_parallel") and driver.get("gradient_sync") == "flat":
        message = "has no effect with driver.gradient_sync=flat, which uses no wrapper"
        yield Problem("driver.data_parallel", message, "driver.gradient_sync=native")
    fleet = driver.get("fleet") or {}
    if fleet.get("is_collective") is False:
        message = "is false, which means parameter servers; this driver is for equal ranks"
        yield Problem("driver.fleet.is_collective", message, "driver.fleet.is_collective=true")
    for key in fleet.get("strategy") or {}:
        if key not in FLEET_STRATEGY:
            message = f"has no effect on data parallel training; allowed: {listing(FLEET_STRATEGY)}"
            yield Problem(f"driver.fleet.strategy.{key}", message)
    unused, native = driver.get("find_unused_parameters"), driver.get("gradient_sync") == "native"
    if unused and native and trainer.get("accumulate", 1) > 1:
        message = (
            "is true, but with driver.gradient_sync=native and trainer.accumulate > 1 a parameter "
            "that only an early micro-batch uses would not be exchanged"
        )
        yield Problem("driver.find_unused_parameters", message, "driver.gradient_sync=flat")
    if "shard" in driver and driver.get("precision") == "fp16":
        message = "is 'fp16', whose loss scaling this driver does not have; allowed: fp32, bf16"
        yield Problem("driver.precision", message, "driver.precision=bf16")


def _loss_scale_is_used(case: Case) -> Iterator[Problem]:
    precision = case["driver"].get("precision")
    for key in ("driver.loss_scale", "driver.loss_scale_growth_every"):
        if key in case.given and precision != "fp16":
            yield Problem(
                key, f"has no effect with driver.precision={precision}", "driver.precision=fp16"
            )


def _monitor_exists(case: Case) -> Iterator[Problem]:
    """The part of a monitor's name that is known beforehand; the evaluation checks the whole."""
    text = case["monitor"]
    if text is None:
        return
    try:
        monitor = Monitor.parse(text)
    except ConfigError as error:
        yield from error.problems
        return
    names = ["loss", *(case.config.get("metrics") or {})]
    if not set(monitor.name.split("/")) & set(names):
        near = nearest(monitor.name, names)
        hint = (
            "monitor=-loss"
            if near in (None, "loss")
            else f"monitor={'' if monitor.larger_is_better else '-'}{near}"
        )
        yield Problem(
            "monitor", f"is {text!r}, but the metrics of this run are: {listing(names)}", hint
        )
    elif monitor.name.split("/")[-1] == "loss" and monitor.larger_is_better:
        yield Problem(
            "monitor",
            f"is {text!r}: the largest loss would be the best",
            f"monitor=-{monitor.name}",
        )


def _debugging_keys(case: Case) -> Iterator[Problem]:
    trainer = case["trainer"]
    if trainer.get("overfit_batches"):
        for key in ("trainer.limit_train_batches", "trainer.limit_eval_batches"):
            if key in case.given and trainer.get(key.partition(".")[2]) is not None:
                message = (
                    "has no effect with trainer.overfit_batches, which sets the number of batches"
                )
                yield Problem(key, message, f"{key}=null")


def _best_exists(case: Case) -> Iterator[Problem]:
    trainer = case["trainer"]
    if "trainer.load_best" not in case.given or not trainer.get("load_best"):
        return
    for key, value in (
        ("monitor", case["monitor"]),
        ("trainer.eval_every", trainer.get("eval_every", "1ep")),
    ):
        if value is None:
            yield Problem(
                "trainer.load_best",
                f"has no effect with {key}=null: nothing is best",
                "trainer.load_best=false",
            )


RULES: tuple[Rule, ...] = (
    _has_an_end,
    _one_batch_size,
    _workers_read_ahead,
    _one_beginning,
    _weights_to_use,
    _outputs_are_predicted,
    _numpy_limits,
    _numpy_has_the_model,
    _paddle_limits,
    _one_device,
    _ranks_fit_the_driver,
    _loss_scale_is_used,
    _monitor_exists,
    _debugging_keys,
    _best_exists,
)
