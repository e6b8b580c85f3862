"""The parts of a run without a config: what `python -m expkit` builds, built by hand."""

from expkit.core.trainer import Trainer
from expkit.data import Data
from expkit.data.sources import digits
from expkit.drivers.torch import TorchDriver
from expkit.losses import CrossEntropy
from expkit.metrics import Accuracy, MetricSet
from expkit.models.torch import Mlp
from expkit.optimizers import Adam

splits = digits()
model = Mlp(in_features=64, out_features=10)
model.initialize(seed=0)
trainer = Trainer(
    model=model,
    driver=TorchDriver(),
    data=Data(splits.train, splits.eval, batch_size=32),
    optimizer=Adam(lr=0.001),
    loss=CrossEntropy(),
    metrics=MetricSet({"accuracy": Accuracy()}),
    monitor="accuracy",
)
result = trainer.fit()
print(result.best_eval, "at step", result.best_step)
