"""One rank of a `expkit.testing.RankPool`: calls what it is told to, as long as its parent lives.

Requests come as lines on stdin, answers leave on a pipe of their own, so that whatever a function
or a framework prints disturbs neither.
"""

from __future__ import annotations

import faulthandler
import os
import signal
import sys
import traceback
from collections.abc import Callable
from importlib import import_module
from typing import IO, Any

from expkit.launch.kin import die_with_parent
from expkit.testing.wire import decode, encode


def main() -> None:
    """Serve until stdin ends: ``python -m expkit.testing.rank_server <parent's pid> <pipe>``."""
    parent, descriptor = int(sys.argv[1]), int(sys.argv[2])
    _die_with(parent)
    faulthandler.register(signal.SIGUSR2, all_threads=True)
    requests = os.fdopen(os.dup(0), encoding="utf-8")
    # What a function starts, or reads, shall not meet the requests.
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    with os.fdopen(descriptor, "w", encoding="utf-8") as answers:
        serve(requests, answers)


def serve(requests: IO[str], answers: IO[str]) -> None:
    """Answer each request ``{"function": "module:name", "kwargs": {...}}`` with one line.

    The answer is ``{"result": ...}``, or ``{"error": ..., "traceback": ...}`` where the function
    raised.
    """
    for line in requests:
        try:
            request = decode(line)
            answer = encode({"result": find(request["function"])(**request["kwargs"])})
        except BaseException as error:  # an exit would leave the other ranks without a word
            text = traceback.format_exc()
            answer = encode({"error": f"{type(error).__name__}: {error}", "traceback": text})
        answers.write(answer + "\n")
        answers.flush()


def find(name: str) -> Callable[..., Any]:
    """The object called ``module:name``; the name may have dots.

    Raises:
        ValueError: a name of another form.
    """
    module, colon, path = name.partition(":")
    if not (module and colon and path):
        raise ValueError(f"the function is {name!r}; allowed: module:name")
    found: Any = import_module(module)
    for part in path.split("."):
        found = getattr(found, part)
    function: Callable[..., Any] = found
    return function


def _die_with(parent: int) -> None:
    """End together with the parent, even where it is killed; Linux only, no effect elsewhere."""
    if sys.platform == "linux":
        die_with_parent()
    if os.getppid() != parent:  # it was gone before the wish was known
        os._exit(1)


if __name__ == "__main__":
    main()
