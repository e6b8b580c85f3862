"""The bundled models for Paddle; importing one does not import the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

from expkit.models.lazy import lazy_exports

if TYPE_CHECKING:
    from expkit.models.paddle.cnn import Cnn
    from expkit.models.paddle.crf import LinearChainCrf
    from expkit.models.paddle.lstm_tagger import LstmTagger
    from expkit.models.paddle.mlp import Mlp
    from expkit.models.paddle.text_cnn import TextCnn
    from expkit.models.paddle.transformer import Transformer
    from expkit.models.paddle.transformer_tagger import TransformerTagger

__all__ = [
    "Cnn",
    "LinearChainCrf",
    "LstmTagger",
    "Mlp",
    "TextCnn",
    "Transformer",
    "TransformerTagger",
]

__getattr__ = lazy_exports(
    __name__,
    {
        "Cnn": "cnn",
        "LinearChainCrf": "crf",
        "LstmTagger": "lstm_tagger",
        "Mlp": "mlp",
        "TextCnn": "text_cnn",
        "Transformer": "transformer",
        "TransformerTagger": "transformer_tagger",
    },
)
