"""expkit: declarative experiments that train the same way on every driver.

Importing this package imports no framework.
"""

__version__ = "0.1.0"
