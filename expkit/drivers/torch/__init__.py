"""The torch drivers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from expkit.drivers.torch.ddp import TorchDDPDriver
from expkit.drivers.torch.driver import TorchDriver

if TYPE_CHECKING:
    from expkit.drivers.torch.fsdp import TorchFSDPDriver

__all__ = ["TorchDDPDriver", "TorchDriver", "TorchFSDPDriver"]


def __getattr__(name: str) -> Any:
    if name == "TorchFSDPDriver":  # FSDP takes a second to import, which the others need not wait
        from expkit.drivers.torch.fsdp import TorchFSDPDriver

        return TorchFSDPDriver
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
