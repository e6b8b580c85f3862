"""What the tests of the pool call on its ranks; no framework is needed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time

import numpy as np


def rank():
    return int(os.environ.get("RANK", os.environ.get("PADDLE_TRAINER_ID", "-1")))


def place():
    names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "MASTER_ADDR", "MASTER_PORT")
    paddle = ("PADDLE_TRAINER_ID", "PADDLE_TRAINERS_NUM", "PADDLE_TRAINER_ENDPOINTS")
    return {name: os.environ.get(name) for name in (*names, *paddle)}


def echo(**kwargs):
    return kwargs | {"rank": rank()}


def pids():
    return {"pid": os.getpid(), "parent": os.getppid()}


def values():
    return {
        "float32": np.array([0.1, np.nan, -0.0], dtype=np.float32),
        "shape": np.zeros((0, 3), dtype=np.int64),
        "scalar": np.float64(0.1),
        "tuple": (1, None, "ü\n"),
    }


def unknown_type():
    return object()


def noisy():
    print("to stdout", flush=True)
    os.write(1, b"raw \xff bytes\n")
    subprocess.run(["echo", "a child speaks"], check=True)
    return sys.stdin.read() if rank() < 0 else os.read(0, 10).decode()


def fail_on(failing, wait_s=0.0):
    """Raise on some ranks, at different times; the others wait."""
    if rank() in failing:
        time.sleep(0.3 * failing.index(rank()))
        raise ValueError(f"bad sample on rank {rank()}")
    time.sleep(wait_s)
    return "fine"


def leave(code, leaver):
    if rank() == leaver:
        os._exit(code)
    return rank()


def exit_politely(code):
    sys.exit(code)


def kill_self(victim, number):
    print("last words", file=sys.stderr, flush=True)
    if rank() == victim:
        os.kill(os.getpid(), signal.Signals(number))
    time.sleep(0.1)
    raise RuntimeError("the peer is gone")


def start_child():
    child = subprocess.Popen(["sleep", "60"])
    return {"child": child.pid}
