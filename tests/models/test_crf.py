"""The conditional random field against sums and maxima over all sequences of tags."""

from __future__ import annotations

from itertools import pairwise, product

import numpy as np
import pytest

from expkit.models import paddle as paddle_models
from expkit.models import torch as torch_models

PARAMETERS = ("start", "transitions", "end")


class Torch:
    """A CRF with given weights, called with arrays."""

    def __init__(self, weights, dtype="float32"):
        self.torch = pytest.importorskip("torch")
        self.crf = torch_models.LinearChainCrf(len(weights["start"])).to(getattr(self.torch, dtype))
        with self.torch.no_grad():
            for name, value in weights.items():
                getattr(self.crf, name).copy_(self.torch.tensor(value))

    def tensor(self, array):
        return self.torch.tensor(array)

    def scores(self, array):
        return self.torch.tensor(array, requires_grad=True)


class Paddle:
    """The same on Paddle."""

    def __init__(self, weights, dtype="float32"):
        self.paddle = pytest.importorskip("paddle")
        self.crf = paddle_models.LinearChainCrf(len(weights["start"])).to(dtype=dtype)
        for name, value in weights.items():
            getattr(self.crf, name).set_value(np.asarray(value, dtype))

    def tensor(self, array):
        return self.paddle.to_tensor(array)

    def scores(self, array):
        return self.paddle.to_tensor(array, stop_gradient=False)


KINDS = {"torch": Torch, "paddle": Paddle}


@pytest.fixture(params=KINDS)
def kind(request):
    return KINDS[request.param]


def losses(one, scores, keep, tags):
    loss = one.crf(one.tensor(scores), one.tensor(keep), one.tensor(tags))
    return loss.detach().numpy()


def decoded(one, scores, keep):
    return one.crf.decode(one.tensor(scores), one.tensor(keep)).numpy()


def gradients(one, scores, keep, tags):
    """Of the sum of the losses, by the scores and each parameter."""
    tensor = one.scores(scores)
    one.crf(tensor, one.tensor(keep), one.tensor(tags)).sum().backward()
    found = {name: getattr(one.crf, name).grad.numpy() for name in PARAMETERS}
    return {"scores": tensor.grad.numpy(), **found}


def random_weights(num_tags, stream, scale=1.0):
    shapes = {"start": num_tags, "transitions": (num_tags, num_tags), "end": num_tags}
    return {
        name: (scale * stream.standard_normal(shape)).astype(np.float32)
        for name, shape in shapes.items()
    }


def case(num_tags, lengths, seed=0):
    """Weights, scores, the mask, and tags of which about a quarter is unknown."""
    stream = np.random.default_rng(seed)
    width = max(lengths)
    keep = np.arange(width) < np.array(lengths)[:, None]
    scores = 2 * stream.standard_normal((len(lengths), width, num_tags)).astype(np.float32)
    tags = stream.integers(0, num_tags, keep.shape)
    known = np.where(keep, tags, -1)
    partly = np.where(stream.random(keep.shape) < 0.25, -1, known)
    return random_weights(num_tags, stream), scores, keep, known, partly


def score_of(weights, scores, sequence):
    """The score of one sequence of tags, by the definition."""
    pairs = pairwise(sequence)
    return (
        weights["start"][sequence[0]]
        + sum(scores[t, tag] for t, tag in enumerate(sequence))
        + sum(weights["transitions"][pair] for pair in pairs)
        + weights["end"][sequence[-1]]
    )


def all_scores(weights, scores, length):
    """The score of each sequence of tags of a length, in float64."""
    exact = {name: value.astype(np.float64) for name, value in weights.items()}
    sequences = product(range(scores.shape[1]), repeat=length)
    return {s: score_of(exact, scores.astype(np.float64), s) for s in sequences}


def loss_of(weights, scores, tags, length):
    """The loss of one sequence, by the definition."""
    if not length:
        return 0.0
    by_sequence = all_scores(weights, scores, length)
    fits = [
        score
        for sequence, score in by_sequence.items()
        if all(right in (-1, tag) for tag, right in zip(sequence, tags, strict=False))
    ]
    return np.logaddexp.reduce(list(by_sequence.values())) - np.logaddexp.reduce(fits)


CASES = [(1, [3, 1]), (2, [6, 4, 1, 0]), (3, [5, 5, 2]), (4, [4, 1, 3]), (5, [1, 1]), (3, [0, 2])]


@pytest.mark.parametrize(("num_tags", "lengths"), CASES)
@pytest.mark.parametrize("labels", ["known", "partly"])
def test_the_loss_is_that_of_a_sum_over_all_sequences(kind, num_tags, lengths, labels):
    weights, scores, keep, known, partly = case(num_tags, lengths)
    tags = known if labels == "known" else partly
    rows = zip(scores, tags, lengths, strict=True)
    expected = [loss_of(weights, *row) for row in rows]
    np.testing.assert_allclose(losses(kind(weights), scores, keep, tags), expected, 1e-5, 1e-5)


@pytest.mark.parametrize(("num_tags", "lengths"), CASES)
def test_the_decoded_sequence_is_the_best_of_all(kind, num_tags, lengths):
    weights, scores, keep, _, _ = case(num_tags, lengths, seed=1)
    found = decoded(kind(weights), scores, keep)
    assert found.dtype == np.int64
    for row, one, length in zip(scores, found, lengths, strict=True):
        assert (one[length:] == -1).all()
        if length:
            by_sequence = all_scores(weights, row, length)
            assert tuple(one[:length]) == max(by_sequence, key=lambda s: by_sequence[s])


def test_probabilities_of_all_sequences_sum_to_one(kind):
    weights, scores, keep, _, _ = case(3, [4])
    tags = np.array(list(product(range(3), repeat=4)))
    many = np.repeat(scores, len(tags), 0), np.repeat(keep, len(tags), 0)
    assert np.exp(-losses(kind(weights), *many, tags)).sum() == pytest.approx(1.0, abs=1e-5)


@pytest.mark.parametrize("labels", ["known", "partly"])
def test_gradients_match_finite_differences(kind, labels):
    weights, scores, keep, known, partly = case(3, [4, 2, 0, 1])
    tags = known if labels == "known" else partly
    at = {"scores": scores.astype(np.float64)}
    at |= {name: value.astype(np.float64) for name, value in weights.items()}

    def total(values):
        own = {name: values[name] for name in PARAMETERS}
        return losses(kind(own, "float64"), values["scores"], keep, tags).sum()

    own = {name: at[name] for name in PARAMETERS}
    found = gradients(kind(own, "float64"), at["scores"], keep, tags)
    for name, value in at.items():
        expected = np.zeros_like(value)
        for place in np.ndindex(value.shape):
            shift = np.zeros_like(value)
            shift[place] = 1e-6
            above, below = total({**at, name: value + shift}), total({**at, name: value - shift})
            expected[place] = (above - below) / 2e-6
        np.testing.assert_allclose(found[name], expected, rtol=1e-5, atol=1e-7, err_msg=name)


def test_torch_and_paddle_agree():
    weights, scores, keep, _, partly = case(17, [23, 11, 0, 1, 2, 19])
    pair = [make(weights) for make in KINDS.values()]
    left, right = (losses(one, scores, keep, partly) for one in pair)
    np.testing.assert_allclose(left, right, rtol=1e-5, atol=1e-5)
    left, right = (decoded(one, scores, keep) for one in pair)
    np.testing.assert_array_equal(left, right)
    left, right = (gradients(one, scores, keep, partly) for one in pair)
    for name, value in left.items():
        np.testing.assert_allclose(value, right[name], rtol=1e-5, atol=1e-5, err_msg=name)


def test_what_is_masked_changes_nothing(kind):
    weights, scores, keep, known, _ = case(3, [4, 2, 1, 0])
    plain, noisy = kind(weights), kind(weights)
    other = np.where(keep[:, :, None], scores, 50.0).astype(np.float32)
    labelled = np.where(keep, known, 2)
    expected = losses(plain, scores, keep, known)
    np.testing.assert_array_equal(losses(noisy, other, keep, labelled), expected)
    np.testing.assert_array_equal(decoded(noisy, other, keep), decoded(plain, scores, keep))
    left, right = gradients(noisy, other, keep, labelled), gradients(plain, scores, keep, known)
    for name, value in left.items():
        np.testing.assert_array_equal(value, right[name], err_msg=name)
    assert not left["scores"][~keep].any()


def test_further_padding_changes_nothing(kind):
    weights, scores, keep, known, _ = case(3, [4, 2, 0])
    one = kind(weights)
    wide = np.pad(scores, ((0, 0), (0, 3), (0, 0))), np.pad(keep, ((0, 0), (0, 3)))
    tags = np.pad(known, ((0, 0), (0, 3)), constant_values=-1)
    np.testing.assert_array_equal(losses(one, *wide, tags), losses(one, scores, keep, known))
    found = decoded(one, *wide)
    np.testing.assert_array_equal(found[:, :4], decoded(one, scores, keep))
    assert (found[:, 4:] == -1).all()


@pytest.mark.parametrize("length", [0, 1])
def test_short_sequences_give_each_parameter_a_gradient(kind, length):
    weights, scores, keep, known, _ = case(3, [1, 1])
    found = gradients(kind(weights), scores, keep & bool(length), known)
    assert not found["transitions"].any()
    assert bool(found["start"].any()) == bool(length)


def test_nothing_to_read_gives_a_loss_of_zero(kind):
    weights, scores, keep, known, _ = case(3, [2])
    one = kind(weights)
    assert losses(one, scores[:, :0], keep[:, :0], known[:, :0]).tolist() == [0.0]
    found = decoded(one, scores[:, :0], keep[:, :0])
    assert (found.shape, found.dtype) == ((1, 0), np.int64)


@pytest.mark.parametrize("place", [(1, 0, 2), (1, 1, 0), (1, 3, 1)])
def test_a_sequence_with_a_nan_among_its_scores_has_no_tags(kind, place):
    weights, scores, keep, _, _ = case(3, [4, 4, 2])
    expected = decoded(kind(weights), scores, keep)
    expected[1] = -1
    scores[place] = np.nan
    scores[2, 3] = np.nan  # padding
    np.testing.assert_array_equal(decoded(kind(weights), scores, keep), expected)


@pytest.mark.parametrize("factor", [1e4, 3e4, 1e6])
@pytest.mark.parametrize("labels", ["known", "partly"])
def test_a_right_tag_may_be_as_unlikely_as_scores_allow(kind, factor, labels):
    lengths = [5, 3, 1]
    weights, scores, keep, known, partly = case(3, lengths)
    scores = np.round(scores * factor)
    tags = known if labels == "known" else partly
    one = kind(weights)
    rows = zip(scores, tags, lengths, strict=True)
    expected = [loss_of(weights, *row) for row in rows]
    assert max(expected) > factor
    np.testing.assert_allclose(losses(one, scores, keep, tags), expected, rtol=1e-6, atol=1e-6)
    # Scores this far apart leave no doubt about the tag that each of the two sums consists of.
    found = gradients(one, scores, keep, tags)
    ways = np.zeros_like(scores)
    for row, (one_row, right, length) in enumerate(zip(scores, tags, lengths, strict=True)):
        by_sequence = all_scores(weights, one_row, length)
        fits = [s for s in by_sequence if all(r in (-1, t) for r, t in zip(right, s, strict=False))]
        for sequences, sign in ((by_sequence, 1), (fits, -1)):
            best = max(sequences, key=lambda s, each=by_sequence: each[s])
            ways[row, np.arange(length), best] += sign
    np.testing.assert_allclose(found["scores"], ways, atol=1e-6)
    for value in found.values():
        assert np.isfinite(value).all()


def test_long_sequences_with_large_scores_stay_exact(kind):
    stream = np.random.default_rng(0)
    weights = random_weights(4, stream, scale=6.0)
    scores = (30 * stream.standard_normal((1, 300, 4))).astype(np.float32)
    tags = stream.integers(0, 4, (1, 300))
    exact = {name: value.astype(np.float64) for name, value in weights.items()}
    logs = exact["start"] + scores[0, 0]
    for row in scores[0, 1:]:
        logs = np.logaddexp.reduce(logs[:, None] + exact["transitions"], axis=0) + row
    total = np.logaddexp.reduce(logs + exact["end"])
    expected = total - score_of(exact, scores[0].astype(np.float64), tags[0])
    found = losses(kind(weights), scores, np.ones((1, 300), bool), tags)
    np.testing.assert_allclose(found, [expected], rtol=1e-5)


@pytest.mark.parametrize("never", [-1e4, -np.inf])
def test_a_forbidden_transition_is_never_taken_and_harms_no_gradient(kind, never):
    weights, scores, keep, known, _ = case(3, [5, 4])
    weights["transitions"][0, 1] = weights["transitions"][1, 1] = never
    known[known == 1] = 2
    one = kind(weights)
    pairs = {pair for row in decoded(one, scores, keep) for pair in pairwise(row)}
    assert not pairs & {(0, 1), (1, 1)}
    for value in gradients(one, scores, keep, known).values():
        assert np.isfinite(value).all()
    expected = [
        loss_of(weights, row, tags, int(kept.sum()))
        for row, tags, kept in zip(scores, known, keep, strict=True)
    ]
    np.testing.assert_allclose(losses(one, scores, keep, known), expected, rtol=1e-5)


@pytest.mark.parametrize("tag", [3, -2])
def test_a_tag_that_does_not_exist_is_refused(kind, tag):
    weights, scores, keep, known, _ = case(3, [2])
    known[0, 1] = tag
    with pytest.raises((RuntimeError, ValueError)):
        losses(kind(weights), scores, keep, known)


def test_scores_of_half_precision_are_computed_with_in_float32():
    torch = pytest.importorskip("torch")
    weights, scores, keep, known, _ = case(3, [5, 3])
    one = Torch(weights)
    half = torch.tensor(scores).bfloat16()
    expected = losses(one, half.float().numpy(), keep, known)
    with torch.autocast("cpu", torch.bfloat16):
        loss = one.crf(half, torch.tensor(keep), torch.tensor(known))
        tags = one.crf.decode(half, torch.tensor(keep))
    assert loss.dtype == torch.float32
    np.testing.assert_array_equal(loss.detach().numpy(), expected)
    np.testing.assert_array_equal(tags.numpy(), decoded(one, half.float().numpy(), keep))
