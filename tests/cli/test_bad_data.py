"""Data that cannot be trained on: what the user is told, and what is kept of it."""

from __future__ import annotations

import pytest

from tests.cli.conftest import SMALL, info, records


def failed(command, project, *args: str):
    done = command(SMALL, *args)
    assert done.code not in (0, 130, 143)
    told = info(project.run())
    assert told["status"] == "failed"
    assert told["error"]["message"].splitlines()[0] in done.text
    return done, told


def test_an_empty_training_set(command, project):
    done, _ = failed(command, project, "data.source.n=0")
    assert "empty" in done.text or "no sample" in done.text
    assert "Traceback" not in done.text


def test_fewer_samples_than_a_batch_with_drop_last(command, project):
    done, _ = failed(
        command, project, "data.source.n=3", "data.batch_size=8", "data.drop_last=true"
    )
    for part in ("3", "8", "drop_last"):
        assert part in done.text
    assert "Traceback" not in done.text


def test_fewer_samples_than_a_batch_are_one_step_an_epoch(command, project):
    assert command(SMALL, "data.source.n=3", "data.batch_size=8").code == 0
    assert info(project.run())["result"]["steps"] == 2


@pytest.mark.parametrize(
    ("kind", "parts"),
    [("out_of_range", ("9", "2", "the training set")), ("float_labels", ("float", "y"))],
)
def test_labels_that_the_loss_cannot_take(command, project, kind, parts):
    done, told = failed(command, project, f"data.source.kind={kind}")
    assert told["error"]["type"] == "DataError"
    for part in parts:
        assert part in told["error"]["message"]
    assert "Traceback" not in done.text
    assert records(project.run()) == []  # before anything was trained


def test_a_nan_in_the_input_is_traced_to_its_step(command, project):
    done, told = failed(command, project, "data.source.kind=not_finite", "sampler=sequential")
    assert told["error"]["type"] == "NonFiniteLossError"
    assert "at step 3" in told["error"]["message"]  # sample 11 of batches of 4
    assert "optimizer.lr" in told["error"]["message"]
    assert "Traceback" not in done.text
    assert list(project.run().glob("checkpoints/step-*")) == []


def test_an_error_of_the_users_source_shows_its_traceback_once(command, project):
    done, told = failed(command, project, "data.source.kind=raises")
    assert done.text.count("Traceback") == 1
    assert "my_data.py" in done.text
    assert "data.source" in told["error"]["message"]
    assert "no such file: /data/rows.csv" in told["error"]["message"]


def test_an_error_of_the_users_data_set_names_the_samples(command, project):
    done, told = failed(command, project, "data.source.kind=bad_item", "sampler=sequential")
    assert "[4, 5, 6, 7]" in told["error"]["message"]
    assert "bad sample 7" in told["error"]["message"]
    assert done.text.count("Traceback") == 1
    assert "my_data.py" in done.text


def test_code_that_leaves_the_program_is_a_failure(command, project):
    done = command(SMALL, "data.source.kind=sys_exit")
    assert done.code == 1
    assert info(project.run())["status"] == "failed"
    assert info(project.run())["error"]["type"] == "SystemExit"


def test_an_argument_that_the_users_function_does_not_take(command, project):
    done, _ = failed(command, project, "+data.source.m=3")
    assert done.code == 2
    assert "data.source.m" in done.text
    assert "n, kind, delay" in done.text
    assert "Traceback" not in done.text


def test_a_batch_field_that_the_model_does_not_find(command, project):
    done, told = failed(command, project, "trainer.input_mapping={x: image}")
    assert "image" in told["error"]["message"]
    assert "Traceback" not in done.text
