"""Workers of a command: what they read, what they tell, and that none of them is left."""

from __future__ import annotations

import os
import signal
import textwrap
import time
from pathlib import Path

import pytest

from tests.cli.conftest import SMALL, info, records, weights

MY_ITEMS = '''
import os
import random
import signal
import time

import numpy as np


class Items:
    """Samples one by one with noise; one of them may do harm."""

    def __init__(self, n, harm, pause):
        self.n, self.harm, self.pause = n, harm, pause

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        with open("readers.txt", "a") as file:
            file.write(f"{os.getpid()}\\n")
        time.sleep(self.pause)
        if i == 7 and self.harm == "raise":
            raise ValueError("no such picture")
        if i == 7 and self.harm == "kill":
            os.kill(os.getpid(), signal.SIGKILL)
        x = np.random.default_rng(i).normal(size=4) + random.random()
        return {"x": x.astype(np.float32)[: 2 + i % 3], "y": i % 2}


def items(n=40, harm="none", pause=0.0):
    return Items(n, harm, pause), Items(10, "none", 0.0)


def padded(samples, width):
    x = np.zeros((len(samples), width), np.float32)
    for row, sample in zip(x, samples):
        row[: len(sample["x"])] = sample["x"]
    return {"x": x, "y": np.array([sample["y"] for sample in samples])}
'''

ITEMS = """
    source:
      _target_: my_items.items
      n: 40
      harm: none
      pause: 0.0
    batch_size: 4
    info:
      num_features: 4
      num_outputs: 2
"""
COLLATE = "data.collate={_target_: expkit.data.Collate, pad: {x: {value: 0, multiple: 4}}}"
READ = (SMALL, "data=items", "data.num_workers=2", "sampler=sequential")
RUN = (*READ, COLLATE)


@pytest.fixture
def items(project):
    (project.path / "my_items.py").write_text(MY_ITEMS)
    (project.path / "conf/data/items.yaml").write_text(textwrap.dedent(ITEMS).lstrip())
    return project


def readers(project) -> set[int]:
    try:
        return {int(line) for line in (project.path / "readers.txt").read_text().split()}
    except FileNotFoundError:
        return set()


def alive(pids) -> set[int]:
    """Those of the processes that run."""
    found = set()
    for pid in pids:
        try:
            state = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
        except FileNotFoundError:
            continue
        if state != "Z":
            found.add(pid)
    return found


def wait_until(condition, seconds=30.0) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, "it takes too long"
        time.sleep(0.02)


def test_the_run_is_the_same_with_any_number_of_workers(command, items):
    for number in (0, 1, 3):
        assert command(SMALL, "data=items", COLLATE, f"data.num_workers={number}").code == 0
        assert len(readers(items) - {os.getpid()}) == number
        assert not alive(readers(items) - {os.getpid()})
        (items.path / "readers.txt").unlink()
    first, *others = items.runs()
    for other in others:
        assert weights(other) == weights(first)
        assert info(other)["result"]["metrics"] == info(first)["result"]["metrics"]


def test_a_collate_function_of_the_users_own_is_called_with_its_arguments(command, items):
    own = "{_target_: my_items.padded, _partial_: true, width: 4}"
    assert command(*RUN).code == 0
    assert command(*READ, f"data.collate={own}").code == 0
    first, second = items.runs()
    assert weights(second) == weights(first)


@pytest.mark.parametrize(
    ("collate", "words"),
    [
        ("null", "has samples of different shapes, (2,) and (4,), and no padding is configured"),
        ("{pad: {}}", "data.collate: is a dict; allowed: expkit.data.Collate, or your own"),
        ("{_target_: expkit.data.Collate, pad: {x: {sid: left}}}", "collate.pad.x.sid: is no opt"),
        ("{_target_: expkit.data.Collate, pad: {x: {side: up}}}", "collate.pad.x.side: is 'up'"),
        ("{_target_: expkit.data.Collate, pad: {x: {}, z: {}}}", "configured for z, but the samp"),
        ("{_target_: expkit.data.Collate, pads: {}}", "takes no such argument (did you mean pad?"),
    ],
)
def test_a_collate_that_cannot_work_is_refused(command, items, collate, words):
    done = command(*READ, f"data.collate={collate}")
    assert done.code != 0
    assert words in done.text
    assert "Traceback" not in done.text


def test_an_error_in_a_worker_is_told_as_without_workers(command, items):
    told = {}
    for number in (0, 2):
        done = command(
            *(SMALL, "data=items", "sampler=sequential", COLLATE),
            *("data.source.harm=raise", f"data.num_workers={number}"),
        )
        assert done.code == 1
        told[number] = done.text
        assert 'raise ValueError("no such picture")' in done.text  # the traceback
        assert "sample 7 cannot be read: ValueError: no such picture" in done.text
        assert not alive(readers(items) - {os.getpid()})
    first, second = items.runs()
    assert info(first)["error"]["message"] == info(second)["error"]["message"]
    assert [each.step for each in records(second)] == [each.step for each in records(first)] == [1]
    assert weights(first) == weights(second)  # saved after step 1, the last before the error


def test_a_worker_that_is_killed_ends_the_run_with_an_error(command, items):
    done = command(*RUN, "data.source.harm=kill")
    assert done.code == 1
    assert "was ended by SIGKILL (is the memory full?) when it was to read samples [4," in done.text
    assert info(items.run())["status"] == "failed"
    assert not alive(readers(items))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("number", "to_all", "code"),
    [
        (signal.SIGINT, True, 130),
        (signal.SIGTERM, True, 143),
        (signal.SIGTERM, False, 143),
        (signal.SIGKILL, False, -9),
    ],
)
def test_no_worker_is_left_when_a_run_is_stopped(items, number, to_all, code):
    run = (*RUN, "data.source.pause=0.02", "trainer.n_epochs=1000")
    process = items.process(*run, wait=False, start_new_session=True)
    wait_until(lambda: len(readers(items)) == 2)
    if to_all:
        os.killpg(process.pid, number)
    else:
        os.kill(process.pid, number)
    out, err = process.communicate(timeout=30)
    assert process.returncode == code, out + err
    assert "Traceback" not in out + err
    wait_until(lambda: not alive(readers(items)), 5)
    if code > 0:
        assert info(items.run())["status"] == "interrupted"
        limits = ("trainer.n_epochs=null", "trainer.max_steps=30")
        done = items.process("resume=latest", COLLATE, *limits)
        assert done.code == 0, done.text


@pytest.mark.slow
@pytest.mark.parametrize(
    ("driver", "framework"), [("torch_ddp", "torch"), ("paddle_fleet", "paddle")]
)
def test_each_rank_has_workers_of_its_own(items, driver, framework):
    pytest.importorskip(framework)
    run = (
        *(SMALL, "data=items", COLLATE, f"driver={driver}", "driver.device=cpu"),
        *("driver.num_processes=2", "data.global_batch_size=8", "trainer.n_epochs=1"),
    )
    assert items.process(*run).code == 0
    (items.path / "readers.txt").unlink()
    done = items.process(*run, "data.num_workers=2")
    assert done.code == 0, done.text
    assert len(readers(items)) == 4
    assert not alive(readers(items))
    first, second = items.runs()
    assert weights(first) == weights(second)
    (items.path / "readers.txt").unlink()
    done = items.process(*run, "data.num_workers=2", "data.source.harm=raise")
    assert done.code == 1
    assert "sample 7 cannot be read: ValueError: no such picture" in done.text
    assert 'raise ValueError("no such picture")' in done.text
    assert not alive(readers(items))
