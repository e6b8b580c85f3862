"""No damage goes unseen: flipped bits, torn files, hostile files, links."""

from __future__ import annotations

import os
import random
import shutil
import time

import numpy as np
import pytest

from expkit.checkpoint import CheckpointStore, directory
from expkit.checkpoint.manifest import DamageError, FileEntry, Manifest
from expkit.checkpoint.tensors import Part, encode
from expkit.core.errors import CheckpointError
from expkit.core.store import CheckpointInfo


@pytest.fixture
def root(memory_path, save):
    store = CheckpointStore(memory_path / "checkpoints", keep_last=None)
    for step in (5, 10):
        save(store, step, step / 10)
    store.close()
    return memory_path / "checkpoints"


@pytest.fixture
def newest(root):
    return root / "step-00000010"


def files_of(path):
    return {file: file.read_bytes() for file in sorted(path.iterdir())}


def test_every_flipped_bit_is_seen(newest):
    contents = files_of(newest)
    assert len(contents) == 6
    places = [(file, offset) for file, data in contents.items() for offset in range(len(data))]
    chance = random.Random(0)
    for file, offset in chance.sample(places, 1000):
        damaged = bytearray(contents[file])
        damaged[offset] ^= 1 << chance.randrange(8)
        file.write_bytes(damaged)
        with pytest.raises(DamageError):
            directory.verify(newest)
        file.write_bytes(contents[file])
    directory.verify(newest)


def test_every_bit_of_the_manifest_counts():
    entry = FileEntry("state.json", 2, "0" * 64)
    text = Manifest(5, 1, {"loss": 0.1}, -0.1, (entry,), {"world_size": 2}).to_bytes()
    for offset in range(len(text)):
        for bit in range(8):
            damaged = bytearray(text)
            damaged[offset] ^= 1 << bit
            with pytest.raises(DamageError):
                Manifest.from_bytes(bytes(damaged))
    assert Manifest.from_bytes(text).to_bytes() == text


def test_every_torn_file_is_seen(newest):
    chance = random.Random(1)
    for file, data in files_of(newest).items():
        cuts = [0, 1, len(data) - 1, *(chance.randrange(len(data)) for _ in range(15))]
        for torn in [*(data[:cut] for cut in cuts), data + b"\0", data + data]:
            file.write_bytes(torn)
            with pytest.raises(DamageError):
                directory.verify(newest)
        file.write_bytes(data)


def test_lost_pages_and_lost_files_are_seen(newest):
    for file, data in files_of(newest).items():
        file.write_bytes(bytes(len(data)))
        with pytest.raises(DamageError):
            directory.verify(newest)
        file.unlink()
        with pytest.raises(DamageError, match=f"{file.name} is missing"):
            directory.verify(newest)
        file.write_bytes(data)


def test_parts_of_another_step_are_seen(root, newest):
    for file, data in files_of(newest).items():
        other = (root / "step-00000005" / file.name).read_bytes()
        if other == data:
            continue
        file.write_bytes(other)
        with pytest.raises(CheckpointError, match="cannot be used"):
            CheckpointStore(root).load(newest)
        assert CheckpointStore(root).load("last")[1].step == 5
        file.write_bytes(data)


def test_after_damage_the_previous_checkpoint_is_taken(root, newest, caplog, tree, assert_same):
    for file, data in files_of(newest).items():
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 4]))
        caplog.clear()
        state, info = CheckpointStore(root).load("last")
        assert info.step == 5
        assert_same(state, tree(5))
        skipped = [record for record in caplog.records if "skipped" in record.getMessage()]
        assert len(skipped) == 1
        assert file.name in skipped[0].getMessage()
        file.write_bytes(data)


def refused(path, match):
    start = time.monotonic()
    with pytest.raises(CheckpointError, match=match):
        CheckpointStore(path.parent).load(path)
    assert time.monotonic() - start < 2


@pytest.mark.parametrize("name", ["state.json", "model.safetensors", "MANIFEST.json"])
@pytest.mark.parametrize("kind", ["link", "fifo", "directory", "device"])
def test_a_part_that_is_no_regular_file_is_refused_unread(newest, tmp_path, name, kind):
    part = newest / name
    (tmp_path / "outside").write_bytes(part.read_bytes())
    part.unlink()
    if kind == "link":
        part.symlink_to(tmp_path / "outside")
    elif kind == "fifo":
        os.mkfifo(part)
    elif kind == "directory":
        part.mkdir()
    elif os.geteuid() == 0:
        os.mknod(part, 0o20644, os.makedev(1, 5))  # /dev/zero
    else:
        pytest.skip("making a device needs root")
    refused(newest, f"{name} is (a link|not a regular file)")


def test_a_checkpoint_that_is_a_link_does_not_count(root, newest, tmp_path):
    shutil.move(newest, tmp_path / "outside")
    newest.symlink_to(tmp_path / "outside")
    assert CheckpointStore(root).last().step == 5


@pytest.mark.parametrize(
    "name",
    ["../step-00000005/state.json", "/etc/passwd", "a/b.json", "..", "", ".json", "x.json\n"],
)
def test_names_that_lead_elsewhere_are_refused(newest, name):
    entry = FileEntry(name, 3, "0" * 64)
    (newest / "MANIFEST.json").write_bytes(Manifest(10, 0, {}, None, (entry,)).to_bytes())
    refused(newest, "not the name of a part")


@pytest.mark.parametrize("field", [{"size": -1}, {"size": 1.0}, {"size": True}, {"sha256": "x"}])
def test_nonsense_in_a_manifest_is_refused(newest, field):
    entry = FileEntry(**({"name": "state.json", "size": 3, "sha256": "0" * 64} | field))
    (newest / "MANIFEST.json").write_bytes(Manifest(10, 0, {}, None, (entry,)).to_bytes())
    refused(newest, "cannot be read")


@pytest.mark.parametrize("text", [b"", b"null", b"[]", b"{}", b"\xff", b"[" * 10**6, b"\x80\x04."])
def test_manifests_of_another_kind_are_refused(newest, text):
    (newest / "MANIFEST.json").write_bytes(text)
    refused(newest, "MANIFEST.json")


def test_a_manifest_of_terabytes_is_refused_unread(newest):
    os.truncate(newest / "MANIFEST.json", 10**12)
    refused(newest, "MANIFEST.json has 1000000000000 bytes")


@pytest.mark.parametrize("header", [10**12, 2**63, 100_000_000, 3])
def test_a_header_longer_than_its_file_is_refused(root, header):
    content = header.to_bytes(8, "little") + b"{}"
    forged(root, Part("model.safetensors", [content], len(content)))
    refused(root / "step-00000020", "no state tree")


def test_a_part_nested_without_end_is_refused(root):
    forged(root, Part("rank-0000.json", [b"[" * 10**6], 10**6))
    refused(root / "step-00000020", "no state tree")


def forged(root, *parts):
    """A checkpoint whose manifest is right and whose content is not."""
    parts = [*encode({"trainer": {}}), *parts]
    info = CheckpointInfo(None, 20, 0)
    path = root / "step-00000020"
    directory.write(path, parts, lambda: tuple(part.entry() for part in parts), info, {})


def test_nothing_is_executed_for_a_name_in_the_state(tmp_path):
    evil = {"_target_": "os.system", "_instantiator": "os.system", "x": np.zeros(1)}
    store = CheckpointStore(tmp_path, background=False)
    store.save({"callbacks": {"evil": evil}}, step=1, epoch=0, metrics={}, score=None)
    assert store.load("last")[0]["callbacks"]["evil"]["_target_"] == "os.system"


def test_links_are_removed_and_never_followed(root, tmp_path, save):
    outside = tmp_path / "outside"
    outside.mkdir()
    (outside / "precious").write_text("stays")
    (root / "step-00000005" / "extra").symlink_to(outside)
    shutil.rmtree(root / "step-00000010")
    (root / "step-00000010").symlink_to(outside)
    (root / ".a.0123456789ab.tmp").symlink_to(outside)
    (root / "last.json").unlink()
    (root / "last.json").symlink_to(outside / "precious")
    (root / "step-00000015").symlink_to(tmp_path / "nowhere")
    store = CheckpointStore(root, keep_last=1, keep_best=0)
    for step in (10, 15, 20):
        save(store, step)
    store.close()
    assert sorted(path.name for path in root.iterdir()) == ["last.json", "step-00000020"]
    assert (outside / "precious").read_text() == "stays"
    assert sorted(path.name for path in outside.iterdir()) == ["precious"]


@pytest.mark.parametrize(
    "about",
    [
        *({"step": float("inf")}, {"epoch": float("-inf")}, {"step": float("nan")}),
        *({"score": 10**400}, {"metrics": {"accuracy": 10**400}}, {"metrics": [1]}),
    ],
)
def test_numbers_that_are_none_of_a_run_are_damage(about):
    content = {"step": 5, "epoch": 0, "metrics": {}, "score": None, "files": (), **about}
    with pytest.raises(DamageError, match=r"MANIFEST\.json cannot be read"):
        Manifest.from_bytes(Manifest(**content).to_bytes())
