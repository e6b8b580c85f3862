"""Real data sets inside installed packages: nothing is downloaded, each file is checked."""

from __future__ import annotations

from expkit.data.sources.images import digits
from expkit.data.sources.language import shakespeare
from expkit.data.sources.tabular import diabetes
from expkit.data.sources.text import reuters

__all__ = ["diabetes", "digits", "reuters", "shakespeare"]
