"""A rank that does what its test says: ``{"acts": {"0": [name, arguments...], ...}}`` on stdin."""

import ctypes
import json
import os
import re
import signal
import socket
import subprocess
import sys
import time
import traceback
from pathlib import Path

if os.environ.get("DUMMY_IMPORT_ERROR", "") == os.environ.get("RANK", "0"):
    import a_module_that_is_not_there  # noqa: F401

from expkit.launch.control import Control
from expkit.launch.environment import STORE_FD, find_place, take_descriptor
from expkit.launch.rendezvous import wait_until_listening
from expkit.launch.signals import exit_code_of

control = Control.open()
place = find_place()
rank = place.rank
pulse = 0


class BadSample(Exception):
    pass


def report(error, **more):
    what = f"{type(error).__name__}: {error}"
    control.error(what, "".join(traceback.format_exception(error)), **more)
    sys.exit(1)


def end(exit_code=0, **facts):
    if rank == 0:
        control.outcome({"exit_code": exit_code, **facts})
    else:
        control.done()
    sys.exit(exit_code)


def beat_on(seconds=60.0):
    """Make progress, for long."""
    global pulse
    control.follow(lambda: pulse)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        pulse += 1
        time.sleep(0.02)


def work(seconds=0.0, exit_code=0):
    beat_on(seconds)
    end(exit_code)


def wait():
    """For an answer that does not come, as in a collective."""
    control.follow(lambda: 1)
    process_group = compile("import time\ntime.sleep(60)", "x/distributed/process_group.py", "exec")
    exec(process_group, {})


def fail(after=0.0):
    beat_on(after)
    try:
        raise BadSample("bad sample 7")
    except BadSample as error:
        report(error, is_consequence=False, exit_code=7)


def follow_up(after=0.0, ends=True):
    """What happens to the victim of another rank."""
    beat_on(after)
    try:
        raise RuntimeError("all_reduce failed on rank 0 of 2")
    except RuntimeError as error:
        if not ends:
            control.error(str(error), "a victim's traceback", is_consequence=True)
            time.sleep(60)
        report(error, is_consequence=True)


def die(number, after=0.0):
    beat_on(after)
    os.kill(os.getpid(), getattr(signal, number))
    time.sleep(60)


def leave(code, after=0.0):
    beat_on(after)
    sys.stdout.flush()
    os._exit(code)


def abort(after=0.0):
    beat_on(after)
    os.abort()


def fault():
    ctypes.string_at(0)


def time_sleep():
    time.sleep(60)


def spin():
    control.follow(lambda: 1)
    while True:
        pass


def hold_the_lock():
    control.follow(lambda: 1)
    re.match("(a+)+$", 40 * "a" + "b")


def ignore_sigterm():
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    beat_on()


def stop_in_order(seconds=0.1):
    """Note signals, and end in order some time after the first one."""
    seen = []
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1):
        signal.signal(number, lambda n, _: seen.append(signal.Signals(n).name))
    control.follow(lambda: int(time.monotonic() * 100))
    print("ready", flush=True)
    while not seen:
        time.sleep(0.01)
    time.sleep(seconds)
    end(exit_code_of(signal.Signals[seen[0]]), seen=seen)


def say_and_beat_on():
    print("ready", flush=True)
    beat_on()


def fail_at_a_stop():
    stopped = []
    signal.signal(signal.SIGTERM, lambda *_: stopped.append(True))
    print("ready", flush=True)
    while not stopped:
        time.sleep(0.01)
    fail()


def complain_at_sigterm():
    signal.signal(signal.SIGTERM, lambda *_: print("terminated", file=sys.stderr, flush=True))
    beat_on()


def never_stop():
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    control.follow(lambda: int(time.monotonic() * 100))
    print("ready", flush=True)
    time.sleep(60)


def say(*pieces):
    """Print pieces: ``out:text`` and ``err:text``."""
    for piece in pieces:
        target, text = piece.split(":", 1)
        stream = sys.stdout if target == "out" else sys.stderr
        stream.write(text)
        stream.flush()
    end()


def flood(megabytes, target):
    block = bytes(range(256)) * 256
    for _ in range(megabytes * 16):
        os.write(1 if target == "out" else 2, block)
    end()


def tell():
    """What the environment says, as the result."""
    names = ("OMP_NUM_THREADS", "FLAGS_selected_gpus", "PADDLE_TRAINER_ENDPOINTS")
    facts = {name: os.environ.get(name) for name in names}
    facts |= {"place": vars(place), "session": os.getsid(0), "pid": os.getpid()}
    Path(job["directory"], f"rank{rank}.json").write_text(json.dumps(facts))
    end()


def meet(hold=0.2):
    """Rank 0 serves where the place says, and answers each of the others."""
    if rank == 0:
        descriptor = take_descriptor(STORE_FD)
        if descriptor is None:
            server = socket.socket()
            server.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            time.sleep(0.3)  # as an import takes
            server.bind((place.address, place.port))
            server.listen()
        else:
            server = socket.socket(fileno=descriptor)
        server.settimeout(10)
        for _ in range(place.world_size - 1):
            peer, _ = server.accept()
            peer.sendall(job["token"].encode())
            peer.close()
    else:
        wait_until_listening(place.port, 10.0)
        with socket.create_connection((place.address, place.port), timeout=10) as peer:
            assert peer.makefile().read() == job["token"]
    time.sleep(hold)
    end()


def with_a_child(act, *arguments):
    """Leave a process behind, in the process group of this one."""
    child = subprocess.Popen(["sleep", "60"])
    Path(job["directory"], f"child{rank}").write_text(str(child.pid))
    ACTS[act](*arguments)


def linger():
    """Be done, and not exit."""
    control.outcome({"exit_code": 0}) if rank == 0 else control.done()
    time.sleep(60)


def done_and_die():
    control.outcome({"exit_code": 0}) if rank == 0 else control.done()
    os.abort()


def one_pause(seconds):
    """Hang for a while, and go on."""
    control.follow(lambda: pulse)
    time.sleep(seconds)
    work(0.3)


ACTS = {name: value for name, value in globals().items() if callable(value)}

if __name__ == "__main__":
    job = json.loads(control.read_job())
    act, *arguments = job["acts"].get(str(rank), ["work"])
    ACTS[act](*arguments)
