import numpy as np


def rings(num_samples):
    random = np.random.default_rng(0)
    x = random.normal(size=(num_samples, 2)).astype(np.float32)
    y = (np.linalg.norm(x, axis=1) > 1.2).astype(np.int64)  # inside or outside of a circle
    cut = num_samples * 4 // 5
    return {"train": {"x": x[:cut], "y": y[:cut]}, "eval": {"x": x[cut:], "y": y[cut:]}}
