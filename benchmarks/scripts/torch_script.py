"""A training script as people write it with torch, to its first optimizer step."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.scripts.mark import mark

digits, labels = load_digits(return_X_y=True)
x = torch.from_numpy((digits / 16).astype(np.float32))
y = torch.from_numpy(labels.astype(np.int64))
batches = DataLoader(TensorDataset(x, y), batch_size=32, shuffle=True)
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for features, targets in batches:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(features), targets).backward()
    optimizer.step()
    mark()
    break
