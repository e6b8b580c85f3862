"""Which checkpoints stay, which one is last and best, and what is said about the others."""

from __future__ import annotations

import json
import logging
import math
import os
import stat
import subprocess
import sys
import threading

import pytest

from expkit.checkpoint import CheckpointStore, MemoryStore, Store, directory
from expkit.core.errors import CheckpointError, ConfigError


@pytest.fixture
def root(memory_path):
    return memory_path / "checkpoints"


@pytest.fixture(params=[True, False], ids=["background", "inline"])
def make(request, root):
    stores = []

    def make(keep_last=1, **kwargs):
        stores.append(CheckpointStore(root, keep_last, background=request.param, **kwargs))
        return stores[-1]

    yield make
    for store in stores:
        store.close()


def steps(root):
    return sorted(int(path.name[5:]) for path in root.glob("step-*"))


def everything(root):
    return {path: path.lstat() for path in root.rglob("*")}


def pointer(root, which):
    file = root / f"{which}.json"
    return json.loads(file.read_text())["step"] if file.exists() else None


def damage(path, name="model.safetensors"):
    content = bytearray((path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (path / name).write_bytes(content)


# -- saving and loading ----------------------------------------------------------------------------


def test_a_state_comes_back_with_what_was_said_about_it(make, root, tree, assert_same):
    store = make()
    store.save(tree(7), step=7, epoch=2, metrics={"loss": 0.25, "f1": math.nan}, score=-0.25)
    store.close()
    for where in ("last", "best", root / "step-00000007"):
        state, info = make().load(where)
        assert_same(state, tree(7))
        assert info.path == root / "step-00000007"
        assert (info.step, info.epoch, info.score) == (7, 2, -0.25)
        assert info.metrics["loss"] == 0.25
        assert math.isnan(info.metrics["f1"])


def test_reading_waits_for_the_save_under_way(make, tree):
    store = make()
    for step in range(1, 6):
        store.save(tree(step), step=step, epoch=0, metrics={}, score=None)
        assert store.last().step == step


def test_the_next_save_waits_for_the_one_under_way(root, tree, monkeypatch):
    gate, started = threading.Event(), []
    write = directory.write

    def slow(path, *args):
        started.append(path.name)
        assert gate.wait(10)
        write(path, *args)

    monkeypatch.setattr(directory, "write", slow)
    store = CheckpointStore(root, keep_last=None)
    store.save(tree(1), step=1, epoch=0, metrics={}, score=None)
    threading.Timer(0.02, gate.set).start()
    store.save(tree(2), step=2, epoch=0, metrics={}, score=None)
    assert (root / "step-00000001" / "MANIFEST.json").exists()
    store.close()
    assert started == ["step-00000001", "step-00000002"]


def test_a_save_is_finished_where_the_interpreter_ends_without_close(root, save):
    code = (
        "import sys, numpy; from expkit.checkpoint import CheckpointStore\n"
        "state = {'model': {'w': numpy.ones(3_000_000)}}\n"
        f"CheckpointStore({str(root)!r}).save(state, step=1, epoch=0, metrics={{}}, score=None)"
    )
    subprocess.run([sys.executable, "-c", code], check=True, timeout=60)
    state, _ = CheckpointStore(root).load("last")
    assert state["model"]["w"].sum() == 3_000_000


def test_what_cannot_be_saved_is_refused_at_once_and_the_store_goes_on(make, save):
    store = make()
    with pytest.raises(
        CheckpointError, match=r"state\['trainer'\]\['x'\] holds a value of type set"
    ):
        store.save({"trainer": {"x": {1}}}, step=1, epoch=0, metrics={}, score=None)
    save(store, 2)
    assert store.last().step == 2


def test_close_may_be_repeated_and_leaves_no_thread(make, save):
    before = threading.active_count()
    store = make()
    store.close()
    save(store, 1)
    store.close()
    store.close()
    assert threading.active_count() == before


def test_files_have_the_permissions_that_the_umask_leaves(make, root, save):
    old = os.umask(0o027)
    try:
        save(make(), 1, 0.5)
    finally:
        os.umask(old)
    for path in root.rglob("*"):
        wanted = 0o750 if path.is_dir() else 0o640
        assert stat.S_IMODE(path.stat().st_mode) == wanted, path


def test_both_stores_keep_the_contract(root):
    assert issubclass(CheckpointStore, Store)
    assert issubclass(MemoryStore, Store)


# -- last and best ---------------------------------------------------------------------------------


def test_an_empty_store_has_neither_last_nor_best_and_makes_no_directory(make, root):
    store = make()
    assert store.last() is None
    assert store.best() is None
    for where in ("last", "best"):
        with pytest.raises(CheckpointError, match="no checkpoint"):
            store.load(where)
    assert not root.exists()


def test_the_newest_is_the_highest_step_and_not_the_last_in_the_alphabet(make, root, save):
    ascending = [9, 10, 100, 99999999, 100000000]
    store = make(keep_last=None)
    for step in ascending:
        save(store, step)
    for step in reversed(ascending):
        assert make().last().step == step
        directory.discard(root / f"step-{step:08d}")
    assert make().last() is None


def test_times_of_files_decide_nothing(make, root, save):
    for step in (5, 10, 15):
        save(make(keep_last=None), step, step / 100)
        for path in (root / f"step-{step:08d}").iterdir():
            os.utime(path, (10**9 - step, 10**9 - step))
        os.utime(root / f"step-{step:08d}", (10**9 - step, 10**9 - step))
    assert make().last().step == 15
    assert make().best().step == 15


def test_last_and_best_name_an_existing_checkpoint_after_each_epoch(make, root, save):
    store = make()
    for step, score, best in ((5, 0.9, 5), (10, 0.1, 5), (15, 0.1, 5)):
        save(store, step, score)
        assert (store.last().step, store.best().step) == (step, best)
        assert (pointer(root, "last"), pointer(root, "best")) == (step, best)
        assert steps(root) == sorted({step, best})


def test_going_on_takes_the_last_and_not_the_best(make, save):
    store = make()
    for step, score in ((5, 0.9), (10, 0.1), (15, 0.2)):
        save(store, step, score)
    assert make().load("last")[1].step == 15
    assert make().load("best")[1].step == 5


@pytest.mark.parametrize(
    ("sign", "kept", "best"), [(1, [15, 20], 15), (-1, [10, 20], 10)], ids=["larger", "smaller"]
)
def test_a_nan_is_never_best_and_keeps_no_place(make, root, save, sign, kept, best):
    store = make(keep_best=2)
    for step, value in ((5, math.nan), (10, 0.3), (15, 0.5), (20, 0.4)):
        save(store, step, sign * value)
    assert steps(root) == kept
    assert store.best().step == best


def test_a_nan_removes_no_best(make, root, save):
    store = make()
    for step, score in ((5, 0.5), (10, math.nan), (15, None), (20, math.nan)):
        save(store, step, score)
    assert steps(root) == [5, 20]
    assert store.best().step == 5


def test_without_any_score_there_is_no_best(make, root, save):
    store = make()
    save(store, 5, math.nan)
    assert store.best() is None
    assert not (root / "best.json").exists()
    with pytest.raises(CheckpointError, match="no checkpoint with a score"):
        store.load("best")


def test_of_equals_the_earlier_is_best(make, root, save):
    store = make()
    for step in (5, 10, 15):
        save(store, step, 0.5)
    assert store.best().step == 5
    assert steps(root) == [5, 15]


# -- retention -------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep_last", "keep_best", "kept"),
    [
        (1, 0, [30]),
        (1, 1, [10, 30]),
        (2, 1, [10, 25, 30]),
        (1, 2, [10, 20, 30]),
        (3, 3, [5, 10, 20, 25, 30]),
        (None, 1, [5, 10, 15, 20, 25, 30]),
        (1, None, [5, 10, 20, 25, 30]),
        (99, 99, [5, 10, 15, 20, 25, 30]),
    ],
)
def test_the_newest_and_the_best_stay(make, root, save, keep_last, keep_best, kept):
    store = make(keep_last=keep_last, keep_best=keep_best)
    for step, score in ((5, 0.4), (10, 0.9), (15, None), (20, 0.8), (25, 0.1), (30, 0.3)):
        save(store, step, score)
    assert steps(root) == kept


def test_a_new_process_keeps_the_old_best(make, root, save):
    save(make(), 5, 0.9)
    save(make(), 10, 0.1)
    save(make(), 15, 0.2)
    assert steps(root) == [5, 15]
    assert pointer(root, "best") == 5


def test_nothing_is_removed_before_the_new_one_is_committed(make, root, save, monkeypatch):
    store = make()
    save(store, 5)
    seen = []
    discard = directory.discard

    def watched(path):
        seen.append((path.name, directory.verify(root / "step-00000010").step))
        discard(path)

    monkeypatch.setattr(directory, "discard", watched)
    save(store, 10)
    assert seen == [("step-00000005", 10)]


@pytest.mark.parametrize("option", ["keep_last", "keep_best"])
@pytest.mark.parametrize("value", [-1, 1.5, "2", True])
def test_counts_that_make_no_sense_are_refused(root, option, value):
    with pytest.raises(ConfigError, match=f"checkpoint.{option}: .*allowed") as caught:
        CheckpointStore(root, **{option: value})
    assert f"checkpoint.{option}=1" in str(caught.value)


def test_keeping_no_last_is_refused_and_names_what_is_meant(root):
    with pytest.raises(ConfigError, match="checkpoint=none"):
        CheckpointStore(root, keep_last=0)


def test_keeping_no_best_means_that_there_is_none(make, root, save):
    store = make(keep_best=0)
    save(store, 5, 0.9)
    assert store.best() is None
    assert not (root / "best.json").exists()
    with pytest.raises(CheckpointError, match=r"checkpoint\.keep_best=1"):
        store.load("best")


# -- the same step again, and steps of the past ----------------------------------------------------


def test_saving_a_step_again_replaces_it(make, root, save, tree, assert_same):
    store = make()
    save(store, 5, 0.9, number=1)
    save(store, 5, 0.2, number=2)
    state, info = store.load("last")
    assert_same(state, tree(2))
    assert (info.score, store.best().score) == (0.2, 0.2)
    assert sorted(path.name for path in root.iterdir()) == [
        "best.json",
        "last.json",
        "step-00000005",
    ]


def test_saving_over_a_damaged_checkpoint_replaces_it(make, root, save):
    save(make(), 5)
    damage(root / "step-00000005")
    save(make(), 5)
    assert make().last().step == 5


def test_a_run_that_went_back_leaves_its_other_future(make, root, save, caplog):
    store = make(keep_last=2)
    for step, score in ((5, 0.1), (10, 0.2), (15, 0.9), (20, 0.3)):
        save(store, step, score)
    assert steps(root) == [15, 20]
    save(make(keep_last=2), 17, 0.4)
    assert steps(root) == [15, 17]
    save(make(keep_last=2), 12, 0.1)
    assert steps(root) == [12]
    assert (pointer(root, "last"), pointer(root, "best")) == (12, 12)
    assert caplog.text.count("the run went back to step") == 2


def test_what_a_killed_writer_left_is_cleared_away_by_the_next_save(make, root, save):
    save(make(), 5)
    (root / ".step-00000010.0123456789ab.tmp").mkdir()
    (root / ".step-00000010.0123456789ab.tmp" / "state.json").write_bytes(b"{")
    (root / ".last.json.0123456789ab.tmp").write_bytes(b"{")
    (root / ".mine.tmp").write_bytes(b"stays")
    before = everything(root)
    assert make().last().step == 5
    assert everything(root) == before
    save(make(), 10)
    assert {path.name for path in root.glob(".*")} == {".mine.tmp"}


@pytest.mark.parametrize("came", [True, False], ids=["after", "before"])
def test_a_checkpoint_that_stepped_aside_is_found_and_settled(make, root, save, came):
    save(make(), 5, number=1)
    (root / "step-00000005").rename(root / "step-00000005.replaced")
    if came:
        (root / "elsewhere").mkdir()
        other = CheckpointStore(root / "elsewhere")
        save(other, 5, number=2)
        other.close()
        (root / "elsewhere" / "step-00000005").rename(root / "step-00000005")
    assert make().load("last")[0]["trainer"]["number"] == (2 if came else 1)
    save(make(keep_last=2), 10)
    assert steps(root) == [5, 10]
    state, _ = make().load(root / "step-00000005")
    assert state["trainer"]["number"] == (2 if came else 1)


# -- damage ----------------------------------------------------------------------------------------


def test_a_damaged_last_is_passed_over_with_one_line_that_says_why(make, root, save, caplog):
    for step in (5, 10, 15):
        save(make(keep_last=None), step)
    for path in (root / "step-00000015").iterdir():
        os.truncate(path, path.stat().st_size // 2)
    (root / "last.json").unlink()
    assert make().load("last")[1].step == 10
    assert len(caplog.records) == 1
    assert "step-00000015" in caplog.text
    assert "MANIFEST.json" in caplog.text


def test_a_damaged_one_that_was_asked_for_is_an_error_that_names_the_last_good(make, root, save):
    for step in (5, 10, 15):
        save(make(keep_last=None), step)
    damage(root / "step-00000015")
    with pytest.raises(CheckpointError, match=r"model\.safetensors does not match") as caught:
        make().load(root / "step-00000015")
    assert f"resume={root / 'step-00000010'}" in str(caught.value)


def test_a_damaged_best_gives_way_to_the_next_best(make, root, save, caplog):
    store = make(keep_best=3)
    for step, score in ((5, 0.7), (10, 0.9), (15, 0.8)):
        save(store, step, score)
    damage(root / "step-00000010")
    assert make().load("best")[1].step == 15
    assert "skipped checkpoint" in caplog.text


@pytest.mark.parametrize("where", ["last", "best"])
def test_if_all_are_damaged_nothing_starts_anew_silently(make, root, save, where):
    store = make(keep_last=None)
    for step in (5, 10):
        save(store, step, 0.5)
        damage(root / f"step-{step:08d}", "state.json")
    for ask in (lambda: make().load(where), getattr(make(), where)):
        with pytest.raises(CheckpointError, match="every checkpoint is damaged") as caught:
            ask()
        assert str(caught.value).count("state.json does not match its checksum") == 2


def test_a_damaged_checkpoint_neither_counts_nor_is_removed(make, root, save):
    store = make(keep_last=None)
    for step in (5, 10):
        save(store, step)
    damage(root / "step-00000010", "MANIFEST.json")
    save(make(keep_last=2), 15)
    save(make(keep_last=2), 20)
    assert steps(root) == [10, 15, 20]


def test_another_format_is_named_as_such(make, root, save):
    save(make(), 5)
    manifest = root / "step-00000005" / "MANIFEST.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"format": 1', b'"format": 2'))
    with pytest.raises(CheckpointError, match="has format 2; this version reads 1"):
        make().load("last")


def test_an_absent_path_is_an_error_that_names_it(make, root):
    with pytest.raises(CheckpointError, match=f"{root}/nowhere cannot be used: No such file"):
        make().load(root / "nowhere")


def test_a_path_may_lie_outside_and_have_any_name(make, save, tmp_path):
    root = tmp_path / "checkpoints"
    save(CheckpointStore(root, background=False), 5)
    (root / "step-00000005").rename(tmp_path / "mine")
    (tmp_path / "link").symlink_to(tmp_path / "mine")
    assert make().load(tmp_path / "link")[1].step == 5


def test_a_checkpoint_of_another_step_under_a_name_does_not_count(make, root, save):
    save(make(), 5)
    (root / "step-00000005").rename(root / "step-00000050")
    with pytest.raises(CheckpointError, match="holds step 5, which is not its name"):
        make().load("last")


@pytest.mark.parametrize("which", ["last", "best"])
@pytest.mark.parametrize("kind", ["dangling", "empty", "older", "garbage", "link", "directory"])
def test_a_bad_pointer_is_ignored_with_one_line(make, root, save, caplog, which, kind, tmp_path):
    store = make(keep_last=None)
    for step in (5, 10):
        save(store, step, step / 10)
    file = root / f"{which}.json"
    good = file.read_text()
    file.unlink()
    if kind == "dangling":
        file.write_text(good.replace("step-00000010", "step-00000099"))
    elif kind == "older":
        file.write_text(good.replace("step-00000010", "step-00000005"))
    elif kind == "link":
        (tmp_path / "outside.json").write_text(good)
        file.symlink_to(tmp_path / "outside.json")
    elif kind == "directory":
        file.mkdir()
    else:
        file.write_text("" if kind == "empty" else "[1]")
    with caplog.at_level(logging.WARNING):
        assert make().load(which)[1].step == 10
    assert len(caplog.records) == 1
    assert f"{which}.json" in caplog.text


def test_the_root_may_be_a_link_to_another_disk(tmp_path, save, caplog):
    (tmp_path / "disk").mkdir()
    (tmp_path / "checkpoints").symlink_to(tmp_path / "disk")
    store = CheckpointStore(tmp_path / "checkpoints", background=False)
    for step in (5, 10):
        save(store, step, 0.5)
    assert store.load("last")[1].step == 10
    assert steps(tmp_path / "disk") == [5, 10]
    assert not caplog.records


def test_good_checkpoints_are_loaded_without_a_word(make, save, caplog):
    store = make()
    for step in (5, 10):
        save(store, step, 0.5)
    for where in ("last", "best"):
        make().load(where)
    assert not caplog.records
