"""``python -m expkit`` and the console script ``expkit``."""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path


def main() -> None:
    """Run the command line and exit with its code."""
    from expkit.app import run_command

    # Whoever closed them does not want to read; the files of a run are written all the same.
    nowhere = Path(os.devnull).open("w")  # noqa: SIM115 - as long as the process
    sys.stdout, sys.stderr = sys.stdout or nowhere, sys.stderr or nowhere
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
