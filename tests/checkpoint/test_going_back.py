"""A run that goes on: what it forgets, what it takes over, and what it does not trust."""

from __future__ import annotations

import errno
import json
import os
import threading

import pytest

from expkit.checkpoint import CheckpointStore, directory, manifest, search
from expkit.checkpoint.find import find_checkpoint
from expkit.core.errors import CheckpointError, NoCheckpointError

SCORES = {5: 0.9, 10: 0.5, 15: 0.95, 20: 0.1}


@pytest.fixture
def root(memory_path, save):
    """Four checkpoints that an earlier process has left."""
    root = memory_path / "checkpoints"
    store = CheckpointStore(root, keep_last=None)
    for step, score in SCORES.items():
        save(store, step, score)
    store.close()
    return root


@pytest.fixture
def store(root):
    store = CheckpointStore(root, keep_last=2)
    yield store
    store.close()


def steps(root):
    return sorted(int(path.name[5:]) for path in root.glob("step-*"))


def pointed(root):
    texts = {which: (root / f"{which}.json").read_text() for which in ("last", "best")}
    return {which: json.loads(text)["step"] for which, text in texts.items()}


def content(root):
    return {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}


def damage(path, name="model.safetensors"):
    content = bytearray((path / name).read_bytes())
    content[len(content) // 2] ^= 1
    (path / name).write_bytes(content)


# -- going back ------------------------------------------------------------------------------------


def test_what_came_later_is_gone_at_once_and_the_pointers_name_what_is_there(store, root, caplog):
    store.go_back(10)
    assert steps(root) == [5, 10]
    assert pointed(root) == {"last": 10, "best": 5}
    assert (store.last().step, store.best().step) == (10, 5)
    assert not list(root.glob(".*"))
    assert caplog.text.count("the run went back to step 10: removing its later checkpoints") == 1


def test_from_before_the_first_checkpoint_nothing_is_left(store, root, save):
    store.go_back(4)
    assert not list(root.iterdir())
    save(store, 6, 0.2)
    assert steps(root) == [6]
    assert pointed(root) == {"last": 6, "best": 6}


@pytest.mark.parametrize("step", [20, 99])
def test_where_nothing_came_later_nothing_changes(store, root, caplog, step):
    before = content(root)
    store.go_back(step)
    assert content(root) == before
    assert not caplog.text


def test_an_absent_directory_stays_absent(memory_path):
    CheckpointStore(memory_path / "none").go_back(3)
    assert not (memory_path / "none").exists()


def test_a_save_after_it_goes_on_from_there(store, root, save):
    store.go_back(10)
    save(store, 12, 0.3)
    assert steps(root) == [5, 10, 12]
    save(store, 14, 0.92)
    assert steps(root) == [12, 14]
    assert pointed(root) == {"last": 14, "best": 14}


def test_a_store_that_has_saved_may_go_back_too(store, root, save):
    save(store, 25, 0.97)
    assert steps(root) == [20, 25]
    store.go_back(20)
    save(store, 22, 0.2)
    assert steps(root) == [20, 22]
    assert pointed(root) == {"last": 22, "best": 22}


def test_damaged_ones_stay_where_they_are(store, root):
    damage(root / "step-00000020", "MANIFEST.json")
    store.go_back(10)
    assert steps(root) == [5, 10, 20]
    assert store.load("last")[1].step == 10


def test_one_that_stepped_aside_goes_with_the_others(store, root):
    (root / "step-00000020").rename(root / "step-00000020.replaced")
    store.go_back(10)
    assert sorted(path.name for path in root.glob("step-*")) == ["step-00000005", "step-00000010"]


def test_what_cannot_be_removed_is_an_error_in_words(store, root, monkeypatch):
    def refuse(path):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS), str(path))

    monkeypatch.setattr(directory, "discard", refuse)
    with pytest.raises(CheckpointError, match=f"after step 10 from {root}: Read-only"):
        store.go_back(10)


# -- what is not trusted ---------------------------------------------------------------------------


def test_by_default_one_damaged_file_does_not_cost_the_run(memory_path, save):
    root = memory_path / "checkpoints"
    store = CheckpointStore(root)
    for step in (5, 10, 15):  # the last is the best
        save(store, step, float(step))
    assert steps(root) == [10, 15]
    damage(root / "step-00000015")
    assert store.load("last")[1].step == 10
    assert store.load("best")[1].step == 10
    store.close()


def test_a_damaged_best_holds_no_place_and_is_not_named(store, root, save, caplog):
    damage(root / "step-00000015")
    save(store, 25, 0.2)
    # The best of the others stays; what is damaged does not count, and is not removed.
    assert steps(root) == [5, 15, 20, 25]
    assert pointed(root) == {"last": 25, "best": 5}
    assert store.best().step == 5
    assert caplog.text.count("step-00000015 is not among the best any more") == 1
    assert "model.safetensors does not match its checksum" in caplog.text


@pytest.mark.parametrize(("keep_best", "kept"), [(2, [5, 10, 15, 20, 25]), (0, [20, 25])])
def test_as_many_valid_ones_stay_as_shall(root, save, keep_best, kept):
    damage(root / "step-00000015")
    store = CheckpointStore(root, keep_last=2, keep_best=keep_best)
    save(store, 25, 0.2)
    store.close()
    assert steps(root) == kept


def test_the_best_is_read_once_and_not_by_the_thread_that_trains(store, save, monkeypatch):
    readers = []
    verify = search.verify

    def watched(path):
        readers.append((path.name, threading.current_thread()))
        return verify(path)

    monkeypatch.setattr(search, "verify", watched)
    save(store, 25, 0.2)
    save(store, 30, 0.3)
    ((name, thread),) = readers
    assert name == "step-00000015"
    assert thread is not threading.main_thread()


@pytest.mark.parametrize("prefer", ["last", "best"])
def test_a_checkpoint_is_read_once_to_be_found(root, monkeypatch, prefer):
    read = []
    parts = directory._parts

    def watched(path, manifest):
        read.append(path.name)
        return parts(path, manifest)

    monkeypatch.setattr(directory, "_parts", watched)
    found = find_checkpoint(root, prefer)
    step = {"last": 20, "best": 15}[prefer]
    assert (found.info.step, read) == (step, [f"step-{step:08d}"])


def test_a_run_without_a_best_gives_its_last_and_all_damaged_is_no_absence(memory_path, save):
    root = memory_path / "checkpoints"
    store = CheckpointStore(root)
    save(store, 5)
    assert find_checkpoint(root, "best").description.endswith("(last, step 5)")
    with pytest.raises(NoCheckpointError, match="no checkpoint with a score"):
        store.load("best")
    save(store, 10, 0.5)
    damage(root / "step-00000010")
    with pytest.raises(CheckpointError, match="every checkpoint is damaged") as caught:
        find_checkpoint(root, "best")
    assert not isinstance(caught.value, NoCheckpointError)
    store.close()


# -- where it comes from ---------------------------------------------------------------------------


def test_the_manifest_says_where_a_state_comes_from(memory_path, tree):
    store = CheckpointStore(memory_path, background=False)
    origin = {"framework": "torch", "world_size": 3, "linear_weights": ["0.weight"]}
    store.save(tree(5) | {"origin": origin}, step=5, epoch=0, metrics={}, score=None)
    said = directory.verify(memory_path / "step-00000005").origin
    assert said.keys() == {"expkit", "framework", "world_size"}
    assert (said["framework"], said["world_size"]) == ("torch", 3)


def test_a_manifest_that_does_not_say_it_is_read_as_before(root):
    path = root / "step-00000020"
    said = json.loads((path / "MANIFEST.json").read_text())
    del said["origin"], said["checksum"]
    (path / "MANIFEST.json").write_bytes(manifest._render(said))
    assert directory.verify(path).origin == {}
    assert CheckpointStore(root).load("last")[1].step == 20
