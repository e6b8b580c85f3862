from __future__ import annotations

import logging
import math

import pytest

from expkit.callbacks import NanGuard
from expkit.core.collective import SingleProcess
from expkit.core.errors import ConfigError, NonFiniteLossError
from tests.callbacks.stub_run import step


class OtherRankHasFound(SingleProcess):
    """A world of two, of which the other rank has met a bad loss."""

    def any_rank(self, flag):
        return True

    def all_gather(self, value):
        return [value, ["loss nan on samples [7]"]]


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_stop_names_step_loss_rate_and_samples(context, bad):
    guard = NanGuard()
    context.progress.step = 11
    with pytest.raises(NonFiniteLossError) as caught:
        step(context, guard, 1.0, bad)
    assert str(caught.value) == (
        f"step 12 (lr=0.5): loss {bad:g} on samples [10, 11]; the learning rate is too high, or "
        "the data holds NaN or infinite values"
    )
    assert context.progress.step == 11


def test_finite_losses_pass_with_one_reading_a_step(context):
    guard = NanGuard()
    step(context, guard, 1.0, 2.0, 3.0)
    step(context, guard, 1.0)
    assert context.driver.num_reads == 2
    assert context.progress.step == 2


def test_skip_leaves_the_update_out_and_goes_on(context, caplog):
    guard = NanGuard("skip")
    for number in range(1, 41):
        step(context, guard, math.nan if number == 12 else 1.0)
    assert context.progress.step == 40
    assert context.progress.skipped_steps == 1
    assert [record.levelno for record in caplog.records] == [logging.WARNING]
    assert "step 12 (lr=0.5): loss nan on samples [0, 1]; update left out" in caplog.text


def test_skip_warns_once_in_a_hundred(context, caplog):
    guard = NanGuard("skip")
    for number in range(500):
        step(context, guard, math.nan if number % 2 else 1.0)
    assert context.progress.skipped_steps == 250
    assert len(caplog.records) == 3


def test_skip_ends_after_a_hundred_in_a_row_also_over_a_restart(context):
    first = NanGuard("skip")
    for _ in range(60):
        step(context, first, math.nan)
    second = NanGuard("skip")
    second.load_state(first.state())
    for _ in range(40):
        step(context, second, math.nan)
    with pytest.raises(NonFiniteLossError, match="the 100 steps before it were skipped too"):
        step(context, second, math.nan)


def test_bad_loss_of_another_rank_is_acted_on_and_named(context):
    context.driver.group = OtherRankHasFound()
    with pytest.raises(NonFiniteLossError, match=r"loss nan on samples \[7\] of rank 1"):
        step(context, NanGuard(), 1.0)
    step(context, NanGuard("skip"), 1.0)
    assert context.progress.skipped_steps == 1


def test_unknown_policy_is_refused():
    with pytest.raises(ConfigError, match=r"nan_guard\.policy: is 'ignore'; allowed: stop, skip"):
        NanGuard("ignore")
