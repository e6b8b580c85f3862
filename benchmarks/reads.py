"""Shuffled batches of a data set in memory, read in a process of their own."""

from __future__ import annotations

import itertools
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from benchmarks.worker import serve

READ, CHECK = "read", "check"
FEATURES = 64
_LEAST_S = 0.4  # how long is read, at least
_BATCHES = 40  # between two looks at the clock
_WARM_UP = 8
_CHECKED = 20_000  # samples of which a whole epoch is looked at
_SEED = 0


@dataclass(frozen=True)
class Reading:
    """The work.

    Attributes:
        samples: of 64 numbers (float32) and a label each.
        batch_size: of the shuffled batches.
    """

    samples: int = 1_000_000
    batch_size: int = 256


def arrays(samples: int) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
    """Random numbers, of which the first is the sample's, and labels, which are too."""
    x = np.random.default_rng(_SEED).random((samples, FEATURES), dtype=np.float32)
    x[:, 0] = np.arange(samples)
    return x, np.arange(samples)


class Reader(ABC):
    """Gives the batches of an epoch as the framework's tensors."""

    def __init__(self, work: Reading) -> None:
        self.work = work
        self.x, self.y = arrays(work.samples)

    @abstractmethod
    def batches(self, epoch: int) -> Iterator[Any]:
        """Pairs of tensors, each sample once; loops by hand draw their order."""


class TorchLoader(Reader):
    """What people write: TensorDataset and DataLoader."""

    def batches(self, epoch: int) -> Iterator[Any]:  # noqa: ARG002
        import torch
        from torch.utils.data import DataLoader, TensorDataset

        dataset = TensorDataset(torch.from_numpy(self.x), torch.from_numpy(self.y))
        return iter(DataLoader(dataset, self.work.batch_size, shuffle=True, num_workers=0))


class TorchWholeBatches(Reader):
    """The same loader with a data set that reads whole batches."""

    def batches(self, epoch: int) -> Iterator[Any]:  # noqa: ARG002
        import torch
        from torch.utils.data import DataLoader, Dataset

        x, y = torch.from_numpy(self.x), torch.from_numpy(self.y)

        class Rows(Dataset):
            def __len__(self):
                return len(x)

            def __getitem__(self, index):
                return x[index], y[index]

            def __getitems__(self, indices):
                places = torch.tensor(indices)
                return x[places], y[places]

        size = self.work.batch_size
        return iter(DataLoader(Rows(), size, shuffle=True, collate_fn=lambda batch: batch))


class TorchLimit(Reader):
    """The fastest plain loop found: rows by index."""

    def batches(self, epoch: int) -> Iterator[Any]:  # noqa: ARG002
        import torch

        x, y = torch.from_numpy(self.x), torch.from_numpy(self.y)
        for places in torch.randperm(len(x)).split(self.work.batch_size):
            yield x.index_select(0, places), y.index_select(0, places)


class PaddleLoader(Reader):
    """Paddle's DataLoader, as people write it."""

    def batches(self, epoch: int) -> Iterator[Any]:  # noqa: ARG002
        import paddle

        x, y = self.x, self.y

        class Rows(paddle.io.Dataset):
            def __len__(self):
                return len(x)

            def __getitem__(self, index):
                return x[index], y[index]

        size = self.work.batch_size
        return iter(paddle.io.DataLoader(Rows(), batch_size=size, shuffle=True, num_workers=0))


class ExpkitReader(Reader):
    """`expkit.data.Data`, and the driver's way from a batch to tensors."""

    def __init__(self, work: Reading) -> None:
        super().__init__(work)
        from expkit.data import Data

        data = Data({"x": self.x, "y": self.y}, batch_size=work.batch_size)
        self._loader = data.train_loader(seed=_SEED)

    def batches(self, epoch: int) -> Iterator[Any]:
        to_tensors = self.converter()
        for window in self._loader.windows(epoch):
            fields = to_tensors(window.batches[0].fields)
            yield fields["x"], fields["y"]

    @abstractmethod
    def converter(self) -> Callable[[Any], Any]:
        """From arrays to tensors on the processor."""


class TorchExpkit(ExpkitReader):
    """For torch."""

    def converter(self) -> Callable[[Any], Any]:
        import torch

        from expkit.drivers.torch.device import to_device

        device = torch.device("cpu")
        return lambda fields: to_device(fields, device)


class PaddleExpkit(ExpkitReader):
    """For Paddle."""

    def converter(self) -> Callable[[Any], Any]:
        import paddle

        from expkit.drivers.paddle.device import to_device

        paddle.set_device("cpu")
        return lambda fields: to_device(fields, "cpu")


READERS: dict[str, type[Reader]] = {
    "torch_loader": TorchLoader,
    "torch_whole_batches": TorchWholeBatches,
    "torch_limit": TorchLimit,
    "torch_expkit": TorchExpkit,
    "paddle_loader": PaddleLoader,
    "paddle_expkit": PaddleExpkit,
}


def respond(reader: Reader, request: str) -> dict[str, Any]:
    """Read for a while, or a whole epoch to see that each sample comes once."""
    if request == CHECK:
        return _check(type(reader)(Reading(_CHECKED, reader.work.batch_size)))
    began = time.perf_counter()
    batches = itertools.chain.from_iterable(map(reader.batches, itertools.count()))
    next(batches)
    first = time.perf_counter() - began
    for _ in itertools.islice(batches, _WARM_UP):
        pass
    samples, began, began_cpu = 0, time.perf_counter(), time.process_time()
    while time.perf_counter() - began < _LEAST_S:
        samples += sum(len(x) for x, _ in itertools.islice(batches, _BATCHES))
    return {
        "samples_s": samples / (time.perf_counter() - began),
        "samples_cpu_s": samples / (time.process_time() - began_cpu),
        "first_s": first,
    }


def _check(reader: Reader) -> dict[str, Any]:
    """Whether an epoch's batches have each sample once, shuffled, with its own label."""
    seen, labels, sizes = [], [], []
    for x, y in reader.batches(0):
        seen.append(np.array(x.numpy()[:, 0]))
        labels.append(np.array(y.numpy()).reshape(-1))
        sizes.append(len(seen[-1]))
    order, size = np.concatenate(labels), reader.work.batch_size
    return {
        "is_whole": bool(np.array_equal(np.sort(order), np.arange(reader.work.samples))),
        "is_shuffled": bool(np.count_nonzero(order[1:] == order[:-1] + 1) < len(order) / 10),
        "is_matched": bool(np.array_equal(np.concatenate(seen), order.astype(np.float32))),
        "is_batched": set(sizes[:-1]) == {size},
    }


def main() -> None:
    """``python -m benchmarks.reads READER READING``, the reading as JSON."""
    name, work = sys.argv[1], Reading(**json.loads(sys.argv[2]))

    def start() -> Callable[[str], dict[str, Any]]:
        reader = READERS[name](work)
        return lambda request: respond(reader, request)

    serve(start)


if __name__ == "__main__":
    main()
