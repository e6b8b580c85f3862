"""Themes 3, 4 and 18 on two ranks: windows, clipping, schedules, samples, parameters."""

from __future__ import annotations

import pytest

pytestmark = pytest.mark.slow

SYNCS = ["flat", "native"]
FIRST = ["layers.linear_0.bias", "layers.linear_0.weight"]
LAST = ["layers.output.bias", "layers.output.weight"]


@pytest.mark.parametrize("n", [9, 10])
@pytest.mark.parametrize(("n_epochs", "updates", "w"), [(1, 3, -0.3), (2, 6, -0.6)])
def test_the_short_last_window_is_divided_by_its_own_samples(two, n, n_epochs, updates, w):
    """Case 23: five micro-batches of all ranks; of 9 samples the last has one."""
    steps, (found,) = two.agree("training.short_last_window", n=n, n_epochs=n_epochs)
    assert steps == updates
    assert found == pytest.approx(w, abs=1e-6)


@pytest.mark.parametrize("sync", SYNCS)
def test_gradients_are_exchanged_at_the_end_of_a_window(two, sync):
    """Case 25."""
    assert two.agree("training.unequal_ranks", sync=sync) == [-5.0]


@pytest.mark.parametrize("cut", [1, 2])
@pytest.mark.parametrize("sync", SYNCS)
def test_a_rank_with_few_samples_counts_less(two, sync, cut):
    """Case 27: the mean of means would be 3. Ranks may cut their shares differently."""
    assert two.agree("training.unequal_batches", sync=sync, cut=cut) == [[-2.0], 2.0]


@pytest.mark.parametrize("sync", SYNCS)
def test_clipping_is_done_once_on_the_sum_over_ranks(two, sync):
    """Case 29."""
    found = two.agree("training.clipping", sync=sync)
    assert found == pytest.approx([0.99123, 0.13216], abs=1e-5)


def test_the_schedule_advances_once_for_each_update(two):
    """Case 31."""
    assert two.agree("training.schedule") == [0.5**k for k in range(1, 9)]


@pytest.mark.parametrize("sync", SYNCS)
@pytest.mark.parametrize("two", ["torch"], indirect=True)
def test_an_overflow_on_one_rank_leaves_the_step_out_on_all(two, sync):
    """Case 33."""
    steps, skipped, rates, scale, lines, _ = two.agree("training.overflow", sync=sync)
    assert (steps, skipped) == (4, 1)
    assert rates == [0.5, 0.5, 0.25, 0.125]
    assert scale == 32768.0
    assert lines == ["step 2: the gradients overflowed, its update is left out"]


@pytest.mark.parametrize("sync", SYNCS)
def test_a_layer_of_an_early_micro_batch_is_exchanged(two, sync):
    """Case 35."""
    _, difference = two.agree("training.early_layer", sync=sync)
    assert difference < 1e-6


def test_each_epoch_has_its_own_order_and_ranks_share_no_sample(two):
    """Case 36."""
    first, second = runs = two.run("training.orders")
    assert two.run("training.orders") == runs
    whole = [sorted(a + b) for a, b in zip(first, second, strict=True)]
    assert whole == [list(range(8))] * 3
    orders = [tuple(epoch) for epoch in first]
    assert len(set(orders)) == 3
    # Together, sample by sample, it is the order that one process has.
    together = [
        [index for pair in zip(a, b, strict=True) for index in pair]
        for a, b in zip(first, second, strict=True)
    ]
    assert together == two.agree("training.orders_alone")


def test_a_batch_that_drop_last_leaves_out_is_no_success(two):
    """Case 44."""
    error, updates = two.agree("training.few_samples", drop_last=True)
    assert error.startswith("DataError: the training set has 3 samples, fewer than one batch of 16")
    assert "8 on each of 2 ranks" in error
    assert "data.drop_last=true" in error
    assert updates == []
    assert two.agree("training.few_samples", drop_last=False) == [None, [2, True]]


@pytest.mark.parametrize("sync", SYNCS)
def test_rules_by_name_mean_the_same_parameters_as_on_one_device(two, sync):
    """Case 129: the first layer is frozen, biases do not decay."""
    alone, paths = two.agree("training.rules_by_name", alone=True)
    assert alone == pytest.approx(dict.fromkeys(FIRST + LAST[:1], 1.0) | {LAST[1]: 0.9})
    assert paths == LAST
    (on_first, first_paths), (on_second, _) = two.run(
        "training.rules_by_name", alone=False, sync=sync
    )
    assert on_first == on_second == alone
    assert first_paths == paths


@pytest.mark.parametrize("sync", SYNCS)
def test_an_unused_head_is_named_with_the_option_at_the_first_step(two, sync):
    """Case 133 a."""
    for error, steps, _ in two.run("training.unused_head", sync=sync, find=False):
        assert "head.weight" in error
        assert "driver.find_unused_parameters=true" in error
        assert steps <= 1


@pytest.mark.parametrize("sync", SYNCS)
def test_with_the_option_an_unused_head_stays_as_it_is(two, sync):
    """Case 133 a, the second part."""
    error, steps, unchanged = two.agree("training.unused_head", sync=sync, find=True)
    assert (error, steps) == (None, 3)
    assert unchanged == ["head.bias", "head.weight"]


@pytest.mark.parametrize("find", [False, True])
@pytest.mark.parametrize("sync", SYNCS)
def test_what_is_frozen_before_the_run_stays_to_the_last_bit(two, sync, find):
    """Case 133 b."""
    found = two.agree("training.frozen", sync=sync, when="before", find=find)
    assert sorted(found["moved at first"]) == sorted(found["moved later"]) == LAST


@pytest.mark.parametrize("find", [False, True])
@pytest.mark.parametrize("sync", SYNCS)
def test_what_a_callback_freezes_stays_from_then_on(two, sync, find):
    """Case 133 c."""
    found = two.agree("training.frozen", sync=sync, when="later", find=find)
    assert sorted(found["moved at first"]) == FIRST + LAST
    assert sorted(found["moved later"]) == LAST
