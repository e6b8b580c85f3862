"""The version, for a reader that does not import the whole package."""

__version__ = "0.1.0"
