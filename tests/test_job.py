from __future__ import annotations

import json
from dataclasses import replace

import numpy as np
import pytest

from expkit.checkpoint import CheckpointStore
from expkit.config.validation import check
from expkit.core.errors import ConfigError
from expkit.job import Job, check_beginning, make_job
from expkit.run.history import saved_config, saved_overrides


@pytest.fixture
def job(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return make_job(check(["driver=torch_ddp", "seed=3", 'tags=[a,"ü"]']), ["seed=3"])


def test_a_job_survives_its_way_to_another_process(job):
    assert Job.from_json(job.to_json()) == job
    resumed = replace(job, changes=("seed: 1 -> 3",), attempt=2)
    assert Job.from_json(resumed.to_json()) == resumed
    assert json.loads(job.to_json())["config"]["tags"] == ["a", "ü"]


def test_a_new_job_has_a_directory_with_its_config(job):
    assert job.open().info()["status"] == "created"
    assert saved_config(job.open().path) == job.config
    assert saved_overrides(job.open().path) == ["driver=torch_ddp", "seed=3", 'tags=[a,"ü"]']


def test_the_driver_tells_whether_a_job_is_distributed(job):
    assert job.is_distributed
    assert job.driver == "torch_ddp"
    assert not make_job(check(["driver=numpy"]), []).is_distributed


def test_a_second_attempt_begins_where_the_first_has_saved(job):
    anew = job.again()
    assert (anew.attempt, anew.config["resume"]) == (1, None)
    store = CheckpointStore(job.open().checkpoints)
    store.save({"model": {"w": np.ones(1)}}, step=5, epoch=0, metrics={}, score=None)
    store.close()
    third = anew.again()
    assert (third.attempt, third.config["resume"]) == (2, job.path)
    assert third.changes is None


def test_devices_that_are_not_there_are_refused_before_a_directory_is_made(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    with pytest.raises(ConfigError, match=r"driver\.device: is \[0, 7\]"):
        check_beginning(check(["driver=torch_ddp", "driver.device=[0,7]"]))
    assert list(tmp_path.iterdir()) == []
