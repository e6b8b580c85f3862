"""The run that is killed: small, and all that a checkpoint holds has its effect in it."""

from __future__ import annotations

SAVE_EVERY = 5
NUM_PROCESSES = {"numpy": 1, "torch": 1, "paddle": 1, "torch_ddp": 2, "paddle_fleet": 2}
"""Of each driver."""


def command_line(driver: str, steps: int) -> list[str]:
    """The arguments of the command."""
    several = NUM_PROCESSES[driver] > 1
    return [
        f"driver={driver}",
        "driver.device=cpu",
        *([f"driver.num_processes={NUM_PROCESSES[driver]}"] if several else []),
        "data=digits",
        "data.global_batch_size=34",  # 43 steps an epoch: it ends between two saves
        "model.hidden=[32]",
        "model.dropout=0.2",
        "optimizer=adam",
        "schedule=cosine",
        "callbacks=[ema,early_stop]",
        "callbacks.early_stop.patience=6",
        "trainer.n_epochs=null",
        f"trainer.max_steps={steps}",
        "trainer.log_every=1",
        "trainer.eval_every=20",
        f"checkpoint.save_every={SAVE_EVERY}",
    ]
