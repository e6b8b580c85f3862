"""What ranks do in tests of every driver of several ranks: each function runs on all at once.

``framework`` chooses the factories, ``sync`` the driver, see ``several`` there.
"""

from __future__ import annotations

import importlib
import logging
import os
import re
import zlib
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from unittest import mock

import numpy as np

from expkit.core.batch import Batch
from expkit.core.binding import Binding
from expkit.core.errors import ConfigError, DriverError, RankError
from expkit.losses import CrossEntropy
from expkit.optimizers import SGD, Adam
from expkit.testing.steps import CLASSES, FEATURES, batch_of, flat, step


def factories(framework):
    return importlib.import_module(f"tests.drivers.factories_{framework}")


def identity(outputs, batch):
    return outputs["output"]


def raised(function, *kinds):
    """The error, as text; None where there is none."""
    try:
        function()
    except kinds as error:
        return f"{type(error).__name__}: {error}"
    return None


def digest(driver):
    """One number for all bits of a model."""
    state = driver.model_state()
    return zlib.crc32(b"".join(state[path].tobytes() for path in sorted(state)))


# -- weights whose gradient is the mean of the samples ---------------------------------------------


def constant(fw, width=1, base=None):
    """A model of weights 0 for samples of so many numbers."""

    class Constant(base or fw.Base):
        def __init__(self):
            super().__init__()
            self.w = fw.parameter(self, np.zeros(width, np.float32))

        def forward(self, g):
            return (self.w * g).sum(1)

    return Constant()


def samples(*rows):
    values = np.asarray(rows, np.float32).reshape(len(rows), -1)
    return Batch({"g": values}, np.arange(len(rows)), None)


def on_constant(driver, fw, width=1):
    driver.prepare(constant(fw, width), SGD(lr=1.0), identity)
    return driver


def one_step(driver, value=1.0):
    """A step on one sample of each rank."""
    return step(driver, [samples(value)], weight=driver.world_size)


def unequal_windows(framework, sync):
    """Rank 0 has the micro-batches 2 and 4, rank 1 has 6 and 8."""
    fw = factories(framework)
    driver = on_constant(fw.several(sync), fw)
    parts = [2, 4] if driver.rank == 0 else [6, 8]
    step(driver, [samples(part) for part in parts], weight=4)
    return driver.model_state()["w"].item()


def clipped(framework, sync):
    """Each rank has all samples, which count half on it."""
    fw = factories(framework)
    driver = on_constant(fw.several(sync), fw, width=2)
    batches = [samples([6, 0]), samples([0, 0.8])]
    _, norm, _ = step(driver, batches, clip_norm=1.0, weight=driver.world_size)
    return (-driver.model_state()["w"]).tolist(), norm


# -- ranks and one device --------------------------------------------------------------------------


def pair(framework, sync, make, optimizer, **options):
    """A driver of all ranks and one of this rank alone, and their models, of the same weights."""
    fw = factories(framework)
    many, one = fw.several(sync, **options), fw.single()
    many.setup(0)
    for driver in (many, one):
        driver.prepare(make(fw), optimizer, CrossEntropy())
    one.load_model_state(many.model_state())
    return many, one


def train_pair(many, one, batches_of, steps=1):
    """Train on ``batches_of(rank, step)``; alone, a rank takes those of all.

    Returns:
        The greatest difference between the weights, and a digest of those of the ranks.
    """
    world = many.world_size
    for number in range(steps):
        windows = [batches_of(rank, number) for rank in range(world)]
        size = sum(batch.size for window in windows for batch in window)
        step(many, windows[many.rank], weight=size)
        step(one, [batch for window in windows for batch in window])
    difference = np.abs(flat(many.model_state()) - flat(one.model_state())).max()
    return float(difference), digest(many)


def layouts(framework, sync):
    """Parameters of several types and orders in memory."""
    many, one = pair(framework, sync, lambda fw: fw.layouts(), Adam(lr=0.01, eps=1e-3))
    rng = np.random.default_rng(0)
    x = rng.standard_normal((12, 2, 5, 5)).astype(np.float32)
    y = rng.integers(0, CLASSES, len(x))

    def batches(rank, _):
        rows = slice(rank, None, many.world_size)
        return [Batch({"x": x[rows], "y": y[rows]}, np.arange(len(x[rows])), None)]

    return train_pair(many, one, batches, steps=3)


def kept_for_a_checkpoint(framework, sync):
    """How much of a state this rank has."""
    fw = factories(framework)
    driver = fw.several(sync)
    driver.prepare(fw.perceptron(), Adam(lr=0.01), CrossEntropy())
    step(driver, [batch_of(range(4))], weight=4 * driver.world_size)
    state = driver.state()
    return len(state["model"]), len(state["optimizer"]), bool(state["rng"])


# -- unused and frozen parameters ------------------------------------------------------------------


def heads(fw):
    """A model that uses the layers which the batch names; ``head`` is in no batch."""

    class Heads(fw.Base):
        def __init__(self):
            super().__init__()
            for name in ("a", "b", "head"):
                setattr(self, name, fw.nn.Linear(FEATURES, CLASSES))

        def forward(self, x, use):
            return sum(getattr(self, name)(x) for name in use)

    return Heads()


def heads_but_one(fw):
    model = heads(fw)
    fw.freeze(model.head)
    return model


def using(indices, use):
    batch = batch_of(indices)
    return Batch(batch.fields | {"use": use}, batch.indices, None)


def find(unused):
    return {"find_unused_parameters": True} if unused else {}


def unused_head(framework, sync, unused):
    fw = factories(framework)
    driver = fw.several(sync, **find(unused))
    driver.prepare(heads(fw), SGD(lr=1.0), CrossEntropy())
    before = driver.model_state()

    def steps():
        for _ in range(2):
            step(driver, [using(range(4), "ab")], weight=8)
            driver.group.answers()

    error = raised(steps, DriverError)
    after = driver.model_state()
    return error, sorted(path for path in before if np.array_equal(before[path], after[path]))


def early_layer(framework, sync):
    """Layer a in the first micro-batch only, b in the second only; other samples on each rank."""
    many, one = pair(framework, sync, heads, SGD(lr=1.0), **find(True))

    def window(rank, _):
        start = 8 * rank
        return [using(range(start, start + 4), "a"), using(range(start + 4, start + 8), "b")]

    return train_pair(many, one, window, steps=2)


def used_on_one_rank(framework, sync, unused):
    """Layer a on all ranks, b on the first only."""
    many, one = pair(framework, sync, heads_but_one, SGD(lr=1.0), **find(unused))
    found = None

    def train():
        nonlocal found
        found = train_pair(
            many,
            one,
            lambda rank, _: [using(range(4 * rank, 4 * rank + 4), "a" if rank else "ab")],
        )

    error = raised(train, DriverError, RankError)
    return found if error is None else [error, None]


def backbone(fw):
    class Backbone(fw.Base):
        def __init__(self):
            super().__init__()
            self.backbone = fw.nn.Linear(FEATURES, 4)
            self.head = fw.nn.Linear(4, CLASSES)

        def forward(self, x):
            return self.head(self.backbone(x).tanh())

    return Backbone()


def frozen(framework, sync, when, unused):
    """A backbone frozen from the start, or after two steps, and trained again after five."""
    fw = factories(framework)

    def make(fw):
        model = backbone(fw)
        if when == "before":
            fw.freeze(model.backbone)
        return model

    many, one = pair(framework, sync, make, SGD(lr=0.1), **find(unused))
    weights = lambda: many.model_state()["backbone.weight"]  # noqa: E731
    seen = [weights()]
    for first, last in ((0, 2), (2, 5), (5, 8)):
        if when == "later" and first:
            for driver in (many, one):
                fw.freeze(driver.unwrap().backbone, first == 2)
        difference, bits = train_pair(
            many,
            one,
            lambda rank, number, first=first: [
                batch_of(range(4 * rank + first + number, 4 * rank + first + number + 4))
            ],
            steps=last - first,
        )
        seen.append(weights())
    moved = [not np.array_equal(a, b) for a, b in pairwise(seen)]
    return difference, moved, bits


def frozen_on_one_rank(framework, sync):
    fw = factories(framework)
    driver = fw.several(sync)
    driver.prepare(backbone(fw), SGD(lr=0.1), CrossEntropy())
    step(driver, [batch_of(range(4))], weight=8)
    if driver.rank == 0:
        fw.freeze(driver.unwrap().backbone)
    return raised(lambda: step(driver, [batch_of(range(4))], weight=8), DriverError)


# -- buffers ---------------------------------------------------------------------------------------


def buffers(framework, sync, accumulate):
    """Statistics, constants, and buffers that begin to change after two of four windows."""
    fw = factories(framework)
    driver = fw.several(sync)
    rank = driver.rank

    class Buffered(fw.Base):
        def __init__(self):
            super().__init__()
            self.layer = fw.nn.Linear(FEATURES, CLASSES)
            self.norm = fw.BatchNorm(CLASSES)
            special = np.array([0.0, -np.inf, np.nan, -0.0], np.float32)
            self.register_buffer("mask", fw.tensor(special))
            self.register_buffer("table", fw.tensor(np.arange(3)))
            self.register_buffer("hidden", fw.tensor(np.array([0.1], np.float32)), False)
            self.register_buffer("replaced", fw.tensor(np.full(2, rank, np.float32)))
            self.register_buffer("changed", fw.tensor(np.full(2, rank, np.float32)))
            self.register_buffer("counter", fw.tensor(np.full(1, rank, np.int64)))
            self.amount = 0

        def forward(self, x):
            if self.amount:
                self.replaced = self.replaced + self.amount
                self.changed.add_(fw.tensor(np.full(2, self.amount, np.float32)))
                self.counter.add_(fw.tensor(np.full(1, self.amount, np.int64)))
            return self.norm(self.layer(x))

    model = Buffered()
    constants = ("mask", "table", "hidden")
    before = [getattr(model, name).numpy().copy() for name in constants]
    driver.prepare(model, SGD(lr=0.1), CrossEntropy())
    for number in range(4):
        model.amount = rank + 1 if number >= 2 else 0
        start = 12 * rank + number
        parts = np.array_split(np.arange(start, start + 12), accumulate)
        step(driver, [batch_of(part) for part in parts], weight=12 * driver.world_size)
    for name, values in zip(constants, before, strict=True):
        after = getattr(model, name).numpy()
        np.testing.assert_array_equal(values.view(np.uint8), after.view(np.uint8), err_msg=name)
    state = driver.model_state()
    return {
        "replaced": model.replaced.tolist(),
        "changed": model.changed.tolist(),
        "counter": model.counter.tolist(),
        "batches": [int(v) for path, v in state.items() if path.endswith("num_batches_tracked")],
        "digest": digest(driver),
    }


# -- what is communicated --------------------------------------------------------------------------


@contextmanager
def counted(fw):
    """The names of the collectives of tensors in the order of their calls."""
    calls = []

    def spy(name):
        real = getattr(fw.dist, name)

        def call(*args, **kwargs):
            calls.append(name)
            return real(*args, **kwargs)

        return mock.patch.object(fw.dist, name, call)

    with ExitStack() as stack:
        for name in fw.COLLECTIVES:
            stack.enter_context(spy(name))
        yield calls


def traffic(framework, norm):
    """The collectives before a window's last micro-batch, and in all, of three steps."""
    fw = factories(framework)
    driver = fw.several("flat")
    driver.prepare(fw.perceptron(norm=norm), SGD(lr=0.1), CrossEntropy())
    driver.group.watch(lambda: (False, True))
    step(driver, [batch_of(range(4))], weight=8)
    early, all_calls = [], []
    for _ in range(3):
        with counted(fw) as calls:
            for batch in (batch_of(range(4)), batch_of(range(4, 8))):
                driver.backward(driver.loss(driver.forward(batch, False), batch), 1 / 24)
            early.append(len(calls))
            last = batch_of(range(8, 12))
            driver.backward(driver.loss(driver.forward(last, True), last), 1 / 24)
            driver.optimizer_step([1.0])
            driver.group.answers()
            all_calls.append(len(calls))
    return early, all_calls


def refused(framework):
    """What no rank sends."""
    fw = factories(framework)
    group = fw.several("flat").group
    sizes = 2, 2 + group.rank
    return [
        raised(lambda: group.all_reduce(np.zeros(1, np.float32)), ValueError),
        raised(lambda: group.broadcast(1, src=group.world_size), ValueError),
        raised(
            lambda: fw.several("flat").prepare(fw.nn.Linear(*sizes), SGD(lr=1.0), CrossEntropy()),
            DriverError,
        ),
    ]


# -- joining ---------------------------------------------------------------------------------------


def joins_once(framework):
    """Fit, evaluate, and a second driver with another model; then drivers that cannot join."""
    fw = factories(framework)
    with mock.patch.object(fw.dist, fw.START, wraps=getattr(fw.dist, fw.START)) as start:
        first = on_constant(fw.several("auto"), fw)
        one_step(first)
        first.evaluate_step(samples(1.0), frozenset({"output"}))
        second = on_constant(fw.several("auto"), fw)
        one_step(second)
        first.shutdown()
        one_step(second)
        starts = start.call_count
    driver_module = type(first).__module__
    errors = [
        raised(lambda: fw.replicated(backend="nccl"), ConfigError),
        raised(lambda: fw.replicated(device=["tpu"] * 8), ConfigError),
        raised(lambda: fw.replicated(device=[]), ConfigError),
    ]
    with mock.patch(f"{driver_module}.device_of_rank", return_value="other:0"):
        errors.append(raised(fw.replicated, ConfigError))
    return second.model_state()["w"].item(), starts, errors


def listeners(framework):
    """Addresses on which this process listens, once it has joined."""
    factories(framework).several("flat")
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


def users_model(framework, how):
    """A group and a wrapped model that the user made."""
    fw = factories(framework)

    class Base(fw.Base):
        def train_step(self, batch):
            raise AssertionError("the wrapper cannot reach this")

    wrapped, inner = fw.users_wrapper(constant(fw, base=Base), how)
    records = []
    handler = logging.Handler()
    handler.emit = records.append
    logging.getLogger("expkit").addHandler(handler)
    with mock.patch.object(fw.dist, fw.START, side_effect=AssertionError):
        driver = fw.several("auto")
    driver.prepare(wrapped, SGD(lr=1.0), identity)
    parts = [2, 4] if driver.rank == 0 else [6, 8]
    step(driver, [samples(part) for part in parts], weight=4)
    values = driver.evaluate_step(samples(1.0), frozenset({"output"}))
    return {
        "state": {path: value.tolist() for path, value in driver.model_state().items()},
        "plain": driver.unwrap() is inner,
        "warnings": [record.getMessage() for record in records],
        "output": values["output"].tolist(),
        "gathered": driver.all_gather(driver.rank),
    }


def own_steps(framework):
    """The wrapper reaches a model's own train_step."""
    fw = factories(framework)

    class Base(fw.Base):
        def train_step(self, batch):
            return {"loss": self.w * batch["g"]}

        def evaluate_step(self, batch):
            return {"output": self.w * batch["g"]}

    driver = fw.several("native")
    driver.prepare(constant(fw, base=Base), SGD(lr=1.0), None)
    one_step(driver, 2.0 * driver.rank)
    return driver.model_state()["w"].item()


def choices(framework, asked):
    """How gradients travel for ``[size of a square layer, options of the driver]``."""
    fw = factories(framework)
    found = []
    for size, options in asked:
        driver = fw.replicated(**options)
        model = fw.nn.Linear(size, size)
        driver.prepare(model, SGD(lr=1.0), None, Binding(inputs={"x": "input"}))
        exchange = driver._parallel._exchange
        wrapper = getattr(exchange, "_wrapper", None)
        names = ("bucket_bytes_cap", "comm_buffer_size", "last_comm_buffer_size")
        sizes = [getattr(wrapper, name) for name in names if hasattr(wrapper, name)]
        found.append([type(exchange).__name__, *sizes])
        driver.shutdown()
    return found


# -- a rank that is gone ---------------------------------------------------------------------------


def last_rank_leaves(framework):
    """What collectives of the others tell."""
    fw = factories(framework)
    driver = on_constant(fw.several("flat"), fw)
    if driver.rank == driver.world_size - 1:
        os._exit(7)
    calls = (lambda: one_step(driver), driver.barrier, lambda: driver.all_gather(1))
    return [raised(call, RankError) for call in calls]


def last_rank_leaves_before_the_backward(framework, sync):
    fw = factories(framework)
    driver = fw.several(sync)
    driver.prepare(backbone(fw), SGD(lr=0.1), CrossEntropy())
    batch = batch_of(range(4))
    step(driver, [batch], weight=8)
    loss = driver.loss(driver.forward(batch, True), batch)
    if driver.rank == driver.world_size - 1:
        os._exit(7)
    return raised(lambda: driver.backward(loss, 1.0), RankError)
