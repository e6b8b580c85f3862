"""What ranks do in the tests of the Paddle drivers: each function runs on all ranks at once."""

from __future__ import annotations

import logging
import os
import re
import time
import zlib
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import paddle
import paddle.distributed as dist
from paddle import nn
from paddle.distributed import fleet

from expkit.core.batch import Batch
from expkit.core.binding import Binding
from expkit.core.errors import ConfigError, DriverError, RankError
from expkit.drivers.paddle import PaddleDriver, PaddleFleetDriver
from expkit.losses import CrossEntropy
from expkit.models.paddle import Mlp
from expkit.optimizers import SGD, Adam
from expkit.testing.steps import CLASSES, FEATURES, batch_of, flat, gradient, step


class Weight(nn.Layer):
    """One weight, whose gradient is the mean of the samples."""

    def __init__(self):
        super().__init__()
        self.w = zeros(self, 1)

    def forward(self, g):
        return self.w * g


def zeros(layer, size):
    return layer.create_parameter([size], default_initializer=nn.initializer.Constant(0.0))


def identity(outputs, batch):
    return outputs["output"]


def samples(values, weights=None):
    values = np.asarray(values, np.float32)
    weights = None if weights is None else np.asarray(weights, np.float32)
    return Batch({"g": values}, np.arange(len(values)), weights)


def replicated(sync="auto", unused=False, **options):
    options = {"timeout_s": 30, **options}
    return PaddleFleetDriver(
        device="cpu", gradient_sync=sync, find_unused_parameters=unused, **options
    )


def on_weight(driver, lr=1.0):
    driver.prepare(Weight(), SGD(lr=lr), identity)
    return driver


def digest(driver):
    """One number for all bits of a model."""
    state = driver.model_state()
    return zlib.crc32(b"".join(state[path].tobytes() for path in sorted(state)))


# -- exact gradients -------------------------------------------------------------------------------


def case_25(sync):
    driver = on_weight(replicated(sync))
    parts = [[2], [4]] if driver.rank == 0 else [[6], [8]]
    step(driver, [samples(part) for part in parts], weight=4)
    return driver.model_state()["w"].item()


def case_27(sync):
    driver = on_weight(replicated(sync))
    batch = samples([1, 1, 1] if driver.rank == 0 else [5])
    found, _ = gradient(driver, [batch], weight=4)
    driver = on_weight(replicated(sync))
    terms, _, _ = step(driver, [batch], weight=4)
    losses = driver.all_reduce(driver.read_losses(terms).sum(axis=0))
    return found["w"].item(), losses[1]


def weight_zero(sync):
    """All ranks but the first have nothing but filling."""
    driver = on_weight(replicated(sync))
    batch = samples([3, 5]) if driver.rank == 0 else samples([7, 7], [0, 0])
    found, _ = gradient(driver, [batch], weight=2)
    return found["w"].item()


def case_29(sync):
    class Pair(nn.Layer):
        def __init__(self):
            super().__init__()
            self.w = zeros(self, 2)

        def forward(self, g):
            return (self.w * g).sum(1)

    driver = replicated(sync)
    driver.prepare(Pair(), SGD(lr=1.0), identity)
    parts = [[6, 0]], [[0, 0.8]]
    batches = [samples(part) for part in parts]
    # Each rank has all samples, which count half on it.
    _, norm, _ = step(driver, batches, clip_norm=1.0, weight=driver.world_size)
    return (-driver.model_state()["w"]).tolist(), norm


def token_weights(sync):
    """Labels that are left out: the mean is over those that are kept, on all ranks."""
    found = []
    for driver in (replicated(sync), PaddleDriver(device="cpu")):
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
    many, one = replicated(sync), PaddleDriver(device="cpu")
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
    driver = on_weight(replicated(), lr=1.0)
    for number in range(8):
        step(driver, [samples([1])], factors=[0.5**number], weight=driver.world_size)
    step(driver, [samples([1])], factors=[0.5**8], weight=driver.world_size)
    return driver.learning_rates()["lr"]


# -- what is communicated --------------------------------------------------------------------------


@contextmanager
def counted():
    """The names of Paddle's collectives of tensors in the order of their calls."""
    calls = []

    def spy(name):
        real = getattr(dist, name)

        def call(*args, **kwargs):
            calls.append(name)
            return real(*args, **kwargs)

        return mock.patch.object(dist, name, call)

    with spy("all_reduce"), spy("broadcast"):
        yield calls


def traffic(sync, norm="none"):
    driver = replicated(sync)
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


class Heads(nn.Layer):
    """Uses the layers that the batch names."""

    def __init__(self):
        super().__init__()
        self.a = nn.Linear(FEATURES, CLASSES)
        self.b = nn.Linear(FEATURES, CLASSES)
        self.head = nn.Linear(CLASSES, CLASSES)
        fill(self, 3)

    def forward(self, x, use):
        return sum(getattr(self, name)(x) for name in use)


def fill(model, seed):
    """Weights that are the same on all ranks and in all models of a kind."""
    rng = np.random.default_rng(seed)
    for parameter in model.parameters():
        values = rng.standard_normal(parameter.shape).astype(np.float32)
        parameter.set_value(0.4 * values)


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
    driver = on_heads(replicated(sync, unused))
    before = driver.model_state()

    def steps():
        for _ in range(2):
            step(driver, [named(range(4), ["a", "b"])], weight=8)

    error = raised(steps, DriverError)
    after = driver.model_state()
    same = [path for path in before if np.array_equal(before[path], after[path])]
    return error, same


def case_35(sync):
    """Layer a in the first micro-batch only, b in the second only; other samples on each rank."""
    many, one = on_heads(replicated(sync, unused=True)), on_heads(PaddleDriver(device="cpu"))
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
    models = [Heads(), Heads()]
    for model in models:
        freeze(model.head)
    many = on_heads(replicated(sync, unused), models[0])
    one = on_heads(PaddleDriver(device="cpu"), models[1])
    world = many.world_size

    def batch(rank):
        return named(range(4 * rank, 4 * rank + 4), "ab" if rank == 0 else "a")

    error = raised(lambda: step(many, [batch(many.rank)], weight=4 * world), DriverError, RankError)
    if error is not None:
        return error, None
    step(one, [batch(rank) for rank in range(world)])
    difference = np.abs(flat(many.model_state()) - flat(one.model_state())).max()
    return float(difference), digest(many)


class Backbone(nn.Layer):
    def __init__(self):
        super().__init__()
        self.backbone = nn.Linear(FEATURES, 4)
        self.head = nn.Linear(4, CLASSES)
        fill(self, 4)

    def forward(self, x):
        return self.head(self.backbone(x).tanh())


def freeze(layer, is_frozen=True):
    for parameter in layer.parameters():
        parameter.stop_gradient = is_frozen


def frozen(sync, when, unused=False):
    """A backbone frozen from the start, or after two steps, and trained again after five."""
    many, one = replicated(sync, unused), PaddleDriver(device="cpu")
    kept, traces = {}, []
    for driver in (many, one):
        model = Backbone()
        if when == "before":
            freeze(model.backbone)
        driver.prepare(model, SGD(lr=0.1), CrossEntropy())
        for number in range(8):
            if when == "later" and number in (2, 5):
                freeze(model.backbone, number == 2)
                kept[number] = model.backbone.weight.numpy()
            ranks = [driver.rank] if driver is many else range(many.world_size)
            batches = [batch_of(range(4 * r + number, 4 * r + 4 + number)) for r in ranks]
            step(driver, batches, weight=4 * many.world_size)
        if when == "later":
            assert np.array_equal(kept[2], kept[5]), "frozen weights have moved"
            assert not np.array_equal(kept[5], model.backbone.weight.numpy()), "not trained again"
        traces.append(flat(driver.model_state()))
    return float(np.abs(traces[0] - traces[1]).max()), digest(many)


def frozen_on_one_rank(sync):
    driver = replicated(sync)
    model = Backbone()
    driver.prepare(model, SGD(lr=0.1), CrossEntropy())
    step(driver, [batch_of(range(4))], weight=8)
    if driver.rank == 0:
        freeze(model.backbone)
    return raised(lambda: step(driver, [batch_of(range(4))], weight=8), DriverError)


# -- buffers ---------------------------------------------------------------------------------------


class Buffered(nn.Layer):
    """Batch norm; constants, one of them infinite; buffers that change late; a counter."""

    def __init__(self):
        super().__init__()
        self.layer = nn.Linear(FEATURES, CLASSES)
        self.norm = nn.BatchNorm1D(CLASSES)
        fill(self.layer, 5)
        self.register_buffer("mask", paddle.to_tensor([0.0, -np.inf, np.nan, -0.0]))
        self.register_buffer("table", paddle.arange(3))
        self.register_buffer("late", paddle.zeros([2]))
        self.register_buffer("counter", paddle.zeros([], dtype="int64"))
        self.register_buffer("hidden", paddle.to_tensor([0.1]), persistable=False)
        self.amount = 0.0

    def forward(self, x):
        self.late = self.late + self.amount
        self.counter.add_(paddle.to_tensor(int(self.amount)))
        return self.norm(self.layer(x))


def buffers(sync, accumulate=1):
    """By the rule: before + mean over ranks of what each rank adds; computed here by NumPy."""
    driver = replicated(sync)
    model = Buffered()
    driver.prepare(model, SGD(lr=0.1), CrossEntropy())
    constants = [model.mask.numpy(), model.table.numpy(), model.hidden.numpy()]
    worst = 0.0
    for number in range(4):
        before = {name: getattr(model.norm, name).numpy() for name in ("_mean", "_variance")}
        model.amount = float(driver.rank + 1) if number >= 2 else 0.0
        start = 12 * driver.rank + number
        parts = np.array_split(np.arange(start, start + 12), accumulate)
        # What this rank alone would do to its statistics.
        alone, layer = nn.BatchNorm1D(CLASSES), nn.Linear(FEATURES, CLASSES)
        alone.set_state_dict(model.norm.state_dict())
        layer.set_state_dict(model.layer.state_dict())
        for part in parts:
            alone(layer(paddle.to_tensor(batch_of(part).fields["x"])))
        step(driver, [batch_of(part) for part in parts], weight=12 * driver.world_size)
        for name, value in before.items():
            added = driver.all_gather(getattr(alone, name).numpy().astype(np.float64) - value)
            expected = value + np.mean(added, axis=0)
            worst = max(worst, np.abs(getattr(model.norm, name).numpy() - expected).max())
    for constant, buffer in zip(constants, (model.mask, model.table, model.hidden), strict=True):
        np.testing.assert_array_equal(constant.view(np.uint8), buffer.numpy().view(np.uint8))
    return {
        "worst": float(worst),
        "late": model.late.tolist(),
        "counter": model.counter.item(),
        "digest": digest(driver),
    }


# -- flags and errors ------------------------------------------------------------------------------


def flags(sync):
    driver = on_weight(replicated(sync))
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
    group = replicated().group
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


def rank_errors():
    """The last rank leaves; a collective of the others tells so."""
    driver = on_weight(replicated("flat", timeout_s=2.0))
    if driver.rank == driver.world_size - 1:
        os._exit(7)
    errors = [raised(lambda: step(driver, [samples([1])], weight=2), RankError)]
    errors.append(raised(driver.barrier, RankError))
    errors.append(raised(lambda: driver.all_gather(1), RankError))
    return errors


def main_is_gone():
    """Rank 0, which serves the store, leaves."""
    group = replicated().group
    if group.rank == 0:
        os._exit(7)
    time.sleep(0.5)
    return raised(group.barrier, RankError)


def dies_in_the_backward():
    """Paddle's wrapper ends the process where a peer is gone; what matters is that none hangs."""
    driver = on_weight(replicated("native"))
    step(driver, [samples([1])], weight=2)
    batch = samples([1])
    loss = driver.loss(driver.forward(batch, True), batch)
    if driver.rank == driver.world_size - 1:
        os._exit(7)
    return raised(lambda: driver.backward(loss, 1.0), RankError)


def late():
    """A rank that does not come in time."""
    group = replicated(timeout_s=1.0).group
    if group.rank == 0:
        time.sleep(2.5)
        return None
    return raised(group.barrier, RankError)


def patient(seconds):
    """Rank 0 is busy before a collective on the host."""
    group = replicated(timeout_s=600).group
    began = time.monotonic()
    if group.rank == 0:
        time.sleep(seconds)
    total = group.call_on_main(lambda: 1.0) + group.all_reduce(np.ones(1)).item()
    return total, time.monotonic() - began


# -- joining ---------------------------------------------------------------------------------------


def joins_once():
    """Fit, evaluate, and a second driver with another model: case 127."""
    with mock.patch.object(dist, "init_parallel_env", wraps=dist.init_parallel_env) as init:
        first = on_weight(replicated())
        step(first, [samples([1])], weight=first.world_size)
        first.evaluate_step(samples([1.0]), frozenset({"output"}))
        first.shutdown()
        second = on_weight(replicated())
        step(second, [samples([1])], weight=second.world_size)
        num_inits = init.call_count
    errors = [
        raised(lambda: PaddleFleetDriver(device="cpu", backend="nccl"), ConfigError),
        raised(lambda: PaddleFleetDriver(device=["tpu"] * 8), ConfigError),
        raised(lambda: PaddleFleetDriver(device=[]), ConfigError),
    ]
    with mock.patch("expkit.drivers.paddle.fleet.device_of_rank", return_value="gpu:0"):
        errors.append(raised(lambda: PaddleFleetDriver(device="cpu"), ConfigError))
    return second.model_state()["w"].item(), num_inits, errors


def same_start():
    """Each rank builds its own weights; those of rank 0 count."""
    driver = replicated()
    model = mlp(seed=driver.rank, norm="batch")
    model.register_buffer("extra", paddle.to_tensor([float(driver.rank)]))
    driver.prepare(model, SGD(lr=1.0), CrossEntropy())
    expected = flat({k: v.numpy() for k, v in mlp(seed=0, norm="batch").state_dict().items()})
    state = driver.model_state()
    assert state.pop("extra").item() == 0.0
    other = raised(
        lambda: replicated().prepare(nn.Linear(2, 2 + driver.rank), SGD(lr=1.0), CrossEntropy()),
        DriverError,
    )
    return bool(np.array_equal(flat(state), expected)), other


def listeners():
    """Addresses on which this process listens."""
    replicated()
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


def user_wrapped(with_fleet):
    """A group and a wrapped model that the user made."""

    class Own(Weight):
        def train_step(self, batch):
            raise AssertionError("the wrapper cannot reach this")

    os.environ["PADDLE_DISTRI_BACKEND"] = "gloo"
    if with_fleet:
        fleet.init(is_collective=True)
        wrapped = fleet.distributed_model(Own())
    else:
        dist.init_parallel_env()
        wrapped = paddle.DataParallel(Own())
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger("expkit").addHandler(handler)
    with mock.patch.object(dist, "init_parallel_env", side_effect=AssertionError):
        driver = replicated()
    driver.prepare(wrapped, SGD(lr=1.0), identity)
    parts = [[2], [4]] if driver.rank == 0 else [[6], [8]]
    step(driver, [samples(part) for part in parts], weight=4)
    values = driver.evaluate_step(samples([1.0]), frozenset({"output"}))
    return {
        "state": {path: value.tolist() for path, value in driver.model_state().items()},
        "plain": driver.unwrap() is wrapped._layers,
        "warnings": [record.getMessage() for record in records],
        "output": values["output"].tolist(),
        "gathered": driver.all_gather(driver.rank),
    }


def steps_through_native():
    """The wrapper reaches a model's own train_step."""

    class Steps(nn.Layer):
        def __init__(self):
            super().__init__()
            self.w = zeros(self, 1)

        def train_step(self, batch):
            return {"loss": self.w * batch["g"]}

        def evaluate_step(self, batch):
            return {"output": self.w * batch["g"]}

    driver = replicated("native", data_parallel={"comm_buffer_size": 1})
    driver.prepare(Steps(), SGD(lr=1.0), None)
    step(driver, [samples([2.0 * driver.rank])], weight=driver.world_size)
    return driver.model_state()["w"].item()


def options():
    def with_fleet(**options):
        return raised(lambda: replicated(fleet=options), ConfigError)

    return [
        raised(lambda: replicated("best"), ConfigError),
        raised(lambda: replicated("flat", data_parallel={"comm_buffer_size": 1}), ConfigError),
        raised(lambda: replicated("native", data_parallel={"buffer_size": 1}), ConfigError),
        raised(lambda: replicated("native", data_parallel={"group": None}), ConfigError),
        raised(lambda: PaddleFleetDriver(device="gpu:0"), ConfigError),
        with_fleet(is_collective=False),
        with_fleet(role_maker="me"),
        with_fleet(strategy={"amp": True}),
        with_fleet(strategy={"hybrid_configs": {"mp_degree": 2}}),
        with_fleet(strategy={"fuse_grad_size_in_MB": "large"}),
        with_fleet(maker=1),
        raised(
            lambda: replicated("flat", fleet={"strategy": {"fuse_grad_size_in_MB": 1}}), ConfigError
        ),
    ]


def choices():
    """Which exchange ``auto`` takes, and what reaches the wrapper."""
    found = []
    for sizes, unused, arguments, strategy in (
        ((8, 8), False, {}, {}),
        ((2600, 2600), False, {}, {}),
        ((2600, 2600), True, {}, {}),
        ((8, 8), False, {"last_comm_buffer_size": 0.5}, {"fuse_grad_size_in_MB": 3}),
        ((2600, 2600), False, {}, {"find_unused_parameters": True}),
    ):
        driver = replicated(unused=unused, data_parallel=arguments, fleet={"strategy": strategy})
        model = nn.Linear(*sizes)
        driver.prepare(model, SGD(lr=1.0), None, Binding(inputs={"x": "input"}))
        exchange = driver._parallel._exchange
        name = type(exchange).__name__
        if name == "NativeExchange":
            wrapper = exchange._wrapper
            name += f" {wrapper.comm_buffer_size} {wrapper.last_comm_buffer_size}"
        found.append(name)
        driver.shutdown()
    return found


def role_maker():
    """A role maker of the user's is what fleet is started with."""
    maker = fleet.PaddleCloudRoleMaker(is_collective=True)
    driver = replicated(fleet={"role_maker": maker, "is_collective": True})
    return fleet.fleet._role_maker is maker, driver.rank, driver.world_size


def mixed_types(sync):
    """Parameters of both floating-point types get the gradients of one rank."""

    class Mixed(nn.Layer):
        def __init__(self):
            super().__init__()
            self.linear = nn.Linear(5, 3)
            fill(self, 6)
            one = nn.initializer.Constant(1.0)
            self.wide = self.create_parameter([3], dtype="float64", default_initializer=one)
            self.scalar = self.create_parameter([], default_initializer=one)

        def forward(self, x):
            return (self.linear(x).astype("float64") * self.wide).astype("float32") * self.scalar

    many, one = replicated(sync), PaddleDriver(device="cpu")
    rng = np.random.default_rng(0)
    x = rng.standard_normal((6 * many.world_size, 5)).astype(np.float32)
    y = rng.integers(0, 3, len(x))
    for driver in (many, one):
        driver.prepare(Mixed(), Adam(lr=0.01), CrossEntropy())
    for _ in range(3):
        for driver, rows in ((many, slice(many.rank, None, many.world_size)), (one, slice(None))):
            batch = Batch({"x": x[rows], "y": y[rows]}, np.arange(len(x[rows])), None)
            step(driver, [batch], weight=len(x))
    return float(np.abs(flat(many.model_state()) - flat(one.model_state())).max()), digest(many)


def second_model():
    """Case 123: a state goes into a model that was built after another one; names are numbered on.

    Case 129: paths are those of the plain model, in state and in patterns.
    """
    first = replicated()
    first.prepare(mlp(), Adam(lr=0.01), CrossEntropy())
    step(first, [batch_of(range(8))], weight=8 * first.world_size)
    state = first.broadcast(first.state())
    step(first, [batch_of(range(8, 16))], weight=8 * first.world_size)
    digests, keys = [digest(first)], []
    for driver in (replicated("native"), replicated("flat")):
        driver.prepare(mlp(seed=1), Adam(lr=0.01), CrossEntropy())
        driver.load_state(state | {"rng": {}})
        step(driver, [batch_of(range(8, 16))], weight=8 * driver.world_size)
        digests.append(digest(driver))
        keys.append(sorted(driver.model_state()))
    return digests, keys, sorted(dict(mlp().named_parameters()))


def sparse():
    class Table(nn.Layer):
        def __init__(self):
            super().__init__()
            self.table = nn.Embedding(8, 3, sparse=True)

        def forward(self, x):
            return self.table(x).sum(1)

    return raised(lambda: replicated("flat").prepare(Table(), SGD(lr=1.0), identity), DriverError)
