"""torch, Paddle and NumPy are the same experiment: same samples, same losses, same weights."""

from __future__ import annotations

import importlib.util
import shutil
from itertools import combinations

import numpy as np
import pytest

from expkit.data import Data
from expkit.optimizers import SGD, Adam, AdamW
from expkit.schedules import Linear
from tests.cases.parts import Consumed, Records, make_trainer, samples
from tests.conftest import FRAMEWORKS

OPTIMIZERS = {
    "sgd": SGD(lr=0.1),
    "momentum": SGD(lr=0.05, momentum=0.9, nesterov=True, weight_decay=1e-3),
    "adam": Adam(lr=3e-3),
    "adamw": AdamW(lr=3e-3, weight_decay=0.1),
}


def fifty_steps(framework, **options):
    """Losses by step, final weights by path and the order of the samples."""
    consumed, records = Consumed(), Records()
    trainer = make_trainer(
        framework,
        data=Data(samples(160), samples(40, 1), batch_size=16),
        mlp={"hidden": (32,)},
        n_epochs=5,
        log_every=1,
        logger=records,
        callbacks=[consumed],
        **options,
    )
    assert trainer.fit().steps == 50
    losses = records.of("train", "loss")
    assert list(losses) == list(range(1, 51))
    evaluations = records.of("eval", "loss")
    assert list(evaluations) == [10, 20, 30, 40, 50]
    ends = trainer.driver.model_state()
    if framework == "torch":  # whose linear layers hold their weights as (out, in)
        ends = {path: array.T for path, array in ends.items()}
    return np.array([*losses.values(), *evaluations.values()]), ends, consumed.rows


@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_50_steps_agree_on_all_drivers(optimizer):
    for framework in FRAMEWORKS:
        pytest.importorskip(framework)
    runs = {name: fifty_steps(name, optimizer=OPTIMIZERS[optimizer]) for name in FRAMEWORKS}
    for one, other in combinations(FRAMEWORKS, 2):
        losses, ends, order = runs[one]
        assert losses[49] < 0.8 * losses[0]
        other_losses, other_ends, other_order = runs[other]
        assert other_order == order
        np.testing.assert_allclose(other_losses, losses, rtol=1e-5)
        assert list(other_ends) == list(ends)
        for path, array in ends.items():
            np.testing.assert_allclose(
                other_ends[path], array, rtol=1e-4, atol=2e-6, err_msg=f"{one}, {other}: {path}"
            )


def test_accumulation_clipping_and_a_schedule_agree_on_all_drivers():
    for framework in FRAMEWORKS:
        pytest.importorskip(framework)
    results = []
    for framework in FRAMEWORKS:
        trainer = make_trainer(
            framework,
            data=Data(samples(44), batch_size=8),
            accumulate=2,
            clip_norm=0.5,
            schedule=Linear(warmup=3),
            log_every=1,
            n_epochs=5,
        )
        trainer.fit()
        results.append(list(trainer._logger.of("train", "loss").values()))
    np.testing.assert_allclose(results[1], results[0], rtol=1e-5)
    np.testing.assert_allclose(results[2], results[0], rtol=1e-5)


# -- precision and compilation -------------------------------------------------------------------


@pytest.mark.parametrize(("precision", "tolerance"), [("bf16", 0.03), ("fp16", 0.005)])
def test_low_precision_trains_and_evaluates_nearly_the_same(precision, tolerance):
    pytest.importorskip("torch")
    exact, _, _ = fifty_steps("torch")
    driver = {"precision": precision, **({"loss_scale": 1024.0} if precision == "fp16" else {})}
    low, _, _ = fifty_steps("torch", driver_options=driver)
    assert not np.array_equal(low, exact)
    np.testing.assert_allclose(low, exact, atol=tolerance)


@pytest.mark.slow
def test_a_compiled_paddle_model_gives_the_same_losses():
    pytest.importorskip("paddle")
    plain, _, _ = fifty_steps("paddle")
    compiled, _, _ = fifty_steps("paddle", driver_options={"compile": True})
    np.testing.assert_allclose(compiled, plain, rtol=1e-5)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::FutureWarning")
@pytest.mark.skipif(
    not (shutil.which("g++") or shutil.which("clang++")), reason="there is no C++ compiler"
)
@pytest.mark.skipif(importlib.util.find_spec("torch") is None, reason="torch is not installed")
def test_a_compiled_torch_model_gives_the_same_losses():
    from torch.nn import functional

    def losses(compile_model):
        trainer = make_trainer(
            "torch",
            data=Data(samples(64), batch_size=16),
            loss=lambda o, b: functional.cross_entropy(o["output"], b["y"], reduction="none"),
            driver_options={"compile": compile_model},
            log_every=1,
        )
        trainer.fit()
        return list(trainer._logger.of("train", "loss").values())

    np.testing.assert_allclose(losses(True), losses(False), rtol=1e-4)
