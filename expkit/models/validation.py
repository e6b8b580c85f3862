"""What the arguments of the bundled models may be: one place for all frameworks."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from expkit.core.errors import DataError
from expkit.models.findings import Findings

ACTIVATIONS = ("relu", "gelu", "tanh")
TASKS = ("classification", "language_model")


def check_mlp(
    *,
    in_features: int,
    out_features: int,
    hidden: Sequence[int],
    activation: str,
    dropout: float,
    norm: str,
    norms: Sequence[str] = ("none", "batch", "layer"),
    norm_hint: str = "model.norm=none",
) -> None:
    """Refuse arguments that no `Mlp` can be made of.

    Raises:
        ConfigError: names every argument that is wrong.
    """
    found = Findings()
    found.positive(in_features=in_features, out_features=out_features)
    found.sizes("hidden", hidden, "model.hidden=[128]", allow_empty=True)
    found.choice("activation", activation, ACTIVATIONS)
    found.probability("dropout", dropout)
    found.choice("norm", norm, norms, norm_hint)
    found.report()


def check_cnn(
    *,
    in_channels: int,
    image_size: tuple[int, ...],
    channels: Sequence[int],
    hidden: int,
    out_features: int,
    dropout: float,
    norm: str,
) -> None:
    """Refuse arguments that no `Cnn` can be made of.

    Raises:
        ConfigError: names every argument that is wrong.
    """
    found = Findings()
    found.positive(in_channels=in_channels, hidden=hidden, out_features=out_features)
    found.sizes("channels", channels, "model.channels=[32,64]")
    found.sizes("image_size", image_size, "model.image_size=[28,28]")
    found.probability("dropout", dropout)
    found.choice("norm", norm, ("none", "batch"))
    if not found.problems:
        smallest = 2 ** len(channels)
        if len(image_size) != 2:
            message = f"is {list(image_size)}; allowed: one size, or height and width"
            found.add("image_size", message, "model.image_size=[28,28]")
        elif min(image_size) < smallest:
            message = (
                f"has {len(channels)} entries, each of which halves the image, and "
                f"{list(image_size)} is too small; "
                f"allowed: sizes of at least {smallest}, or fewer channels"
            )
            found.add("channels", message, f"model.channels=[{channels[0]}]")
    found.report()


def check_text_cnn(
    *,
    vocab_size: int,
    embedding_dim: int,
    kernel_sizes: Sequence[int],
    num_filters: int,
    out_features: int,
    dropout: float,
    pad_id: int,
) -> None:
    """Refuse arguments that no `TextCnn` can be made of.

    Raises:
        ConfigError: names every argument that is wrong.
    """
    found = Findings()
    found.positive(
        vocab_size=vocab_size,
        embedding_dim=embedding_dim,
        num_filters=num_filters,
        out_features=out_features,
    )
    found.sizes("kernel_sizes", kernel_sizes, "model.kernel_sizes=[3,4,5]", distinct=True)
    found.probability("dropout", dropout)
    found.token(pad_id, vocab_size=vocab_size)
    found.report()


def check_transformer(
    *,
    vocab_size: int,
    max_length: int,
    out_features: int,
    d_model: int,
    n_heads: int,
    n_layers: int,
    d_ff: int,
    dropout: float,
    task: str,
    pad_id: int,
) -> None:
    """Refuse arguments that no `Transformer` can be made of.

    Raises:
        ConfigError: names every argument that is wrong.
    """
    found = Findings()
    found.positive(
        vocab_size=vocab_size,
        max_length=max_length,
        out_features=out_features,
        d_model=d_model,
        n_heads=n_heads,
        n_layers=n_layers,
        d_ff=d_ff,
    )
    found.probability("dropout", dropout)
    found.choice("task", task, TASKS)
    found.token(pad_id, vocab_size=vocab_size)
    found.heads(n_heads, d_model)
    found.report()


def check_lstm_tagger(
    *,
    vocab_size: int,
    out_features: int,
    ngram_vocab_size: int,
    embedding_dim: int,
    hidden: int,
    n_layers: int,
    dropout: float,
    crf: bool,
    pad_id: int,
) -> None:
    """Refuse arguments that no `LstmTagger` can be made of.

    Raises:
        ConfigError: names every argument that is wrong.
    """
    found = Findings()
    found.positive(
        vocab_size=vocab_size,
        out_features=out_features,
        embedding_dim=embedding_dim,
        hidden=hidden,
        n_layers=n_layers,
    )
    found.probability("dropout", dropout)
    found.tagging(vocab_size, ngram_vocab_size, crf, pad_id)
    found.report()


def check_transformer_tagger(
    *,
    vocab_size: int,
    max_length: int,
    out_features: int,
    ngram_vocab_size: int,
    d_model: int,
    n_heads: int,
    n_layers: int,
    d_ff: int,
    dropout: float,
    crf: bool,
    pad_id: int,
) -> None:
    """Refuse arguments that no `TransformerTagger` can be made of.

    Raises:
        ConfigError: names every argument that is wrong.
    """
    found = Findings()
    found.positive(
        vocab_size=vocab_size,
        max_length=max_length,
        out_features=out_features,
        d_model=d_model,
        n_heads=n_heads,
        n_layers=n_layers,
        d_ff=d_ff,
    )
    found.probability("dropout", dropout)
    found.tagging(vocab_size, ngram_vocab_size, crf, pad_id)
    found.heads(n_heads, d_model)
    found.report()


def check_length(length: int, max_length: int) -> None:
    """Refuse a sequence that has more tokens than the model has positions.

    Raises:
        DataError: names both lengths.
    """
    if length > max_length:
        raise DataError(
            f"x has sequences of {length} tokens, but the model has max_length={max_length} "
            f"positions; allowed: at most {max_length} tokens (try: model.max_length={length})"
        )


def check_ngrams(tokens: Any, ngrams: Any) -> Any:
    """Refuse n-grams that are not there, or not those of the tokens.

    Args:
        tokens: a tensor (N, T).
        ngrams: a tensor (N, T, L), or None.

    Returns:
        The n-grams.

    Raises:
        DataError: says what the batch should have.
    """
    if ngrams is None:
        raise DataError(
            "the model has n-grams and the batch has no field 'ngrams' (try: "
            "model.ngram_vocab_size=0, for a model without them)"
        )
    if len(ngrams.shape) != 3 or list(ngrams.shape[:2]) != list(tokens.shape):
        raise DataError(
            f"ngrams has shape {tuple(ngrams.shape)} where x has {tuple(tokens.shape)}; allowed: "
            "those of x, and a third axis for the n-grams of a token"
        )
    return ngrams
