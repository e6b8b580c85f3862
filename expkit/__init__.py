"""expkit: declarative experiments that train the same way on every driver.

Importing this package imports no framework.
"""

from expkit.version import __version__

__all__ = ["__version__"]
