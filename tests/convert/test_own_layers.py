"""Layers of a user's own models that the frameworks name or lay out in different ways."""

from __future__ import annotations

import numpy as np
import pytest

from expkit.checkpoint.convert import convert_state
from expkit.core.errors import MismatchError
from tests.convert.parts import assert_close, assert_equal, output, saved, taken, trained

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

pytestmark = pytest.mark.filterwarnings("ignore:When training, we now always track:UserWarning")

SEQUENCES = np.random.default_rng(0).standard_normal((8, 5, 4)).astype(np.float32)


def torch_net(kind):
    nn = torch.nn

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            if kind == "norms":
                self.first = nn.BatchNorm1d(5)
                self.second = nn.InstanceNorm1d(5, affine=True)
                self.third = nn.PReLU(5)
            elif kind == "convolutions":
                self.first = nn.Conv1d(5, 5, 3, padding=1)
                self.second = nn.ConvTranspose1d(5, 5, 3, padding=1)
                self.third = nn.GroupNorm(5, 5)
            elif kind == "recurrent":
                self.first = nn.LSTM(4, 2, num_layers=2, bidirectional=True, batch_first=True)
                self.second = nn.GRU(4, 4, batch_first=True)
            elif kind == "attention":
                self.first = nn.MultiheadAttention(4, 2, batch_first=True)
            self.output = nn.Linear(4, 4)

        def forward(self, x):
            if kind in ("norms", "convolutions"):
                x = self.third(self.second(self.first(x)))
            elif kind == "recurrent":
                x = self.second(self.first(x)[0])[0]
            elif kind == "attention":
                x = self.first(x, x, x)[0]
            return self.output(x).mean(1)

    torch.manual_seed(0)
    return Net()


def paddle_net(kind):
    nn = paddle.nn

    class Net(nn.Layer):
        def __init__(self):
            super().__init__()
            if kind == "norms":
                self.first = nn.BatchNorm1D(5)
                self.second = nn.InstanceNorm1D(5)
                self.third = nn.PReLU(5)
            elif kind == "convolutions":
                self.first = nn.Conv1D(5, 5, 3, padding=1)
                self.second = nn.Conv1DTranspose(5, 5, 3, padding=1)
                self.third = nn.GroupNorm(5, 5)
            elif kind == "recurrent":
                self.first = nn.LSTM(4, 2, num_layers=2, direction="bidirect")
                self.second = nn.GRU(4, 4)
            elif kind == "attention":
                self.first = nn.MultiHeadAttention(4, 2)
            self.output = nn.Linear(4, 4)

        def forward(self, x):
            if kind in ("norms", "convolutions"):
                x = self.third(self.second(self.first(x)))
            elif kind == "recurrent":
                x = self.second(self.first(x)[0])[0]
            elif kind == "attention":
                x = self.first(x, x, x)
            return self.output(x).mean(1)

    paddle.seed(1)
    return Net()


NETS = {"torch": torch_net, "paddle": paddle_net}
KINDS = ["norms", "convolutions", "recurrent", "attention"]
PAIRS = [("torch", "paddle"), ("paddle", "torch")]


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_outputs_are_those_of_the_framework_that_trained(tmp_path, kind, source, target):
    trainer = trained(source, NETS[source](kind), SEQUENCES, tmp_path)
    expected = output(trainer.driver, SEQUENCES)
    driver = taken(target, NETS[target](kind), saved(tmp_path))
    assert_close(output(driver, SEQUENCES), expected)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("source", "target"), PAIRS)
def test_weights_come_back_bit_for_bit(tmp_path, kind, source, target):
    trainer = trained(source, NETS[source](kind), SEQUENCES, tmp_path)
    there = convert_state(saved(tmp_path), target)
    taken(target, NETS[target](kind), there)  # also where another command has converted it
    back = taken(source, NETS[source](kind), convert_state(there, source))
    assert_equal(back.model_state(), trainer.driver.model_state())


def test_paddle_counts_no_batches_so_torch_begins_at_none(tmp_path):
    trained("paddle", paddle_net("norms"), SEQUENCES, tmp_path)
    model = convert_state(saved(tmp_path), "torch")["model"]
    assert model["first.num_batches_tracked"] == 0
    assert not any("_mean" in path and "running_mean" not in path for path in model)


def test_attention_with_widths_of_its_own_is_unpacked(tmp_path):
    def net(nn, attention):
        class Net(nn):
            def __init__(self):
                super().__init__()
                self.first = attention(4, 2, kdim=3, vdim=2)

            def forward(self, x):
                mixed = self.first(x, x[:, :, :3], x[:, :, :2])
                return (mixed[0] if isinstance(mixed, tuple) else mixed).mean(1)

        return Net()

    def for_torch():
        return net(
            torch.nn.Module,
            lambda *args, **kinds: torch.nn.MultiheadAttention(*args, **kinds, batch_first=True),
        )

    trainer = trained("torch", for_torch(), SEQUENCES, tmp_path)
    expected = output(trainer.driver, SEQUENCES)
    driver = taken("paddle", net(paddle.nn.Layer, paddle.nn.MultiHeadAttention), saved(tmp_path))
    assert_close(output(driver, SEQUENCES), expected)
    there = convert_state(saved(tmp_path), "paddle")
    back = taken("torch", for_torch(), convert_state(there, "torch"))
    assert_equal(back.model_state(), trainer.driver.model_state())


def test_a_square_array_that_is_a_linear_weight_on_one_side_only_is_refused(tmp_path):
    class Bare(paddle.nn.Layer):
        def __init__(self):
            super().__init__()
            self.output = paddle.nn.Layer()
            self.output.weight = self.output.create_parameter([4, 4])
            self.output.bias = self.output.create_parameter([4])

        def forward(self, x):
            return (x @ self.output.weight + self.output.bias).mean(1)

    trained("torch", torch_net("none"), SEQUENCES, tmp_path)
    with pytest.raises(
        MismatchError, match=r"^output\.weight is the weight of a linear layer in t"
    ):
        taken("paddle", Bare(), saved(tmp_path))
    trained("paddle", Bare(), SEQUENCES, tmp_path / "bare")
    with pytest.raises(MismatchError, match=r"^output\.weight is .* linear layer here and another"):
        taken("torch", torch_net("none"), saved(tmp_path / "bare"))


def test_a_parametrized_linear_weight_is_refused_by_name(tmp_path):
    net = torch_net("none")
    torch.nn.utils.parametrizations.weight_norm(net.output)
    trained("torch", net, SEQUENCES, tmp_path)
    with pytest.raises(MismatchError, match=r"^output\.weight .* parametrization"):
        convert_state(saved(tmp_path), "paddle")


def test_what_has_no_counterpart_is_named(tmp_path):
    net = torch_net("none")
    net.output = torch.nn.Sequential(
        net.output, torch.nn.MultiheadAttention(4, 2, add_bias_kv=True)
    )
    net.output.forward = net.output[0].forward
    trained("torch", net, SEQUENCES, tmp_path)
    with pytest.raises(MismatchError, match=r"another model: .*output\.1\.bias_k"):
        taken("paddle", paddle_net("none"), saved(tmp_path))
