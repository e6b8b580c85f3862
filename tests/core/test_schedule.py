from __future__ import annotations

import pytest

from expkit.core.errors import ConfigError
from expkit.core.schedule import ConstantRate, Schedule, ScheduleSet, first_rates


class Falling(Schedule):
    """1 / step, and remembers what it was told."""

    def __init__(self, needs_monitor=False):
        self.needs_monitor = needs_monitor
        self.horizons, self.seen, self.kept = [], [], {}

    def prepare(self, total_steps, steps_per_epoch, base_lr):
        self.horizons.append((total_steps, steps_per_epoch, base_lr))

    def factor(self, step):
        return 1 / step

    def observe(self, value, larger_is_better):
        self.seen.append((value, larger_is_better))

    def state(self):
        return {"seen": len(self.seen)}

    def load_state(self, state):
        self.kept = state


def test_without_a_schedule_rates_are_constant():
    schedules = ScheduleSet(None, {"a": 0.1, "b": 0.2})
    schedules.prepare(10, 5)
    schedules.observe(1.0, True)
    assert schedules.factors(7) == [1.0, 1.0]
    assert schedules.needs_monitor is None
    assert ConstantRate().state() == {}


def test_one_schedule_serves_all_optimizers_and_is_told_everything_once():
    falling = Falling(needs_monitor=True)
    schedules = ScheduleSet(falling, {"a": 0.1, "b": 0.2})
    schedules.prepare(10, 5)
    schedules.observe(0.5, False)
    assert schedules.factors(4) == [0.25, 0.25]
    assert falling.horizons == [(10, 5, 0.1)]
    assert falling.seen == [(0.5, False)]
    assert schedules.needs_monitor == "Falling"


def test_each_optimizer_has_its_own_by_name_with_its_own_base_rate():
    falling = Falling()
    schedules = ScheduleSet({"b": falling, "a": ConstantRate()}, {"a": 0.1, "b": 0.2})
    schedules.prepare(10, 5)
    assert schedules.factors(4) == [1.0, 0.25]
    assert falling.horizons == [(10, 5, 0.2)]


@pytest.mark.parametrize("names", [["a"], ["a", "c"], ["a", "b", "c"], []])
def test_other_names_than_those_of_the_optimizers_are_refused(names):
    with pytest.raises(ConfigError, match=r"allowed: one schedule, or one for each .*'a', 'b'"):
        ScheduleSet(dict.fromkeys(names, ConstantRate()), {"a": 0.1, "b": 0.2})


def stored(schedule, rates, total):
    schedules = ScheduleSet(schedule, rates)
    schedules.prepare(total, 5)
    return schedules


def test_a_state_comes_back_without_a_word_where_nothing_has_changed():
    first, second = Falling(), Falling()
    saved = stored(first, {"a": 0.1}, 10)
    saved.observe(1.0, True)
    assert stored(second, {"a": 0.1}, 10).load_state(saved.state()) == []
    assert second.kept == {"seen": 1}


@pytest.mark.parametrize(
    ("rates", "total", "text"),
    [
        ({"a": 0.5}, 10, "learning rates {'a': 0.5} (was {'a': 0.1})"),
        ({"a": 0.1}, 20, "length in steps 20 (was 10)"),
    ],
)
def test_what_has_changed_rules_and_is_said(rates, total, text):
    saved = stored(Falling(), {"a": 0.1}, 10)
    assert stored(Falling(), rates, total).load_state(saved.state()) == [text]


def test_a_state_of_another_kind_is_not_taken():
    falling = Falling()
    saved = stored(None, {"a": 0.1}, 10)
    changes = stored(falling, {"a": 0.1}, 10).load_state(saved.state())
    assert falling.kept == {}
    assert changes == ["schedules {'a': 'Falling'} (was {'a': 'ConstantRate'})"]


@pytest.mark.parametrize(
    ("names", "rates", "firsts"),
    [
        (("default",), {"lr": 0.1}, {"default": 0.1}),
        (("default",), {"lr/default/0": 0.1, "lr/default/1": 0.2}, {"default": 0.1}),
        (("a", "b"), {"lr/a": 0.1, "lr/b/0": 0.2, "lr/b/1": 0.3}, {"a": 0.1, "b": 0.2}),
        (("a", "ab"), {"lr/a": 0.1, "lr/ab": 0.2}, {"a": 0.1, "ab": 0.2}),
    ],
)
def test_the_first_rate_of_each_optimizer(names, rates, firsts):
    class Driver:
        optimizer_names = names

        def learning_rates(self):
            return rates

    assert first_rates(Driver()) == firsts
