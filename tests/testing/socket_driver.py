"""A driver of several ranks in a hundred lines of NumPy and sockets, right or with one fault."""

from __future__ import annotations

import os
import time
from multiprocessing.connection import Client, Listener

import numpy as np

from expkit.core.collective import Collective
from expkit.core.seeding import derive_seed
from expkit.drivers.numpy import NumpyDriver
from expkit.models.numpy import Mlp
from tests.drivers.perceptron import perceptron

_OPS = {"sum": np.sum, "min": np.min, "max": np.max}


class SocketGroup(Collective):
    """Ranks that send everything to rank 0, which sends everything back."""

    joined = None

    def __init__(self):
        super().__init__()
        self.rank = self.local_rank = int(os.environ["RANK"])
        self.world_size = int(os.environ["WORLD_SIZE"])
        self.fault = None
        address = (os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"]))
        if self.rank == 0:
            with Listener(address, backlog=self.world_size) as listener:
                links = [listener.accept() for _ in range(self.world_size - 1)]
            self._links = dict(sorted((link.recv(), link) for link in links))
        else:
            self._link = _connect(address)
            self._link.send(self.rank)

    @classmethod
    def join(cls, fault):
        """The group of this process, made once."""
        if cls.joined is None:
            cls.joined = cls()
        cls.joined.fault = fault
        return cls.joined

    def _meet(self, kind, value):
        """The values of all ranks; ranks that meet for different things are told."""
        if self.rank != 0:
            self._link.send((kind, value))
            kinds, values = self._link.recv()
        else:
            pairs = [(kind, value), *(link.recv() for link in self._links.values())]
            kinds, values = zip(*pairs, strict=True)
            for link in self._links.values():
                link.send((kinds, values))
        if len(set(kinds)) != 1:
            raise RuntimeError(f"ranks met for {kinds}")
        return list(values)

    def all_reduce(self, array, op="sum"):
        if op not in _OPS:
            raise ValueError(f"op is {op!r}; allowed: sum, min, max")
        if self.fault == "float32":
            array = array.astype(np.float32)
        stacked = np.stack(self._meet("all_reduce", array))
        return np.asarray(_OPS[op](stacked, axis=0))

    def all_gather(self, value):
        values = self._meet("all_gather", value)
        return values[::-1] if self.fault == "order" else values

    def broadcast(self, value, src=0):
        values = self._meet("broadcast", value)
        return values[0 if self.fault == "source" else src]

    def barrier(self):
        if self.fault != "no barrier":
            self._meet("barrier", None)

    def exchange(self, gradients):
        """Sums of the gradients of all ranks; the flags travel with them."""
        values = self._meet("exchange", (gradients, self.raised()))
        own = self.raised() if self.fault == "own flags" else None
        self.answer(own or tuple(map(any, zip(*(flags for _, flags in values), strict=True))))
        total = [sum(each) for each in zip(*(gradients for gradients, _ in values), strict=True)]
        divisor = self.world_size if self.fault == "mean" else 1
        return [each / divisor for each in total]

    def answer(self, flags):
        self._answers = flags

    def answers(self):
        return self._answers


class SocketDriver(NumpyDriver):
    """Exchanges gradients over a `SocketGroup`."""

    def __init__(self, fault=None, **options):
        super().__init__(**options)
        self._fault = fault
        self.group = SocketGroup.join(fault)

    def setup(self, seed):
        super().setup(seed)
        rank = 0 if self._fault == "same seed" else self.rank
        self._dropout = np.random.Philox(derive_seed(seed, "dropout", rank)).state
        if self._model is not None:
            self._model.rng.bit_generator.state = self._dropout

    def prepare(self, model, optimizers, loss, binding=None):
        super().prepare(model, optimizers, loss, binding)
        model.rng.bit_generator.state = self._dropout
        if self._fault != "own weights":
            self.load_model_state(self.group.broadcast(self.model_state()))

    def backward(self, loss, scale):
        super().backward(loss, scale)
        if self._sync or self._fault == "each micro-batch":
            gradients = self._gradients()
            for own, total in zip(gradients, self.group.exchange(gradients), strict=True):
                own[...] = total

    def clip_gradients(self, max_norm=None, max_value=None):
        if self._fault == "clips parts" and max_norm is not None:
            max_norm /= self.world_size
        return super().clip_gradients(max_norm, max_value)

    def state(self):
        state = super().state()
        if self._fault == "prefix":
            state["model"] = {f"module.{path}": value for path, value in state["model"].items()}
        return state

    def evaluate_step(self, batch, needs):
        if self._fault == "evaluates together":
            self.all_gather(None)
        return super().evaluate_step(batch, needs)


def _connect(address):
    deadline = time.monotonic() + 20
    while True:
        try:
            return Client(address)
        except ConnectionRefusedError:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.01)


def make_driver(**options):
    return SocketDriver(**options)


def make_single_driver(**options):
    return NumpyDriver(**options)


def make_model(**options):
    return perceptron(Mlp, **options)
