"""``python -m expkit`` and the console script ``expkit``."""

from __future__ import annotations

import signal
import sys


def main() -> None:
    """Run the command line and exit with its code."""
    from expkit.app import run_command

    code = run_command(sys.argv[1:])
    # All is said and written. A late Ctrl-C must not turn the code into that of a killed process.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    sys.exit(code)


if __name__ == "__main__":
    main()
