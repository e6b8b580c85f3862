"""A training script as people write it with Paddle, to its first optimizer step."""

import numpy as np
import paddle
from paddle import nn
from paddle.io import DataLoader, Dataset
from sklearn.datasets import load_digits

from benchmarks.scripts.mark import mark

digits, labels = load_digits(return_X_y=True)


class Digits(Dataset):
    def __len__(self):
        return len(digits)

    def __getitem__(self, index):
        return (digits[index] / 16).astype(np.float32), labels[index]


batches = DataLoader(Digits(), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = paddle.optimizer.Adam(1e-3, parameters=model.parameters())
for features, targets in batches:
    nn.functional.cross_entropy(model(features), targets).backward()
    optimizer.step()
    optimizer.clear_grad()
    mark()
    break
