from __future__ import annotations

import random

import numpy as np
import pytest

from expkit.data.generators import generators
from expkit.data.randomness import untouched_generators

torch = pytest.importorskip("torch")
paddle = pytest.importorskip("paddle")

DRAWS = {
    "random": random.random,
    "gauss": lambda: random.gauss(0, 1),
    "rand": np.random.rand,
    "normal": np.random.normal,
    "torch": lambda: torch.rand(1).item(),
    "paddle": lambda: paddle.rand([1]).item(),
}


@pytest.fixture(autouse=True)
def _untouched():
    with untouched_generators():
        yield


def test_the_generators_are_those_of_python_numpy_torch_and_paddle():
    assert len(generators()) == 4
    assert generators() == generators()


@pytest.mark.parametrize("name", DRAWS)
@pytest.mark.parametrize("drawn_before", [0, 1, 2, 623, 624, 625])
def test_state_comes_back_and_the_mark_moves_with_each_draw(name, drawn_before):
    draw = DRAWS[name]
    for _ in range(drawn_before):
        draw()
    before = [(each, each.state(), each.mark()) for each in generators()]
    assert [each.mark() for each in generators()] == [mark for _, _, mark in before]
    first = [draw() for _ in range(5)]
    assert sum(each.mark() != mark for each, _, mark in before) == 1
    for each, state, _ in before:
        each.load(state)
    assert [each.mark() for each in generators()] == [mark for _, _, mark in before]
    assert [draw() for _ in range(5)] == first


@pytest.mark.parametrize("name", DRAWS)
def test_seeds_decide_what_is_drawn(name):
    values = []
    for seed in (3, 2**63 - 1, 3):
        for each in generators():
            each.seed(seed)
        values.append(DRAWS[name]())
    assert values[0] == values[2] != values[1]


def test_a_normal_number_that_is_kept_back_is_kept_over_other_draws():
    np.random.seed(0)
    expected = np.random.normal(size=4).tolist()
    np.random.seed(0)
    found = [np.random.normal()]
    with untouched_generators():
        np.random.seed(1)
        np.random.normal(size=3)
    found += np.random.normal(size=3).tolist()
    assert found == expected


def test_another_bit_generator_of_numpy_is_taken_as_it_is():
    before = np.random.get_bit_generator()
    np.random.set_bit_generator(np.random.PCG64(5))
    try:
        with untouched_generators():
            first = np.random.rand(3).tolist()
        assert np.random.rand(3).tolist() == first
    finally:
        np.random.set_bit_generator(before)
