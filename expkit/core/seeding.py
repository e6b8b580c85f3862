"""Seeds as arithmetic: a stream has a name, and its seed follows from the run's and that name."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import numpy as np


def derive_seed(seed: int, *names: str | int) -> int:
    """A 63-bit seed for the stream called by ``names``.

    Args:
        seed: the run's seed, 0 or greater.
        names: what the stream is for, such as ``("sampler", epoch)`` or ``("rank", 3)``.

    Returns:
        An integer in [0, 2**63), the same on every machine and Python version: the first 8 bytes of
        the BLAKE2b hash of the names, without the lowest bit.
    """
    text = "/".join([str(seed), *map(str, names)])
    digest = hashlib.blake2b(text.encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def seed_host(seed: int) -> None:
    """Seed Python's and NumPy's global generators.

    Args:
        seed: any integer from 0; NumPy takes its low 32 bits.
    """
    random.seed(seed)
    np.random.seed(seed & 0xFFFFFFFF)


@contextmanager
def untouched_host_rng() -> Iterator[None]:
    """Leaves Python's and NumPy's global generators as they were."""
    python, numpy = random.getstate(), np.random.get_state()
    try:
        yield
    finally:
        random.setstate(python)
        np.random.set_state(numpy)


def host_rng_state() -> dict[str, Any]:
    """The state of Python's and NumPy's global generators, as arrays and JSON values."""
    version, words, gauss = random.getstate()
    name, keys, position, has_gauss, cached = np.random.get_state(legacy=True)
    return {
        "python": {"version": version, "words": np.array(words, dtype=np.uint32), "gauss": gauss},
        "numpy": {
            "name": str(name),
            "keys": np.array(keys, dtype=np.uint32),
            "position": int(position),
            "has_gauss": int(has_gauss),
            "cached": float(cached),
        },
    }


def load_host_rng_state(state: Mapping[str, Any]) -> None:
    """Take back what `host_rng_state` gave."""
    python, numpy = state["python"], state["numpy"]
    words = tuple(int(word) for word in python["words"])
    random.setstate((int(python["version"]), words, python["gauss"]))
    keys = np.asarray(numpy["keys"], dtype=np.uint32)
    np.random.set_state(
        (numpy["name"], keys, numpy["position"], numpy["has_gauss"], numpy["cached"])
    )
