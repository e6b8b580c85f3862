"""The bundled models for PyTorch; importing one does not import the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expkit.models.lazy import lazy_exports

if TYPE_CHECKING:
    from expkit.models.torch.cnn import Cnn
    from expkit.models.torch.mlp import Mlp
    from expkit.models.torch.text_cnn import TextCnn
    from expkit.models.torch.transformer import Transformer

__all__ = ["Cnn", "Mlp", "TextCnn", "Transformer"]

__getattr__ = lazy_exports(
    __name__,
    {"Cnn": "cnn", "Mlp": "mlp", "TextCnn": "text_cnn", "Transformer": "transformer"},
)
