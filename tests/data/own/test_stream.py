from __future__ import annotations

import functools
import itertools
import random

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.data import (
    Collate,
    Data,
    OwnLoader,
    Pad,
    Random,
    Sequential,
    Sorted,
    Stream,
    sample_seeds,
)


def counting(n):
    """A generator function of ``n`` samples that tell their number."""

    def stream():
        for i in range(n):
            yield {"x": np.float32(i)}

    return stream


class Shuffled:
    """Draws its order from Python's generator, and something for each sample from NumPy's."""

    def __init__(self, n=10):
        self.n = n
        self.epochs = []

    def set_epoch(self, epoch):
        self.epochs.append(epoch)

    def __iter__(self):
        order = list(range(self.n))
        random.shuffle(order)
        for i in order:
            yield {"x": i, "draw": np.random.random()}


class Resumable:
    """Keeps its own position; ``reads`` tells what was read."""

    def __init__(self, n):
        self.n = n
        self.start = self.next = 0
        self.reads = []

    def __iter__(self):
        start, self.start = self.start, 0
        for i in range(start, self.n):
            self.reads.append(i)
            self.next = i + 1
            yield {"x": np.float32(i), "draw": np.random.random()}

    def state_dict(self):
        return {"next": self.next}

    def load_state_dict(self, state):
        self.start = state["next"]


def rows(windows, field="x"):
    """What each micro-batch of each window holds, without samples of weight 0."""
    return [[kept(batch, field) for batch in window.batches] for window in windows]


def kept(batch, field="x"):
    values = batch.fields[field]
    return (values if batch.weights is None else values[batch.weights > 0]).tolist()


def whole(ranks):
    """The samples of each window over all ranks, in their order."""
    return [
        sorted(itertools.chain.from_iterable(itertools.chain.from_iterable(parts)))
        for parts in zip(*ranks, strict=True)
    ]


# -- training -------------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 2, 7, 12, 13, 24, 25])
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize(
    "options", [{"batch_size": 3}, {"global_batch_size": 7}, {"batch_size": 2, "drop_last": True}]
)
@pytest.mark.parametrize("accumulate", [1, 2])
@pytest.mark.parametrize("limit", [None, 3])
def test_a_stream_is_cut_like_a_set_of_known_length(n, world_size, options, accumulate, limit):
    for rank in range(world_size):
        common = {"rank": rank, "world_size": world_size, "accumulate": accumulate}
        common["limit_batches"] = limit
        by_index = Data({"x": np.arange(n, dtype=np.float32)}, sampler=Sequential(), **options)
        streamed = Data(counting(n), **options).train_loader(**common)
        try:
            expected = list(by_index.train_loader(**common).windows(0))
        except DataError:
            with pytest.raises(DataError, match="drop_last"):
                list(streamed.windows(0))
            continue
        found = list(streamed.windows(0))
        assert rows(found) == rows(expected)
        assert [w.weight for w in found] == [w.weight for w in expected]
        shapes = [[b.fields["x"].shape for b in w.batches] for w in expected]
        assert [[b.fields["x"].shape for b in w.batches] for w in found] == shapes
        sizes = [[b.size for b in w.batches] for w in expected]
        assert [[b.size for b in w.batches] for w in found] == sizes
        assert [w.ends_epoch for w in found] == [False] * (len(found) - 1) + [True]


def test_indices_tell_the_place_in_the_stream():
    loader = Data(counting(10), batch_size=2).train_loader(rank=1, world_size=2)
    assert [b.indices.tolist() for w in loader.windows(0) for b in w.batches] == [
        [1, 3],
        [5, 7],
        [9],
    ]


def test_a_share_that_is_one_short_ends_with_a_repeat_of_weight_0():
    loader = Data(counting(5), global_batch_size=5).train_loader(rank=1, world_size=2)
    (window,) = loader.windows(0)
    (batch,) = window.batches
    assert window.weight == 5.0
    assert batch.weights.tolist() == [1, 1, 0]
    assert batch.fields["x"].tolist() == [1, 3, 0]


def test_a_stream_has_no_number_of_steps():
    loader = Data(counting(10), batch_size=3).train_loader(accumulate=2)
    assert loader.steps_per_epoch is None
    assert loader.signature == {"samples_per_epoch": None, "samples_per_step": 6, "seed": 0}


def test_only_one_sample_is_read_ahead():
    source = Resumable(10)
    windows = Data(source, batch_size=3).train_loader().windows(0)
    next(windows)
    assert source.reads == [0, 1, 2, 3]


def test_nothing_is_read_behind_a_limit():
    source = Resumable(10)
    (window,) = Data(source, batch_size=3).train_loader(limit_batches=1).windows(0)
    assert window.ends_epoch
    assert source.reads == [0, 1, 2]


def test_the_epoch_is_told():
    source = Shuffled()
    loader = Data(source).train_loader()
    for epoch in (0, 1, 5):
        list(loader.windows(epoch))
    assert source.epochs == [0, 1, 5]


def test_what_is_drawn_is_a_function_of_seed_and_epoch():
    def seen(seed, epoch, **options):
        loader = Data(Shuffled(), batch_size=4).train_loader(seed=seed, **options)
        fields = [batch.fields for w in loader.windows(epoch) for batch in w.batches]
        return [(each["x"].tolist(), each["draw"].tolist()) for each in fields]

    first = seen(0, 0)
    assert seen(0, 0) == first
    assert seen(0, 1) != first
    assert seen(1, 0) != first
    draws = [draw for _, batch in first for draw in batch]
    assert len(set(draws)) == 10
    shares = [seen(0, 0, rank=rank, world_size=2) for rank in (0, 1)]
    assert {*shares[0][0][0], *shares[1][0][0]} == {*first[0][0], *first[1][0]}


def test_nothing_of_the_runs_own_is_drawn():
    random.seed(5)
    np.random.seed(5)
    list(Data(Shuffled()).train_loader().windows(0))
    found = random.random(), np.random.random()
    random.seed(5)
    np.random.seed(5)
    assert found == (random.random(), np.random.random())


def test_each_sample_has_a_seed_of_its_own():
    def stream():
        for _ in range(6):
            yield {"seed": int(sample_seeds()[0])}

    def seeds(**options):
        loader = Data(stream, **options).train_loader()
        return [s for w in loader.windows(0) for b in w.batches for s in b.fields["seed"].tolist()]

    assert len(set(seeds(batch_size=4))) == 6
    assert seeds(batch_size=4) == seeds(batch_size=1)


def test_what_a_sample_draws_does_not_depend_on_how_steps_are_cut():
    def draws(data, **options):
        windows = list(data.train_loader(seed=1, **options).windows(3))
        return [draw for window in rows(windows, "draw") for batch in window for draw in batch]

    expected = draws(Data(Shuffled(), batch_size=1))
    assert len(set(expected)) == 10
    assert draws(Data(Shuffled(), batch_size=4)) == expected
    assert draws(Data(Shuffled(), batch_size=5, drop_last=True), accumulate=2) == expected
    assert draws(Data(Shuffled(), batch_size=5), rank=1, world_size=2) == expected[1::2]


def test_overfitting_repeats_the_first_epoch():
    source = Shuffled()
    data = Data(source, batch_size=2)
    loader = data.train_loader(overfit_batches=2, seed=3)
    first = rows(loader.windows(0))
    assert rows(loader.windows(4)) == first
    assert source.epochs == [0, 0]
    evaluated = data.eval_loaders(overfit_batches=2, seed=3)[""].batches()
    assert [b.fields["x"].tolist() for b in evaluated] == [[x for (batch,) in first for x in batch]]


# -- resume ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [1, 2, 3])
@pytest.mark.parametrize("source", [Shuffled, lambda: Resumable(10)])
def test_a_run_goes_on_where_it_stood(source, start):
    whole = rows(Data(source(), batch_size=3).train_loader().windows(2), "draw")
    loader = Data(source(), batch_size=3).train_loader()
    windows = loader.windows(2)
    before = rows(itertools.islice(windows, start), "draw")
    state = loader.state()
    other = Data(source(), batch_size=3).train_loader()
    other.load_state(state)
    assert before + rows(other.windows(2, start), "draw") == whole


def test_a_source_with_a_state_is_not_read_again():
    source = Resumable(10)
    loader = Data(source, batch_size=3).train_loader()
    next(loader.windows(0))
    state = loader.state()
    other = Resumable(10)
    resumed = Data(other, batch_size=3).train_loader()
    resumed.load_state(state)
    assert rows(resumed.windows(0, 1)) == [[[3, 4, 5]], [[6, 7, 8]], [[9]]]
    assert other.reads == [3, 4, 5, 6, 7, 8, 9]
    assert rows(resumed.windows(1)) == [[[0, 1, 2]], [[3, 4, 5]], [[6, 7, 8]], [[9]]]


def test_what_is_read_again_is_said_with_its_number(caplog):
    caplog.set_level("INFO", "expkit")
    loader = Data(counting(10), batch_size=3).train_loader(accumulate=2)
    assert rows(loader.windows(1, 1)) == [[[6, 7, 8], [9]]]
    assert caplog.messages == [
        "the training set: its state is not kept, so 6 samples are read again to come to step 1 of "
        "epoch 2"
    ]


def test_a_loader_goes_on_from_where_it_stands_itself():
    source = Resumable(10)
    loader = Data(source, batch_size=3).train_loader()
    next(loader.windows(0))
    source.reads.clear()
    next(loader.windows(0, 1))
    assert source.reads == [3, 4, 5, 6]


def test_a_state_of_another_step_is_not_taken():
    loader = Data(Resumable(10), batch_size=3).train_loader()
    next(loader.windows(0))
    assert rows(loader.windows(0, 2)) == [[[6, 7, 8]], [[9]]]
    assert rows(loader.windows(1, 1))[0] == [[3, 4, 5]]


def test_a_state_that_cannot_be_told_is_an_error_with_its_cause():
    class Broken(Resumable):
        def state_dict(self):
            raise OSError("no disk")

    loader = Data(Broken(10)).train_loader()
    message = r"the training set cannot say where it stands: .* failed: OSError: no disk"
    with pytest.raises(DataError, match=message):
        list(loader.windows(0))


def test_the_iterator_may_have_the_state():
    class Iterator:
        def __init__(self):
            self.next = 0

        def __iter__(self):
            return self

        def __next__(self):
            if self.next == 6:
                raise StopIteration
            self.next += 1
            return {"x": self.next - 1}

        def state_dict(self):
            return {"next": self.next}

        def load_state_dict(self, state):
            self.next = state["next"]

    class Source:
        def __iter__(self):
            return Iterator()

    loader = Data(Source(), batch_size=2).train_loader()
    next(loader.windows(0))
    assert loader.state()["source"] == ["dict", [["next", 2]]]
    other = Data(Source(), batch_size=2).train_loader()
    other.load_state(loader.state())
    assert rows(other.windows(0, 1)) == [[[2, 3]], [[4, 5]]]


def test_a_stream_that_has_become_shorter_is_told():
    loader = Data(counting(4), batch_size=2).train_loader()
    with pytest.raises(DataError, match=r"ended after 4 samples; the run stood after 6 of them"):
        list(loader.windows(0, 3))
    with pytest.raises(DataError, match="standing after 2 steps"):
        list(loader.windows(0, 2))


# -- evaluation -----------------------------------------------------------------------------------


@pytest.mark.parametrize("n", [1, 4, 5, 12, 13])
@pytest.mark.parametrize("world_size", [1, 2, 3])
@pytest.mark.parametrize("in_step", [False, True])
def test_each_sample_is_evaluated_once(n, world_size, in_step):
    found, counts = [], []
    for rank in range(world_size):
        data = Data(None, counting(n), eval_batch_size=2)
        loader = data.eval_loaders(rank=rank, world_size=world_size, in_step=in_step)[""]
        batches = list(loader.batches())
        counts.append(len(batches))
        for batch in batches:
            assert kept(batch) == [i for i in batch.indices.tolist() if kept(batch)]
            found += kept(batch)
    assert sorted(found) == list(range(n))
    if in_step:
        assert len(set(counts)) == 1


def test_an_evaluation_draws_the_same_each_time():
    (loader,) = Data(None, Shuffled()).eval_loaders(seed=2).values()
    first, second = ([b.fields["draw"].tolist() for b in loader.batches()] for _ in range(2))
    assert first == second


def test_evaluation_is_limited_in_batches():
    source = Resumable(20)
    data = Data(None, source, eval_batch_size=2)
    loader = data.eval_loaders(limit_batches=2, rank=1, world_size=2)[""]
    assert [kept(batch) for batch in loader.batches()] == [[2, 3], [6, 7]]
    assert source.reads == list(range(8))


def test_sets_of_different_kinds_may_be_evaluated():
    data = Data(counting(4), {"stream": counting(3), "arrays": {"x": np.arange(2.0)}})
    loaders = data.eval_loaders()
    found = {name: [kept(batch) for batch in loader.batches()] for name, loader in loaders.items()}
    assert found == {"stream": [[0, 1, 2]], "arrays": [[0, 1]]}


# -- what a stream may be -------------------------------------------------------------------------


def test_samples_are_collated():
    def stream():
        for n in (1, 3, 2):
            yield {"tokens": list(range(n))}

    data = Data(stream, collate=Collate(pad={"tokens": Pad(value=-1)}))
    (window,) = data.train_loader().windows(0)
    expected = [[0, -1, -1], [0, 1, 2], [0, 1, -1]]
    assert window.batches[0].fields["tokens"].tolist() == expected


def test_a_collate_function_draws_by_its_own_samples():
    def collate(samples):
        return {"x": np.array(samples), "draw": np.random.random(len(samples))}

    def draws(rank, world_size):
        data = Data(counting(8), global_batch_size=4, collate=collate)
        loader = data.train_loader(rank=rank, world_size=world_size)
        return [b.fields["draw"].tolist() for w in loader.windows(0) for b in w.batches]

    assert draws(0, 1) == draws(0, 1)
    assert draws(0, 1)[0] != draws(0, 1)[1]
    assert draws(0, 2) != draws(1, 2)


@pytest.mark.parametrize(
    "source",
    [
        counting(3),
        functools.partial(lambda n: (yield from counting(n)()), 3),
        Stream(counting(3)),
        Resumable(3),
        {str(i): i for i in range(3)}.keys(),
    ],
)
def test_streams_are_known_as_such(source):
    assert isinstance(Data(source).train, Stream)


@pytest.mark.parametrize(
    "source",
    [
        counting(3)(),
        iter([{"x": 1}]),
        map(str, [1]),
        zip([1], [2], strict=True),
        itertools.count(),
    ],
)
def test_what_can_be_read_once_only_is_refused(source):
    with pytest.raises(DataError, match="can be read once only") as caught:
        Data(source)
    assert "the generator function that made it, not called" in str(caught.value)


def test_what_is_empty_the_second_time_is_told():
    class Once:
        def __init__(self):
            self.items = iter([{"x": 1}])

        def __iter__(self):
            return self.items

    loader = Data(Once()).train_loader()
    assert rows(loader.windows(0)) == [[[1]]]
    with pytest.raises(DataError, match="the training set is empty"):
        list(loader.windows(1))


def test_a_class_is_refused():
    with pytest.raises(DataError, match="the training set is the class Resumable; allowed: an obj"):
        Data(Resumable)


@pytest.mark.parametrize("source", ["text", {1, 2}, 3])
def test_what_is_no_stream_is_refused(source):
    with pytest.raises(DataError, match="is no data set"):
        Data(source)


def test_an_empty_stream_is_refused():
    data = Data(counting(0), counting(0))
    with pytest.raises(DataError, match="the training set is empty; allowed: at least 1"):
        list(data.train_loader().windows(0))
    with pytest.raises(DataError, match="the evaluation set is empty"):
        list(data.eval_loaders()[""].batches())


def test_an_error_of_the_stream_tells_how_far_it_was_read():
    def stream():
        yield from counting(5)()
        raise ValueError("no more tape")

    message = r"the training set, after 5 samples, cannot be read: ValueError: no more tape"
    for batch_size in (4, 5, 8):
        with pytest.raises(DataError, match=message) as caught:
            list(Data(stream, batch_size=batch_size).train_loader().windows(0))
        assert isinstance(caught.value.__cause__, ValueError)


def test_samples_that_do_not_fit_together_are_named():
    def stream():
        yield {"x": [1, 2]}
        yield {"x": [1]}

    with pytest.raises(DataError, match="samples 0 to 1 cannot be collated: field 'x' has"):
        list(Data(stream).train_loader().windows(0))


@pytest.mark.parametrize(
    ("options", "key"),
    [
        ({"sampler": Sequential()}, "sampler"),
        ({"sampler": Sorted(by="x")}, "sampler"),
        ({"num_workers": 2}, "data.num_workers"),
    ],
)
def test_options_of_sets_with_an_index_are_refused(options, key):
    with pytest.raises(ConfigError, match=f"{key}: has no effect: the training set is a stream"):
        Data(counting(3), {"x": np.zeros(3)}, **options)


@pytest.mark.parametrize("seed", [None, 1])
def test_a_default_is_no_option(seed):
    data = Data(counting(3), sampler=Random(seed), num_workers=0)
    data.train_loader(seed=1)
    if seed is not None:
        with pytest.raises(ConfigError, match=r"sampler\.seed: is 1, but has no effect"):
            data.train_loader(seed=0)


@pytest.mark.parametrize("wrap", [lambda source: source, OwnLoader])
def test_one_object_with_a_state_cannot_be_trained_and_evaluated(wrap):
    source = Resumable(3)
    with pytest.raises(DataError, match="evaluation set dev is the object that the training set"):
        Data(wrap(source), {"other": wrap(Resumable(3)), "dev": wrap(source)})
    stateless = Shuffled()
    Data(wrap(stateless), wrap(stateless))


def test_what_set_epoch_draws_is_a_function_of_seed_and_epoch():
    class Early(Shuffled):
        def set_epoch(self, epoch):
            self.order = np.random.permutation(10).tolist()

        def __iter__(self):
            return ({"x": i} for i in self.order)

    np.random.seed(5)
    first = [rows(Data(Early()).train_loader().windows(2)) for _ in range(2)]
    assert first[0] == first[1]
    found = np.random.random()
    np.random.seed(5)
    assert found == np.random.random()


def test_an_iterator_of_ones_own_is_not_closed():
    class Closable(Resumable):
        def __iter__(self):
            return self

        def __next__(self):
            raise StopIteration

        def close(self):
            raise AssertionError

    with pytest.raises(DataError, match="the training set is empty"):
        list(Data(Closable(1)).train_loader().windows(0))


def test_several_streams_are_not_put_together():
    with pytest.raises(DataError, match="the training set b is a stream"):
        Data({"a": {"x": np.zeros(3)}, "b": counting(3)})


# -- streams of others ----------------------------------------------------------------------------


@pytest.mark.parametrize("framework", ["torch", "paddle"])
def test_iterable_data_sets_of_the_frameworks_are_streams(framework):
    data = pytest.importorskip(framework + (".utils.data" if framework == "torch" else ".io"))

    class Numbers(data.IterableDataset):
        def __iter__(self):
            yield from ({"x": i} for i in range(3))

    class Sized(Numbers):
        def __len__(self):
            return 99

    for source in (Numbers(), Sized()):
        found = Data(source, source, batch_size=2)
        assert rows(found.train_loader().windows(0)) == [[[0, 1]], [[2]]]
        assert [kept(b) for b in found.eval_loaders()[""].batches()] == [[0, 1, 2]]


@pytest.fixture
def hugging_face():
    return pytest.importorskip("datasets").Dataset.from_dict({"x": list(range(20))})


@pytest.mark.parametrize("shuffled", [False, True])
def test_a_hugging_face_stream_resumes_exactly(hugging_face, shuffled, caplog):
    caplog.set_level("INFO", "expkit")

    def loader():
        stream = hugging_face.to_iterable_dataset(num_shards=2)
        if shuffled:
            stream = stream.shuffle(seed=1, buffer_size=4)
        return Data(stream, batch_size=3).train_loader()

    epochs = [rows(loader().windows(epoch)) for epoch in (0, 1)]
    assert sorted(x for window in epochs[1] for batch in window for x in batch) == [*range(20)]
    assert (epochs[0] != epochs[1]) == shuffled
    first, second = loader(), loader()
    before = rows(itertools.islice(first.windows(1), 3))
    second.load_state(first.state())
    assert before + rows(second.windows(1, 3)) == epochs[1]
    assert bool(caplog.messages) == shuffled  # a buffer is no part of its state
    assert rows(second.windows(1)) == epochs[1]


def test_a_hugging_face_stream_that_is_split_by_node_is_refused(hugging_face):
    split = pytest.importorskip("datasets.distributed").split_dataset_by_node
    data = Data(split(hugging_face.to_iterable_dataset(), rank=0, world_size=2))
    data.train_loader()
    with pytest.raises(DataError, match="has been split by node"):
        data.train_loader(rank=0, world_size=2)
