"""Themes 2 and 7 on ranks: runs with callbacks that have a state, in one part or in several."""

from __future__ import annotations

import importlib
import zlib

import numpy as np

from expkit.checkpoint import CheckpointStore
from expkit.core.errors import CallbackError
from expkit.core.events import Callback
from expkit.data import Data
from tests.cases.parts import assert_same, make_trainer, samples
from tests.cases.ranks.on_rank.parts import (
    TIMEOUT_S,
    Interrupt,
    digest,
    driver_of,
    error_of,
    go_on,
    interrupted,
    store_of,
    trainer_of,
)
from tests.cases.watched import spoilt, train


def _driver(framework, shards):
    if not shards:
        return driver_of(framework)
    fsdp = importlib.import_module("expkit.drivers.torch.fsdp")
    return fsdp.TorchFSDPDriver(device="cpu", timeout_s=TIMEOUT_S)


def _in_parts(framework, root, stops, shards):
    def make(**options):
        driver = _driver(framework, shards)
        return make_trainer(
            framework,
            driver=driver,
            data=Data(spoilt(40), samples(6, 1), global_batch_size=8),
            checkpoint=store_of(root, driver.rank),
            monitor="accuracy",
            mlp={"dropout": 0.5},
            eval_every=2,
            log_every=1,
            **options,
        )

    return train(make, lambda trainer: go_on(trainer, root), stops)


def in_parts(framework, root, stops, shards=False):
    """The undisturbed run against one with stops.

    Returns:
        What was noted on this rank, and what must be the same on all.
    """
    straight, notes, rows = _in_parts(framework, f"{root}/straight", [], shards)
    trainer, noted, logged = _in_parts(framework, f"{root}/stopped", stops, shards)
    assert (noted, logged) == (notes, rows)
    states = [run.state() for run in (straight, trainer)]
    if trainer.driver.rank > 0:  # a callback that is told on rank 0 alone has a state there alone
        states = [state | {"callbacks": {}} for state in states]
    assert_same(*states)
    if trainer.driver.rank == 0:
        for which in ("last", "best"):
            kept = [
                CheckpointStore(f"{root}/{run}/by-0").load(which) for run in ("straight", "stopped")
            ]
            assert kept[0][1].step == kept[1][1].step
            assert_same(kept[0][0], kept[1][0])
    trainer.driver.barrier()
    result = trainer.result
    return notes, [
        result.reason,
        result.best_step,
        result.best_eval,
        result.skipped_steps,
        _digest(trainer, shards),
    ]


def _digest(trainer, shards):
    if not shards:
        return digest(trainer)
    state = trainer.driver.model_state()  # on all ranks, each has all of it
    return zlib.crc32(b"".join(state[path].tobytes() for path in sorted(state)))


class OfRank(Callback):
    """Its state is another one on each rank."""

    def __init__(self, rank):
        self.mine, self.was = rank, None

    def state(self):
        return {"rank": np.array(self.mine)}

    def load_state(self, state):
        self.was = int(state["rank"])


def state_of_main(framework, root):
    """What each rank gets back."""
    rank = driver_of(framework).rank
    signal = Interrupt(3)
    callbacks = [signal, OfRank(rank)]
    interrupted(
        trainer_of(framework, callbacks=callbacks, checkpoint=store_of(root, rank)), signal, 3
    )
    callback = OfRank(rank)
    go_on(trainer_of(framework, callbacks=[callback]), root)
    return callback.was


def refused_state(framework, root):
    """A callback of the same name that cannot take the state, on all ranks alike."""

    class Other(OfRank):
        def load_state(self, state):
            raise CallbackError(f"no {state['step']}" if "step" in state else "no step")

    state_of_main(framework, root)
    other = Other(driver_of(framework).rank)
    return error_of(lambda: go_on(trainer_of(framework, callbacks={"OfRank": other}), root))
