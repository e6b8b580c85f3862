"""Going on with a run, and starting from the weights of one."""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys

import pytest

from expkit.command_line import override
from expkit.run.history import changed_keys, trainings
from tests.cli.conftest import SMALL, config, info, overrides, records, tree, weights

STOP = ("callbacks=[probe]", "callbacks.probe.what=SIGTERM")
"""A stop signal after step 3 of 10."""
STEPS = list(range(1, 11))


def interrupted(command, project, *args: str):
    """A run that a stop signal ended after step 3, its probe disarmed for what follows."""
    done = command(SMALL, *STOP, *args)
    assert done.code == 143
    return max(project.runs()), done


def test_a_run_goes_on_in_place_from_nothing_but_its_directory(command, project):
    run, _ = interrupted(command, project, "model.hidden=[7]", "seed=4")
    begun = info(run)["started"]
    done = command(f"resume={run}")
    assert done.code == 0, done.text
    assert project.runs() == [run]
    told = info(run)
    assert (told["status"], told["result"]["steps"], told["started"]) == ("completed", 10, begun)
    assert len(told["resumed"]) == 1
    assert told["argv"] == ["expkit", f"resume={run}"]
    assert [record.step for record in records(run)] == STEPS
    command(SMALL, "model.hidden=[7]", "seed=4")  # the same without the interruption
    assert weights(max(project.runs())) == weights(run)
    assert info(max(project.runs()))["result"]["best_eval"] == told["result"]["best_eval"]


def test_resuming_leaves_config_and_overrides_as_they_were(command, project):
    run, _ = interrupted(command, project)
    before = tree(run)
    command(f"resume={run}")
    after = tree(run)
    for name in ("config.yaml", "overrides.yaml"):
        assert after[name] == before[name]
    assert after["train.log"].startswith(before["train.log"])


def test_tensorboard_shows_each_step_once_after_a_resume(command, project):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    # The checkpoint is of step 2, and step 3 was recorded: the run goes back by one.
    run, _ = interrupted(command, project, "checkpoint.save_every=2", "checkpoint.keep_last=null")
    shutil.rmtree(run / "checkpoints/step-00000003")
    assert command(f"resume={run}", "callbacks.probe.what=none").code == 0
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    assert [event.step for event in events.Scalars("train/loss")] == STEPS
    assert [record.step for record in records(run)] == STEPS


def test_the_printed_command_goes_on_when_it_is_pasted_into_a_shell(command, project):
    odd = "output_dir='my outputs/a=1, b'"
    done = command(SMALL, *STOP, odd)
    (line,) = [text for text in done.out.splitlines() if text.startswith("go on ")]
    pasted = line.removeprefix("go on").strip().replace("python", shlex.quote(sys.executable), 1)
    ended = subprocess.run(pasted, shell=True, cwd=project.path, capture_output=True, check=False)
    assert ended.returncode == 0, ended.stderr
    (run,) = project.path.glob("my outputs/a=1, b/*/*")
    assert info(run)["status"] == "completed"


def test_the_printed_command_names_the_config_directory_of_the_run(command, project):
    (project.path / "conf").rename(project.path / "mine")
    done = command("--config-dir", "mine", SMALL, *STOP)
    (line,) = [text for text in done.out.splitlines() if text.startswith("go on ")]
    words = shlex.split(line)[5:]
    assert words[1:] == ["--config-dir", "mine"]
    assert command(*words).code == 0


def test_latest_is_the_training_that_was_begun_last(command, project):
    first, _ = interrupted(command, project, "seed=1")
    second, _ = interrupted(command, project, "seed=2")
    command("task=evaluate", f"init_from={first}")  # newer, but nothing to go on with
    for run, moment in ((first, "2026-01-02"), (second, "2026-01-01")):
        told = info(run) | {"created": f"{moment}T00:00:00.000+00:00"}
        (run / "run.json").write_text(json.dumps(told))
    done = command("resume=latest")
    assert done.code == 0, done.text
    assert info(first)["status"] == "completed"
    assert info(second)["status"] == "interrupted"


def test_the_same_command_goes_on_with_resume_latest(command, project):
    run, _ = interrupted(command, project)
    done = command(SMALL, *STOP, "resume=latest")
    assert done.code == 0
    assert info(run)["result"]["steps"] == 10
    assert "changed" not in done.out


def test_latest_looks_where_the_runs_are_made(command, project):
    done = command(SMALL, *STOP, "output_dir=elsewhere")
    assert command("resume=latest").code == 2
    done = command("resume=latest", "output_dir=elsewhere")
    assert done.code == 0, done.text


def test_latest_sees_a_run_whose_directory_was_named(command, project):
    interrupted(command, project)
    assert command(SMALL, *STOP, "hydra.run.dir=outputs/a").code == 143
    done = command("resume=latest")
    assert done.code == 0, done.text
    assert info(project.path / "outputs/a")["result"]["steps"] == 10
    done = command(SMALL, "init_from=latest")
    assert "weights from outputs/a (best" in done.out


def test_the_latest_is_told_by_the_moment_whatever_the_time_zone(tmp_path):
    moments = {"a": "2026-10-25T02:30:00+02:00", "b": "2026-10-25T02:10:00+01:00", "c": "soon"}
    for place, moment in moments.items():
        (tmp_path / place).mkdir()
        text = json.dumps({"task": "train", "created": moment})
        (tmp_path / place / "run.json").write_text(text)
    assert trainings(tmp_path) == [tmp_path / "b", tmp_path / "a"]


def test_a_job_of_a_sweep_can_be_the_latest(tmp_path):
    moments = {"d/a": "2026-01-03", "d/s/000-x": "2026-01-04", "d/s/001-y": "2026-01-02"}
    for place, moment in moments.items():
        run = tmp_path / place
        run.mkdir(parents=True)
        (run / "run.json").write_text(json.dumps({"task": "train", "created": moment}))
    (tmp_path / "d/damaged").mkdir()
    (tmp_path / "d/damaged/run.json").write_text("{")
    os.utime(tmp_path / "d/a/run.json")  # the times of files do not matter
    places = ["d/s/000-x", "d/a", "d/s/001-y"]
    assert trainings(tmp_path) == [tmp_path / place for place in places]


def test_latest_passes_over_a_completed_run_without_a_checkpoint_and_says_so(command, project):
    run, _ = interrupted(command, project)
    assert command(SMALL, "checkpoint=none", "name=bare").code == 0
    (bare,) = project.path.glob("outputs/*/*-bare")
    done = command("resume=latest")
    assert done.code == 0, done.text
    assert info(run)["status"] == "completed"
    place = bare.relative_to(project.path)
    assert done.err == f"note: passed over: the run {place} has no checkpoint\n"


def test_latest_without_any_run_to_go_on_with_is_refused_in_words(command, project):
    command(SMALL, "checkpoint=none")
    done = command("resume=latest")
    assert done.code == 2
    assert f"there is no run with a checkpoint in {project.path / 'outputs'}" in done.err
    assert "looked for */run.json, */*/run.json, */*/*/run.json there" in done.err


def test_changes_are_told_as_a_command_line_has_them():
    before = {"trainer": {"max_steps": 60, "load_best": True}, "name": "a"}
    after = {"trainer": {"max_steps": None, "load_best": False}, "name": "b"}
    assert list(changed_keys(before, after)) == [
        "trainer.max_steps: 60 -> null",
        "trainer.load_best: true -> false",
        "name: a -> b",
    ]


def test_a_finished_run_is_left_alone_and_the_user_is_told(command, project):
    command(SMALL)
    before = tree(project.run())
    for argument in (f"resume={project.run()}", "resume=latest"):
        done = command(argument)
        assert done.code == 0
        assert "has completed (2 epochs, 10 steps): nothing is left to do" in done.out
    assert tree(project.run()) == before


def test_a_finished_run_goes_on_when_more_is_asked_for(command, project):
    command(SMALL)
    run = project.run()
    done = command(f"resume={run}", "trainer.n_epochs=3")
    assert done.code == 0
    assert done.out.count("changed  ") == done.out.count("changed  trainer.n_epochs: 2 -> 3") == 1
    assert "(last, step 10), epoch 2 done\n" in done.out
    for same in ("config rules", "going on after"):
        assert same not in done.out
    assert info(run)["result"]["steps"] == 15
    assert config(run)["trainer"]["n_epochs"] == 3  # a later resume=RUN knows of it
    assert overrides(run) == [SMALL, "trainer.n_epochs=3"]
    assert config(run)["resume"] is None
    command(SMALL, "trainer.n_epochs=3")
    assert weights(max(project.runs())) == weights(run)


def test_another_option_of_a_group_is_told_in_a_line_with_the_keys_that_were_given(
    command, project
):
    command(SMALL)
    more = ("trainer.n_epochs=3", "schedule=cosine", "schedule.warmup=2")
    done = command(f"resume={project.run()}", *more)
    assert done.code == 0, done.text
    assert [line for line in done.out.splitlines() if line.startswith("changed ")] == [
        "changed  schedule: constant -> cosine",
        "changed  schedule.warmup: 0 -> 2",
        "changed  trainer.n_epochs: 2 -> 3",
    ]


def test_the_seconds_of_a_killed_part_count_up_to_its_last_checkpoint(command, project):
    killed = project.process(
        SMALL,
        "callbacks=[probe]",
        "callbacks.probe.what=SIGKILL",
        "checkpoint.save_every=1",
        "checkpoint.background=false",
        "data.source.delay=0.3",
    )
    assert killed.code == -9
    run = project.run()
    done = command(f"resume={run}", "callbacks.probe.what=none", "data.source.delay=0.0")
    assert done.code == 0, done.text
    told = info(run)
    assert told["seconds"] >= told["result"]["seconds"] > 0.6


def test_a_run_that_began_with_weights_still_says_so_after_a_resume(command, project):
    command(SMALL)
    source = project.run()
    run, _ = interrupted(command, project, f"init_from={source}")
    done = command(f"resume={run}", "trainer.n_epochs=3")
    assert done.code == 0, done.text
    assert config(run)["init_from"] == str(source)
    assert f"init_from={source}" in overrides(run)


def test_resuming_from_a_checkpoint_goes_on_from_that_one(command, project):
    command(SMALL, "checkpoint.keep_last=null", "checkpoint.save_every=2")
    run = project.run()
    done = command(f"resume={run}/checkpoints/step-00000004", "trainer.max_steps=6")
    assert done.code == 0, done.text
    assert info(run)["result"]["steps"] == 6
    assert [record.step for record in records(run)] == [1, 2, 3, 4, 5, 6]


@pytest.mark.parametrize("path", ["nowhere", "conf", "my_data.py"])
def test_what_is_no_run_is_refused_in_one_line(command, project, path):
    done = command(f"resume={path}")
    assert (done.code, done.out) == (2, "")
    assert len(done.err.splitlines()) <= 2
    assert path in done.err
    assert sorted(file.name for file in project.path.iterdir() if file.is_dir()) == ["conf"]


def test_there_is_no_latest_run_in_an_empty_place(command):
    done = command("resume=latest")
    assert done.code == 2
    assert "there is no run" in done.err


def test_code_that_a_runs_overrides_name_is_not_taken_over(command, project):
    run, _ = interrupted(command, project)
    hostile = '- "+callbacks.probe2._target_=my_evil.Touch"\n'
    (project.path / "my_evil.py").write_text("open('touched', 'w')\nclass Touch: pass\n")
    with (run / "overrides.yaml").open("a") as file:
        file.write(hostile)
    done = command(f"resume={run}")
    assert done.code == 2
    assert "names code" in done.err
    assert not (project.path / "touched").exists()


def test_resume_and_a_new_directory_contradict_each_other(command, project):
    run, _ = interrupted(command, project)
    done = command(f"resume={run}", "hydra.run.dir=X")
    assert done.code == 2
    assert "hydra.run.dir" in done.err
    assert not (project.path / "X").exists()


def test_init_from_takes_weights_and_nothing_else(command, project):
    command(SMALL, "optimizer=sgd")
    source = project.run()
    before = tree(source)
    done = command(SMALL, f"init_from={source}", "trainer.max_steps=0")
    assert done.code == 0, done.text
    new = max(project.runs())
    best = info(source)["result"]["best_eval"]
    assert records(new, "eval")[0].metrics == best
    assert (info(new)["result"]["steps"], info(new)["resumed"]) == (0, [])
    assert tree(source) == before


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("outputs/2026-11-30/07-12-03-digits", "k=outputs/2026-11-30/07-12-03-digits"),
        ("a b", 'k="a b"'),
        ('a"b', 'k="a\\"b"'),
        ('a\\"b', 'k="a\\\\\\"b"'),
        ("a=1,b", 'k="a=1,b"'),
    ],
)
def test_an_override_of_any_text_is_read_back_as_that_text(value, text):
    from hydra.core.override_parser.overrides_parser import OverridesParser

    assert override("k", value) == text
    assert OverridesParser.create().parse_override(text).value() == value
