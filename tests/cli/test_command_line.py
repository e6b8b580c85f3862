"""What is run, what is shown, and what is refused."""

from __future__ import annotations

import resource
import string

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.cli.conftest import SMALL, config, info

FRAMEWORKS = {"torch", "paddle"}
HEAVY = FRAMEWORKS | {"sklearn", "scipy", "tensorboard"}


def children_seconds() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def test_a_run_tells_its_directory_its_best_metric_and_the_tensorboard_command(command, project):
    done = command(SMALL)
    assert done.code == 0
    run = project.run().relative_to(project.path)
    best = info(project.run())["result"]["best_eval"]["accuracy"]
    assert f"run      {run}\n" in done.out
    assert f"best     accuracy {best:.4g} at step " in done.out
    assert f"tensorboard --logdir {run}" in done.out
    assert done.err == ""


def test_real_bundled_data_is_trained_on_in_seconds(project):
    done = project.process("driver=numpy", "trainer.n_epochs=3")
    assert done.code == 0
    assert info(project.run())["result"]["best_eval"]["accuracy"] > 0.85
    assert info(project.run())["seconds"] < 30


def test_any_part_can_be_swapped_and_any_leaf_changed(command, project):
    done = command(
        SMALL,
        "model.hidden=[5,3]",
        "schedule=cosine",
        "optimizer=sgd",
        "trainer.clip_norm=null",
        "tags=['größe','a b']",
        "output_dir='my outputs/x=1'",
        "logger=none",
    )
    assert done.code == 0, done.text
    (run,) = project.path.glob("my outputs/x=1/*/*")
    written = config(run)
    assert written["model"]["hidden"] == [5, 3]
    assert written["optimizer"]["_target_"] == "expkit.optimizers.SGD"
    assert written["tags"] == info(run)["tags"] == ["größe", "a b"]
    assert not (run / "tensorboard").exists()
    assert "tensorboard" not in done.out


def test_all_problems_are_told_at_once_before_anything_heavy_is_imported(imported, project):
    before = children_seconds()
    done, modules = imported(
        "driver=torch",
        "trainer.n_epoch=5",
        "model=mpl",
        "optimizer.lr=high",
        "data.batch_size=0",
        "trainer.clip_norm=None",
    )
    assert children_seconds() - before < 1.0  # processor time, whatever else the machine does
    assert done.code == 2
    assert done.out == ""
    assert "5 problems" in done.err
    for key in (
        "trainer.n_epoch",
        "model:",
        "optimizer.lr",
        "data.batch_size",
        "trainer.clip_norm",
    ):
        assert key in done.err
    assert "trainer.n_epochs=5" in done.err  # what was probably meant
    assert len(done.err.splitlines()) <= 10
    assert not HEAVY & modules
    assert not (project.path / "outputs").exists()


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (["--help"], "optimizer.lr"),
        (["--version"], "expkit 0."),
        (["--cfg", "job", SMALL], "hidden:"),
        (["--info", "defaults-tree"], "data: digits"),
    ],
)
def test_what_only_shows_imports_no_framework_and_makes_nothing(imported, project, args, expected):
    before = children_seconds()
    done, modules = imported(*args)
    assert children_seconds() - before < 1.0
    assert done.code == 0
    assert expected in done.out
    assert not HEAVY & modules
    assert not (project.path / "outputs").exists()


def test_help_lists_the_users_own_options(command):
    assert "Twenty rows that a linear model can tell apart" in command("--help").out


def test_help_that_nobody_reads_to_its_end_is_no_error(project):
    child = project.process("--help", wait=False)
    child.stdout.close()
    assert child.wait(20) in (0, 141)
    assert child.stderr.read() == ""
    child.stderr.close()


def test_flags_and_overrides_come_in_any_order(command):
    done = command("driver=numpy", "--cfg", "job", "model.hidden=[3]")
    assert done.code == 0
    assert "- 3\n" in done.out


def test_an_unknown_flag_is_refused(command):
    done = command("--multi", "seed=1")
    assert (done.code, done.out) == (2, "")
    assert "--multi: no such flag" in done.err


@pytest.mark.parametrize(
    ("target", "expected"),
    [
        ("my_model.Absent", "model._target_ (conf/model/mine.yaml): my_model has no Absent"),
        ("my_model.Broken", "model (conf/model/mine.yaml): my_model.Broken failed: OSError: gone"),
    ],
)
def test_an_error_of_the_users_code_names_key_and_file(command, project, target, expected):
    (project.path / "my_model.py").write_text(
        "class Broken:\n    def __init__(self):\n        raise OSError('gone')\n"
    )
    (project.path / "conf/model").mkdir()
    (project.path / "conf/model/mine.yaml").write_text(f"_target_: {target}\n")
    done = command(SMALL, "model=mine", "~model.hidden")
    assert done.code == 2
    assert expected in done.err
    assert done.err.splitlines()[-1] == f"ERROR: {done.err.rpartition('ERROR: ')[2].rstrip()}"
    assert "failed; the log is in " in done.out
    given = command(SMALL, "model=mine", "~model.hidden", f"model._target_={target}")
    assert "mine.yaml" not in given.text  # the command line has named it, not the file


def test_a_run_shows_its_config_and_final_metrics_in_tensorboard(command, project):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator
    from tensorboard.plugins.hparams import metadata

    assert command(SMALL, "optimizer=sgd", "optimizer.lr=0.25").code == 0
    run = project.run()
    events = EventAccumulator(str(run / "tensorboard")).Reload()
    (text,) = events.Tensors("config")
    shown = [line[4:] for line in text.tensor_proto.string_val[0].decode().splitlines()]
    assert shown == (run / "config.yaml").read_text().splitlines()
    content = events.PluginTagToContent("hparams")[metadata.SESSION_START_INFO_TAG]
    settings = metadata.parse_session_start_info_plugin_data(content).hparams
    assert settings["optimizer.lr"].number_value == 0.25
    final = info(run)["result"]["metrics"]
    for name, value in final.items():
        assert events.Scalars(f"result/{name}")[0].value == pytest.approx(value)
    assert final


def test_an_override_that_cannot_be_parsed_says_how_to_quote(command, project):
    done = command("name=epoch=3-step=9")
    assert done.code == 2
    assert "name" in done.err
    assert "quote" in done.err


NONSENSE = (
    {
        "optimizer.lr": "nan",
        "trainer.n_epochs": "-1",
        "trainer.clip_norm": "None",
        "trainer.eval_every": "0",
        "trainer.accumulate": "0",
        "data.batch_size": "0",
        "name": "../../x",
        "seed": "-1",
        "task": "train_and_test",
    },
    {
        "optimizer.lr": "inf",
        "trainer.n_epochs": "2.5",
        "data.batch_size": "1000000000000",
        "name": "'a=b'",
        "output_dir": "''",
        "trainer.max_time": "-1s",
    },
    {
        "optimizer.lr": "-1",
        "trainer.n_epochs": "five",
        "name": "x" * 300,
        "model.dropout": "1.5",
        "tags": "a",
    },
    {"monitor": "val_los"},
    {"name": '"a\\nb"'},
)


@pytest.mark.parametrize("nonsense", NONSENSE, ids=lambda nonsense: " ".join(nonsense))
def test_nonsense_is_refused_in_one_line_for_each_key(command, project, nonsense):
    done = command(SMALL, *[f"{key}={value}" for key, value in nonsense.items()])
    assert (done.code, done.out) == (2, "")
    first, *lines = done.err.splitlines()
    assert first.startswith("expkit: this cannot be run")
    assert sorted(line.strip().partition(":")[0] for line in lines) == sorted(nonsense)
    assert not (project.path / "outputs").exists()


WORDS = st.text(string.printable + "äß\x00", max_size=12)
VALUES = st.one_of(
    WORDS,
    st.integers().map(str),
    st.floats().map(str),
    st.sampled_from(["null", "true", "[1,2]", "{a: 1}", "${seed}", "${oc.env:HOME}", "???", "1,2"]),
)
KEYS = st.one_of(
    st.sampled_from(
        [
            "seed",
            "trainer.n_epochs",
            "model",
            "+experiment",
            "~data",
            "optimizer.lr",
            "model.hidden",
        ]
    ),
    WORDS,
)


@settings(
    max_examples=6,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(st.lists(st.tuples(KEYS, st.sampled_from(["=", "", "=="]), VALUES), max_size=3))
def test_no_mutilated_override_ends_in_a_traceback(command, project, mutilated):
    texts = ["".join(parts) for parts in mutilated]
    done = command(*[text for text in texts if not text.startswith("-")], "trainer.n_epoch=1")
    assert done.code == 2
    assert "Traceback" not in done.text
    assert done.err.startswith("expkit: ")
    assert sorted(path.name for path in project.path.iterdir()) == sorted(
        ["conf", "my_callbacks.py", "my_data.py"]
    )
