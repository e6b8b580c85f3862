"""The taggers: what they return, what padding changes, and that both frameworks agree."""

from __future__ import annotations

import math

import numpy as np
import pytest

from expkit.callbacks.model_summary import module_sizes
from expkit.core.batch import Batch
from expkit.core.errors import ConfigError, DataError
from expkit.models import paddle as paddle_models
from expkit.models import torch as torch_models
from expkit.models.initializers import initial_value
from expkit.optimizers import SGD
from tests.cases.parts import make_driver

TAGGERS = {
    "LstmTagger": {"embedding_dim": 6, "hidden": 5, "n_layers": 2},
    "TransformerTagger": {"max_length": 9, "d_model": 8, "n_heads": 2, "d_ff": 12},
}
SIZES = {"vocab_size": 9, "ngram_vocab_size": 7, "out_features": 3, "dropout": 0.0}
both_models = pytest.mark.parametrize("name", TAGGERS)
with_and_without_crf = pytest.mark.parametrize("crf", [True, False])

LENGTHS = [5, 3, 1, 0]
STREAM = np.random.default_rng(0)
KEEP = np.arange(6) < np.array(LENGTHS)[:, None]
FIELDS = {
    "x": np.where(KEEP, STREAM.integers(1, 9, KEEP.shape), 0),
    "y": np.where(KEEP, STREAM.integers(0, 3, KEEP.shape), -1),
    "ngrams": np.where(KEEP[:, :, None], STREAM.integers(0, 7, (*KEEP.shape, 3)), 0),
}
WITHOUT_TAGS = {name: FIELDS[name] for name in ("x", "ngrams")}


@pytest.fixture(params=["torch", "paddle"])
def framework(request):
    pytest.importorskip(request.param)
    return request.param


def make(framework, name, **changes):
    """A tagger whose every parameter matters, those that are 0 at first too."""
    models = torch_models if framework == "torch" else paddle_models
    model = getattr(models, name)(**{**SIZES, **TAGGERS[name], **changes})
    model.initialize(0)
    for path, value in model.state_dict().items():
        if "bias" in path or "crf" in path:
            noise = np.random.default_rng(math.prod(value.shape)).standard_normal(
                tuple(value.shape)
            )
            value.detach()[:] = tensor(framework, noise.astype(np.float32))
    return model


def tensor(framework, array):
    if framework == "torch":
        return pytest.importorskip("torch").tensor(array)
    return pytest.importorskip("paddle").to_tensor(array)


def call(framework, model, fields):
    outputs = model(**{name: tensor(framework, value) for name, value in fields.items()})
    return {name: value.detach().numpy() for name, value in outputs.items()}


def evaluate(framework, model, fields=FIELDS):
    model.eval()
    return call(framework, model, fields)


def gradients(framework, model, fields=FIELDS):
    """Of the weighted sum of the losses, by parameter; those of linear weights (in, out)."""
    model.train()
    outputs = model(**{name: tensor(framework, value) for name, value in fields.items()})
    (outputs["loss"] * outputs["loss_weight"]).sum().backward()
    found = {path: parameter.grad.numpy() for path, parameter in model.named_parameters()}
    return in_common_layout(framework, model, found)


def in_common_layout(framework, model, arrays):
    if framework == "paddle":
        return arrays
    kind = pytest.importorskip("torch").nn.Linear
    linear = {f"{path}.weight" for path, one in model.named_modules() if isinstance(one, kind)}
    return {path: array.T if path in linear else array for path, array in arrays.items()}


def weights(framework, model):
    arrays = {path: value.detach().numpy() for path, value in model.named_parameters()}
    return in_common_layout(framework, model, arrays)


def sums(outputs):
    """The losses of the sequences, and how many tokens they count."""
    loss, weight = outputs["loss"], outputs["loss_weight"]
    per_sample = (len(loss), -1)
    return (loss * weight).reshape(per_sample).sum(1), weight.reshape(per_sample).sum(1)


def test_in_training_nothing_is_decoded_and_without_tags_nothing_is_lost(framework):
    model = make(framework, "LstmTagger")
    model.output.crf.decode = None  # calling it would fail
    model.train()
    assert call(framework, model, FIELDS).keys() == {"loss", "loss_weight"}
    del model.output.crf.decode
    assert evaluate(framework, model).keys() == {"loss", "loss_weight", "output"}
    assert evaluate(framework, model, WITHOUT_TAGS).keys() == {"output"}


@both_models
@with_and_without_crf
def test_each_tagged_token_counts_once(framework, name, crf):
    outputs = evaluate(framework, make(framework, name, crf=crf))
    loss, weight = sums(outputs)
    assert weight.tolist() == LENGTHS
    assert (loss[:3] > 0).all()
    assert loss[3] == 0
    assert outputs["output"].dtype == np.int64
    np.testing.assert_array_equal(outputs["output"] >= 0, KEEP)
    assert outputs["output"].max() < 3


@both_models
@with_and_without_crf
def test_tokens_without_a_tag_do_not_count(framework, name, crf):
    model = make(framework, name, crf=crf)
    partly = FIELDS["y"].copy()
    partly[0, 2:4] = partly[2, 0] = -1
    outputs = evaluate(framework, model, {**FIELDS, "y": partly})
    loss, weight = sums(outputs)
    assert weight.tolist() == [3, 3, 0, 0]
    assert loss[0] > 0
    assert np.abs(loss[2:]).max() < 1e-6
    beyond = np.where(KEEP, FIELDS["y"], 2)  # tags of padding
    for mine, theirs in zip(
        sums(evaluate(framework, model, {**FIELDS, "y": beyond})),
        sums(evaluate(framework, model)),
        strict=True,
    ):
        np.testing.assert_array_equal(mine, theirs)


@both_models
@with_and_without_crf
def test_padding_changes_nothing(framework, name, crf):
    model = make(framework, name, crf=crf)
    expected = evaluate(framework, model)
    wide = {
        "x": np.pad(FIELDS["x"], ((0, 0), (0, 3))),
        "y": np.pad(FIELDS["y"], ((0, 0), (0, 3)), constant_values=-1),
        "ngrams": np.pad(FIELDS["ngrams"], ((0, 0), (0, 3), (0, 2))),
    }
    found = evaluate(framework, model, wide)
    np.testing.assert_allclose(sums(found)[0], sums(expected)[0], rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(found["output"][:, :6], expected["output"])
    left, right = (gradients(framework, make(framework, name), one) for one in (wide, FIELDS))
    for path, value in left.items():
        np.testing.assert_allclose(value, right[path], rtol=1e-4, atol=1e-5, err_msg=path)
    for i, length in enumerate(LENGTHS[:3]):
        alone = {field: value[i : i + 1, :length] for field, value in FIELDS.items()}
        one = evaluate(framework, model, alone)
        np.testing.assert_allclose(sums(one)[0], sums(expected)[0][i], rtol=1e-5, atol=1e-5)
        np.testing.assert_array_equal(one["output"][0], expected["output"][i, :length])


@both_models
def test_each_tag_depends_on_tokens_before_and_after_it(framework, name):
    model = make(framework, name, crf=False)
    plain = evaluate(framework, model)["loss"][0]
    for place in range(5):
        changed = {**FIELDS, "x": FIELDS["x"].copy()}
        changed["x"][0, place] = 1 + FIELDS["x"][0, place] % 8
        difference = np.abs(evaluate(framework, model, changed)["loss"][0] - plain)
        assert (difference[:5] > 1e-6).all()


@both_models
def test_the_ngrams_of_a_token_are_a_bag(framework, name):
    model = make(framework, name)
    expected = sums(evaluate(framework, model))[0]
    turned = {**FIELDS, "ngrams": FIELDS["ngrams"][:, :, ::-1].copy()}
    np.testing.assert_allclose(sums(evaluate(framework, model, turned))[0], expected, 1e-5, 1e-6)
    twice = {**FIELDS, "ngrams": np.concatenate([FIELDS["ngrams"]] * 2, axis=2)}
    np.testing.assert_allclose(sums(evaluate(framework, model, twice))[0], expected, 1e-5, 1e-6)
    none = {**FIELDS, "ngrams": np.zeros_like(FIELDS["ngrams"])}
    assert np.abs(sums(evaluate(framework, model, none))[0] - expected)[:2].min() > 1e-3


@both_models
def test_a_model_with_ngrams_needs_them(framework, name):
    model = make(framework, name)
    without = {field: FIELDS[field] for field in ("x", "y")}
    with pytest.raises(DataError, match=r"no field 'ngrams'.*model\.ngram_vocab_size=0"):
        evaluate(framework, model, without)
    with pytest.raises(DataError, match=r"ngrams has shape \(4, 5, 3\) where x has \(4, 6\)"):
        evaluate(framework, model, {**FIELDS, "ngrams": FIELDS["ngrams"][:, :5]})
    plain = make(framework, name, ngram_vocab_size=0)
    np.testing.assert_array_equal(
        evaluate(framework, plain)["loss"], evaluate(framework, plain, without)["loss"]
    )
    assert not any("ngrams" in path for path, _ in plain.named_parameters())


@both_models
@pytest.mark.parametrize("pad_id", [0, 4])
def test_the_embeddings_of_padding_are_zero_and_get_no_gradient(framework, name, pad_id):
    model = make(framework, name, pad_id=pad_id)
    fields = {**FIELDS, "x": np.where(KEEP, 1, pad_id), "ngrams": FIELDS["ngrams"] + 0}
    found = gradients(framework, model, fields)
    for table in ("tokens", "ngrams"):
        path = f"embedding.{table}.weight"
        assert not weights(framework, model)[path][pad_id].any()
        assert not found[path][pad_id].any()
        assert found[path].any()


def test_a_sequence_beyond_max_length_is_refused(framework):
    model = make(framework, "TransformerTagger", max_length=5)
    with pytest.raises(DataError, match=r"6 tokens.*max_length=5"):
        evaluate(framework, model)


@both_models
@with_and_without_crf
def test_a_window_of_batches_of_different_lengths_is_one_large_batch(framework, name, crf):
    short = {field: value[1:3, :3] for field, value in FIELDS.items()}
    first = {field: value[:1, :5] for field, value in FIELDS.items()}
    trained = []
    for batches in ([FIELDS], [first, short]):
        driver, model = make_driver(framework), make(framework, name, crf=crf)
        driver.setup(0)
        driver.prepare(model, SGD(lr=0.1), None)
        losses = []
        for i, fields in enumerate(batches):
            batch = Batch(fields, np.arange(len(fields["x"])))
            losses.append(driver.loss(driver.forward(batch, i == len(batches) - 1), batch))
            driver.backward(losses[-1], 1 / 3)
        driver.optimizer_step([1.0])
        trained.append((driver.read_losses(losses).sum(0), driver.model_state()))
    (left, left_state), (right, right_state) = trained
    assert right[1] == sum(LENGTHS)
    np.testing.assert_allclose(left, right, rtol=1e-5)
    for path, value in left_state.items():
        np.testing.assert_allclose(value, right_state[path], rtol=1e-5, atol=1e-6, err_msg=path)


@both_models
def test_frameworks_have_the_same_paths_and_first_weights(name):
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    left, right = (
        weights(framework, getattr(models, name)(**SIZES, **TAGGERS[name]))
        for framework, models in (("torch", torch_models), ("paddle", paddle_models))
    )
    assert list(left) == list(right)
    first = {}
    for framework, models in (("torch", torch_models), ("paddle", paddle_models)):
        model = getattr(models, name)(**SIZES, **TAGGERS[name])
        model.initialize(3)
        first[framework] = weights(framework, model)
    for path, value in first["torch"].items():
        np.testing.assert_array_equal(value, first["paddle"][path], err_msg=path)
        assert value.any() != ("bias" in path or "crf" in path), path


@both_models
@with_and_without_crf
def test_frameworks_give_the_same_losses_tags_and_gradients(name, crf):
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    pair = {framework: make(framework, name, crf=crf) for framework in ("torch", "paddle")}
    left, right = (evaluate(*one) for one in pair.items())
    assert left.keys() == right.keys()
    for output, value in left.items():
        np.testing.assert_allclose(value, right[output], rtol=1e-5, atol=1e-5, err_msg=output)
    left, right = (gradients(*one) for one in pair.items())
    for path, value in left.items():
        np.testing.assert_allclose(value, right[path], rtol=1e-4, atol=1e-5, err_msg=path)


def test_an_encoder_equals_the_bidirectional_lstm_of_torch_on_packed_sequences():
    torch = pytest.importorskip("torch")
    encoder = make("torch", "LstmTagger").encoder.eval()
    reference = torch.nn.LSTM(6, 5, num_layers=2, batch_first=True, bidirectional=True)
    own = dict(encoder.named_parameters())
    with torch.no_grad():
        for path, value in reference.named_parameters():
            kind, layer, *back = path.rsplit("_l")[0], path.split("_l")[1][0], "reverse" in path
            side = "back" if back[0] else "ahead"
            value.copy_(own[f"layers.{layer}.{side}.{kind}_l0"])
        x = torch.randn(3, 6, 6)
        packed = torch.nn.utils.rnn.pack_padded_sequence(
            x, torch.tensor(LENGTHS[:3]), batch_first=True
        )
        expected, _ = torch.nn.utils.rnn.pad_packed_sequence(
            reference(packed)[0], batch_first=True, total_length=6
        )
        keep = torch.tensor(KEEP[:3])
        found = encoder(x, keep)
    np.testing.assert_allclose(found[keep].numpy(), expected[keep].numpy(), rtol=1e-5, atol=1e-6)


def test_kernels_of_an_lstm_are_uniform_within_the_bound_of_its_state():
    value = initial_value("lstm", "weight", (400, 60), seed=3)
    assert 0.099 < np.abs(value).max() <= 0.1 * (1 + 1e-6)
    assert value.std() == pytest.approx(0.1 / np.sqrt(3), rel=0.02)


@both_models
def test_a_diverged_model_predicts_no_tags(framework, name):
    model = make(framework, name)
    weights = dict(model.named_parameters())["output.scores.bias"]
    weights.detach()[:] = tensor(framework, np.array([0.0, np.nan, 0.0], np.float32))
    found = evaluate(framework, model)["output"]
    assert found.shape == KEEP.shape
    assert (found == -1).all()


@both_models
def test_dropout_acts_in_training_only(framework, name):
    model, plain = make(framework, name, dropout=0.5), make(framework, name)
    model.train()
    left, right = (call(framework, model, FIELDS)["loss"] for _ in range(2))
    assert np.abs(left - right).max() > 1e-6
    left, right = evaluate(framework, model), evaluate(framework, plain)
    np.testing.assert_array_equal(left["loss"], right["loss"])


@both_models
def test_the_summary_counts_each_parameter_once(framework, name):
    driver, model = make_driver(framework), make(framework, name)
    driver.setup(0)
    driver.prepare(model, None, None)
    arrays, parameters = driver.model_state(), dict(model.named_parameters())
    assert arrays.keys() == parameters.keys()
    sizes = {size.name: size for size in module_sizes(arrays, parameters, 1)}
    assert sizes["embedding"].parameters == 16 * (6 if name == "LstmTagger" else 8)
    assert sum(size.buffers for size in sizes.values()) == 0


@both_models
def test_bad_arguments_are_refused(framework, name):
    with pytest.raises(ConfigError, match=r"model\.crf: is 'yes'"):
        make(framework, name, crf="yes")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore:Tensor do not have 'place' interface")
def test_a_compiled_paddle_model_takes_sequences_of_any_length():
    paddle = pytest.importorskip("paddle")
    eager, compiled = make("paddle", "LstmTagger"), make("paddle", "LstmTagger")
    paddle.jit.to_static(compiled)
    for length in (6, 5):  # from the second on lengths are symbols, which the CRF must not meet
        fields = {field: value[:, :length] for field, value in FIELDS.items()}
        expected, found = (evaluate("paddle", model, fields) for model in (eager, compiled))
        np.testing.assert_allclose(found["loss"], expected["loss"], rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found["output"], expected["output"])
