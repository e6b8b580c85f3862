"""The NumPy driver: the reference that says what each verb means."""

from expkit.drivers.numpy.driver import NumpyDriver

__all__ = ["NumpyDriver"]
