"""What all ranks must have alike: data, and weights."""

from __future__ import annotations

from expkit.data import Data
from tests.cases.parts import samples
from tests.cases.ranks.on_rank.parts import (
    Act,
    driver_of,
    error_of,
    steps_kept,
    store_of,
    trainer_of,
)


def other_data(framework, what):
    """How a run ends whose last rank alone has loaded something else."""
    driver = driver_of(framework)
    own = what if driver.rank == driver.world_size - 1 else None
    train = samples(45 if own == "more" else 40, seed=1 if own == "rows" else 0)
    held_out = samples(9 if own == "held out" else 8)
    data = Data(train, {"test": held_out}, batch_size=2 if own == "batch size" else 4)
    trainer = None

    def run():
        nonlocal trainer
        trainer = trainer_of(framework, data=data, n_epochs=1)
        trainer.fit()

    return error_of(run), trainer is None


def drift(framework, root, rank, step, **options):
    """How a run of 10 steps ends in which one rank changes a weight by itself."""

    def change(context):
        state = context.driver.model_state()
        path = min(state)
        context.driver.load_model_state(state | {path: state[path] + 1e-6})

    driver = driver_of(framework)
    trainer = trainer_of(
        framework,
        n=40,
        eval_on=8,
        n_epochs=2,
        callbacks=[Act("step_end", step, rank, change)],
        checkpoint=store_of(root, driver.rank, keep_last=None),
        **options,
    )
    error = error_of(trainer.fit)
    driver.barrier()
    return error, trainer._logger.steps("eval"), steps_kept(root)
