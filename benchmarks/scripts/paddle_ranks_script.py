"""A distributed script as people write it with Paddle, for its launcher, to its first step."""

import numpy as np
import paddle
from paddle import nn
from paddle.distributed import fleet
from paddle.io import DataLoader, Dataset, DistributedBatchSampler
from sklearn.datasets import load_digits

from benchmarks.scripts.mark import mark

fleet.init(is_collective=True)
digits, labels = load_digits(return_X_y=True)


class Digits(Dataset):
    def __len__(self):
        return len(digits)

    def __getitem__(self, index):
        return (digits[index] / 16).astype(np.float32), labels[index]


dataset = Digits()
batches = DataLoader(
    dataset, batch_sampler=DistributedBatchSampler(dataset, batch_size=32, shuffle=True)
)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
model = paddle.DataParallel(model)
optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
for features, targets in batches:
    nn.functional.cross_entropy(model(features), targets).backward()
    optimizer.step()
    optimizer.clear_grad()
    mark()
    break
