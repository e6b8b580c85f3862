from __future__ import annotations

import random

import numpy as np
import pytest

from expkit.core.seeding import (
    derive_seed,
    host_rng_state,
    load_host_rng_state,
    seed_host,
    untouched_host_rng,
)


def draws():
    return random.random(), random.gauss(0, 1), np.random.rand(), np.random.normal()


def test_seeds_are_the_same_on_every_machine():
    assert derive_seed(0, "sampler", 0) == 443940631268256615
    assert derive_seed(7, "rank", 3) == 4033288560404462469


def test_every_stream_has_its_own_seed_in_range():
    seeds = {
        derive_seed(seed, name, number)
        for seed in range(20)
        for name in ("sampler", "rank", "init")
        for number in range(20)
    }
    assert len(seeds) == 1200
    assert all(0 <= seed < 2**63 for seed in seeds)


def test_names_do_not_run_into_each_other():
    assert derive_seed(1, "a", 23) != derive_seed(1, "a", 2, 3)
    assert derive_seed(1, 2) != derive_seed(12)


@pytest.mark.parametrize("seed", [0, 1, 2**63 - 1])
def test_seeding_repeats_the_draws_of_both_generators(seed):
    seed_host(seed)
    first = draws()
    seed_host(seed)
    assert draws() == first


def test_a_state_comes_back_in_the_middle_of_a_pair_of_normal_draws():
    seed_host(0)
    random.gauss(0, 1)
    np.random.normal()
    state = host_rng_state()
    first = draws()
    load_host_rng_state(state)
    assert draws() == first


def test_draws_inside_leave_no_trace_even_after_an_error():
    seed_host(0)
    first = draws()
    seed_host(0)

    def draw_and_fail():
        with untouched_host_rng():
            draws()
            raise ValueError("no")

    with pytest.raises(ValueError, match="no"):
        draw_and_fail()
    assert draws() == first
