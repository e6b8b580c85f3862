"""Which devices the ranks of one machine compute on, told without importing a framework."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from itertools import takewhile
from pathlib import Path
from typing import Any, NoReturn

from expkit.core.errors import ConfigError, Problem

_ALLOWED = "allowed: auto, cpu, cuda, gpu, -1 for all, or a list of device numbers"
_ON_CPU = 2


def count_accelerators(environment: Mapping[str, str] | None = None) -> int:
    """How many NVIDIA devices processes of this machine see: CUDA_VISIBLE_DEVICES, else /dev."""
    env = os.environ if environment is None else environment
    visible = env.get("CUDA_VISIBLE_DEVICES")
    there = sum(1 for path in Path("/dev").glob("nvidia*") if re.fullmatch(r"nvidia\d+", path.name))
    if visible is None:
        return there
    # CUDA takes the entries up to the first one that names no device.
    return sum(1 for _ in takewhile(_names_a_device, map(str.strip, visible.split(","))))


def ranks_of(num_processes: int | None, device: Any) -> list[str]:
    """The device of each rank: ``cpu``, or ``gpu:N`` as seen by the process.

    Args:
        num_processes: how many ranks; None for one a device, and for two on the CPU.
        device: ``auto`` or -1 (all accelerators, and the CPU where there are none), ``cpu``,
            ``cuda`` or ``gpu``, or a list of numbers, whose order is kept.

    Raises:
        ConfigError: not such a value, a device that is not there, or as many processes as the
            devices cannot hold; names the key.
    """
    if num_processes is not None and not (_is_integer(num_processes) and num_processes > 0):
        _refuse(
            f"is {num_processes!r}; allowed: null, or an integer from 1",
            "driver.num_processes=2",
            key="driver.num_processes",
        )
    if isinstance(device, Sequence) and not isinstance(device, str):
        return _listed(num_processes, list(device))
    is_all = _is_integer(device) and device == -1
    if not is_all and device not in ("auto", "cpu", "cuda", "gpu"):
        one = _number_in(device)
        hint = "driver.device=auto" if one is None else f"driver.device=[{one}]"
        _refuse(f"is {device!r}; {_ALLOWED}", hint)
    there = 0 if device == "cpu" else count_accelerators()
    if there == 0:
        if device in ("cuda", "gpu"):
            _refuse(f"is {device!r}, but this machine shows no such device", "driver.device=cpu")
        return ["cpu"] * (num_processes or _ON_CPU)
    count = num_processes or there
    if count > there:
        message = f"is {count}, but this machine shows {_devices(there)}, and each rank needs one"
        hint = f"driver.num_processes={there}"
        _refuse(message, hint, key="driver.num_processes")
    return [f"gpu:{number}" for number in range(count)]


def _listed(num_processes: int | None, numbers: list[Any]) -> list[str]:
    for number in numbers:
        if not _is_integer(number) or number < 0:
            message = f"is {numbers!r}, where {number!r} is no number of a device"
            _refuse(message, "driver.device=[0,1]")
    if not numbers:
        _refuse("is an empty list", "driver.device=auto")
    if len(set(numbers)) < len(numbers):
        unique = list(dict.fromkeys(numbers))
        _refuse(f"is {numbers!r}, which names a device twice", f"driver.device={_typed(unique)}")
    there = count_accelerators()
    if max(numbers) >= there:
        message = f"is {numbers!r}, but this machine shows {_devices(there)}"
        _refuse(message, "driver.device=auto" if there else "driver.device=cpu")
    if num_processes not in (None, len(numbers)):
        message = f"lists {_devices(len(numbers))}, but driver.num_processes is {num_processes}"
        _refuse(message, "driver.num_processes=null")
    return [f"gpu:{number}" for number in numbers]


def _refuse(message: str, hint: str, key: str = "driver.device") -> NoReturn:
    raise ConfigError([Problem(key, message, hint)])


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _number_in(device: Any) -> int | None:
    """The N of N, ``cuda:N`` and ``gpu:N``."""
    found = re.fullmatch(r"(?:(?:cuda|gpu):)?(\d+)", str(device))
    return None if found is None else int(found[1])


def _names_a_device(entry: str) -> bool:
    return entry != "" and not entry.startswith("-") and entry != "NoDevFiles"


def _devices(count: int) -> str:
    return {0: "no accelerator", 1: "1 device"}.get(count, f"{count} devices")


def _typed(numbers: Sequence[int]) -> str:
    return "[" + ",".join(map(str, numbers)) + "]"
