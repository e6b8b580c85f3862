from __future__ import annotations

import inspect
import json
import warnings
from functools import partial

import pytest

from expkit.core.errors import ConfigError

LR = 0.1
TORCH = {
    "StepLR": {"step_size": 3, "gamma": 0.5},
    "MultiStepLR": {"milestones": [2, 5], "gamma": 0.5},
    "ExponentialLR": {"gamma": 0.9},
    "CosineAnnealingLR": {"T_max": 12},
    "CosineAnnealingWarmRestarts": {"T_0": 4},
    "LinearLR": {"total_iters": 5},
    "PolynomialLR": {"total_iters": 9, "power": 2.0},
    "LambdaLR": {"lr_lambda": lambda t: 1 / (1 + t)},
    "OneCycleLR": {"max_lr": 0.3, "total_steps": 20, "cycle_momentum": False},
    "CyclicLR": {"base_lr": 0.01, "max_lr": 0.1, "step_size_up": 3, "cycle_momentum": False},
}
PADDLE = {
    "NoamDecay": {"d_model": 10, "warmup_steps": 4},
    "PiecewiseDecay": {"boundaries": [3, 6], "values": [0.1, 0.05, 0.01]},
    "NaturalExpDecay": {"gamma": 0.1},
    "InverseTimeDecay": {"gamma": 0.1},
    "PolynomialDecay": {"decay_steps": 9},
    "ExponentialDecay": {"gamma": 0.9},
    "MultiStepDecay": {"milestones": [2, 5], "gamma": 0.5},
    "StepDecay": {"step_size": 3, "gamma": 0.5},
    "LambdaDecay": {"lr_lambda": lambda t: 1 / (1 + t)},
    "CosineAnnealingDecay": {"T_max": 12},
    "OneCycleLR": {"max_learning_rate": 0.3, "total_steps": 20},
    "CyclicLR": {"base_learning_rate": 0.01, "max_learning_rate": 0.1, "step_size_up": 3},
    "LinearLR": {"total_steps": 5},
    "CosineAnnealingWarmRestarts": {"T_0": 4},
}
CASES = [("torch", name) for name in TORCH] + [("paddle", name) for name in PADDLE]


def kind(framework, name):
    module = pytest.importorskip(framework)
    return getattr(module.optim.lr_scheduler if framework == "torch" else module.optimizer.lr, name)


def factory(framework, name):
    return partial(kind(framework, name), **(TORCH if framework == "torch" else PADDLE)[name])


def schedule(framework, made, lr=LR):
    if framework == "torch":
        from expkit.drivers.torch.schedules import NativeSchedule
    else:
        from expkit.drivers.paddle.schedules import NativeSchedule
    adapter = NativeSchedule(made)
    adapter.prepare(12, 4, lr)
    return adapter


def native_rates(framework, made, n):
    """The rates of n updates in the framework's own loop."""
    if framework == "torch":
        import torch

        optimizer = torch.optim.SGD([torch.zeros(1)], lr=LR)
        scheduler = made(optimizer)
        rate = lambda: optimizer.param_groups[0]["lr"]  # noqa: E731
    else:
        optimizer = None
        takes = "learning_rate" in inspect.signature(made).parameters
        scheduler = rate = made(learning_rate=LR) if takes else made()
    rates = []
    for _ in range(n):
        rates.append(rate())
        if optimizer is not None:
            optimizer.step()
        scheduler.step()
    return rates


@pytest.mark.parametrize(("framework", "name"), CASES)
def test_the_rates_are_those_of_the_frameworks_own_loop(framework, name):
    made = factory(framework, name)
    adapter = schedule(framework, made)
    got = [LR * adapter.factor(step) for step in range(1, 13)]
    assert got == pytest.approx(native_rates(framework, made, 12), rel=1e-12)
    assert len(set(got)) > 1


@pytest.mark.parametrize(("framework", "name"), CASES)
def test_resume_is_exact_from_json(framework, name):
    straight = schedule(framework, factory(framework, name))
    expected = [straight.factor(step) for step in range(1, 13)]
    first = schedule(framework, factory(framework, name))
    before = [first.factor(step) for step in range(1, 6)]
    second = schedule(framework, factory(framework, name))
    second.load_state(json.loads(json.dumps(first.state(), allow_nan=False)))
    assert before + [second.factor(step) for step in range(6, 13)] == expected


def test_nested_schedulers_resume_exactly():
    torch = pytest.importorskip("torch")
    lr = torch.optim.lr_scheduler

    def made(optimizer):
        parts = [lr.LinearLR(optimizer, total_iters=4), lr.MultiStepLR(optimizer, [2, 4], 0.5)]
        return lr.SequentialLR(optimizer, parts, milestones=[4])

    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # torch warns about its own call of step(0)
        straight = schedule("torch", made)
        expected = [straight.factor(step) for step in range(1, 13)]
        for stop in (2, 4, 5, 7):
            first, second = schedule("torch", made), schedule("torch", made)
            before = [first.factor(step) for step in range(1, stop + 1)]
            second.load_state(json.loads(json.dumps(first.state(), allow_nan=False)))
            after = [second.factor(step) for step in range(stop + 1, 13)]
            assert before + after == expected


def test_paddle_warmup_around_a_scheduler_resumes_exactly():
    paddle = pytest.importorskip("paddle")
    lr = paddle.optimizer.lr

    def made():
        inner = lr.StepDecay(LR, step_size=2, gamma=0.5)
        return lr.LinearWarmup(inner, warmup_steps=3, start_lr=0.0, end_lr=LR)

    straight = schedule("paddle", made)
    expected = [straight.factor(step) for step in range(1, 13)]
    first, second = schedule("paddle", made), schedule("paddle", made)
    before = [first.factor(step) for step in range(1, 6)]
    second.load_state(json.loads(json.dumps(first.state(), allow_nan=False)))
    assert before + [second.factor(step) for step in range(6, 13)] == expected


PLATEAUS = [("torch", "ReduceLROnPlateau"), ("paddle", "ReduceOnPlateau")]


@pytest.mark.parametrize(("framework", "name"), PLATEAUS)
def test_a_plateau_scheduler_follows_the_monitored_value_and_resumes(framework, name):
    made = partial(kind(framework, name), factor=0.5, patience=1)
    values = [1.0, 1.0, 1.0, 0.5, 0.6, 0.6, 0.6]

    def observe(adapter, values, step):
        factors = []
        for value in values:
            adapter.observe(value, larger_is_better=False)
            step += 1
            factors.append(adapter.factor(step))
        return factors

    straight = observe(schedule(framework, made), values, 0)
    assert straight == [1, 1, 0.5, 0.5, 0.5, 0.25, 0.25]
    for stop in range(len(values)):
        first, second = schedule(framework, made), schedule(framework, made)
        assert first.needs_monitor
        before = observe(first, values[:stop], 0)
        second.load_state(json.loads(json.dumps(first.state(), allow_nan=False)))
        assert before + observe(second, values[stop:], stop) == straight


@pytest.mark.parametrize(("framework", "name"), PLATEAUS)
def test_a_plateau_scheduler_for_the_wrong_direction_is_refused(framework, name):
    adapter = schedule(framework, partial(kind(framework, name), mode="min"))
    with pytest.raises(ConfigError, match=r"mode: is min, but larger is better.*mode=max"):
        adapter.observe(0.9, larger_is_better=True)


@pytest.mark.parametrize(("framework", "name"), [("torch", "StepLR"), ("paddle", "StepDecay")])
def test_other_schedulers_need_no_monitor_and_ignore_it(framework, name):
    adapter = schedule(framework, factory(framework, name))
    adapter.observe(1.0, larger_is_better=True)
    assert not adapter.needs_monitor
    assert adapter.factor(1) == 1.0


@pytest.mark.parametrize(("framework", "name"), [("torch", "StepLR"), ("paddle", "StepDecay")])
def test_a_new_base_rate_scales_the_resumed_schedule(framework, name):
    first = schedule(framework, factory(framework, name))
    before = first.factor(5)
    second = schedule(framework, factory(framework, name), lr=0.5 * LR)
    second.load_state(first.state())
    assert second.factor(5) == pytest.approx(before)


@pytest.mark.parametrize(("framework", "name"), [("torch", "StepLR"), ("paddle", "StepDecay")])
def test_a_scheduler_does_not_go_back(framework, name):
    adapter = schedule(framework, factory(framework, name))
    adapter.factor(5)
    with pytest.raises(ValueError, match="at step 5 and cannot go back to 4"):
        adapter.factor(4)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_what_is_no_scheduler_is_refused(framework):
    pytest.importorskip(framework)
    with pytest.raises(
        ConfigError, match=f"gives builtins.list; allowed: a scheduler of {framework}"
    ):
        schedule(framework, lambda *args: [])
    with pytest.raises(ConfigError, match=r"schedule\.factory: is 3"):
        schedule(framework, 3)


@pytest.mark.parametrize(("framework", "name"), [("torch", "StepLR"), ("paddle", "StepDecay")])
def test_wrong_options_are_a_config_error(framework, name):
    with pytest.raises(ConfigError, match=r"refuses its options.*typo"):
        schedule(framework, partial(kind(framework, name), step_size=1, typo=1))


def test_a_torch_scheduler_that_changes_the_momentum_is_refused():
    made = partial(kind("torch", "OneCycleLR"), max_lr=1.0, total_steps=10)
    with pytest.raises(ConfigError, match="cycle_momentum=false"):
        schedule("torch", made)
