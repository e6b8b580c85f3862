"""A distributed script as people write it with torch, for torchrun, to its first optimizer step."""

import numpy as np
import torch
from sklearn.datasets import load_digits
from torch import distributed, nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from benchmarks.scripts.mark import mark

distributed.init_process_group("gloo")
digits, labels = load_digits(return_X_y=True)
x = torch.from_numpy((digits / 16).astype(np.float32))
y = torch.from_numpy(labels.astype(np.int64))
dataset = TensorDataset(x, y)
batches = DataLoader(dataset, batch_size=32, sampler=DistributedSampler(dataset))
model = nn.Sequential(nn.Linear(64, 128), nn.ReLU(), nn.Linear(128, 10))
model = DistributedDataParallel(model)
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
for features, targets in batches:
    optimizer.zero_grad()
    nn.functional.cross_entropy(model(features), targets).backward()
    optimizer.step()
    mark()
    break
distributed.destroy_process_group()
