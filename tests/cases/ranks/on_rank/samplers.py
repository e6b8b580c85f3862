"""Theme 4 on ranks: which samples each rank really trains on, and with what outcome."""

from __future__ import annotations

from expkit.data import Bucketed, Data, Mixed, Weighted
from tests.cases.parts import Consumed, samples
from tests.cases.ranks.on_rank.parts import digest, trainer_of

SAMPLERS = {
    "bucketed": lambda: Bucketed("size", batches_per_bucket=2),
    "balanced": lambda: Weighted(by="y", num_samples=30),
    "in_turn": lambda: Mixed("in_turn", "most"),
}


def weighted(framework):
    """Case 40: the samples of one epoch on this rank."""
    consumed = Consumed()
    data = Data(samples(4), batch_size=5, sampler=Weighted([0, 0, 1, 1], num_samples=100))
    trainer_of(framework, data=data, callbacks=[consumed], n_epochs=1).fit()
    return [index for _, _, indices in consumed.rows for index in indices]


def steps(framework, name, alone):
    """Step -> the samples of this rank; and the weights that they lead to."""
    rows = samples(23)
    rows["size"] = rows["index"] * 7 % 10
    if name == "in_turn":
        cut = {"a": slice(0, 14), "b": slice(14, 23)}
        rows = {part: {key: rows[key][places] for key in rows} for part, places in cut.items()}
    consumed = Consumed()
    data = Data(rows, global_batch_size=6, sampler=SAMPLERS[name]())
    trainer = trainer_of(framework, alone, data=data, callbacks=[consumed], n_epochs=2)
    trainer.fit()
    return [[step, indices] for _, step, indices in consumed.rows], digest(trainer)
