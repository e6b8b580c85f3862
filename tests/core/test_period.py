from __future__ import annotations

import pytest

from expkit.core.errors import ConfigError
from expkit.core.period import Period
from expkit.core.progress import Progress


def due_steps(value, steps_per_epoch=5, total=20):
    """At which of the steps a period is due, asked as the loop asks."""
    period, found = Period(value), []
    for step in range(1, total + 1):
        epoch, epoch_step = divmod(step - 1, steps_per_epoch)
        progress = Progress(
            epoch=epoch, step=step, epoch_step=epoch_step + 1, steps_per_epoch=steps_per_epoch
        )
        if period.due(progress):
            found.append(step)
    return found


@pytest.mark.parametrize(
    ("value", "steps"),
    [
        (7, [7, 14]),
        ("7", [7, 14]),
        ("1ep", [5, 10, 15, 20]),
        ("2ep", [10, 20]),
        ("3 ep", [15]),
        (None, []),
        (lambda progress: progress.step > 18, [19, 20]),
    ],
)
def test_a_period_is_due_at_its_steps(value, steps):
    assert due_steps(value) == steps


def test_never_is_known_as_such():
    assert Period(None).is_never
    assert not Period("1ep").is_never


def test_epochs_without_a_length_do_not_end():
    assert not Period("1ep").due(Progress(step=5, epoch_step=5, steps_per_epoch=None))


@pytest.mark.parametrize("value", [0, -1, "0ep", "-1ep", "ep", "1 epoch", 1.0, True, [], ""])
def test_anything_else_is_refused_with_what_is_allowed(value):
    with pytest.raises(ConfigError, match=r'trainer\.x: is .*allowed: .*"1ep".*trainer\.x=1ep'):
        Period(value, "trainer.x")
