from __future__ import annotations

import json
import logging
import math
from dataclasses import fields
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from expkit import schedules
from expkit.core.errors import ConfigError
from expkit.schedules import (
    Constant,
    Cosine,
    InverseSquareRoot,
    Linear,
    OneCycle,
    Plateau,
    Polynomial,
    Step,
)

CONF = Path(__file__).parents[1] / "conf" / "schedule"
KINDS = (Constant, Cosine, InverseSquareRoot, Linear, OneCycle, Plateau, Polynomial, Step)


def rates(schedule, n, total=None, per_epoch=None, lr=1.0):
    schedule.prepare(total, per_epoch, lr)
    return [lr * schedule.factor(step) for step in range(1, n + 1)]


def test_linear_with_warmup_two_of_ten_has_the_known_rates():
    expected = [0.05, 0.1, 0.0875, 0.075, 0.0625, 0.05, 0.0375, 0.025, 0.0125, 0.0]
    assert rates(Linear(warmup=2), 10, total=10, lr=0.1) == pytest.approx(expected, abs=1e-15)


def test_cosine_at_step_40_of_100_has_the_known_rate():
    assert rates(Cosine(), 100, total=100, lr=0.1)[39] == pytest.approx(0.0654508, abs=1e-7)


def test_halving_each_step_ends_at_one_in_256_after_eight_updates():
    assert rates(Step(every=1, gamma=0.5), 8)[-1] == 0.00390625


def test_step_counts_its_intervals_from_the_end_of_the_warmup():
    assert rates(Step(warmup=2, every=3, gamma=0.1), 8) == pytest.approx(
        [0.5, 1, 1, 1, 0.1, 0.1, 0.1, 0.01]
    )


def test_step_takes_epochs():
    assert rates(Step(every="2ep", gamma=0.5), 9, per_epoch=2) == [
        1,
        1,
        1,
        0.5,
        0.5,
        0.5,
        0.5,
        0.25,
        0.25,
    ]


def test_constant_stays_after_its_warmup():
    assert rates(Constant(warmup=4), 6) == [0.25, 0.5, 0.75, 1, 1, 1]


def test_warmup_rises_from_its_start():
    assert rates(Constant(warmup=4, start=0.2), 4) == pytest.approx([0.4, 0.6, 0.8, 1.0])


def test_polynomial_is_a_power_of_what_is_left():
    assert rates(Polynomial(power=2), 4, total=4) == [0.75**2, 0.5**2, 0.25**2, 0]


def test_inverse_square_root_peaks_at_its_warmup():
    assert rates(InverseSquareRoot(warmup=4), 16)[3::12] == [1.0, 0.5]


def test_inverse_square_root_without_warmup_starts_at_the_base_rate():
    assert rates(InverseSquareRoot(warmup=0), 4) == pytest.approx([1, 0.5**0.5, 3**-0.5, 0.5])


def test_one_cycle_rises_in_a_line_to_the_base_rate_and_falls_to_its_end():
    got = rates(OneCycle(warmup=0.5, start=0.2, end=0.1), 8, total=8)
    assert got[:4] == pytest.approx([0.4, 0.6, 0.8, 1.0])
    assert got[5] == pytest.approx(0.55)
    assert got[7] == pytest.approx(0.1)


@pytest.mark.parametrize("end", [0.0, 0.25])
@pytest.mark.parametrize("kind", [Linear, Cosine, Polynomial, OneCycle])
def test_after_the_horizon_a_schedule_stays_at_its_end(kind, end):
    schedule = kind(end=end)
    schedule.prepare(50, 10, 0.1)
    assert [schedule.factor(step) for step in (50, 51, 100, 10**9)] == [end] * 4


@given(
    kind=st.sampled_from([Linear, Cosine, Polynomial, OneCycle]),
    total=st.integers(1, 300),
    warmup=st.integers(1, 300),
)
def test_factors_stay_between_zero_and_one_and_fall_after_the_peak(kind, total, warmup):
    logging.disable(logging.WARNING)
    try:
        got = rates(kind(warmup=warmup), total + 5, total=total)
    finally:
        logging.disable(logging.NOTSET)
    assert all(0 <= rate <= 1 for rate in got)
    after = got[warmup - 1 :]
    assert after == sorted(after, reverse=True)


def test_a_warmup_as_long_as_the_run_reaches_the_base_rate():
    assert rates(Linear(warmup=4), 5, total=4) == [0.25, 0.5, 0.75, 1.0, 0.0]


def test_a_warmup_longer_than_the_run_is_said_in_one_line(caplog):
    Linear(warmup=5).prepare(4, None, 0.1)
    assert caplog.messages == ["the warm-up has 5 steps, the run only 4"]


@pytest.mark.parametrize(
    ("warmup", "steps"), [(5, 5), ("5", 5), ("2ep", 20), (0.25, 25), (0, 0), (None, 0), (0.0, 0)]
)
def test_warmup_is_steps_epochs_or_a_share_of_the_run(warmup, steps):
    got = rates(Constant(warmup=warmup), 40, total=100, per_epoch=10)
    assert sum(rate < 1 for rate in got) == max(steps - 1, 0)


@pytest.mark.parametrize("kind", [Linear, Cosine, Polynomial, OneCycle])
def test_a_missing_horizon_names_the_keys_that_give_one(kind):
    with pytest.raises(ConfigError, match=r"trainer.max_steps, or trainer.n_epochs"):
        kind().prepare(None, None, 0.1)


def test_a_share_as_warmup_needs_a_horizon_and_steps_do_not():
    Constant(warmup=10).prepare(None, None, 0.1)
    with pytest.raises(ConfigError, match=r"schedule.warmup.*trainer.max_steps"):
        Constant(warmup=0.1).prepare(None, None, 0.1)


def test_epochs_need_data_with_a_length():
    with pytest.raises(ConfigError, match=r"schedule.warmup: is '2ep'.*no length"):
        Constant(warmup="2ep").prepare(100, None, 0.1)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (Linear, {"warmup": -1}),
        (Linear, {"warmup": 1.5}),
        (Linear, {"warmup": True}),
        (Linear, {"warmup": "2 weeks"}),
        (Linear, {"warmup": math.nan}),
        (Linear, {"start": 2}),
        (Linear, {"end": -0.1}),
        (Linear, {"end": "low"}),
        (OneCycle, {"warmup": 0}),
        (OneCycle, {"warmup": 0.0}),
        (Polynomial, {"power": 0}),
        (Polynomial, {"power": math.inf}),
        (Step, {"every": 0}),
        (Step, {"every": None}),
        (Step, {"every": "0ep"}),
        (Step, {"gamma": 0}),
        (Plateau, {"gamma": 1}),
        (Plateau, {"patience": 0}),
        (Plateau, {"patience": 1.5}),
        (Plateau, {"min_delta": -1}),
        (Plateau, {"cooldown": -1}),
    ],
)
def test_a_value_that_is_not_allowed_is_refused_with_its_key_and_value(kind, options):
    with pytest.raises(ConfigError) as caught:
        kind(**options)
    (problem,) = caught.value.problems
    (name,) = options
    assert problem.key == f"schedule.{name}"
    assert repr(options[name]) in problem.message
    assert problem.hint.startswith(f"schedule.{name}=")


def plateau(**options):
    schedule = Plateau(**options)
    schedule.prepare(None, None, 0.1)
    return schedule


def observe(schedule, *values, larger_is_better=False):
    factors = []
    for value in values:
        schedule.observe(value, larger_is_better)
        factors.append(schedule.factor(100))
    return factors


def test_plateau_lowers_the_rate_after_patience_evaluations_without_improvement():
    got = observe(plateau(gamma=0.5, patience=2), 1.0, 0.9, 0.9, 0.95, 0.8, 0.8, 0.8)
    assert got == [1, 1, 1, 0.5, 0.5, 0.5, 0.25]


def test_plateau_knows_which_direction_is_better():
    schedule = plateau(gamma=0.5, patience=1)
    assert observe(schedule, 0.5, 0.6, 0.55, larger_is_better=True) == [1, 1, 0.5]


def test_plateau_takes_nan_as_no_improvement():
    assert observe(plateau(gamma=0.5, patience=2), math.nan, math.nan, 1.0) == [1, 0.5, 0.5]


def test_plateau_wants_an_improvement_above_min_delta():
    got = observe(plateau(gamma=0.5, patience=1, min_delta=0.1), 1.0, 0.95, 0.8)
    assert got == [1, 0.5, 0.5]


def test_plateau_rests_after_a_reduction():
    got = observe(plateau(gamma=0.5, patience=1, cooldown=2), 1.0, 1.0, 1.0, 1.0, 1.0)
    assert got == [1, 0.5, 0.5, 0.5, 0.25]


def test_plateau_does_not_go_below_its_end():
    assert observe(plateau(gamma=0.1, patience=1, end=0.05), 1, 1, 1, 1) == [1, 0.1, 0.05, 0.05]


@pytest.mark.parametrize("stop", range(8))
def test_plateau_resumes_exactly_from_json(stop):
    values = [1.0, 0.9, math.nan, 0.95, 0.8, 0.8, 0.8, 0.7]
    options = {"gamma": 0.5, "patience": 2, "cooldown": 1}
    straight = observe(plateau(**options), *values)
    first = plateau(**options)
    before = observe(first, *values[:stop])
    second = plateau(**options)
    second.load_state(json.loads(json.dumps(first.state(), allow_nan=False)))
    assert before + observe(second, *values[stop:]) == straight


def test_only_plateau_needs_a_monitor():
    assert [kind for kind in KINDS if kind().needs_monitor] == [Plateau]


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind is not Plateau])
def test_schedules_of_the_step_alone_have_no_state(kind):
    schedule = kind()
    schedule.prepare(100, 10, 0.1)
    before = schedule.factor(50)
    schedule.observe(1.0, True)
    schedule.load_state(schedule.state())
    assert schedule.state() == {}
    assert schedule.factor(50) == before


def test_a_longer_run_stretches_the_schedule_when_it_is_prepared_again():
    schedule = Cosine()
    schedule.prepare(50, 10, 0.1)
    schedule.prepare(100, 10, 0.1)
    assert 0.1 * schedule.factor(40) == pytest.approx(0.0654508, abs=1e-7)
    assert schedule.factor(100) == 0


@pytest.mark.parametrize("path", sorted(CONF.glob("*.yaml")), ids=lambda path: path.stem)
def test_config_files_show_every_option_with_its_default_and_a_comment(path):
    text = path.read_text()
    config = yaml.safe_load(text)
    kind = getattr(schedules, config.pop("_target_").rpartition(".")[2])
    assert kind(**config) == kind()
    assert set(config) == {option.name for option in fields(kind) if option.init}
    first, *rest = text.splitlines()
    assert first.startswith("# ")
    assert all("  # " in line for line in rest)
