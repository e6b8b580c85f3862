from __future__ import annotations

import errno
import json
import os
import tempfile
import threading
import time
from datetime import datetime
from pathlib import Path

import pytest
import yaml

from expkit.core.errors import RunDirectoryError
from expkit.run.directory import RunDirectory

NOW = datetime(2026, 11, 30, 7, 12, 3)
START = {
    "argv": ["expkit", "seed=1"],
    "task": "train",
    "driver": "numpy",
    "world_size": 1,
    "seed": 1,
    "name": "digits",
}


@pytest.fixture
def run(tmp_path):
    return RunDirectory.create(tmp_path, "digits", now=NOW)


# -- making ------------------------------------------------------------------------------------


def test_a_run_is_made_under_its_day_and_time(tmp_path, run):
    assert run.path == tmp_path / "2026-11-30" / "07-12-03-digits"
    assert sorted(path.name for path in run.path.iterdir()) == ["run.json"]
    assert run.info()["status"] == "created"


def test_paths_are_absolute_whatever_becomes_of_the_working_directory(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    run = RunDirectory.create(Path("outputs"), "digits", now=NOW)
    assert run.path == tmp_path / "outputs" / "2026-11-30" / "07-12-03-digits"


def test_the_same_second_gives_numbered_directories(tmp_path):
    names = [RunDirectory.create(tmp_path, "digits", now=NOW).path.name for _ in range(3)]
    assert names == ["07-12-03-digits", "07-12-03-digits-2", "07-12-03-digits-3"]


def test_twenty_runs_at_once_have_twenty_directories(tmp_path):
    barrier = threading.Barrier(20)
    made = []

    def make():
        barrier.wait()
        made.append(RunDirectory.create(tmp_path / "outputs", "digits", now=NOW).path)

    threads = [threading.Thread(target=make) for _ in range(20)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(set(made)) == 20
    assert all(json.loads((path / "run.json").read_text())["status"] == "created" for path in made)


@pytest.mark.parametrize("name", ["../../x", "a=b", "a\nb", "x" * 300, ""])
def test_an_illegal_name_makes_nothing(tmp_path, name):
    with pytest.raises(RunDirectoryError):
        RunDirectory.create(tmp_path / "outputs", name)
    with pytest.raises(RunDirectoryError):
        RunDirectory.create_sweep(tmp_path / "outputs", name)
    assert not list(tmp_path.iterdir())


def test_sweeps_hold_their_jobs(tmp_path):
    sweep = RunDirectory.create_sweep(tmp_path, "lr", now=NOW)
    assert sweep == tmp_path / "2026-11-30" / "07-12-03-sweep-lr"
    first = RunDirectory.job(sweep, 0, "optimizer.lr=0.1,model=mlp")
    again = RunDirectory.job(sweep, 0, "optimizer.lr=0.1,model=mlp")
    assert first.path == sweep / "000-optimizer.lr-0.1-model-mlp"
    assert again.path == sweep / "000-optimizer.lr-0.1-model-mlp-2"
    assert RunDirectory.create_sweep(tmp_path, "lr", now=NOW).name == "07-12-03-sweep-lr-2"


def test_an_exact_directory_is_taken_where_it_is_absent_or_empty(tmp_path):
    (tmp_path / "empty").mkdir()
    for name in ("empty", "new/deep"):
        run = RunDirectory.at(tmp_path / name)
        assert run.path == tmp_path / name
        assert run.info()["status"] == "created"


def test_an_exact_directory_that_holds_something_is_refused_and_untouched(tmp_path):
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(RunDirectoryError, match=r"not empty .*notes\.txt.*resume=") as caught:
        RunDirectory.at(tmp_path)
    assert caught.value.exit_code == 2
    assert sorted(path.name for path in tmp_path.iterdir()) == ["notes.txt"]


def test_one_of_several_takes_an_exact_directory(tmp_path):
    barrier = threading.Barrier(8)
    outcomes = []

    def take():
        barrier.wait()
        try:
            RunDirectory.at(tmp_path / "run")
        except RunDirectoryError:
            outcomes.append("refused")
        else:
            outcomes.append("taken")

    threads = [threading.Thread(target=take) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(outcomes) == ["refused"] * 7 + ["taken"]


@pytest.mark.parametrize("make", [lambda p: RunDirectory.create(p, "x"), RunDirectory.at])
def test_a_file_in_the_way_is_named(tmp_path, make):
    (tmp_path / "file").write_text("")
    with pytest.raises(RunDirectoryError, match=r"cannot make .*file.*output_dir=") as caught:
        make(tmp_path / "file")
    assert "\n" not in str(caught.value)


def test_a_full_disk_is_told_with_path_and_reason(tmp_path, monkeypatch):
    def full(*args, **kwargs):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "run.json")

    monkeypatch.setattr(Path, "open", full)
    with pytest.raises(RunDirectoryError, match="No space left on device"):
        RunDirectory.create(tmp_path, "digits")


@pytest.mark.skipif(os.getuid() != 0, reason="needs root to become another user")
def test_a_directory_of_another_user_is_refused():
    with tempfile.TemporaryDirectory() as place:
        Path(place).chmod(0o755)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                os.setgroups([])
                os.setresgid(65534, 65534, 65534)
                os.setresuid(65534, 65534, 65534)
                RunDirectory.create(Path(place), "digits")
            except RunDirectoryError as error:
                told = str(error)
                code = error.exit_code if "Permission denied" in told and place in told else 3
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 2
        assert not list(Path(place).iterdir())


# -- opening -----------------------------------------------------------------------------------


def test_an_earlier_run_is_opened_by_its_path_or_a_link_to_it(tmp_path, run):
    (tmp_path / "latest").symlink_to(run.path)
    assert RunDirectory.open(run.path).path == run.path
    assert RunDirectory.open(tmp_path / "latest").path == run.path


@pytest.mark.parametrize(
    "content",
    [
        *(None, b"", b"{", b"[]", b"\xff", b"{}", b'{"a":' * 100_000),
        *(
            b'{"status":3}',
            b'{"status":"failed","resumed":3}',
            b'{"status":"failed","seconds":"x"}',
        ),
        *(b'{"status":"completed","result":[1]}', b'{"status":"completed","started":1}'),
    ],
)
def test_a_directory_without_a_sound_status_is_no_run(tmp_path, content):
    if content is not None:
        (tmp_path / "run.json").write_bytes(content)
    with pytest.raises(RunDirectoryError, match=r"run\.json"):
        RunDirectory.open(tmp_path)


@pytest.mark.parametrize(
    "entry",
    ["config.yaml", "run.json", "metrics.jsonl", "metrics.csv", "train.log", "checkpoints", "logs"],
)
def test_a_link_that_leads_out_of_the_run_is_refused(tmp_path, run, entry):
    sentinel = tmp_path / "sentinel"
    sentinel.mkdir()
    (run.path / entry).unlink(missing_ok=True)
    (run.path / entry).symlink_to(sentinel)
    with pytest.raises(RunDirectoryError, match=rf"{entry} is a link"):
        RunDirectory.open(run.path)
    assert not list(sentinel.iterdir())


@pytest.mark.parametrize("make", [os.mkdir, os.mkfifo])
@pytest.mark.parametrize(
    "entry",
    ["config.yaml", "overrides.yaml", "run.json", "metrics.jsonl", "metrics.csv", "train.log"],
)
def test_what_is_no_file_is_refused_and_not_waited_for(run, entry, make):
    (run.path / entry).unlink(missing_ok=True)
    make(run.path / entry)
    with pytest.raises(RunDirectoryError, match=f"{entry} is no regular file"):
        RunDirectory.open(run.path)


def test_a_link_inside_the_run_is_taken(run):
    (run.path / "old.yaml").write_text("a: 1\n")
    run.config_file.symlink_to("old.yaml")
    assert RunDirectory.open(run.path).config_file.read_text() == "a: 1\n"


# -- config ------------------------------------------------------------------------------------


def test_config_and_overrides_are_yaml(run):
    overrides = [
        "a=1",
        "name='x y'",
        "p=C:\\d",
        'q="z"',
        "u=数\U0001f600",
        "c=\x1b[0m\x85\x7f\n",
        "~x",
    ]
    run.write_config("seed: 0\nname: 数字\n", overrides)
    assert yaml.safe_load(run.config_file.read_text()) == {"seed": 0, "name": "数字"}
    assert yaml.safe_load(run.overrides_file.read_text()) == overrides


def test_no_overrides_are_an_empty_list(run):
    run.write_config("seed: 0\n", [])
    assert yaml.safe_load(run.overrides_file.read_text()) == []


def test_a_link_in_the_place_of_the_config_is_replaced_not_followed(tmp_path, run):
    sentinel = tmp_path / "sentinel"
    sentinel.write_text("mine")
    run.config_file.symlink_to(sentinel)
    run.write_config("seed: 0\n", [])
    assert sentinel.read_text() == "mine"


# -- status ------------------------------------------------------------------------------------


def test_a_running_run_tells_who_it_is(run):
    run.start(**START, tags=["quick"])
    info = run.info()
    assert info["status"] == "running"
    assert info["argv"] == ["expkit", "seed=1"]
    assert info["tags"] == ["quick"]
    assert info["pid"] == os.getpid()
    assert datetime.fromisoformat(info["started"]).utcoffset() is not None
    assert info["ended"] is None
    run.complete({})


def test_a_completed_run_has_its_result_versions_and_times(run):
    run.start(**START)
    run.complete({"best_eval": {"accuracy": 0.5, "loss": float("nan")}})
    info = run.info()
    assert info["status"] == "completed"
    assert info["result"] == {"best_eval": {"accuracy": 0.5, "loss": "NaN"}}
    assert info["versions"]["numpy"]
    assert "git" in info
    assert info["seconds"] >= 0
    assert info["ended"] >= info["started"]
    assert info["error"] is None


def test_versions_are_kept_though_the_run_never_ends(run):
    run.start(**START)
    deadline = time.monotonic() + 10
    while "versions" not in run.info() and time.monotonic() < deadline:
        time.sleep(0.01)
    info = run.info()
    assert info["status"] == "running"
    assert info["versions"]["numpy"]


def test_a_failed_run_has_its_error_and_traceback(run):
    run.start(**START)
    run.fail(ValueError("bad\x1b[31m"), "Traceback ...\nValueError: bad")
    info = run.info()
    assert info["status"] == "failed"
    assert info["error"] == {
        "type": "ValueError",
        "message": "bad\x1b[31m",
        "traceback": "Traceback ...\nValueError: bad",
    }
    assert b"\x1b" not in run.status_file.read_bytes()


def test_a_run_can_fail_before_it_starts(run):
    run.fail(ValueError("bad"), "")
    assert run.info()["status"] == "failed"


def test_an_interrupted_run_has_its_reason(run):
    run.start(**START)
    run.interrupt("SIGTERM", {"steps": 3})
    info = run.info()
    assert (info["status"], info["reason"], info["result"]) == (
        "interrupted",
        "SIGTERM",
        {"steps": 3},
    )


def test_a_resumed_run_keeps_its_first_start_and_adds_its_seconds(run):
    run.start(**START)
    run.interrupt("SIGTERM")
    before = run.info()
    again = RunDirectory.open(run.path)
    again.start(**START)
    during = again.info()
    assert during["status"] == "running"
    assert during["reason"] is None
    assert during["started"] == before["started"]
    assert len(during["resumed"]) == 1
    again.complete({})
    third = RunDirectory.open(run.path)
    third.start(**START)
    third.complete({})
    info = third.info()
    assert len(info["resumed"]) == 2
    assert info["seconds"] >= before["seconds"]


def test_durations_are_not_negative_when_the_clock_is_set_back(run, monkeypatch):
    run.start(**START)
    past = time.time() - 3600
    monkeypatch.setattr(time, "time", lambda: past)
    run.complete({})
    info = run.info()
    assert 0 <= info["seconds"] < 60
    assert info["ended"] >= info["started"]


def test_the_environment_is_not_written(run, monkeypatch):
    monkeypatch.setenv("SOME_TOKEN", "tiger-secret-value")
    monkeypatch.setenv("SOME_KEY", "tiger-secret-value")
    run.start(**START)
    run.complete({})
    for path in run.path.rglob("*"):
        assert b"tiger-secret-value" not in path.read_bytes()


def test_a_status_that_cannot_be_written_does_not_hide_the_error(run, monkeypatch, caplog):
    run.start(**START)
    run._provenance.wait()

    def full(path, data):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr("expkit.run.status.write_atomically", full)
    run.fail(ValueError("bad"), "")
    assert "No space left on device" in caplog.text
    with pytest.raises(RunDirectoryError, match="No space left"):
        run.complete({})


def test_starting_takes_milliseconds(run):
    started = time.perf_counter()
    run.start(**START)
    assert time.perf_counter() - started < 0.5  # one small atomic write
    run.complete({})
