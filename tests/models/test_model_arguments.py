from __future__ import annotations

import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.models.validation import (
    check_cnn,
    check_length,
    check_lstm_tagger,
    check_mlp,
    check_text_cnn,
    check_transformer,
    check_transformer_tagger,
)

MLP = {
    "in_features": 4,
    "out_features": 2,
    "hidden": [8],
    "activation": "relu",
    "dropout": 0.0,
    "norm": "none",
}
CNN = {
    "in_channels": 1,
    "image_size": (8, 8),
    "channels": [4, 8],
    "hidden": 16,
    "out_features": 2,
    "dropout": 0.0,
    "norm": "none",
}
TEXT_CNN = {
    "vocab_size": 10,
    "embedding_dim": 4,
    "kernel_sizes": [2, 3],
    "num_filters": 5,
    "out_features": 2,
    "dropout": 0.5,
    "pad_id": 0,
}
TRANSFORMER = {
    "vocab_size": 10,
    "max_length": 6,
    "out_features": 2,
    "d_model": 12,
    "n_heads": 4,
    "n_layers": 1,
    "d_ff": 16,
    "dropout": 0.1,
    "task": "classification",
    "pad_id": 0,
}
LSTM_TAGGER = {
    "vocab_size": 10,
    "out_features": 3,
    "ngram_vocab_size": 6,
    "embedding_dim": 4,
    "hidden": 8,
    "n_layers": 1,
    "dropout": 0.5,
    "crf": True,
    "pad_id": 0,
}
TRANSFORMER_TAGGER = {
    "vocab_size": 10,
    "max_length": 6,
    "out_features": 3,
    "ngram_vocab_size": 0,
    "d_model": 12,
    "n_heads": 4,
    "n_layers": 1,
    "d_ff": 16,
    "dropout": 0.1,
    "crf": False,
    "pad_id": 7,
}
CHECKS = [
    (check_mlp, MLP),
    (check_cnn, CNN),
    (check_text_cnn, TEXT_CNN),
    (check_transformer, TRANSFORMER),
    (check_lstm_tagger, LSTM_TAGGER),
    (check_transformer_tagger, TRANSFORMER_TAGGER),
]


@pytest.mark.parametrize(("check", "arguments"), CHECKS)
def test_good_arguments_pass(check, arguments):
    check(**arguments)


def test_an_mlp_without_hidden_layers_is_a_linear_model():
    check_mlp(**{**MLP, "hidden": []})


@pytest.mark.parametrize(
    ("check", "arguments", "key", "value", "said"),
    [
        (check_mlp, MLP, "in_features", 0, "is 0; allowed: whole numbers from 1"),
        (check_mlp, MLP, "in_features", True, "is True; allowed: whole numbers from 1"),
        (check_mlp, MLP, "out_features", 2.0, "is 2.0; allowed: whole numbers from 1"),
        (check_mlp, MLP, "hidden", [8, 0], "is [8, 0]; allowed: whole numbers from 1"),
        (check_mlp, MLP, "hidden", 8, "is 8; allowed: a list of whole numbers from 1"),
        (check_mlp, MLP, "hidden", "88", "is '88'; allowed: a list of whole numbers from 1"),
        (check_mlp, MLP, "activation", "swish", "is 'swish'; allowed: relu, gelu, tanh"),
        (check_mlp, MLP, "norm", "group", "is 'group'; allowed: none, batch, layer"),
        (check_mlp, MLP, "dropout", 1.0, "is 1.0; allowed: numbers from 0 to below 1"),
        (check_mlp, MLP, "dropout", float("nan"), "is nan; allowed: numbers from 0 to below 1"),
        (check_cnn, CNN, "channels", [], "is an empty list; allowed: at least one entry"),
        (check_cnn, CNN, "channels", [4, 4, 4, 4], "[8, 8] is too small; allowed: sizes of at"),
        (check_cnn, CNN, "image_size", (8, 8, 8), "is [8, 8, 8]; allowed: one size, or height"),
        (check_cnn, CNN, "image_size", (0, 0), "is [0, 0]; allowed: whole numbers from 1"),
        (check_cnn, CNN, "norm", "layer", "is 'layer'; allowed: none, batch"),
        (check_text_cnn, TEXT_CNN, "kernel_sizes", [3, 3], "is [3, 3]; allowed: each entry once"),
        (check_text_cnn, TEXT_CNN, "pad_id", 10, "is 10; allowed: a token from 0 to below"),
        (check_transformer, TRANSFORMER, "task", "tagging", "classification, language_model"),
        (check_transformer, TRANSFORMER, "n_heads", 5, "is 5, which does not divide d_model=12"),
        (check_transformer, TRANSFORMER, "pad_id", -1, "is -1; allowed: a token from 0 to below"),
        (check_lstm_tagger, LSTM_TAGGER, "hidden", 0, "is 0; allowed: whole numbers from 1"),
        (check_lstm_tagger, LSTM_TAGGER, "dropout", 1, "is 1; allowed: numbers from 0 to below 1"),
        (check_lstm_tagger, LSTM_TAGGER, "crf", 1, "is 1; allowed: true, false"),
        (check_lstm_tagger, LSTM_TAGGER, "pad_id", 6, "to below ngram_vocab_size=6"),
        (check_lstm_tagger, LSTM_TAGGER, "pad_id", 10, "to below vocab_size=10"),
        (check_lstm_tagger, LSTM_TAGGER, "ngram_vocab_size", -1, "is -1; allowed: whole numbers"),
        (check_lstm_tagger, LSTM_TAGGER, "ngram_vocab_size", False, "is False; allowed: whole"),
        (check_transformer_tagger, TRANSFORMER_TAGGER, "n_heads", 5, "does not divide d_model=12"),
        (check_transformer_tagger, TRANSFORMER_TAGGER, "max_length", 0, "whole numbers from 1"),
    ],
)
def test_a_bad_argument_is_named_with_what_is_allowed(check, arguments, key, value, said):
    with pytest.raises(ConfigError) as caught:
        check(**{**arguments, key: value})
    (problem,) = caught.value.problems
    assert problem.key == f"model.{key}"
    assert said in problem.message


def test_the_hint_mends_the_problem():
    with pytest.raises(ConfigError) as caught:
        check_transformer(**{**TRANSFORMER, "n_heads": 5})
    assert caught.value.problems[0].hint == "model.n_heads=4"
    with pytest.raises(ConfigError) as caught:
        check_cnn(**{**CNN, "channels": [4, 4, 4, 4]})
    assert caught.value.problems[0].hint == "model.channels=[4]"


def test_all_problems_are_told_at_once():
    with pytest.raises(ConfigError) as caught:
        check_mlp(**{**MLP, "in_features": 0, "hidden": [-1], "activation": "x", "dropout": 2})
    assert [problem.key for problem in caught.value.problems] == [
        "model.in_features",
        "model.hidden",
        "model.activation",
        "model.dropout",
    ]


def test_a_sequence_longer_than_the_positions_names_both_lengths():
    check_length(6, 6)
    with pytest.raises(DataError, match=r"7 tokens.*max_length=6 .*model\.max_length=7"):
        check_length(7, 6)
