"""The keys of a config, their kinds and their defaults.

Closed groups have exactly these keys. Open groups (models, optimizers ...) have what their target
takes; those of their keys that are listed here are checked early where the target is expkit's own.
The YAML files of ``conf/`` hold the same defaults; a test compares them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import MISSING, dataclass, field, fields
from functools import cache
from typing import Annotated, Any, Literal, get_type_hints

from expkit.config.kinds import Bounds, DurationSyntax, Matches, PeriodSyntax

Count = Annotated[int, Bounds(ge=0)]
AtLeastOne = Annotated[int, Bounds(ge=1)]
Size = Annotated[int, Bounds(ge=1, le=10**9)]
Positive = Annotated[float, Bounds(gt=0)]
NonNegative = Annotated[float, Bounds(ge=0)]
Share = Annotated[float, Bounds(ge=0, lt=1)]
PeriodText = Annotated[int | str, PeriodSyntax()]
Duration = Annotated[float | str, DurationSyntax()]
Target = Annotated[
    str, Matches(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)+", "a dotted path such as package.module.Class")
]
Name = Annotated[
    str,
    Matches(
        r"(?!\.)[\w.+-]{1,80}",
        "up to 80 letters, digits, _ . + -, the first no dot",
    ),
]
Word = Annotated[str, Matches(r"[^\x00-\x1f\x7f]{1,80}", "up to 80 printable characters")]
Path = Annotated[str, Matches(r"[^\x00-\x1f\x7f]{1,4096}", "a path")]


@dataclass(frozen=True)
class RunConfig:
    """The keys of the run itself."""

    seed: Annotated[int, Bounds(ge=0, lt=2**63)] = 0
    name: Name | None = None
    tags: list[Word] = field(default_factory=list)
    task: Literal["train", "evaluate", "predict"] = "train"
    monitor: Word | None = "accuracy"
    resume: Path | None = None
    init_from: Path | None = None
    output_dir: Path = "outputs"


@dataclass(frozen=True)
class TrainerConfig:
    """The keys of the group ``trainer``."""

    _target_: Target = "expkit.core.trainer.Trainer"
    n_epochs: Count | Literal["auto"] | None = "auto"
    max_steps: Count | None = None
    max_time: Duration | None = None
    accumulate: Size = 1
    clip_norm: Positive | None = None
    log_every: PeriodText | None = 10
    eval_every: PeriodText | None = "1ep"
    eval_at_start: bool = False
    on_exception: Literal["auto", "raise", "ignore"] = "auto"
    load_best: bool = True
    overfit_batches: Count = 0
    limit_train_batches: Size | None = None
    limit_eval_batches: Size | None = None
    predict_outputs: list[Word] = field(default_factory=list)
    input_mapping: dict[str, str] | None = None
    output_mapping: dict[str, str] | None = None
    whole_batch: bool = False


@dataclass(frozen=True)
class CheckpointConfig:
    """The keys of the group ``checkpoint``."""

    _target_: Target = "expkit.checkpoint.CheckpointStore"
    save_every: PeriodText | None = "1ep"
    keep_last: AtLeastOne | None = 2
    keep_best: Count | None = 1
    background: bool = True
    on_error: Literal["raise", "warn"] = "raise"


@dataclass(frozen=True)
class DataConfig:
    """The keys of the group ``data``."""

    source: dict[str, Any] = field(default_factory=dict)
    batch_size: Size = 32
    global_batch_size: Size | None = None
    eval_batch_size: Size | None = None
    drop_last: bool = False
    num_workers: Annotated[int, Bounds(ge=0, le=1024)] = 0
    prefetch: Annotated[int, Bounds(ge=1, le=1024)] = 2
    collate: dict[str, Any] | None = None
    info: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class DriverConfig:
    """The keys of the group ``driver``."""

    _target_: Target = "expkit.drivers.torch.TorchDriver"
    framework: Literal["torch", "paddle", "numpy"] = "torch"
    device: (
        Annotated[
            str,
            Matches(r"auto|mps|(cpu|cuda|gpu)(:\d+)?", "auto, cpu, cuda, cuda:1, gpu, gpu:1, mps"),
        ]
        | Annotated[int, Bounds(ge=-1)]
        | list[Annotated[int, Bounds(ge=0)]]
    ) = "auto"
    precision: Literal["fp32", "bf16", "fp16"] = "fp32"
    compile: bool = False
    num_threads: Size | None = None
    loss_scale: Positive = 65536.0
    loss_scale_growth_every: Size = 2000
    num_processes: Size | None = None
    backend: Literal["nccl", "gloo"] | None = None
    init_method: (
        Annotated[
            str,
            Matches(r"tcp://[^/:]+:\d{1,5}|file:///.+", "tcp://host:port, file:///path"),
        ]
        | None
    ) = None
    timeout_s: Positive = 600.0
    gradient_sync: Literal["auto", "flat", "native"] = "auto"
    find_unused_parameters: bool = False
    data_parallel: dict[str, Any] = field(default_factory=dict)
    shard: Literal["auto"] | list[str] = "auto"
    reshard_after_forward: bool = True
    fleet: dict[str, Any] = field(default_factory=dict)
    max_restarts: Count = 0
    worker_output: Path = "only_error"


FLEET_STRATEGY = ("fuse_grad_size_in_MB", "last_comm_group_size_MB", "find_unused_parameters")
"""What of fleet's strategy has an effect on data parallel training."""


@dataclass(frozen=True)
class OptimizerConfig:
    """Well-known keys of the group ``optimizer``."""

    lr: Positive
    betas: list[Share]
    eps: Positive
    weight_decay: NonNegative
    momentum: Share
    nesterov: bool
    params: str | list[str] | None
    groups: list[dict[str, Any]] | None


@dataclass(frozen=True)
class ScheduleConfig:
    """Well-known keys of the group ``schedule``."""

    warmup: NonNegative | Annotated[str, PeriodSyntax()] | None
    power: Positive
    gamma: Positive
    patience: Count


@dataclass(frozen=True)
class ModelConfig:
    """Well-known keys of the group ``model``."""

    in_features: Size
    out_features: Size
    in_channels: Size
    image_size: Size
    vocab_size: Size
    max_length: Size
    hidden: Size | list[Size]
    channels: list[Size]
    kernel_sizes: list[Size]
    embedding_dim: Size
    num_filters: Size
    d_model: Size
    n_heads: Size
    n_layers: Size
    d_ff: Size
    dropout: Share
    activation: str
    norm: str
    task: Literal["classification", "language_model"]


CLOSED: Mapping[str, type] = {
    "trainer": TrainerConfig,
    "checkpoint": CheckpointConfig,
    "data": DataConfig,
    "driver": DriverConfig,
}
OPEN: Mapping[str, type] = {
    "optimizer": OptimizerConfig,
    "schedule": ScheduleConfig,
    "model": ModelConfig,
}
GROUPS = (
    "driver",
    "data",
    "model",
    "loss",
    "optimizer",
    "schedule",
    "sampler",
    "metrics",
    "callbacks",
    "checkpoint",
    "logger",
    "trainer",
)
"""The groups whose options make up a config."""
OPTIONAL = ("experiment", "debug")
"""The groups of which no option need be chosen; their options change what the others gave."""
LISTED = (*GROUPS, *OPTIONAL)
"""The groups that the defaults list has a place for."""
LISTS = ("callbacks", "logger", "metrics")
"""The groups of which several options may be chosen at once."""
NEEDED = ("driver", "data", "model", "optimizer", "sampler", "checkpoint", "trainer")
"""The groups that no run can do without."""


SEVERAL = {"torch": "torch_ddp", "paddle": "paddle_fleet"}
"""The driver's option that runs a framework in several processes."""


def is_distributed(config: Mapping[str, Any]) -> bool:
    """Whether the driver of a config runs in several processes."""
    return "num_processes" in config["driver"]


@cache
def kinds(schema: type) -> dict[str, Any]:
    """The type hint of each key."""
    return get_type_hints(schema, include_extras=True)


def defaults(schema: type) -> dict[str, Any]:
    """The default of each key that has one."""
    values = {}
    for entry in fields(schema):
        if entry.default is not MISSING:
            values[entry.name] = entry.default
        elif entry.default_factory is not MISSING:
            values[entry.name] = entry.default_factory()
    return values
