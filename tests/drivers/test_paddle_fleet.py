"""paddle_fleet: the facts about drivers of several ranks, and what only it has."""

from __future__ import annotations

from typing import ClassVar

import pytest

pytest.importorskip("paddle")

from expkit.core.errors import ConfigError
from expkit.testing import RanksError
from tests.drivers import factories_paddle
from tests.drivers.suites import OnPaddle

pytestmark = pytest.mark.slow


class TestFlatOnTwo(OnPaddle):
    world_size = 2
    options: ClassVar = {"gradient_sync": "flat"}


class TestNativeOnTwo(OnPaddle):
    world_size = 2
    options: ClassVar = {"gradient_sync": "native"}


class TestFlatOnThree(OnPaddle):
    world_size = 3
    options: ClassVar = {"gradient_sync": "flat"}


@pytest.fixture
def framework():
    return "paddle"


def test_sparse_gradients_are_refused(two):
    assert "sparse=False" in two.agree("on_paddle_ranks.sparse")


# -- waiting ---------------------------------------------------------------------------------------


def test_nobody_is_in_a_collective_of_gloo_before_the_last_has_come(two):
    """Gloo gives up after 30 seconds, however long rank 0 is busy; where ranks meet, none does."""
    main, other = two.run("on_paddle_ranks.calls_of_paddle", seconds=0.1)
    came, called = main.pop("broadcast_tensors")
    _, others = other.pop("broadcast_tensors")
    assert min(called + others) >= came
    assert [called for _, called in [*main.values(), *other.values()]] == [[]] * 8


def test_waiting_ends_with_an_error_when_a_rank_does_not_come_in_time(doomed):
    _, error = doomed.run("on_paddle_ranks.late", limit_s=0.5)
    assert "barrier: rank 1 of 2 waited for 0.5 s" in error
    assert "driver.timeout_s" in error


def test_waiting_ends_at_once_when_rank_0_is_gone(doomed):
    with pytest.raises(RanksError) as caught:
        doomed.run("on_paddle_ranks.main_leaves", settle_s=20.0)
    assert "rank 0 is gone" in caught.value.results[1]


# -- fleet -----------------------------------------------------------------------------------------


def test_a_role_maker_of_the_user_starts_fleet(unjoined):
    assert unjoined.run("on_paddle_ranks.role_maker") == [[True, 0, 2], [True, 1, 2]]


def test_the_wrapper_never_lets_ranks_drift_apart_by_a_parameter_used_on_one_rank(doomed):
    try:
        found = doomed.run("used_on_one_rank", sync="native", unused=False, settle_s=20.0)
        errors = [error for error, _ in found]
    except RanksError as died:
        errors = [*died.failures.values()]
    texts = [error for error in errors if isinstance(error, str)]
    assert any("b.weight" in text or "died" in text for text in texts), errors


def test_options_of_fleet_and_of_the_wrapper_reach_the_wrapper(two):
    mega = 2**20
    asked = [
        [2600, {}],
        [8, both({"last_comm_buffer_size": 0.5}, {"fuse_grad_size_in_MB": 3})],
        [2600, both({}, {"find_unused_parameters": True})],
    ]
    assert two.agree("choices", asked=asked) == [
        ["NativeExchange", 25 * mega, mega],
        ["NativeExchange", 3 * mega, mega // 2],
        ["FlatExchange"],
    ]


def both(data_parallel, strategy):
    return {"data_parallel": data_parallel, "fleet": {"strategy": strategy}}


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"data_parallel": {"group": None}}, "driver.data_parallel.group"),
        ({"fleet": {"is_collective": False}}, "parameter servers"),
        ({"fleet": {"role_maker": "me"}}, "driver.fleet.role_maker"),
        ({"fleet": {"strategy": {"amp": True}}}, "driver.precision=fp16"),
        (
            {"fleet": {"strategy": {"hybrid_configs": {"mp_degree": 2}}}},
            "allowed: fuse_grad_size_in_MB, last_comm_group_size_MB, find_unused_parameters",
        ),
        (
            {"fleet": {"strategy": {"fuse_grad_size_in_MB": "large"}}},
            "driver.fleet.strategy.fuse_grad_size_in_MB: is 'large'",
        ),
        ({"fleet": {"maker": 1}}, "driver.fleet.maker"),
        (
            {"gradient_sync": "flat", "fleet": {"strategy": {"fuse_grad_size_in_MB": 1}}},
            "driver.fleet.strategy: has no effect",
        ),
    ],
)
def test_options_that_are_wrong_or_without_effect_are_refused(options, said):
    with pytest.raises(ConfigError) as caught:
        factories_paddle.replicated(**options)
    assert said in str(caught.value)
