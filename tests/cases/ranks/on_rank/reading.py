"""Theme 13 on ranks: what is drawn while samples are read."""

from __future__ import annotations

from expkit.data import Data
from tests.cases.drawing import Drawing, Noted
from tests.cases.ranks.on_rank.parts import outcome, trainer_of


def drawn(framework, num_workers=0, n=8):
    """What this rank has trained on in two epochs, and how its run has ended."""
    data = Data(
        Drawing(n, [framework]),
        Drawing(5, [framework]),
        global_batch_size=4,
        eval_batch_size=2,
        num_workers=num_workers,
    )
    noted = Noted()
    trainer = trainer_of(framework, data=data, callbacks=[noted], n_epochs=2)
    trainer.fit()
    data.close()
    ended = outcome(trainer)
    ended.pop("seconds")
    return [noted.drawn[0], noted.drawn[1], ended]


def drawn_alone(framework, n=8):
    """The same of a process that is alone, which sees all samples."""
    data = Data(Drawing(n, [framework]), global_batch_size=4)
    noted = Noted()
    trainer_of(framework, alone=True, data=data, callbacks=[noted], n_epochs=2).fit()
    return [noted.drawn[0], noted.drawn[1]]
