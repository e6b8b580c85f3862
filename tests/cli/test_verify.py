"""Looking which checkpoints are whole: the command, and what it does while a run goes on."""

from __future__ import annotations

import json
import resource
import shutil
import time

import pytest

from expkit.checkpoint import CheckpointStore, directory, search
from expkit.checkpoint.report import examine, examine_all
from expkit.core.errors import CheckpointError
from expkit.verify import verify
from tests.cli.conftest import SMALL, info, tree
from tests.hostile_files import CORPUS, listed

KEEP_ALL = ("checkpoint.save_every=2", "checkpoint.keep_last=null")


@pytest.fixture
def run(command, project):
    """A run of ten steps that has checkpoints of steps 2, 4, 5, 6, 8 and 10."""
    done = command(SMALL, *KEEP_ALL)
    assert done.code == 0, done.text
    return project.run()


def flip(file, place=-1):
    content = bytearray(file.read_bytes())
    content[place] ^= 1
    file.write_bytes(content)


def lines(done, *parts):
    """The lines of the output that have all of these parts."""
    return [line for line in done.out.splitlines() if all(part in line for part in parts)]


def times(path):
    return {place: place.lstat().st_mtime_ns for place in path.rglob("*")}


def test_every_checkpoint_has_a_line_with_what_it_is(command, run):
    done = command("verify", str(run))
    assert (done.code, done.err) == (0, "")
    head, *rest = done.out.splitlines()
    assert head == f"{run}/checkpoints"
    steps = [path.name for path in sorted((run / "checkpoints").glob("step-*"), reverse=True)]
    assert [line.split()[0] for line in rest] == steps
    assert all("numpy, 1 rank" in line and "whole" in line for line in rest)
    assert rest[0].endswith(("last", "last, best"))
    best = info(run)["result"]
    (line,) = lines(done, "best")
    assert f"step {best['best_step']} " in line
    assert f"epoch {best['best_epoch'] + 1} " in line
    assert f"accuracy {best['best_eval']['accuracy']:.4g}" in line


def test_nothing_on_the_disk_changes(command, run):
    before = tree(run), times(run)
    command("verify", str(run))
    assert (tree(run), times(run)) == before


def test_damage_is_told_and_the_best_is_another(command, run):
    (best,) = lines(command("verify", str(run)), "best")
    flip(run / "checkpoints" / best.split()[0] / "model.safetensors")
    (run / "checkpoints/step-00000004/MANIFEST.json").unlink()
    done = command("verify", str(run))
    assert done.code == 1
    (damaged,) = lines(done, best.split()[0])
    assert damaged.endswith("damaged: model.safetensors does not match its checksum")
    (headless,) = lines(done, "step-00000004")
    assert headless.endswith("damaged: MANIFEST.json is missing")
    (best,) = lines(done, "best")
    assert best not in (damaged, headless)


def test_a_checkpoint_under_the_name_of_another_step_is_damaged(command, run):
    (run / "checkpoints/step-00000010").rename(run / "checkpoints/step-00000011")
    done = command("verify", str(run))
    assert done.code == 1
    assert lines(done, "step-00000011", "damaged: it holds step 10, which is not its name")
    assert lines(done, "step-00000008", "last")


def test_links_are_not_followed(command, project, run):
    place = run / "checkpoints/step-00000010"
    place.rename(project.path / "elsewhere")
    place.symlink_to(project.path / "elsewhere")
    done = command("verify", str(run))
    assert done.code == 1
    assert lines(done, "step-00000010", "damaged: it is a link")
    (run / "checkpoints").rename(project.path / "moved")
    (run / "checkpoints").symlink_to(project.path / "moved")
    done = command("verify", str(run))
    assert done.code == 1
    assert lines(done, "damaged: it is a link, which is not followed")


def test_a_link_that_is_named_is_meant(command, project, run):
    (project.path / "mine").symlink_to(run)
    assert command("verify", "mine").code == 0


def test_a_part_of_a_run_or_many_runs_can_be_named(command, project, run):
    one = f"{run}/checkpoints/step-00000004"
    for path, count in ((f"{run}/checkpoints", 6), (one, 1), ("outputs", 6), (".", 6)):
        done = command("verify", path)
        assert (done.code, len(lines(done, "whole"))) == (0, count), path
    command("task=evaluate", f"init_from={run}")  # a run that has no checkpoint
    command(SMALL, "seed=1")
    done = command("verify", "outputs", one)
    assert done.code == 0
    assert len(lines(done, "no checkpoint")) == 1
    assert len(lines(done, "whole")) == len(list(project.path.rglob("step-*"))) + 1


def test_a_run_without_a_checkpoint_is_not_whole(command, project):
    command(SMALL, "checkpoint=none")
    done = command("verify", str(project.run()))
    assert (done.code, done.err) == (1, "")
    assert lines(done, "no checkpoint")


@pytest.mark.parametrize(
    ("args", "told"),
    [
        ((), "there is no path"),
        (("nowhere",), "nowhere is no directory"),
        (("my_data.py",), "my_data.py is no directory"),
        (("conf",), "conf is neither a run nor a checkpoint"),
        (("conf", "--fast"), "--fast: no such argument"),
    ],
)
def test_a_wrong_argument_is_refused(command, args, told):
    done = command("verify", *args)
    assert (done.code, done.out) == (2, "")
    assert told in done.err
    assert "expkit verify --help" in done.err


@pytest.mark.parametrize("name", ["init", "verify", "convert"])
def test_each_command_is_listed_and_has_help(command, name):
    done = command(name, "--help")
    assert (done.code, done.err) == (0, "")
    assert done.out.startswith(f"usage: expkit {name} ")
    assert f"\n  expkit {name} " in command("--help").out
    wrong = command(name, "--bogus")
    assert (wrong.code, wrong.out) == (2, "")
    misspelt = command(name[:-1])
    assert misspelt.code == 2
    assert f"(try: expkit {name})" in misspelt.err


def test_neither_framework_nor_hydra_is_imported(imported, command, run):
    done, modules = imported("verify", str(run))
    assert done.code == 0, done.text
    assert not {"torch", "paddle", "hydra", "omegaconf"} & modules


def test_what_a_file_says_does_nothing_to_the_terminal(command, project):
    origin = {"framework": "numpy\x1b[2J\n  step-99999999  whole", "world_size": 1}
    store = CheckpointStore(project.path / "of\x1b[1mhers", background=False)
    store.save({"model": {}, "origin": origin}, step=4, epoch=0, metrics={}, score=None)
    done = command("verify", "of\x1b[1mhers")
    assert done.code == 0
    head, line = done.out.splitlines()
    assert head == r"of\x1b[1mhers"
    assert r"numpy\x1b[2J\n  step-99999999  whole, 1 rank" in line


# -- content that cannot be used -----------------------------------------------------------------

WITH_A_MANIFEST = [
    "pickle_as_weights",
    "archive_as_weights",
    "weights_and_pickle",
    "pickle_as_state",
    "names_of_code",
    "endless_header",
    "endless_shape",
    "endless_random_state",
    "deep_state",
]


@pytest.mark.parametrize("name", WITH_A_MANIFEST)
def test_what_resume_refuses_is_not_whole_though_all_checksums_are_right(tmp_path, name):
    place = CORPUS[name](tmp_path, tmp_path / "mark")
    directory.verify(place)
    assert examine(place).damage
    (report,) = examine_all(tmp_path)
    assert report.damage
    assert not report.is_last
    assert not report.is_best


@pytest.mark.parametrize(
    ("state", "told"),
    [
        (None, "holds no state tree"),
        ({}, "model is absent"),
        ({"model": [1]}, "model is of type list"),
        ({"model": "w"}, "model is of type str"),
        ({"model": {"a": {"w": 1}}}, "'a' in model is of type dict"),
        ({"model": {}, "origin": "numpy"}, "origin is of type str"),
        ({"model": {"\x1b" * 500: [1.0]}}, "in model is of type list"),
    ],
)
def test_a_state_without_weights_is_not_whole(tmp_path, state, told):
    place = listed(tmp_path, {} if state is None else {"state.json": json.dumps(state).encode()})
    damage = examine(place).damage
    assert told in damage
    assert len(damage) < 300


# -- many checkpoints ----------------------------------------------------------------------------


def test_the_directory_is_listed_equally_often_for_any_number_of_checkpoints(
    monkeypatch, tmp_path, capfd
):
    def num_listings(place):
        count = 0

        def candidates(root):
            nonlocal count
            count += 1
            return original(root)

        monkeypatch.setattr(search, "candidates", candidates)
        assert verify([str(place)]) == 0
        assert capfd.readouterr().out.count("whole") == len(list(place.iterdir()))
        return count

    original = search.candidates
    few = saved(tmp_path / "few", 1, 2)
    many = saved(tmp_path / "many", *range(1, 30))
    for root in (few, many):
        for file in root.glob("*.json"):
            file.unlink()
    assert num_listings(many) == num_listings(few)


def test_each_line_is_told_before_the_next_checkpoint_is_read(monkeypatch, tmp_path, capfd):
    root = saved(tmp_path / "checkpoints", 1, 2, 3)
    told = []
    meddled(monkeypatch, *[lambda path: told.append(capfd.readouterr().out)] * 3)
    assert verify([str(root)]) == 0
    told.append(capfd.readouterr().out)
    assert told[0] == f"{root}\n"
    names = ["step-00000003", "step-00000002", "step-00000001"]
    assert [text.split()[0] for text in told[1:]] == names
    assert [text.count("\n") for text in told[1:]] == [1, 1, 1]


def test_the_best_is_named_in_its_line_and_each_checkpoint_is_read_once(monkeypatch, tmp_path):
    store = CheckpointStore(tmp_path, keep_last=None, background=False)
    for step, score in enumerate((0.5, 0.9, 0.9, 0.7, None)):
        store.save({"model": {}}, step=step, epoch=0, metrics={}, score=score)
    flip(tmp_path / "step-00000001/state.json")
    read = []
    meddled(monkeypatch, *[read.append] * 10)
    reports = list(examine_all(tmp_path))
    assert [report.path.name[-1] for report in reports] == list("43210")
    assert [report.is_last for report in reports] == [True, False, False, False, False]
    assert [report.is_best for report in reports] == [False, False, True, False, False]
    assert [bool(report.damage) for report in reports] == [False, False, False, True, False]
    assert len(read) == len(set(read)) == 5


# -- while a run goes on -------------------------------------------------------------------------


def saved(root, *steps):
    store = CheckpointStore(root, keep_last=None, background=False)
    for step in steps:
        store.save({"model": {}}, step=step, epoch=0, metrics={}, score=None)
    return root


def meddled(monkeypatch, *actions):
    """Let each of the next reads be preceded by an action of somebody else."""
    read, left = directory.read, list(actions)

    def meddle(path):
        if left:
            left.pop(0)(path)
        return read(path)

    monkeypatch.setattr(directory, "read", meddle)


def test_a_retired_checkpoint_is_no_damage(monkeypatch, tmp_path):
    root = saved(tmp_path / "checkpoints", 1, 2, 3)
    meddled(monkeypatch, shutil.rmtree)
    assert [report.path.name[-1] for report in examine_all(root)] == ["2", "1"]
    assert examine(root / "step-00000003") is None


def test_a_checkpoint_that_is_replaced_while_it_is_read_is_read_again(monkeypatch, tmp_path):
    root = saved(tmp_path / "checkpoints", 1)

    def replace(path):
        shutil.rmtree(path)
        saved(root / "../other", 1)
        flip(root / "../other/step-00000001/state.json")
        (root / "../other/step-00000001").rename(path)

    def mend(path):
        shutil.rmtree(path)
        saved(root, 1)

    meddled(monkeypatch, replace)
    (report,) = examine_all(root)
    assert report.damage == "state.json does not match its checksum"
    original = directory.read_manifest
    left = [mend]

    def read_manifest(path):
        manifest = original(path)
        if left:
            left.pop()(path)
            raise directory.DamageError("the files are of another checkpoint")
        return manifest

    monkeypatch.setattr(directory, "read_manifest", read_manifest)
    report = examine(root / "step-00000001")
    assert not left
    assert not report.damage


def test_when_all_are_retired_the_later_ones_are_examined(monkeypatch, tmp_path):
    root = saved(tmp_path / "checkpoints", 1)

    def advance(path):
        shutil.rmtree(path)
        saved(root, int(path.name[-4:]) + 1)

    meddled(monkeypatch, *[advance] * 3)
    (report,) = examine_all(root)
    assert report.info.step == 4
    meddled(monkeypatch, *[advance] * 100)
    with pytest.raises(CheckpointError, match="replaced by a later one before it was read"):
        list(examine_all(root))


def test_a_state_that_no_run_has_written_is_shown_by_what_its_manifest_says(command, project):
    store = CheckpointStore(project.path / "odd", background=False)
    for step, rest in enumerate(({}, {"trainer": []}, {"trainer": {"best": {"monitor": 3}}})):
        store.save(
            rest | {"model": {}, "origin": {"framework": [], "world_size": (-3, "x", True)[step]}},
            step=step,
            epoch=-5,
            metrics={"accuracy": 0.5},
            score=None,
        )
        done = command("verify", f"odd/step-{step:08d}")
        assert (done.code, done.err) == (0, "")
        assert done.out.splitlines()[1].split()[-2:] == ["whole", "last"]
        assert not {"rank", "ranks", "epoch"} & set(done.out.split())


def test_what_waits_to_be_removed_is_left_out(tmp_path):
    root = saved(tmp_path / "checkpoints", 1)
    shutil.copytree(root / "step-00000001", directory.aside(root / "step-00000001"))
    assert [report.path.name for report in examine_all(root)] == ["step-00000001"]
    shutil.rmtree(root / "step-00000001")  # killed between the two renames: it still counts
    (report,) = examine_all(root)
    assert report.path == directory.aside(root / "step-00000001")
    assert not report.damage


@pytest.mark.slow
def test_a_run_that_goes_on_is_always_whole(command, project):
    slow = ("data.source.delay=0.01", "checkpoint.save_every=1", "trainer.n_epochs=20")
    child = project.process(SMALL, *slow, "checkpoint.keep_last=1", wait=False)
    verified = 0
    try:
        while child.poll() is None:
            if list(project.path.glob("outputs/*/*/checkpoints/step-*")):
                done = command("verify", "outputs")
                assert done.code == 0, done.text
                verified += 1
            time.sleep(0.005)
    finally:
        child.kill()
        child.communicate()
    assert child.returncode == 0
    assert verified >= 5


def test_it_starts_at_once(project, command, run):
    def seconds():
        used = resource.getrusage(resource.RUSAGE_CHILDREN)
        return used.ru_utime + used.ru_stime

    before = seconds()
    assert project.process("verify", str(run)).code == 0
    assert seconds() - before < 0.7
