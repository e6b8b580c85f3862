"""``python -m expkit`` and the console script ``expkit``."""

from __future__ import annotations

import os
import signal
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from expkit.app import run_command
    from expkit.launch.output import open_streams

    open_streams()
    try:
        code = run_command(sys.argv[1:])
        sys.stdout.flush()
    except BrokenPipeError:  # nobody reads on, as in ``expkit --help | head``
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 128 + signal.SIGPIPE
    # All is said and written. A late Ctrl-C must not turn the code into that of a killed process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


if __name__ == "__main__":
    main()
