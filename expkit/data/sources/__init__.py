"""Real data sets inside installed packages: nothing is downloaded, each file is checked."""

from __future__ import annotations

from expkit.data.sources.images import digits, mnist_5k
from expkit.data.sources.language import shakespeare
from expkit.data.sources.tabular import autompg, diabetes
from expkit.data.sources.tagging import hkcancor_pos, hkcancor_segmentation
from expkit.data.sources.text import reuters, shop_reviews

__all__ = [
    "autompg",
    "diabetes",
    "digits",
    "hkcancor_pos",
    "hkcancor_segmentation",
    "mnist_5k",
    "reuters",
    "shakespeare",
    "shop_reviews",
]
