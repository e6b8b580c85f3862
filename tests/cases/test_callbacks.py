"""Every callback that is shipped runs alone, with its defaults, on every driver."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

import expkit.callbacks
from tests.cases.parts import Events, make_trainer
from tests.conftest import FRAMEWORKS

DIRECTORY = Path(__file__).parents[2] / "conf" / "callbacks"
OPTIONS = sorted(path.stem for path in DIRECTORY.glob("*.yaml") if path.stem != "none")


def make_callback(option, **arguments):
    """The callback of a config option."""
    node = yaml.safe_load((DIRECTORY / f"{option}.yaml").read_text())[option]
    kind = getattr(expkit.callbacks, node.pop("_target_").rpartition(".")[2])
    return kind(**node | arguments)


@pytest.mark.parametrize("option", OPTIONS)
def test_a_callback_alone_trains_two_epochs_and_sees_the_same_on_all_drivers(option):
    """Case 135."""
    for framework in FRAMEWORKS:
        pytest.importorskip(framework)
    seen = {}
    for framework in FRAMEWORKS:
        found = []
        own = {"function": lambda c, m, found=found: found.append((c.progress.step, list(m)))}
        events = Events()
        trainer = make_trainer(
            framework,
            callbacks={
                option: make_callback(option, **(own if option == "on_best" else {})),
                "events": events,
            },
            eval_on=8,
            monitor="-loss",
            n_epochs=2,
        )
        result = trainer.fit()
        assert (result.status, result.steps, result.skipped_steps) == ("completed", 10, 0)
        recorded = [
            (split, step, list(metrics)) for split, step, _, metrics in trainer._logger.rows
        ]
        seen[framework] = events.calls, recorded, found
    assert seen["torch"] == seen["numpy"]
    assert seen["paddle"] == seen["numpy"]
    calls, _, found = seen["numpy"]
    assert calls.count("step_end") == 10
    assert calls.count("epoch_end") == calls.count("eval_end") == 2
    assert (found != []) == (option == "on_best")
