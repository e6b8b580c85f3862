from __future__ import annotations

import random
import sys

import numpy as np
import pytest

from expkit.core.errors import DataError
from expkit.data import Collate, Data, ItemDataset, sample_seeds
from expkit.data.generators import generators
from expkit.data.randomness import Habits, seeds_at


class Drawing:
    """Each sample is its index, and what the generators give while it is read."""

    def __init__(self, n=60, draw=lambda i: [random.random(), float(np.random.rand())]):
        self.n, self.draw, self.reads = n, draw, []

    def __len__(self):
        return self.n

    def __getitem__(self, i):
        self.reads.append(i)
        return {"i": i, "drawn": np.array(self.draw(i), dtype=np.float64)}


def drawn(batches):
    """What was drawn for each sample, by index."""
    return {
        int(i): row.tolist()
        for batch in batches
        for i, row in zip(batch.fields["i"], batch.fields["drawn"], strict=True)
    }


def trained(data, epoch=0, start=0, **options):
    return drawn(b for w in data.train_loader(**options).windows(epoch, start) for b in w.batches)


def states():
    return [each.mark() for each in generators()]


def test_each_sample_of_each_epoch_has_draws_of_its_own():
    data = Data(Drawing(), batch_size=7)
    values = [v for epoch in (0, 1) for row in trained(data, epoch).values() for v in row]
    assert len(set(values)) == 4 * 60
    assert trained(data, 0) != trained(data, 0, seed=1)


@pytest.mark.parametrize("batch_size", [1, 4, 60])
def test_draws_depend_on_neither_batches_nor_accumulation_nor_where_reading_begins(batch_size):
    expected = trained(Data(Drawing(), batch_size=7))
    data = Data(Drawing(), batch_size=batch_size)
    assert trained(data) == expected
    assert trained(data, accumulate=3) == expected
    rest = trained(data, start=data.train_loader().steps_per_epoch // 2)
    assert rest.items() <= expected.items()


@pytest.mark.parametrize("world_size", [2, 3, 7])
def test_draws_do_not_depend_on_the_number_of_ranks(world_size):
    n = 61
    expected = trained(Data(Drawing(n), batch_size=7))
    parts = [
        trained(Data(Drawing(n), batch_size=2), rank=rank, world_size=world_size)
        for rank in range(world_size)
    ]
    assert {i: row for part in parts for i, row in part.items()} == expected


def test_evaluation_draws_the_same_each_time_and_other_numbers_for_each_set_and_seed():
    data = Data(None, {"a": Drawing(), "b": Drawing()}, eval_batch_size=16)
    loaders = data.eval_loaders()
    first = drawn(loaders["a"].batches())
    assert drawn(loaders["a"].batches()) == first
    assert drawn(data.eval_loaders()["a"].batches()) == first
    assert drawn(Data(None, {"a": Drawing()}).eval_loaders()["a"].batches()) == first
    assert drawn(loaders["b"].batches()) != first
    assert drawn(data.eval_loaders(seed=1)["a"].batches()) != first
    assert trained(Data(Drawing())) != first


def test_evaluation_in_between_changes_nothing():
    data = Data(Drawing(), Drawing(), batch_size=7)
    expected = trained(data)
    found = {}
    for window in data.train_loader().windows(0):
        found |= drawn(window.batches)
        for _ in data.eval_loaders()[""].batches():
            random.random()
            np.random.rand(5)
    assert found == expected


def test_generators_of_the_run_stay_as_they_are():
    for framework in ("torch", "paddle"):
        pytest.importorskip(framework)
    torch, paddle = sys.modules["torch"], sys.modules["paddle"]

    def draw(i):
        frameworks = [torch.rand(1).item(), paddle.rand([1]).item()]
        return [random.gauss(0, 1), np.random.normal(), *frameworks]

    np.random.normal()  # one normal number is kept back
    data = Data(Drawing(draw=draw), Drawing(draw=draw), batch_size=8)
    before = states()
    expected = trained(data)
    assert len({v for row in expected.values() for v in row}) == 4 * 60
    drawn(data.eval_loaders()[""].batches())
    data.train.fetch(np.arange(3))
    assert states() == before
    random.seed(5), np.random.seed(5), torch.manual_seed(5), paddle.seed(5)
    assert trained(data) == expected


def test_failed_reading_leaves_the_generators_too():
    def draw(i):
        np.random.rand(), random.random()
        raise ValueError("no")

    before = states()
    with pytest.raises(DataError, match="cannot be read: ValueError: no"):
        trained(Data(Drawing(draw=draw)))
    assert states() == before


def test_draws_that_begin_late_are_the_same_as_if_all_had_been_seeded():
    """A generator that stood still so far is not seeded; when it moves, the batch is read again."""

    def draw(i):
        if i % 10 == 3:
            random.random()
        return [np.random.rand() if i % 10 == 7 else 0.0, random.random() if i % 10 == 3 else 0.0]

    one_by_one = trained(Data(Drawing(draw=draw), batch_size=1))
    assert trained(Data(Drawing(draw=draw), batch_size=4)) == one_by_one
    assert trained(Data(Drawing(draw=draw), batch_size=60)) == one_by_one


def test_habits_read_again_only_when_an_unseeded_generator_has_moved():
    habits, seeds, reads = Habits(), np.array([5], dtype=np.int64), []

    def fetch(number_drawn):
        reads.append(number_drawn)
        return [random.random() for _ in range(number_drawn)]

    before = random.getstate()
    assert habits.read(lambda: fetch(0), seeds) == []
    assert habits.read(lambda: fetch(0), seeds) == []
    assert reads == [0, 0]
    first = habits.read(lambda: fetch(2), seeds)
    assert reads == [0, 0, 2, 2]
    assert habits.read(lambda: fetch(2), seeds) == first == Habits().read(lambda: fetch(2), seeds)
    assert reads == [0, 0, 2, 2, 2, 2]
    assert random.getstate() == before


def test_error_that_hangs_on_an_unseeded_draw_is_not_believed():
    habits, seeds = Habits(), np.array([5], dtype=np.int64)
    habits.read(lambda: None, seeds)
    random.seed(0)
    unseeded = random.random()
    random.seed(0)

    def fetch():
        value = random.random()
        if value == unseeded:
            raise ValueError("a draw that should not have been")
        return value

    assert habits.read(fetch, seeds) == Habits().read(random.random, seeds)


def test_data_sets_that_draw_nothing_are_read_once():
    source = Drawing(draw=lambda i: [0.0])
    trained(Data(source, batch_size=7))
    assert sorted(source.reads) == list(range(60))


def test_own_generators_get_a_seed_of_each_sample():
    def draw(i):
        [seed] = sample_seeds()
        return [np.random.default_rng(seed).random()]

    class Whole:
        def __len__(self):
            return 60

        def fetch(self, indices):
            seeds = sample_seeds()
            rows = [[np.random.default_rng(seed).random()] for seed in seeds]
            return {"i": indices, "drawn": np.array(rows)}

    found = trained(Data(Drawing(draw=draw), batch_size=7))
    assert len({row[0] for row in found.values()}) == 60
    assert trained(Data(Whole(), batch_size=8)) == found
    with pytest.raises(RuntimeError, match="no sample is being read"):
        sample_seeds()


def test_collate_functions_draw_by_the_batch_and_not_what_its_samples_drew():
    def collate(samples):
        assert len(sample_seeds()) == len(samples)
        drawn = [[*s["drawn"], random.random(), np.random.rand()] for s in samples]
        return {"i": np.array([s["i"] for s in samples]), "drawn": np.array(drawn)}

    data = Data(Drawing(), batch_size=6, collate=collate)
    found = trained(data)
    assert len({v for row in found.values() for v in row}) == 4 * 60
    assert trained(data) == found


def test_lists_of_samples_are_not_seeded_for():
    assert not ItemDataset([1, 2]).draws
    assert not ItemDataset([1, 2], Collate()).draws
    assert ItemDataset([1, 2], lambda samples: {}).draws
    assert ItemDataset(Drawing()).draws


def test_seeds_are_those_of_splitmix64_and_frozen():
    words = [0xE220A8397B1DCDAF, 0x6E789E6AA1B965F4, 0x06C45D188009454F]  # of the seed 0
    assert seeds_at(0, np.arange(3)).tolist() == [word >> 1 for word in words]
    far = seeds_at(2**63 - 1, np.array([2**62, 7]))
    assert far.dtype == np.int64
    assert (far >= 0).all()
    assert far[1] == seeds_at(2**63 - 1, np.arange(8))[7]
