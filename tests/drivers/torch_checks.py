"""What ranks do in the tests of the torch drivers: each function runs on all ranks at once."""

from __future__ import annotations

import gc
import logging
import os
import re
import time
import zlib
from contextlib import ExitStack, contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import torch
import torch.distributed as dist
from torch import nn

from expkit.core.batch import Batch
from expkit.core.binding import Binding
from expkit.core.errors import ConfigError, DriverError, RankError
from expkit.drivers.torch import TorchDDPDriver, TorchDriver
from expkit.losses import CrossEntropy
from expkit.models.torch import Mlp
from expkit.optimizers import SGD, Adam
from expkit.testing.steps import CLASSES, FEATURES, batch_of, flat, gradient, step


class Weight(nn.Module):
    """One weight, whose gradient is the mean of the samples."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.zeros(1))

    def forward(self, g):
        return self.w * g


def identity(outputs, batch):
    return outputs["output"]


def samples(values, weights=None):
    values = np.asarray(values, np.float32)
    weights = None if weights is None else np.asarray(weights, np.float32)
    return Batch({"g": values}, np.arange(len(values)), weights)


def ddp(sync="auto", unused=False, **options):
    """A driver; ``sync`` may be ``fsdp``, or ``device``: flat as it is beside an accelerator."""
    if sync == "fsdp":  # seconds to import
        from expkit.drivers.torch.fsdp import TorchFSDPDriver

        return TorchFSDPDriver(device="cpu", timeout_s=30, **options)
    driver = TorchDDPDriver(
        device="cpu",
        gradient_sync="flat" if sync == "device" else sync,
        find_unused_parameters=unused,
        timeout_s=30,
        **options,
    )
    if sync == "device":
        driver.group.device = torch.device("cuda", 0)
    return driver


def on_weight(driver, lr=1.0):
    driver.prepare(Weight(), SGD(lr=lr), identity)
    return driver


def digest(driver):
    """One number for all bits of a model."""
    state = driver.model_state()
    return zlib.crc32(b"".join(state[path].tobytes() for path in sorted(state)))


# -- exact gradients -------------------------------------------------------------------------------


def case_25(sync):
    driver = on_weight(ddp(sync))
    parts = [[2], [4]] if driver.rank == 0 else [[6], [8]]
    step(driver, [samples(part) for part in parts], weight=4)
    return driver.model_state()["w"].item()


def case_27(sync):
    driver = on_weight(ddp(sync))
    batch = samples([1, 1, 1] if driver.rank == 0 else [5])
    found, _ = gradient(driver, [batch], weight=4)
    driver = on_weight(ddp(sync))
    terms, _, _ = step(driver, [batch], weight=4)
    losses = driver.all_reduce(driver.read_losses(terms).sum(axis=0))
    return found["w"].item(), losses[1]


def weight_zero(sync):
    """All ranks but the first have nothing but filling."""
    driver = on_weight(ddp(sync))
    batch = samples([3, 5]) if driver.rank == 0 else samples([7, 7], [0, 0])
    found, _ = gradient(driver, [batch], weight=2)
    return found["w"].item()


def case_29(sync):
    class Pair(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(2))

        def forward(self, g):
            return (self.w * g).sum(1)

    driver = ddp(sync)
    driver.prepare(Pair(), SGD(lr=1.0), identity)
    parts = [[6, 0]], [[0, 0.8]]
    batches = [samples(part) for part in parts]
    # Each rank has all samples, which count half on it.
    _, norm, _ = step(driver, batches, clip_norm=1.0, weight=driver.world_size)
    return (-driver.model_state()["w"]).tolist(), norm


def token_weights(sync):
    """Labels that are left out: the mean is over those that are kept, on all ranks."""
    found = []
    for driver in (ddp(sync), TorchDriver(device="cpu")):
        model = mlp()
        driver.prepare(model, SGD(lr=1.0), CrossEntropy(ignore_index=-1))
        world = driver.world_size
        shares = [range(0, 6), range(6, 9), range(9, 12)][:world] if world > 1 else [range(12)]
        size = sum(len(share) for share in shares)
        batch = batch_of(list(shares[driver.rank]))
        if world == 1:
            batch = batch_of(list(range(found[0][1])))
        batch.fields["y"][np.isin(batch.indices, [0, 1, 2, 3, 7])] = -1
        found.append((flat(gradient(driver, [batch], weight=size)[0]), size))
    return float(np.abs(found[0][0] - found[1][0]).max())


def mlp(seed=0, norm="none", dropout=0.0):
    model = Mlp(
        in_features=FEATURES,
        hidden=(5,),
        out_features=CLASSES,
        activation="tanh",
        dropout=dropout,
        norm=norm,
    )
    model.initialize(seed)
    return model


def equals_one_rank(sync, steps=10):
    """W ranks with accumulation 2 against one with all samples at once."""
    many, one = ddp(sync), TorchDriver(device="cpu")
    for driver in (many, one):
        driver.prepare(mlp(), Adam(lr=0.01), CrossEntropy())
    world, rank = many.world_size, many.rank
    for number in range(steps):
        samples_of_step = np.arange(number, number + 6 * world) % 64
        own = samples_of_step[rank::world]
        step(many, [batch_of(own[:4]), batch_of(own[4:])], weight=6 * world)
        step(one, [batch_of(samples_of_step)])
    difference = np.abs(flat(many.model_state()) - flat(one.model_state())).max()
    return float(difference), digest(many)


def case_31():
    driver = on_weight(ddp(), lr=1.0)
    for number in range(8):
        step(driver, [samples([1])], factors=[0.5**number], weight=driver.world_size)
    step(driver, [samples([1])], factors=[0.5**8], weight=driver.world_size)
    return driver.learning_rates()["lr"]


# -- what is communicated --------------------------------------------------------------------------


@contextmanager
def counted():
    """The names of torch's collectives of tensors in the order of their calls."""
    calls = []

    def spy(name):
        real = getattr(dist, name)

        def call(*args, **kwargs):
            calls.append(name)
            return real(*args, **kwargs)

        return mock.patch.object(dist, name, call)

    names = ("all_reduce", "broadcast", "_broadcast_coalesced", "isend")
    with ExitStack() as stack:
        for name in names:
            stack.enter_context(spy(name))
        yield calls


def traffic(sync, norm="none"):
    driver = ddp(sync)
    driver.prepare(mlp(norm=norm), SGD(lr=0.1), CrossEntropy())
    driver.group.watch(lambda: (False, True))
    step(driver, [batch_of(range(4))], weight=8)
    early, all_steps = [], []
    for _ in range(3):
        with counted() as calls:
            for batch in (batch_of(range(4)), batch_of(range(4, 8))):
                driver.backward(driver.loss(driver.forward(batch, False), batch), 1 / 24)
            early.append(len(calls))
            last = batch_of(range(8, 12))
            driver.backward(driver.loss(driver.forward(last, True), last), 1 / 24)
            driver.optimizer_step([1.0])
            driver.group.answers()
            all_steps.append(len(calls))
    return early, all_steps


# -- unused and frozen parameters ------------------------------------------------------------------


class Heads(nn.Module):
    """Uses the layers that the batch names."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(3)
        self.a = nn.Linear(FEATURES, CLASSES)
        self.b = nn.Linear(FEATURES, CLASSES)
        self.head = nn.Linear(CLASSES, CLASSES)

    def forward(self, x, use):
        return sum(getattr(self, name)(x) for name in use)


def named(indices, use):
    batch = batch_of(indices)
    return Batch(batch.fields | {"use": use}, batch.indices, None)


def on_heads(driver, model=None):
    driver.prepare(model or Heads(), SGD(lr=1.0), CrossEntropy())
    return driver


def raised(function, *kinds):
    """The error, as text; None where there is none."""
    try:
        function()
    except kinds as error:
        return f"{type(error).__name__}: {error}"
    return None


def unused_head(sync, unused):
    driver = on_heads(ddp(sync, unused))
    before = driver.model_state()

    def steps():
        for _ in range(2):
            step(driver, [named(range(4), ["a", "b"])], weight=8)
            driver.group.answers()

    error = raised(steps, DriverError)
    after = driver.model_state()
    same = [path for path in before if np.array_equal(before[path], after[path])]
    return error, same


def case_35(sync):
    """Layer a in the first micro-batch only, b in the second only; other samples on each rank."""
    many, one = on_heads(ddp(sync, unused=True)), on_heads(TorchDriver(device="cpu"))
    world = many.world_size

    def window(rank):
        start = 8 * rank
        return [named(range(start, start + 4), "a"), named(range(start + 4, start + 8), "b")]

    for _ in range(2):
        step(many, window(many.rank), weight=8 * world)
        step(one, [batch for rank in range(world) for batch in window(rank)])
    difference = np.abs(flat(many.model_state()) - flat(one.model_state())).max()
    return float(difference), digest(many)


def used_on_one_rank(sync, unused):
    """Layer a on all ranks, b on the first only."""
    many, one = on_heads(ddp(sync, unused)), on_heads(TorchDriver(device="cpu"))
    world = many.world_size

    def batch(rank):
        return named(range(4 * rank, 4 * rank + 4), "ab" if rank == 0 else "a")

    error = raised(lambda: step(many, [batch(many.rank)], weight=4 * world), DriverError, RankError)
    if error is not None:
        return error, None
    step(one, [batch(rank) for rank in range(world)])
    difference = np.abs(flat(many.model_state()) - flat(one.model_state())).max()
    return float(difference), digest(many)


class Backbone(nn.Module):
    def __init__(self):
        super().__init__()
        torch.manual_seed(4)
        self.backbone = nn.Linear(FEATURES, 4)
        self.head = nn.Linear(4, CLASSES)

    def forward(self, x):
        return self.head(self.backbone(x).tanh())


def frozen(sync, when, unused=False):
    """A backbone frozen from the start, or after two steps, and trained again after four."""
    many, one = ddp(sync, unused), TorchDriver(device="cpu")
    kept, traces = {}, []
    for driver in (many, one):
        model = Backbone()
        if when == "before":
            model.backbone.requires_grad_(False)
        driver.prepare(model, SGD(lr=0.1), CrossEntropy())
        rank = driver.rank
        for number in range(8):
            if when == "later" and number in (2, 5):
                model.backbone.requires_grad_(number == 5)
                kept[number] = model.backbone.weight.detach().clone()
            ranks = [rank] if driver is many else range(many.world_size)
            batches = [batch_of(range(4 * r + number, 4 * r + 4 + number)) for r in ranks]
            step(driver, batches, weight=4 * many.world_size)
        if when == "later":
            assert torch.equal(kept[2], kept[5]), "frozen weights have moved"
            assert not torch.equal(kept[5], model.backbone.weight), "it is not trained again"
        traces.append(flat(driver.model_state()))
    return float(np.abs(traces[0] - traces[1]).max()), digest(many)


def frozen_on_one_rank(sync):
    driver = ddp(sync)
    model = Backbone()
    driver.prepare(model, SGD(lr=0.1), CrossEntropy())
    step(driver, [batch_of(range(4))], weight=8)
    if driver.rank == 0:
        model.backbone.requires_grad_(False)
    return raised(lambda: step(driver, [batch_of(range(4))], weight=8), DriverError)


# -- buffers ---------------------------------------------------------------------------------------


class Buffered(nn.Module):
    """Batch norm; constants, one of them infinite; buffers that change late; a counter."""

    def __init__(self):
        super().__init__()
        torch.manual_seed(5)
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.norm = nn.BatchNorm1d(CLASSES)
        self.register_buffer("mask", torch.tensor([0.0, -torch.inf, torch.nan, -0.0]))
        self.register_buffer("table", torch.arange(3))
        self.register_buffer("late", torch.zeros(2))
        self.register_buffer("counter", torch.zeros((), dtype=torch.int64))
        self.register_buffer("hidden", torch.tensor([0.1]), persistent=False)
        self.amount = 0.0

    def forward(self, x):
        self.late += self.amount
        self.counter += int(self.amount)
        return self.norm(self.layer(x))


def buffers(sync, accumulate=1):
    """By the rule: before + mean over ranks of what each rank adds; computed here by NumPy."""
    driver = ddp(sync)
    model = Buffered()
    driver.prepare(model, SGD(lr=0.1), CrossEntropy())
    constants = [model.mask.clone(), model.table.clone(), model.hidden.clone()]
    worst = 0.0
    for number in range(4):
        before = {name: b.clone().numpy() for name, b in model.named_buffers()}
        weights = {path: torch.from_numpy(w) for path, w in driver.model_state().items()}
        model.amount = float(driver.rank + 1) if number >= 2 else 0.0
        start = 12 * driver.rank + number
        parts = np.array_split(np.arange(start, start + 12), accumulate)
        # What this rank alone would do to its statistics.
        alone = nn.BatchNorm1d(CLASSES)
        alone.load_state_dict(
            {n: torch.from_numpy(before[f"norm.{n}"]) for n in ("running_mean", "running_var")}
            | {name: weights[f"norm.{name}"] for name in ("weight", "bias")}
            | {"num_batches_tracked": torch.tensor(0)}
        )
        layer = nn.Linear(FEATURES, CLASSES)
        layer.load_state_dict({name: weights[f"layer.{name}"] for name in ("weight", "bias")})
        for part in parts:
            alone(layer(torch.from_numpy(batch_of(part).fields["x"])))
        step(driver, [batch_of(part) for part in parts], weight=12 * driver.world_size)
        for name in ("running_mean", "running_var"):
            added = driver.all_gather(
                getattr(alone, name).numpy().astype(np.float64) - before[f"norm.{name}"]
            )
            expected = before[f"norm.{name}"] + np.mean(added, axis=0)
            worst = max(worst, np.abs(getattr(model.norm, name).numpy() - expected).max())
    for constant, buffer in zip(constants, (model.mask, model.table, model.hidden), strict=True):
        view = np.uint8
        np.testing.assert_array_equal(constant.numpy().view(view), buffer.numpy().view(view))
    return {
        "worst": float(worst),
        "late": model.late.tolist(),
        "counter": model.counter.item(),
        "batches": model.norm.num_batches_tracked.item(),
        "digest": digest(driver),
    }


# -- flags and errors ------------------------------------------------------------------------------


def flags(sync):
    driver = on_weight(ddp(sync))
    own = [False, False]
    driver.group.watch(lambda: tuple(own))
    seen = [driver.group.answers()]

    def exchange():
        step(driver, [samples([1])], weight=driver.world_size)
        seen.append(driver.group.answers())

    exchange()
    own[1] = driver.rank == driver.world_size - 1
    seen.append(driver.group.answers())
    exchange()
    own[:] = [driver.rank == 0, False]
    agreed = driver.group.agree()
    exchange()
    own[:] = [False, False]
    exchange()
    driver.group.watch(lambda: (False,))
    seen.append(driver.group.answers())
    exchange()
    return [list(each) for each in seen], list(agreed)


def collectives():
    group = ddp().group
    rank, world = group.rank, group.world_size
    big = np.array([2**53 + 1 if rank == 0 else 2], dtype=np.int64)
    exact = group.all_reduce(big)
    fine = group.all_reduce(np.array([1.0 if rank == 0 else 2.0**-40]))
    extremes = [group.all_reduce(np.array([float(rank)]), op)[0] for op in ("min", "max")]
    nested = group.all_gather({"rank": rank, "data": [np.arange(rank), "x" * (rank * 100_000)]})
    from_each = [group.broadcast(("from", rank, None), src=src)[1] for src in range(world)]

    def fails():
        raise OSError("no space")

    error = raised(lambda: group.call_on_main(fails), OSError, RankError)
    group.barrier()
    after = group.call_on_main(lambda: "fine")
    refused = [
        raised(lambda: group.all_reduce(np.zeros(1), "mean"), ValueError),
        raised(lambda: group.all_reduce(np.zeros(1, np.float32)), ValueError),
        raised(lambda: group.broadcast(1, src=world), ValueError),
    ]
    return {
        "exact": int(exact[0]),
        "fine": float(fine[0]),
        "extremes": extremes,
        "shape": list(group.all_reduce(np.zeros((2, 0, 3))).shape),
        "scalar": group.all_reduce(np.float64(rank + 1)).item(),
        "nested": [(v["rank"], len(v["data"][0]), len(v["data"][1])) for v in nested],
        "from_each": from_each,
        "error": error,
        "after": after,
        "any": [group.any_rank(rank == world - 1), group.any_rank(False)],
        "refused": refused,
    }


def overflow(sync):
    """An overflow on one rank leaves the update out on all."""
    driver = ddp(sync, precision="fp16", loss_scale=1024.0)
    on_weight(driver)
    value = 1.0 if driver.rank == 0 else np.inf
    _, _, applied = step(driver, [samples([value])], weight=2)
    before = driver.model_state()["w"].item()
    _, _, again = step(driver, [samples([1.0])], weight=driver.world_size)
    return applied, before, again, driver.state()["scaler"].get("value")


def rank_errors(timeout_s=2.0):
    """The last rank leaves; a collective of the others tells so."""
    driver = on_weight(TorchDDPDriver(device="cpu", gradient_sync="flat", timeout_s=timeout_s))
    if driver.rank == driver.world_size - 1:
        os._exit(7)
    errors = [raised(lambda: step(driver, [samples([1])], weight=2), RankError)]
    errors.append(raised(driver.barrier, RankError))
    errors.append(raised(lambda: driver.all_gather(1), RankError))
    return errors


def native_rank_error():
    driver = on_weight(ddp("native"))
    step(driver, [samples([1])], weight=2)
    batch = samples([1])
    loss = driver.loss(driver.forward(batch, True), batch)
    if driver.rank == driver.world_size - 1:
        os._exit(7)
    return raised(lambda: driver.backward(loss, 1.0), RankError)


def late(directory, timeout_s=1.0):
    """A rank that does not come in time, in a group that has met over a file."""
    url = f"file://{directory}/rendezvous"
    group = TorchDDPDriver(device="cpu", timeout_s=timeout_s, init_method=url).group
    assert group.all_gather(group.rank) == [0, 1]
    if group.rank == 0:
        time.sleep(2.5 * timeout_s)
        return None
    return raised(group.barrier, RankError)


# -- joining ---------------------------------------------------------------------------------------


def joins_once():
    first = on_weight(ddp())
    second = on_weight(ddp())
    step(second, [samples([1])], weight=second.world_size)
    first.shutdown()
    step(second, [samples([1])], weight=second.world_size)
    errors = [
        raised(lambda: TorchDDPDriver(device="cpu", backend="mpi"), ConfigError),
        raised(lambda: TorchDDPDriver(device=["meta"] * 8), ConfigError),
        raised(lambda: TorchDDPDriver(device=["cpu"]), ConfigError),
    ]
    device = torch.device("cuda", 0)
    with mock.patch("expkit.drivers.torch.ddp.device_of_rank", return_value=device):
        errors.append(raised(lambda: TorchDDPDriver(device="cpu"), ConfigError))
    return second.model_state()["w"].item(), errors


def same_start():
    """Each rank builds its own weights; those of rank 0 count."""
    driver = ddp()
    model = mlp(seed=driver.rank, norm="batch")
    model.register_buffer("extra", torch.tensor([float(driver.rank)]))
    driver.prepare(model, SGD(lr=1.0), CrossEntropy())
    expected = flat({k: v.numpy() for k, v in mlp(seed=0, norm="batch").state_dict().items()})
    state = driver.model_state()
    assert state.pop("extra").item() == 0.0
    other = raised(
        lambda: ddp().prepare(nn.Linear(2, 2 + driver.rank), SGD(lr=1.0), CrossEntropy()),
        DriverError,
    )
    return bool(np.array_equal(flat(state), expected)), other


def is_open(descriptor):
    try:
        os.fstat(descriptor)
    except OSError:
        return False
    return True


def listeners():
    """Addresses on which this process listens."""
    ddp()
    own = {
        Path(f"/proc/self/fd/{fd.name}").resolve().name for fd in Path("/proc/self/fd").iterdir()
    }
    inodes = {match[1] for name in own if (match := re.match(r"socket:\[(\d+)\]", name))}
    found = []
    for table in ("tcp", "tcp6"):
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]:
            fields = line.split()
            if fields[3] == "0A" and fields[9] in inodes:
                found.append(fields[1].rpartition(":")[0])
    return found


def user_wrapped():
    """A group and a wrapped model that the user made."""

    class Own(Weight):
        def train_step(self, batch):
            raise AssertionError("the wrapper cannot reach this")

    dist.init_process_group("gloo")
    wrapped = nn.parallel.DistributedDataParallel(Own())
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger("expkit").addHandler(handler)
    driver = ddp()
    driver.prepare(wrapped, SGD(lr=1.0), identity)
    parts = [[2], [4]] if driver.rank == 0 else [[6], [8]]
    step(driver, [samples(part) for part in parts], weight=4)
    values = driver.evaluate_step(samples([1.0]), frozenset({"output"}))
    return {
        "state": {path: value.tolist() for path, value in driver.model_state().items()},
        "plain": driver.unwrap() is wrapped.module,
        "warnings": [record.getMessage() for record in records],
        "output": values["output"].tolist(),
        "alive": dist.is_initialized(),
    }


def steps_through_native():
    """The wrapper reaches a model's own train_step."""

    class Steps(nn.Module):
        def __init__(self):
            super().__init__()
            self.w = nn.Parameter(torch.zeros(1))

        def train_step(self, batch):
            return {"loss": (self.w * batch["g"])}

        def evaluate_step(self, batch):
            return {"output": self.w * batch["g"]}

    driver = ddp("native", data_parallel={"bucket_cap_mb": 1})
    driver.prepare(Steps(), SGD(lr=1.0), None)
    step(driver, [samples([2.0 * driver.rank])], weight=driver.world_size)
    return driver.model_state()["w"].item()


def static_graph():
    driver = ddp("native", data_parallel={"static_graph": True})
    on_weight(driver)
    step(driver, [samples([1])], weight=driver.world_size)
    batches = [samples([1]), samples([1])]
    return driver.model_state()["w"].item(), raised(lambda: step(driver, batches), ConfigError)


def options():
    return [
        raised(lambda: ddp("best"), ConfigError),
        raised(lambda: ddp("flat", data_parallel={"bucket_cap_mb": 1}), ConfigError),
        raised(lambda: ddp("native", data_parallel={"bucket_cap": 1}), ConfigError),
        raised(lambda: ddp("native", data_parallel={"broadcast_buffers": True}), ConfigError),
        raised(lambda: TorchDDPDriver(device="cpu:0"), ConfigError),
    ]


def choices():
    """Which exchange ``auto`` takes."""
    found = []
    for sizes, unused, arguments in (
        ((8, 8), False, {}),
        ((2600, 2600), False, {}),
        ((2600, 2600), True, {}),
        ((8, 8), False, {"bucket_cap_mb": 1}),
    ):
        driver = ddp(unused=unused, data_parallel=arguments)
        driver.prepare(nn.Linear(*sizes), SGD(lr=1.0), None, Binding(inputs={"x": "input"}))
        found.append(type(driver._parallel._exchange).__name__)
        driver.shutdown()
        gc.collect()
    return found


def layouts(sync):
    """Parameters of several types and orders in memory get the gradients of one rank."""

    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            torch.manual_seed(6)
            self.conv = nn.Conv2d(2, 3, 3).to(memory_format=torch.channels_last)
            self.turned = nn.Parameter(torch.randn(3, 4).t())
            self.wide = nn.Parameter(torch.randn(3, dtype=torch.float64))

        def forward(self, x):
            middle = self.conv(x).mean((2, 3))
            return (middle * self.wide).float() @ self.turned.t()

    many, one = ddp(sync), TorchDriver(device="cpu")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6 * many.world_size, 2, 5, 5)).astype(np.float32)
    y = rng.integers(0, 4, len(x))
    for driver in (many, one):
        driver.prepare(Mixed(), Adam(lr=0.01), CrossEntropy())
    for _ in range(3):
        for driver, rows in ((many, slice(many.rank, None, many.world_size)), (one, slice(None))):
            batch = Batch({"x": x[rows], "y": y[rows]}, np.arange(len(x[rows])), None)
            step(driver, [batch], weight=len(x))
    return float(np.abs(flat(many.model_state()) - flat(one.model_state())).max()), digest(many)


def state_round_trip(sync):
    driver = ddp(sync)
    driver.setup(0)
    driver.prepare(mlp(dropout=0.3), Adam(lr=0.01), CrossEntropy())
    step(driver, [batch_of(range(8))], weight=8 * driver.world_size)
    state = driver.state()
    loaded = digest(driver)
    whole = driver.broadcast(state)
    draws = driver.all_gather(state["rng"]["torch"].tobytes())
    after = []
    for _ in range(2):
        driver.load_state(whole | {"rng": state["rng"]})
        step(driver, [batch_of(range(8, 16))], weight=8 * driver.world_size)
        after.append(digest(driver))
    one = TorchDriver(device="cpu")
    one.prepare(mlp(), Adam(lr=0.01), CrossEntropy())
    one.load_state(whole)
    return {
        "keys": sorted(state["model"]),
        "same": after[0] == after[1],
        "different draws": len(set(draws)),
        "loads on one": digest(one) == loaded,
    }


def sparse(sync):
    class Table(nn.Module):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(8, 3, sparse=True)
            nn.init.zeros_(self.table.weight)

        def forward(self, x):
            return self.table(x).sum(1)

    driver = ddp(sync)
    driver.prepare(Table(), torch.optim.SparseAdam, identity)
    batch = Batch({"x": np.array([driver.rank, 5])}, np.arange(2), None)
    return raised(lambda: step(driver, [batch], weight=4), DriverError)
