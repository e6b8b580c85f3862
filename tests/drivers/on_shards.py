"""What ranks do in the tests of the torch driver that shards: each function runs on all ranks."""

from __future__ import annotations

from functools import partial
from unittest import mock

import numpy as np
import torch
from torch import nn
from torch.distributed.fsdp._fully_shard._fsdp_collectives import foreach_reduce

from expkit.core.errors import CheckpointError, ConfigError
from expkit.drivers.torch import TorchDriver
from expkit.drivers.torch.fsdp import find_units
from expkit.losses import CrossEntropy
from expkit.models.torch import Transformer
from expkit.optimizers import SGD, Adam
from expkit.testing.steps import CLASSES, FEATURES, batch_of, flat, step
from tests.drivers.factories_torch import fsdp
from tests.drivers.on_ranks import digest, raised


class Odd(nn.Module):
    """Shapes that no number of ranks divides; blocks; tied weights; batch norm."""

    def __init__(self, seed=0):
        super().__init__()
        torch.manual_seed(seed)
        self.blocks = nn.ModuleList(nn.Linear(FEATURES if i == 0 else 7, 7) for i in range(3))
        self.norm = nn.BatchNorm1d(7)
        self.tied = nn.Linear(7, 1, bias=False)
        self.again = nn.Linear(7, 1, bias=False)
        self.again.weight = self.tied.weight
        self.head = nn.Linear(7, CLASSES)

    def forward(self, x):
        for block in self.blocks:
            x = block(x).tanh()
        first = torch.tensor([1.0] + [0.0] * (CLASSES - 1))
        return self.head(self.norm(x)) + self.tied(x) * self.again(x) * first


def optimizer_called(name):
    # With a large eps: a small one makes noise of gradients that are zero as large as any other.
    if name == "expkit":
        return Adam(lr=0.01, eps=1e-3)
    if name == "groups":
        return Adam(lr=0.01, eps=1e-3, groups=[{"params": "*bias", "lr": 0.1}])
    return partial(getattr(torch.optim, name), lr=0.01, eps=1e-3)


def equal_one(optimizer="expkit", steps=4, **options):
    """Weights, statistics and optimizer state against one rank; norms and evaluation too."""
    many, one = fsdp(**options), TorchDriver(device="cpu")
    many.setup(0)
    for driver in (many, one):
        driver.prepare(Odd(seed=driver.rank), optimizer_called(optimizer), CrossEntropy())
    world = many.world_size
    norms = []
    average = many.average_parameters()
    outputs = []
    for number in range(steps):
        # All ranks have the same samples, so that batch norm sees the same too.
        parts = [batch_of(range(number, number + 6)), batch_of(range(number + 6, number + 9))]
        norms.append(
            (
                step(many, parts, clip_norm=0.5, weight=9 * world)[1],
                step(one, parts, clip_norm=0.5, weight=9)[1],
            )
        )
        average.update(0.5)
        outputs.append(
            [
                driver.evaluate_step(batch_of(range(20)), frozenset({"output", "loss"}))
                for driver in (many, one)
            ]
        )
    left, right = many.state(), one.state()
    shapes_right = many.rank > 0 or shapes(left) == shapes(right)
    worst = max(
        float(np.abs(flat(many.model_state()) - flat(one.model_state())).max()),
        max(abs(a - b) for a, b in norms),
        max(np.abs(a["output"] - b["output"]).max() for a, b in outputs),
        max(np.abs(a["loss"] - b["loss"]).max() for a, b in outputs),
    )
    if many.rank == 0:
        for name, own in right["optimizer"].items():
            for key, value in own.items():
                worst = max(worst, np.abs(left["optimizer"][name][key] - value).max())
    average.swap()
    swapped = digest(many)
    kept = average.state()
    average.swap()
    average.load_state(many.broadcast(kept))
    return {
        "worst": float(worst),
        "digests": [swapped, digest(many)],
        "kept": [len(left["model"]), len(left["optimizer"]), len(kept)],
        "same shapes": shapes_right,
    }


def shapes(state):
    return {
        key: shapes(value) if isinstance(value, dict) else np.shape(value)
        for key, value in state.items()
        if key not in ("rng", "scaler")
    }


def exchange_states(optimizer="expkit"):
    """A state of one rank goes on in shards and back, as if nothing had been."""
    many, one = fsdp(), TorchDriver(device="cpu")
    for driver in (many, one):
        driver.prepare(Odd(seed=driver.rank), optimizer_called(optimizer), CrossEntropy())
    step(one, [batch_of(range(9))])
    state = one.state()
    many.evaluate_step(batch_of(range(4)), frozenset({"loss"}))  # gathers what is then replaced
    many.load_state(state | {"rng": {}})
    whole = many.broadcast(many.state())
    same = all(
        np.array_equal(whole["model"][path], state["model"][path]) for path in state["model"]
    )
    for name, own in state["optimizer"].items():
        same &= own.keys() == whole["optimizer"][name].keys()
        same &= all(np.array_equal(whole["optimizer"][name][key], own[key]) for key in own)
    back = TorchDriver(device="cpu")
    back.prepare(Odd(seed=9), optimizer_called(optimizer), CrossEntropy())
    back.load_state(whole | {"rng": {}})
    for _ in range(2):
        step(many, [batch_of(range(9, 18))], weight=9 * many.world_size)
        step(one, [batch_of(range(9, 18))])
        step(back, [batch_of(range(9, 18))])
    difference = np.abs(flat(many.model_state()) - flat(one.model_state())).max()
    exact = bool(np.array_equal(flat(back.model_state()), flat(one.model_state())))
    other = dict(state["model"])
    other["head.weight"] = other["head.weight"][:, :3]
    error = raised(lambda: many.load_model_state(other), CheckpointError)
    return bool(same), float(difference), exact, error


def traffic():
    """How often gradients travel: before the window's end, and in all."""
    driver = fsdp()
    driver.prepare(Odd(), SGD(lr=0.1), CrossEntropy())
    step(driver, [batch_of(range(4))], weight=8)
    calls = []

    def spy(*args, **kwargs):
        calls.append(1)
        return foreach_reduce(*args, **kwargs)

    module = "torch.distributed.fsdp._fully_shard._fsdp_param_group.foreach_reduce"
    with mock.patch(module, spy):
        for batch in (batch_of(range(4)), batch_of(range(4, 8))):
            driver.backward(driver.loss(driver.forward(batch, False), batch), 1 / 24)
        early = len(calls)
        last = batch_of(range(8, 12))
        driver.backward(driver.loss(driver.forward(last, True), last), 1 / 24)
    return early, len(calls)


def memory():
    """Numbers that this rank keeps of the model and of its optimizer."""
    driver = fsdp()
    model = Odd()
    total = sum(p.numel() for p in model.parameters())
    driver.prepare(model, Adam(lr=0.1), CrossEntropy())
    step(driver, [batch_of(range(8))], weight=8 * driver.world_size)
    trained = driver._optimizers.parameters
    (_, update), *_ = driver._optimizers._updates
    return total, sum(p.numel() for p in trained), sum(m.numel() for m in update.means)


def units():
    """What ``auto`` and patterns choose."""

    class Stages(nn.Module):
        def __init__(self):
            super().__init__()
            self.stem = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
            block = lambda: nn.Sequential(nn.Linear(2, 2), nn.ReLU())  # noqa: E731
            self.stages = nn.Sequential(block(), block(), nn.Flatten())

    def names(model, shard):
        chosen = {id(unit) for unit in find_units(model, shard)}
        return [path for path, module in model.named_modules() if id(module) in chosen]

    sequence = Transformer(
        vocab_size=11, out_features=3, n_layers=2, d_model=8, n_heads=2, d_ff=8, max_length=5
    )
    return {
        "odd": names(Odd(), "auto"),
        "transformer": names(sequence, "auto"),
        "stages": names(Stages(), "auto"),
        "none": names(Odd(), []),
        "patterns": names(Odd(), ["blocks.[12]", "head"]),
        "unknown": raised(lambda: names(Odd(), ["layers.*"]), ConfigError),
        "a list": raised(lambda: fsdp(shard="blocks.*"), ConfigError),
        "container": raised(
            lambda: fsdp(shard=["blocks"]).prepare(Odd(), SGD(), CrossEntropy()), ConfigError
        ),
    }


def precision():
    half, full = fsdp(precision="bf16"), fsdp()
    seen = []
    for driver in (half, full):
        model = Odd()
        model.blocks[0].register_forward_hook(lambda m, i, o: seen.append(str(o.dtype)))
        driver.prepare(model, SGD(lr=0.1), CrossEntropy())
        for number in range(4):
            step(driver, [batch_of(range(number, number + 8))], weight=8 * driver.world_size)
    difference = np.abs(flat(half.model_state()) - flat(full.model_state())).max()
    types = {str(value.dtype) for value in half.model_state().values()}
    return sorted(set(seen)), float(difference), sorted(types), digest(half)


def half_weights():
    driver = fsdp()
    driver.prepare(Odd().bfloat16(), Adam(lr=0.01), CrossEntropy())
    state = driver.state()
    wanted = TorchDriver(device="cpu")
    wanted.prepare(Odd().bfloat16(), None, CrossEntropy())
    weights = driver.model_state()
    is_exact = all(
        value.dtype == weights[path].dtype and value.tobytes() == weights[path].tobytes()
        for path, value in wanted.model_state().items()
    )
    driver.load_state(driver.group.broadcast(state) | {"rng": state["rng"]})
    after = driver.model_state()
    is_back = all(after[path].tobytes() == value.tobytes() for path, value in weights.items())
    return is_exact, is_back, sorted({str(value.dtype) for value in weights.values()})


def refusals():
    def prepare(optimizer):
        return lambda: fsdp().prepare(Odd(), optimizer, CrossEntropy())

    wrapped = nn.Linear(2, 2)
    mixed = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2).double())
    return [
        raised(lambda: fsdp().prepare(mixed, SGD(), CrossEntropy()), ConfigError),
        raised(lambda: fsdp(precision="fp16"), ConfigError),
        raised(prepare(partial(torch.optim.Adafactor, lr=0.1)), ConfigError),
        raised(prepare({"a": partial(torch.optim.Muon, lr=0.1)}), ConfigError),
        raised(
            lambda: fsdp().prepare(
                nn.parallel.DistributedDataParallel(wrapped), SGD(), CrossEntropy()
            ),
            ConfigError,
        ),
    ]


def steps():
    """A model's own steps, which call its layers and its forward."""

    class Steps(Odd):
        def train_step(self, batch):
            logits = self(batch["x"])
            return {"loss": nn.functional.cross_entropy(logits, batch["y"], reduction="none")}

        def evaluate_step(self, batch):
            return {"output": self.head(self.blocks[0](batch["x"]))}

    many, one = fsdp(), TorchDriver(device="cpu")
    outputs = []
    for driver in (many, one):
        driver.prepare(Steps(), Adam(lr=0.01), None)
        for _ in range(2):
            step(driver, [batch_of(range(8))], weight=8 * driver.world_size)
            outputs.append(driver.evaluate_step(batch_of(range(4)), frozenset({"output"})))
    differences = [np.abs(outputs[i]["output"] - outputs[i + 2]["output"]).max() for i in (0, 1)]
    return float(max(differences)), many.evaluates_together
