from __future__ import annotations

import functools
import random

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.data import ArrayDataset, Data, ItemDataset, OwnSampler, Ragged, Sequential
from expkit.data.own.given import as_given


def data(sampler, n=6, **options):
    return Data({"x": np.arange(n)}, sampler=sampler, **options)


def order(sampler, epoch=0, n=6, seed=0, **ranks):
    """The samples of an epoch in their order."""
    loader = data(sampler, n, global_batch_size=2).train_loader(seed=seed, **ranks)
    return [x for w in loader.windows(epoch) for b in w.batches for x in kept(b)]


def batches(sampler, epoch=0, n=6, seed=0, start=0, accumulate=1, **ranks):
    """The samples of each micro-batch of each window."""
    loader = data(sampler, n).train_loader(seed=seed, accumulate=accumulate, **ranks)
    return [[kept(b) for b in w.batches] for w in loader.windows(epoch, start)]


def kept(batch):
    values = batch.fields["x"]
    return (values if batch.weights is None else values[batch.weights > 0]).tolist()


def flat(lists):
    return [item for each in lists for item in each]


class Shuffled:
    """Draws from the global generators."""

    def __init__(self, n=6):
        self.n = n

    def __len__(self):
        return self.n

    def __iter__(self):
        order = np.random.permutation(self.n).tolist()
        random.shuffle(order)
        return iter(order)


class Private:
    """Draws from a generator of its own, so that an epoch depends on those before it."""

    def __init__(self, n=6):
        self.n = n
        self.rng = np.random.default_rng(3)

    def __iter__(self):
        return iter(self.rng.permutation(self.n))


class Told:
    def __init__(self):
        self.epoch = 0

    def set_epoch(self, epoch):
        self.epoch = epoch

    def __iter__(self):
        return iter([(i + self.epoch) % 6 for i in range(6)])


class Batches:
    """Batches of different sizes, in another order each epoch."""

    def __init__(self, groups=((0, 1, 2), (3,), (4, 5))):
        self.groups = groups

    def __iter__(self):
        groups = [list(group) for group in self.groups]
        random.shuffle(groups)
        yield from groups


class Counted(Batches):
    def __len__(self):
        return len(self.groups)


@pytest.mark.parametrize(
    "given", [lambda: [5, 3, 1], lambda: np.array([5, 3, 1]), Told, functools.partial(Shuffled, 6)]
)
def test_what_gives_indices_is_an_order(given):
    found = order(given)
    assert found == order(given)
    assert set(found) in ({1, 3, 5}, set(range(6)))


@pytest.mark.parametrize("sampler", [Shuffled(), Private(), Told(), Private])
def test_an_order_is_a_function_of_seed_and_epoch(sampler):
    """Also when epochs are asked for in another order, and by somebody else before."""
    loader = data(sampler).train_loader(seed=1)
    found = {}
    for epoch in (0, 3, 1, 2, 3, 0):
        indices = [i for w in loader.windows(epoch) for b in w.batches for i in b.indices.tolist()]
        assert found.setdefault(epoch, indices) == indices
    assert len(set(map(tuple, found.values()))) == 4
    for epoch in (3, 0):
        assert order(sampler, epoch, seed=1) == found[epoch]


def test_an_order_follows_from_the_seed():
    assert order(Shuffled(), seed=1) != order(Shuffled(), seed=2)


def test_nothing_of_the_runs_own_is_drawn():
    np.random.seed(5)
    order(Shuffled())
    found = np.random.random()
    np.random.seed(5)
    assert found == np.random.random()


@pytest.mark.parametrize("world_size", [1, 2, 3])
def test_the_order_is_shared_out(world_size):
    ranks = [order(Shuffled(), 1, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert sorted(flat(ranks)) == list(range(6))


def test_a_stretch_is_sought():
    loader = data(Shuffled(), batch_size=2).train_loader()
    windows = [[kept(b) for b in w.batches] for w in loader.windows(4)]
    assert [[kept(b) for b in w.batches] for w in loader.windows(4, 2)] == windows[2:]


def test_a_function_gets_the_data_set_where_it_wants_one():
    def wants(data_source, step=1):
        return range(0, len(data_source), step)

    assert order(wants) == [0, 1, 2, 3, 4, 5]
    assert order(functools.partial(wants, step=2)) == [0, 2, 4]
    assert order(functools.partial(wants, data_source="ab")) == [0, 1]


def by_column(dataset):
    return np.argsort(np.asarray(dataset["y"]), kind="stable").tolist()


def by_sample(dataset):
    return sorted(range(len(dataset)), key=lambda i: (dataset[i]["y"], i))


ODD_LAST = [0, 2, 4, 1, 3, 5]
ARRAYS = {"x": np.arange(6), "y": np.arange(6) % 2}
SAMPLES = [{"x": i, "y": i % 2} for i in range(6)]


def hugging_face():
    return pytest.importorskip("datasets").Dataset.from_list(SAMPLES)


def of_a_class():
    class Samples(of_torch().Dataset):
        def __len__(self):
            return 6

        def __getitem__(self, i):
            return SAMPLES[i]

    return Samples()


@pytest.mark.parametrize(
    ("made", "function"),
    [
        (lambda: ARRAYS, by_column),
        (lambda: ARRAYS, by_sample),
        (lambda: (ARRAYS["x"], ARRAYS["y"]), by_column),
        (lambda: {"x": Ragged.of([[1]] * 6), "y": ARRAYS["y"]}, by_sample),
        (lambda: SAMPLES, by_sample),
        (lambda: ItemDataset(SAMPLES), by_sample),
        (of_a_class, by_sample),
        (hugging_face, by_column),
        (hugging_face, by_sample),
    ],
)
def test_a_function_works_on_the_set_that_its_user_knows(made, function):
    loader = Data(made(), sampler=function).train_loader()
    assert [i for w in loader.windows(0) for b in w.batches for i in b.indices] == ODD_LAST


@pytest.mark.parametrize("samples", [SAMPLES, of_a_class])
def test_a_function_gets_the_very_object(samples):
    given = samples() if callable(samples) else samples

    def is_given(dataset):
        return range(len(dataset)) if dataset is given else []

    assert len(list(Data(given, sampler=is_given).train_loader().windows(0))) == 1


def test_columns_are_a_dict_that_counts_its_samples():
    columns = as_given(ArrayDataset({**ARRAYS, "r": Ragged.of([[1] * n for n in range(6)])}))
    assert len(columns) == len(list(columns)) == 6
    assert "y" in columns
    assert columns.keys() == ["x", "y", "r"]
    assert [name for name, _ in columns.items()] == columns.keys()
    assert [len(column) for column in columns.values()] == [6, 6, 6]
    assert columns[3]["r"].tolist() == [1, 1, 1]
    assert columns[np.array([1, 3])]["y"].tolist() == [1, 1]


def test_a_data_set_that_a_sampler_holds_is_not_copied():
    class Uncopyable(list):
        def __deepcopy__(self, memo):
            raise AssertionError

    class Holds(Private):
        def __init__(self, data_source):
            super().__init__(len(data_source))
            self.data_source = data_source

    items = Uncopyable({"x": i} for i in range(6))
    loader = Data(ItemDataset(items), sampler=Holds(items)).train_loader()
    (window,) = loader.windows(0)
    assert sorted(kept(window.batches[0])) == list(range(6))


def test_a_sampler_that_cannot_be_copied_is_refused():
    class Uncopyable(Private):
        def __deepcopy__(self, memo):
            raise TypeError("no copies")

    with pytest.raises(ConfigError, match="Uncopyable cannot be copied") as caught:
        order(Uncopyable())
    assert "_partial_: true" in str(caught.value)
    assert len(order(Uncopyable)) == 6


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ([], "gave nothing"),
        ([1.5], "allowed: integers"),
        (["a"], "gave lists and numbers|allowed: integers"),
        ([[0], 1], "gave lists and numbers"),
        ([[0], []], "or an empty list"),
        ([0, 9], "gave index 9; allowed: 0 to 5"),
        ([[0, 9]], "gave index 9; allowed: 0 to 5"),
    ],
)
def test_what_is_no_order_is_refused(given, message):
    with pytest.raises(DataError, match=message):
        batches(lambda: given)


def test_epochs_of_different_lengths_are_refused():
    class Growing(Told):
        def __iter__(self):
            return iter(range(3 + self.epoch))

    assert order(Growing()) == [0, 1, 2]
    with pytest.raises(DataError, match="gave 4 indices in epoch 2 and 3 in the first"):
        order(Growing(), epoch=1)


@pytest.mark.parametrize("given", [3, [0, 1], "ab", np.arange(3)])
def test_what_is_no_sampler_is_refused(given):
    name = type(given).__name__
    with pytest.raises(ConfigError, match=f"sampler: is a {name}; allowed: a subclass") as caught:
        data(given)
    assert "or a sampler or batch sampler of torch's or Paddle's kind" in str(caught.value)


def test_a_sampler_that_fails_is_named():
    class Broken(Told):
        def __iter__(self):
            raise ValueError("no dice")

    with pytest.raises(DataError, match="sampler Broken failed: ValueError: no dice"):
        order(Broken())


@pytest.mark.parametrize(("given", "name"), [(lambda: 5, "<lambda>"), (int, "int")])
def test_a_function_that_gives_no_sampler_is_named(given, name):
    with pytest.raises(ConfigError, match=f"sampler: {name} gave {given()}; allowed: an iterable"):
        order(given)


def test_a_function_that_fails_is_named():
    with pytest.raises(ConfigError, match="sampler: cannot be made: ZeroDivisionError"):
        order(lambda: 1 / 0)


@pytest.mark.parametrize("name", ["num_replicas", "nranks"])
def test_a_distributed_sampler_is_refused(name):
    sampler = Shuffled()
    setattr(sampler, name, 2)
    for given in (sampler, lambda: sampler):
        with pytest.raises(ConfigError, match="shares the samples out to 2 ranks, which expkit"):
            order(given)


# -- batch samplers -------------------------------------------------------------------------------


def test_batches_stay_as_they_are():
    found = batches(Batches())
    assert sorted(map(tuple, flat(found))) == [(0, 1, 2), (3,), (4, 5)]
    assert batches(Batches(), seed=2) != found


def test_a_step_is_as_many_batches_as_are_accumulated():
    one_by_one = batches(Batches())
    assert batches(Batches(), accumulate=2) == [[*one_by_one[0], *one_by_one[1]], one_by_one[2]]
    loader = data(Batches()).train_loader(accumulate=2)
    sizes = [sum(map(len, window)) for window in batches(Batches(), accumulate=2)]
    assert [window.weight for window in loader.windows(0)] == sizes


@pytest.mark.parametrize("world_size", [2, 3, 4])
def test_each_rank_takes_its_share_of_every_batch(world_size):
    alone = batches(Batches(), epoch=1)
    ranks = [
        batches(Batches(), epoch=1, rank=rank, world_size=world_size) for rank in range(world_size)
    ]
    for step, (whole,) in enumerate(alone):
        shares = [rank[step][0] for rank in ranks]
        assert sorted(flat(shares)) == whole
    for rank in range(world_size):
        loader = data(Batches()).train_loader(rank=rank, world_size=world_size)
        windows = list(loader.windows(1))
        assert [w.weight for w in windows] == [float(len(whole)) for (whole,) in alone]
        shares = [-(-len(whole) // world_size) for (whole,) in alone]
        assert [len(w.batches[0].fields["x"]) for w in windows] == shares


def test_batches_are_sought():
    assert batches(Batches(), epoch=2, start=2) == batches(Batches(), epoch=2)[2:]


@pytest.mark.parametrize(("sampler", "steps"), [(Batches(), None), (Counted(), 2)])
def test_an_epoch_has_a_length_where_the_sampler_has_one(sampler, steps):
    loader = data(sampler).train_loader(accumulate=2)
    assert loader.steps_per_epoch == steps
    ends = [window.ends_epoch for window in loader.windows(0)]
    assert ends == [False, steps is None]


@pytest.mark.parametrize("options", [{"global_batch_size": 8}, {"drop_last": True}])
def test_sizes_beside_a_batch_sampler_are_refused(options):
    made = data(Batches(), **options)
    (key,) = options
    with pytest.raises(ConfigError, match=f"{key}: has no effect: the sampler makes the batches"):
        made.train_loader()


def test_a_length_that_is_not_true_is_told():
    class Wrong(Batches):
        def __len__(self):
            return 9

    with pytest.raises(DataError, match="has 9 batches by its length, but gave 3 in epoch 1"):
        batches(Wrong())


def test_an_epoch_ends_at_the_limit():
    loader = data(Counted()).train_loader(limit_batches=2)
    assert loader.steps_per_epoch == 2
    assert [[kept(b) for b in w.batches] for w in loader.windows(0)] == batches(Counted())[:2]


def test_random_augmentation_follows_the_sample_and_not_the_ranks():
    class Noisy(list):
        def __getitem__(self, index):
            return {"x": index, "noise": np.random.random()}

    def noise(**ranks):
        sets = Data(Noisy(range(6)), sampler=Batches())
        loader = sets.train_loader(**ranks)
        found = {}
        for window in loader.windows(1):
            for batch in window.batches:
                found |= dict(zip(kept(batch), batch.fields["noise"].tolist(), strict=False))
        return found

    alone = noise()
    assert len(set(alone.values())) == 6
    assert noise(rank=0, world_size=2) | noise(rank=1, world_size=2) == alone


def test_workers_read_the_same_batches():
    with_workers = Data([{"x": i} for i in range(6)], sampler=Batches(), num_workers=2)
    loader = with_workers.train_loader(accumulate=2)
    try:
        found = [[kept(b) for b in w.batches] for w in loader.windows(1)]
    finally:
        with_workers.close()
    assert found == batches(Batches(), epoch=1, accumulate=2)


# -- the frameworks' ------------------------------------------------------------------------------


def of_torch():
    return pytest.importorskip("torch").utils.data


def of_paddle():
    return pytest.importorskip("paddle").io


@pytest.mark.parametrize("framework", [of_torch, of_paddle])
@pytest.mark.parametrize("world_size", [1, 2])
def test_a_weighted_sampler_draws_what_has_a_weight(framework, world_size):
    """Case 40: each rank its share, and never a sample whose weight is 0."""
    sampler = framework().WeightedRandomSampler([0.0, 0.0, 1.0, 1.0], 100)
    ranks = [order(sampler, 0, 4, rank=rank, world_size=world_size) for rank in range(world_size)]
    assert [len(rank) for rank in ranks] == [100 // world_size] * world_size
    assert set(flat(ranks)) == {2, 3}
    assert order(sampler, 1, 4) != order(sampler, 0, 4)


@pytest.mark.parametrize("framework", [of_torch, of_paddle])
def test_an_order_of_a_framework_is_a_function_of_seed_and_epoch(framework):
    module = framework()
    made = [module.RandomSampler(range(50)), module.RandomSampler]
    orders = [order(sampler, epoch, 50) for sampler in made for epoch in (3, 0, 3)]
    assert orders[0] == orders[2] == orders[3] == orders[5]
    assert orders[1] == orders[4] != orders[0]
    assert order(made[0], 0, 50, seed=1) != orders[1]


def test_a_generator_of_its_own_is_seeded():
    torch = pytest.importorskip("torch")
    sampler = torch.utils.data.RandomSampler(range(50), generator=torch.Generator())
    assert order(sampler, 3, 50) == order(sampler, 3, 50)
    assert order(sampler, 3, 50) != order(sampler, 4, 50)


@pytest.mark.parametrize("framework", [of_torch, of_paddle])
def test_a_batch_sampler_may_be_told_how_to_make_what_it_asks(framework):
    module = framework()
    options = {"batch_size": 4, "drop_last": False}
    inner = functools.partial(module.RandomSampler)
    made = module.BatchSampler(sampler=module.RandomSampler(range(10)), **options)
    deferred = functools.partial(module.BatchSampler, sampler=inner, **options)
    assert batches(deferred, 1, 10) == batches(made, 1, 10) == batches(deferred, 1, 10)
    assert data(deferred, 10).train_loader().steps_per_epoch == 3


def test_a_batch_sampler_that_is_made_already_may_be_too():
    module = of_torch()
    given = module.BatchSampler(functools.partial(module.RandomSampler), 4, False)
    made = module.BatchSampler(module.RandomSampler(range(10)), 4, False)
    assert batches(given, 1, 10) == batches(made, 1, 10)
    assert callable(given.sampler)
    nested = module.BatchSampler(functools.partial(Private, 10), 4, False)
    assert batches(nested, 2, 10) == batches(module.BatchSampler(Private(10), 4, False), 2, 10)


@pytest.mark.parametrize("framework", [of_torch, of_paddle])
def test_a_batch_sampler_of_a_framework_keeps_its_batches(framework):
    module = framework()
    inner = module.RandomSampler(range(10))
    sampler = module.BatchSampler(sampler=inner, batch_size=4, drop_last=False)
    found = [len(batch) for window in batches(sampler, 2, 10) for batch in window]
    assert found == [4, 4, 2]
    assert data(sampler, 10).train_loader().steps_per_epoch == 3
    assert batches(sampler, 2, 10) == batches(sampler, 2, 10) != batches(sampler, 1, 10)


def test_a_batch_sampler_is_made_with_the_data_set():
    made = functools.partial(of_paddle().BatchSampler, batch_size=4, shuffle=True)
    assert [len(batch) for window in batches(made, 0, 10) for batch in window] == [4, 4, 2]


def test_a_users_sampler_in_a_batch_sampler_of_a_framework_is_asked_in_turn():
    sampler = of_torch().BatchSampler(Private(10), 4, False)
    later = batches(sampler, 2, 10)
    assert later == batches(sampler, 2, 10)
    assert later != batches(sampler, 1, 10)


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_distributed_samplers_of_the_frameworks_are_refused(framework):
    if framework == "torch":
        sampler = of_torch().DistributedSampler(range(10), 2, 0)
    else:
        sampler = of_paddle().DistributedBatchSampler(range(10), 2, 2, 0)
    with pytest.raises(ConfigError, match="shares the samples out to 2 ranks"):
        order(sampler, 0, 10)


def test_a_bound_sampler_leaves_the_given_one_as_it_is():
    own = OwnSampler(Private())
    first = data(own).train_loader()
    other = data(own, 6).train_loader(seed=4)
    expected = [kept(b) for w in first.windows(1) for b in w.batches]
    list(other.windows(2))
    assert [kept(b) for w in first.windows(1) for b in w.batches] == expected
    assert isinstance(data(Sequential())._sampler, Sequential)
