"""One plain command: several processes, one run."""

from __future__ import annotations

import json

import pytest

from tests.dist.parity import train_all
from tests.dist.project import (
    ROOT,
    SMALL,
    TWO_TORCH,
    Project,
    config,
    info,
    ranks_seen,
    records,
    together,
)

pytestmark = [pytest.mark.slow, pytest.mark.timeout(300)]

DRIVERS = ["torch_ddp", "paddle_fleet"]


# -- one run -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def runs(once):
    pytest.importorskip("torch")
    pytest.importorskip("paddle")
    return once(train_all)


@pytest.mark.parametrize("driver", DRIVERS)
def test_there_is_one_run_with_one_config_and_one_main_log(runs, driver):
    two = runs[driver, 2]
    assert two.project.runs() == [two.run]
    for name in ("config.yaml", "overrides.yaml", "train.log", "run.json", "metrics.jsonl"):
        assert [path.parent for path in two.project.path.rglob(name)] == [two.run]
    assert [path.name for path in (two.run / "logs").iterdir()] == ["rank1.log"]
    assert "rank 1 " in (two.run / "logs" / "rank1.log").read_text()
    assert "rank 1 " not in (two.run / "train.log").read_text()
    assert sorted(path.name for path in two.project.path.iterdir()) == [
        "conf",
        "my_parts.py",
        "outputs",
    ]
    assert two.project.processes == []


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_run_says_how_many_ranks_it_had_and_what_came_of_it(runs, driver):
    told = info(runs[driver, 2].run)
    assert (told["status"], told["world_size"], told["driver"]) == ("completed", 2, driver)
    assert told["result"]["steps"] == 50
    assert told["error"] is None
    assert config(runs[driver, 2].run)["driver"]["num_processes"] == 2


@pytest.mark.parametrize("driver", DRIVERS)
def test_the_command_itself_trains_nothing(runs, driver):
    one, other = ranks_seen(runs[driver, 2].run)
    assert one["parent"] == other["parent"] not in (one["pid"], other["pid"])
    assert (one["world_size"], other["world_size"]) == (2, 2)


@pytest.mark.parametrize("driver", DRIVERS)
def test_records_and_evaluations_are_those_of_one_process(runs, driver):
    single = runs["torch" if driver == "torch_ddp" else "paddle", 1].run
    for ranks in (2, 3):
        own = runs[driver, ranks].run
        for split in ("train", "eval"):
            expected, got = records(single, split), records(own, split)
            assert [each.step for each in got] == [each.step for each in expected]
            for there, here in zip(expected, got, strict=True):
                assert there.metrics.keys() == here.metrics.keys()
                for name, value in there.metrics.items():
                    is_count = split == "eval" and name != "loss"
                    tolerance = 0 if is_count else 1e-5
                    assert here.metrics[name] == pytest.approx(value, rel=tolerance, abs=0)


@pytest.mark.parametrize("driver", DRIVERS)
def test_only_rank_0_speaks_on_the_console_in_few_lines(runs, driver):
    finished = runs[driver, 2].finished
    assert finished.err == ""
    assert "\r" not in finished.out
    assert "rank 1" not in finished.out
    lines = finished.out.splitlines()
    assert len(lines) <= 40
    assert len([line for line in lines if line.startswith("run ")]) == 1
    assert len(set(lines)) == len(lines)


def test_ranks_of_torch_listen_on_loopback_alone(runs):
    for ranks in (2, 3):
        for each in ranks_seen(runs["torch_ddp", ranks].run):
            assert each["listening"]
            for address in each["listening"]:
                assert address.startswith("0100007F:")


# -- what ranks print ----------------------------------------------------------------------------

PRINT = ["callbacks.probe.what=print", "callbacks.probe.rank=-1"]
OUTPUTS = {
    "directory": [*PRINT, "driver.num_processes=3", "driver.worker_output=./texts"],
    "all": [*PRINT, "driver.worker_output=all"],
    "only_error": PRINT,
    "ignore": [*PRINT, "driver.worker_output=ignore", "hydra.run.dir=given/place"],
}


def print_all(directory):
    """A run for each way to treat what ranks print."""

    def run(name):
        project = Project.make(directory / name)
        return project, project.run(*TWO_TORCH, *OUTPUTS[name])

    return together({name: lambda name=name: run(name) for name in OUTPUTS})


@pytest.fixture(scope="module")
def outputs(once):
    pytest.importorskip("torch")
    printed = once(print_all)
    for _, finished in printed.values():
        assert finished.code == 0, finished.text
        assert "rank 0 speaks" in finished.out
        assert "rank 0 complains" in finished.err
    return printed


def test_with_a_directory_each_rank_has_a_file_with_its_own_text(outputs):
    project, finished = outputs["directory"]
    files = sorted((project.path / "texts").iterdir())
    assert [file.name for file in files] == ["rank0.out", "rank1.out", "rank2.out"]
    for rank, file in enumerate(files):
        lines = [line for line in file.read_text().splitlines() if line.startswith("rank ")]
        assert sorted(lines) == [f"rank {rank} complains", f"rank {rank} speaks"]
    assert "rank 1" not in finished.text
    assert "rank 2" not in finished.text


@pytest.mark.parametrize(
    ("name", "on_out", "on_err"),
    [("all", True, True), ("only_error", False, True), ("ignore", False, False)],
)
def test_the_console_shows_of_other_ranks_what_was_asked_for(outputs, name, on_out, on_err):
    project, finished = outputs[name]
    assert ("[rank 1] rank 1 speaks" in finished.out.splitlines()) == on_out
    assert ("[rank 1] rank 1 complains" in finished.err.splitlines()) == on_err
    assert finished.text.count("rank 1 ") == on_out + on_err
    (file,) = project.path.rglob("rank1.out")
    assert sorted(file.read_text().splitlines()) == ["rank 1 complains", "rank 1 speaks"]


def test_a_run_directory_of_ones_own_is_used_by_all_ranks(outputs):
    project, _ = outputs["ignore"]
    run = project.path / "given" / "place"
    assert info(run)["status"] == "completed"
    assert (run / "logs" / "rank1.log").is_file()
    assert len(ranks_seen(run)) == 2
    assert not (project.path / "outputs").exists()


# -- what is refused -----------------------------------------------------------------------------

DUMP_MODULES = """
import atexit, os, sys
def _dump():
    with open(os.environ["MODULES_FILE"], "w") as file:
        file.write(" ".join({name.split(".")[0] for name in sys.modules}))
atexit.register(_dump)
"""


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("trainer.n_epoch=5", "trainer.n_epochs=5"),
        ("driver.num_process=2", "driver.num_processes"),
        ("driver.device=[5]", "driver.device: is [5]"),
        ("driver.device=[-1]", "driver.device: is [-1]"),
        ("driver.num_processes=0", "driver.num_processes"),
        ("trainer.on_exception=ignore", "trainer.on_exception"),
    ],
)
def test_a_wrong_config_is_refused_before_anything_is_made(project, override, told):
    (project.path / "sitecustomize.py").write_text(DUMP_MODULES)
    modules = project.path / "modules.txt"
    refused = project.run(
        SMALL,
        "driver=torch_ddp",
        override,
        PYTHONPATH=f"{project.path}:{ROOT}",
        MODULES_FILE=str(modules),
    )
    assert refused.code == 2, refused.text
    assert told in refused.err
    assert "Traceback" not in refused.text
    assert not {"torch", "paddle"} & set(modules.read_text().split())
    assert not (project.path / "outputs").exists()


def test_the_config_reaches_the_ranks_as_it_was_composed(outputs):
    project, _ = outputs["directory"]
    (run,) = project.runs()
    first = json.loads((run / "seen" / "rank2.jsonl").read_text().splitlines()[0])
    assert "expkit.rank" in first["command"]
    assert not any("=" in word for word in first["command"])  # nothing to compose from
