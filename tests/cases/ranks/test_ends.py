"""Themes 7, 8 and 14 on two ranks: what one rank asks for or meets, all do together."""

from __future__ import annotations

import math

import pytest

pytestmark = pytest.mark.slow


def settled(results):
    """The result of all ranks, whose clocks alone may differ."""
    first, *others = [({**result, "seconds": 0}, *rest) for result, *rest in results]
    assert all(other == first for other in others), results
    return first


class TestStop:
    @pytest.mark.parametrize(
        ("event", "asked", "ends"),
        [
            ("fit_start", 0, 0),
            ("batch_start", 5, 5),  # before the gradients, with which it travels
            ("step_start", 7, 8),
            ("step_end", 7, 8),
            ("step_end", 4, 4),  # after an evaluation all ranks are asked once more
            ("step_end", 5, 5),  # and at the end of an epoch
            ("eval_start", 2, 2),
            ("eval_end", 2, 2),
            ("epoch_end", 5, 5),
            ("save", 3, 4),
        ],
    )
    @pytest.mark.parametrize("rank", [0, 1])
    def test_asked_on_one_rank_all_stop_at_one_step_with_a_checkpoint(
        self, two, tmp_path, event, asked, ends, rank
    ):
        """Case 74."""
        result, _, kept = settled(
            two.run(
                "ends.asked_on_one_rank",
                root=str(tmp_path),
                request="stop",
                event=event,
                step=asked,
                rank=rank,
                eval_every=2,
                save_every=3,
            )
        )
        assert (result["steps"], result["status"]) == (ends, "completed")
        assert result["reason"] == "the test says so"
        assert kept[-1:] == ([ends] if ends else [])

    def test_what_one_rank_asks_for_travels_with_the_buckets_too(self, two, tmp_path):
        result, _, kept = settled(
            two.run(
                "ends.asked_on_one_rank",
                root=str(tmp_path),
                request="stop",
                event="step_end",
                step=6,
                rank=1,
                save_every="1ep",
                driver_options={"gradient_sync": "native"},
            )
        )
        assert (result["steps"], kept) == (7, [5, 7])

    @pytest.mark.parametrize("rank", [0, 1])
    def test_a_signal_to_one_rank_interrupts_all_at_one_step(self, two, tmp_path, rank):
        result, kept = settled(two.run("ends.interrupted_rank", root=str(tmp_path), rank=rank))
        assert (result["steps"], result["status"], result["reason"]) == (
            4,
            "interrupted",
            "SIGTERM",
        )
        assert kept == [4]

    def test_the_time_is_over_on_all_ranks_at_one_step(self, two):
        (result,) = settled([[each] for each in two.run("ends.over_time", max_time=0.2)])
        assert result["status"] == "completed"
        assert result["reason"] == "trainer.max_time=0.2 s is over"
        assert 2 <= result["steps"] <= 20

    def test_no_time_is_no_step(self, two):
        (result,) = settled([[each] for each in two.run("ends.over_time", max_time=0)])
        assert (result["status"], result["steps"]) == ("completed", 0)

    def test_patience_ends_at_the_step_at_which_it_ends_on_one_device(self, two):
        alone = two.agree("ends.early_stop", alone=True)
        assert two.agree("ends.early_stop", alone=False) == alone
        assert alone[0] == 8
        assert alone[-1] == 4


@pytest.mark.parametrize("rank", [0, 1])
class TestRequests:
    @pytest.mark.parametrize(
        ("event", "asked", "saved"), [("batch_start", 3, 3), ("step_end", 3, 4), ("eval_end", 2, 2)]
    )
    def test_a_checkpoint_that_one_rank_asks_for(self, two, tmp_path, rank, event, asked, saved):
        result, _, kept = settled(
            two.run(
                "ends.asked_on_one_rank",
                root=str(tmp_path),
                request="save",
                event=event,
                step=asked,
                rank=rank,
                eval_every=2 if event == "eval_end" else None,
            )
        )
        assert kept == [saved]
        assert result["steps"] == 15

    @pytest.mark.parametrize(
        ("event", "asked", "seen"), [("batch_start", 3, 3), ("step_end", 3, 4)]
    )
    def test_an_evaluation_that_one_rank_asks_for(self, two, tmp_path, rank, event, asked, seen):
        result, evaluated, _ = settled(
            two.run(
                "ends.asked_on_one_rank",
                root=str(tmp_path),
                request="evaluate",
                event=event,
                step=asked,
                rank=rank,
                eval_every=None,
            )
        )
        assert evaluated == [seen]
        assert result["metrics"]["loss"] > 0


# -- the monitor -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("monitor", "best", "kept"), [("accuracy", 3, [3, 4]), ("-accuracy", 2, [2, 4])]
)
def test_nan_is_never_best(two, tmp_path, monitor, best, kept):
    """Case 68."""
    values = [math.nan, 0.3, 0.5, 0.4]
    found = two.agree("ends.scripted", root=str(tmp_path), values=values, monitor=monitor)
    assert (found["error"], found["best"], found["kept"]) == (None, best, kept)
    assert found["lines"] == ["accuracy has no value at step 1; this evaluation cannot be the best"]


def test_an_unknown_monitor_is_told_by_all_ranks_with_what_there_is(two, tmp_path):
    """Case 70."""
    found = two.agree("ends.scripted", root=str(tmp_path), values=[0.1, 0.2], monitor="acurracy")
    assert found["error"].startswith("ConfigError: monitor: 'acurracy'")
    assert "accuracy, loss" in found["error"]


def test_a_metric_that_is_absent_once_is_a_warning(two, tmp_path):
    """Case 70, the second part."""
    values = [0.1, None, 0.2, 0.15]
    found = two.agree("ends.scripted", root=str(tmp_path), values=values, monitor="accuracy")
    assert (found["error"], found["best"]) == (None, 3)
    assert "accuracy has no value at step 2" in found["lines"][0]


def test_a_checkpoint_has_the_evaluation_of_its_own_step(two, tmp_path):
    """Case 72."""
    found = two.agree("ends.metrics_of_checkpoints", root=str(tmp_path))
    assert found == [10.0, 20.0, 30.0]


# -- losses that are not finite --------------------------------------------------------------------


@pytest.mark.parametrize("guard", [None, "stop"])
def test_a_bad_loss_of_one_rank_ends_the_run_on_all(two, tmp_path, guard):
    """Case 113, stop."""
    found = two.agree("ends.nan_on_one_rank", root=str(tmp_path), guard=guard)
    assert found["error"].startswith("NonFiniteLossError: ")
    assert "step 12" in found["error"]
    if guard:
        assert "loss nan on samples [45, 47] of rank 1" in found["error"]
        assert "rank 0" not in found["error"]  # though the gradients of all are spoilt
    assert found["status"] == "failed"
    assert found["finite"] == {"5": True, "10": True}
    assert found["last"] == 10


def test_a_bad_loss_of_one_rank_is_left_out_on_all(two, tmp_path):
    """Case 113, skip."""
    found = two.agree("ends.nan_on_one_rank", root=str(tmp_path), guard="skip")
    assert (found["error"], found["status"], found["counts"]) == (None, "completed", [40, 1])
    assert found["finite"] == {"30": True, "35": True, "40": True}


def test_an_error_that_all_ranks_meet_leaves_them_together(two):
    error, ranks = two.agree("ends.error_on_all")
    assert "ValueError: no" in error
    assert ranks == [0, 1]
