from __future__ import annotations

import inspect

import pytest

from expkit.core.errors import ExpkitError
from expkit.testing import DistributedSuite, RankPool

FACTORIES = "tests.testing.socket_driver:"


class OnSockets(DistributedSuite):
    framework = "torch"
    driver_factory = FACTORIES + "make_driver"
    single_factory = FACTORIES + "make_single_driver"
    model_factory = FACTORIES + "make_model"
    norm = "none"  # the NumPy models have no batch normalisation


class TestTwoRanks(OnSockets):
    world_size = 2


class TestThreeRanks(OnSockets):
    world_size = 3


FAULTS = {
    "mean": [
        "ranks_together_equal_one_process_on_the_same_samples",
        "unequal_shards_give_the_exact_mean",
        "gradients_are_the_sums_that_numpy_makes",
        "a_rank_whose_samples_all_weigh_nothing_changes_nothing",
        "labels_that_do_not_count_leave_the_mean_exact",
    ],
    "each micro-batch": [
        "a_window_over_ranks_equals_a_large_batch",
        "nothing_is_sent_before_the_last_micro_batch",
    ],
    "clips parts": ["clip_returns_the_norm_before_clipping_on_all_ranks"],
    "evaluates together": ["evaluation_leaves_no_trace_and_asks_no_other_rank"],
    "same seed": ["random_numbers_differ_by_rank_and_resume"],
    "own weights": ["all_ranks_begin_with_the_weights_of_rank_0"],
    "prefix": [
        "state_keys_are_parameter_paths_on_ranks_too",
        "a_state_of_ranks_loads_in_one_process_and_back",
    ],
    "float32": [
        "integers_are_reduced_exactly",
        "floating_point_numbers_are_reduced_in_float64",
        "arrays_of_any_shape_are_reduced",
    ],
    "order": ["values_are_gathered_in_the_order_of_ranks"],
    "source": ["every_rank_can_broadcast"],
    "no barrier": ["a_barrier_waits_for_the_last"],
    "own flags": ["flags_travel_with_the_gradients"],
}
ARGUMENTS = {
    "optimizer": {"name": "sgd", "lr": 0.1},
    "parts": 2,
    "shape": (2,),
}


@pytest.fixture(scope="module")
def whole_pool():
    with RankPool("torch", 2) as pool:
        yield pool


@pytest.mark.parametrize(
    ("fault", "fact"), [(fault, fact) for fault, facts in FAULTS.items() for fact in facts]
)
def test_each_fault_of_a_driver_is_found_by_the_fact_about_it(whole_pool, fault, fact):
    suite = type("Faulty", (OnSockets,), {"world_size": 2, "options": {"fault": fault}})()
    check = getattr(suite, f"test_{fact}")
    names = inspect.signature(check).parameters
    arguments = {name: value for name, value in ARGUMENTS.items() if name in names}
    if whole_pool.is_broken:
        whole_pool.restart()
    with pytest.raises((AssertionError, ExpkitError)):
        check(whole_pool, **arguments)
