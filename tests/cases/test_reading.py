"""Theme 13, and where samples come from: by how many workers they are read changes nothing."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest

from expkit.checkpoint import CheckpointStore
from expkit.data import Data, Ragged
from expkit.testing.wire import encode
from tests.cases.drawing import Drawing, Noted
from tests.cases.parts import (
    FEATURES,
    Probe,
    assert_same,
    close_store,
    interrupted,
    make_trainer,
    resumed,
    samples,
    weights,
)


def trained(framework, source, held_out=None, **options):
    """The trainer after a run on a data set, and what was drawn."""
    own = {key: options.pop(key) for key in ("num_workers", "collate", "seed") if key in options}
    seed = own.pop("seed", 0)
    data = Data(source, held_out, batch_size=4, eval_batch_size=6, **own)
    noted = Noted()
    callbacks = [noted] if isinstance(source, Drawing) else []
    trainer = make_trainer(
        framework, data=data, callbacks=callbacks, n_epochs=2, seed=seed, **options
    )
    trainer.fit()
    data.close()
    return trainer, noted


def test_draws_are_different_and_the_same_in_a_second_run(framework):
    """Case 111."""
    frameworks = [name for name in ("torch", "paddle") if name == framework]

    def run(**options):
        return trained(framework, Drawing(8, frameworks), **options)[1].drawn

    first = run(num_workers=4)
    for generator in range(2 + len(frameworks)):
        epochs = [[row[generator] for row in first[epoch]] for epoch in (0, 1)]
        assert len(set(epochs[0] + epochs[1])) == 16
    assert run(num_workers=4) == first
    assert run(num_workers=0) == first
    other = run(num_workers=1, seed=1)
    assert not {v for row in other[0] for v in row} & {v for row in first[0] for v in row}


def test_weights_do_not_depend_on_the_number_of_workers(framework):
    frameworks = [name for name in ("torch", "paddle") if name == framework]
    runs = [
        trained(
            framework,
            Drawing(37, frameworks),
            Drawing(11, frameworks),
            num_workers=number,
            accumulate=2,
            eval_every=3,
        )[0]
        for number in (0, 1, 2)
    ]
    own = weights(runs[0])
    for run in runs[1:]:
        assert weights(run).tobytes() == own.tobytes()
        assert run.result.metrics == runs[0].result.metrics
        assert_same(run.driver.state()["rng"], runs[0].driver.state()["rng"])


@pytest.mark.parametrize("num_workers", [0, 2])
@pytest.mark.parametrize("step", [7, 10])
def test_run_that_goes_on_draws_what_it_would_have_drawn(framework, tmp_path, num_workers, step):
    whole, expected = trained(framework, Drawing(37), Drawing(5))

    def trainer(*callbacks):
        data = Data(Drawing(37), Drawing(5), batch_size=4, num_workers=num_workers)
        store = CheckpointStore(tmp_path)
        return make_trainer(
            framework, data=data, callbacks=callbacks, n_epochs=2, checkpoint=store
        ), data

    probe, noted = Probe(), [Noted(), Noted()]
    first, read_before = trainer(probe, noted[0])
    interrupted(first, probe, step)
    close_store(first)
    read_before.close()
    second, read_after = trainer(noted[1])
    resumed(second, tmp_path)
    second.fit()
    close_store(second)
    read_after.close()
    assert noted[0].steps + noted[1].steps == expected.steps
    for epoch, rows in expected.drawn.items():
        parts = [each.drawn.get(epoch, []) for each in noted]
        assert parts[0] + parts[1] == rows
    assert weights(second).tobytes() == weights(whole).tobytes()


class Counting:
    """Notes which samples are read, whichever process reads them."""

    def __init__(self, n, path):
        self.rows, self.path = samples(n), path

    def __len__(self):
        return len(self.rows["y"])

    def __getitem__(self, index):
        with self.path.open("a") as file:
            file.write(f"{index}\n")
        return {name: column[index] for name, column in self.rows.items()}


@pytest.mark.parametrize("num_workers", [0, 2])
def test_resuming_at_step_95_of_100_reads_50_samples(tmp_path, num_workers):
    """Row D6."""

    def trainer(*callbacks):
        data = Data(
            Counting(1000, tmp_path / "reads"), batch_size=10, num_workers=num_workers, prefetch=1
        )
        store = CheckpointStore(tmp_path / "checkpoints")
        return make_trainer(data=data, callbacks=callbacks, n_epochs=1, checkpoint=store), data

    probe = Probe()
    first, data = trainer(probe)
    interrupted(first, probe, 95)
    close_store(first)
    data.close()
    (tmp_path / "reads").unlink()
    second, data = trainer()
    resumed(second, tmp_path / "checkpoints")
    assert second.fit().steps == 100
    close_store(second)
    data.close()
    reads = [int(line) for line in (tmp_path / "reads").read_text().split()]
    expected = [
        index
        for window in Data(samples(1000), batch_size=10).train_loader().windows(0, 95)
        for index in window.batches[0].indices.tolist()
    ]
    assert sorted(reads) == sorted(expected)
    assert len(reads) == 50


# -- sources -------------------------------------------------------------------------------------

N = 26


def of_arrays(tmp_path):
    return samples(N)


def of_mapped_files(tmp_path):
    return {name: mapped(tmp_path / f"{name}.npy", rows) for name, rows in samples(N).items()}


def mapped(path, rows):
    np.save(path, rows)
    return np.load(path, mmap_mode="r")


def of_raw_mapped_files(tmp_path):
    rows = samples(N)
    rows["x"].tofile(tmp_path / "x.bin")
    x = np.memmap(tmp_path / "x.bin", dtype=np.float32, mode="r", shape=rows["x"].shape)
    return {**rows, "x": x}


def of_samples(tmp_path):
    rows = samples(N)
    return [{name: column[i] for name, column in rows.items()} for i in range(N)]


def of_torch_tensors(tmp_path):
    torch = pytest.importorskip("torch")
    return {name: torch.from_numpy(rows) for name, rows in samples(N).items()}


def torch_dataset(begin=0, end=N):
    torch = pytest.importorskip("torch")

    class Own(torch.utils.data.Dataset):
        def __init__(self):
            self.rows = {name: torch.from_numpy(r[begin:end]) for name, r in samples(N).items()}

        def __len__(self):
            return len(self.rows["y"])

        def __getitem__(self, i):
            return {name: column[i] for name, column in self.rows.items()}

    return Own()


def of_torch_dataset(tmp_path):
    return torch_dataset()


def of_torch_subset(tmp_path):
    return pytest.importorskip("torch").utils.data.Subset(torch_dataset(), range(N))


def of_torch_concat(tmp_path):
    parts = [torch_dataset(0, 10), torch_dataset(10, N)]
    return pytest.importorskip("torch").utils.data.ConcatDataset(parts)


def of_torch_dataset_that_reads_many(tmp_path):
    class Many:
        rows = samples(N)

        def __len__(self):
            return N

        def __getitems__(self, indices):
            return [{name: column[i] for name, column in self.rows.items()} for i in indices]

    return pytest.importorskip("torch").utils.data.Subset(Many(), range(N))


def of_paddle_dataset(tmp_path):
    paddle = pytest.importorskip("paddle")

    class Own(paddle.io.Dataset):
        def __len__(self):
            return N

        def __getitem__(self, i):
            return {name: paddle.to_tensor(column[i]) for name, column in samples(N).items()}

    return Own()


def of_paddle_subset(tmp_path):
    paddle = pytest.importorskip("paddle")
    return paddle.io.Subset(of_paddle_dataset(tmp_path), list(range(N)))


def of_table(tmp_path):
    datasets = pytest.importorskip("datasets")
    return datasets.Dataset.from_dict({n: rows.tolist() for n, rows in samples(N).items()})


def of_table_of_tensors(tmp_path):
    pytest.importorskip("torch")
    return of_table(tmp_path).with_format("torch")


SOURCES = [
    *(of_arrays, of_mapped_files, of_raw_mapped_files, of_samples, of_torch_tensors),
    *(of_torch_dataset, of_torch_subset, of_torch_concat, of_torch_dataset_that_reads_many),
    *(of_paddle_dataset, of_paddle_subset, of_table, of_table_of_tensors),
]


@pytest.mark.parametrize("source", SOURCES, ids=lambda each: each.__name__)
def test_samples_are_the_same_wherever_they_come_from(source, tmp_path):
    """Row D7: two epochs, with 0 and 2 workers."""
    expected, _ = trained("numpy", samples(N), samples(7, 1))
    for number in (0, 2):
        found, _ = trained("numpy", source(tmp_path), samples(7, 1), num_workers=number)
        assert weights(found).tobytes() == weights(expected).tobytes(), number
        assert found.result.metrics == expected.result.metrics


@pytest.mark.slow
@pytest.mark.parametrize("source", [of_torch_dataset, of_paddle_dataset, of_table])
def test_samples_of_each_framework_train_models_of_each(framework, source, tmp_path):
    expected, _ = trained(framework, samples(N))
    found, _ = trained(framework, source(tmp_path), num_workers=2)
    assert weights(found).tobytes() == weights(expected).tobytes()


def test_table_with_a_transform_of_its_own_draws_by_the_batch():
    datasets = pytest.importorskip("datasets")
    table = datasets.Dataset.from_dict({n: rows.tolist() for n, rows in samples(N).items()})

    def noisy(rows):
        x = np.array(rows["x"], dtype=np.float32)
        return {**rows, "x": list(x + np.random.rand(*x.shape).astype(np.float32))}

    table = table.with_transform(noisy)
    runs = [weights(trained("numpy", table, num_workers=n)[0]).tobytes() for n in (0, 0, 1, 3)]
    assert len(set(runs)) == 1
    assert runs[0] != weights(trained("numpy", samples(N))[0]).tobytes()


def test_rows_of_different_lengths_give_the_same_run_padded_at_any_time():
    rng = np.random.default_rng(0)
    rows = [rng.normal(size=(n, 1)).astype(np.float32) for n in rng.integers(1, FEATURES + 1, N)]
    rows[0] = np.ones((FEATURES, 1), np.float32)
    own = samples(N)
    padded = np.zeros((N, FEATURES, 1), np.float32)
    for place, row in zip(padded, rows, strict=True):
        place[: len(row)] = row
    ragged = {"x": Ragged.of(rows, {"multiple": FEATURES}), "y": own["y"]}
    expected, _ = trained("numpy", {"x": padded, "y": own["y"]})
    for number in (0, 2):
        found, _ = trained("numpy", ragged, num_workers=number)
        assert weights(found).tobytes() == weights(expected).tobytes()


def test_files_larger_than_what_may_be_read_are_read_by_row(tmp_path):
    """A sparse file of 64 GB, of which two batches are trained."""
    n, features = 2**24, 2**10
    x = np.memmap(tmp_path / "x.bin", dtype=np.float32, mode="w+", shape=(n, features))
    y = np.memmap(tmp_path / "y.bin", dtype=np.int64, mode="w+", shape=(n,))
    for number in (0, 1):
        data = Data({"x": x, "y": y}, batch_size=8, num_workers=number)
        loader = data.train_loader()
        windows = loader.windows(0)
        for _ in range(2):
            [batch] = next(windows).batches
            assert batch.fields["x"].shape == (8, features)
        assert len(encode(loader.signature)) < 1000
        data.close()
    assert resident_mb(tmp_path) < 100
    assert sys.getsizeof(data) < 1000


def resident_mb(directory):
    """Of the files of a directory, what is in this process's memory."""
    total, counts = 0, False
    with Path("/proc/self/smaps").open() as file:
        for line in file:
            if "-" in line.split()[0]:
                counts = str(directory) in line
            elif counts and line.startswith("Rss:"):
                total += int(line.split()[1]) / 1024
    return total
