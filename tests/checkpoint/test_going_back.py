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


def names(root):
    return sorted(path.name for path in root.glob("step-*"))


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


@pytest.mark.parametrize("name", ["MANIFEST.json", "model.safetensors"])
def test_later_ones_that_cannot_be_read_are_set_aside_and_not_removed(store, root, caplog, name):
    damage(root / "step-00000005")
    damage(root / "step-00000020", name)
    before = content(root / "step-00000020")
    store.go_back(10)
    assert names(root) == ["step-00000005", "step-00000010", "step-00000020.damaged"]
    kept = {path.name: text for path, text in content(root / "step-00000020.damaged").items()}
    assert kept == {path.name: text for path, text in before.items()}
    assert caplog.text.count("step-00000020 is not whole") == 1
    assert f"({name} does not match" in caplog.text
    assert "is set aside as step-00000020.damaged" in caplog.text
    assert pointed(root) == {"last": 10, "best": 5}


def test_what_was_set_aside_never_counts_again_and_has_a_name_of_its_own(root, save):
    store = CheckpointStore(root, keep_last=None)
    for _ in range(3):
        save(store, 20, 0.99)
        damage(root / "step-00000020")
        store.go_back(10)
        assert (store.last().step, store.best().step) == (10, 5)
    aside = ["step-00000020.damaged", "step-00000020.damaged-2", "step-00000020.damaged-3"]
    assert names(root) == ["step-00000005", "step-00000010", *aside]
    save(store, 12, 0.3)
    assert names(root) == ["step-00000005", "step-00000010", "step-00000012", *aside]
    store.close()


def test_a_disk_that_fails_to_read_costs_no_checkpoint(store, root, monkeypatch):
    read = directory._read

    def broken(at, name, limit):
        if name == "model.safetensors" and limit == size:
            raise manifest.DamageError(f"{name} cannot be read (Input/output error)")
        return read(at, name, limit)

    size = (root / "step-00000020/model.safetensors").stat().st_size
    monkeypatch.setattr(directory, "_read", broken)
    store.go_back(10)
    monkeypatch.undo()
    assert not {"step-00000015", "step-00000020"} & set(names(root))
    (root / "step-00000020.damaged").rename(root / "step-00000020")
    assert store.last().step == 20


def test_a_save_of_an_earlier_step_sets_aside_too(store, root, save):
    damage(root / "step-00000020")
    save(store, 12, 0.3)
    kept = ["step-00000005", "step-00000010", "step-00000012"]
    assert names(root) == [*kept, "step-00000020.damaged"]


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


@pytest.mark.parametrize("name", ["step-20", "step-000000020", "step-٠٠٠٠٠٠٢٠"])
def test_a_checkpoint_counts_by_its_own_name_only(store, root, save, caplog, name):
    (root / "step-00000020").rename(root / name)
    assert store.last().step == 15
    assert "it holds step 20, which is not its name" in caplog.text
    assert search.newest_step(root) == 15
    store.go_back(10)
    assert names(root) == sorted(["step-00000005", "step-00000010", f"{name}.damaged"])
    caplog.clear()
    save(store, 12, 0.3)
    assert not caplog.text


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
