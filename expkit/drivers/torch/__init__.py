"""The torch driver."""

from expkit.drivers.torch.driver import TorchDriver

__all__ = ["TorchDriver"]
