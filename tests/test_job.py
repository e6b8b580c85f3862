from __future__ import annotations

import json
import re
import sys
from dataclasses import replace
from importlib import metadata

import numpy as np
import pytest

from expkit.app import run_command
from expkit.checkpoint import CheckpointStore
from expkit.config.validation import check
from expkit.core.errors import ConfigError
from expkit.data import sources
from expkit.data.sources import bundled
from expkit.data.sources.bundled import MissingDataError
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


@pytest.mark.parametrize("options", [[], ["driver=torch_ddp"], ["task=evaluate", "init_from=."]])
def test_a_missing_data_package_is_told_before_a_directory_is_made(
    tmp_path, monkeypatch, capfd, options
):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(bundled.metadata, "distribution", absent)
    assert run_command(["data=autompg", *options]) == 2
    (line,) = capfd.readouterr().err.splitlines()
    assert line == (
        "expkit: the data package mlxtend is not installed: run `make data` (needs 0.25.0)"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", sources.__all__)
def test_each_source_is_known_to_need_the_package_that_it_reads(monkeypatch, name):
    def absent(name):
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(bundled.metadata, "distribution", absent)
    source = getattr(sources, name)
    with pytest.raises(MissingDataError) as told:
        source()
    for target in (f"expkit.data.sources.{name}", f"{source.__module__}.{name}"):
        with pytest.raises(MissingDataError, match=re.escape(str(told.value))):
            bundled.check_bundled(target)
    bundled.check_bundled(f"my_data.{name}")
