"""``python -m benchmarks.samplers``: the sections `samplers` and `loader`."""

from __future__ import annotations

import sys

from benchmarks.__main__ import main

if __name__ == "__main__":
    sys.exit(main(["run", "samplers", "loader", *sys.argv[1:]]))
