"""Checkpoints made to do harm: each is built below a directory, with a payload that leaves a mark.

Where a payload is executed, a directory appears at the place of the mark.
"""

from __future__ import annotations

import hashlib
import io
import json
import os
import pickle
import tarfile
import zipfile
from collections.abc import Callable
from pathlib import Path

import numpy as np

from expkit.checkpoint.manifest import FileEntry, Manifest
from expkit.checkpoint.tensors import encode

STEP = 20
NAME = f"step-{STEP:08d}"

Builder = Callable[[Path, Path], Path]
"""Makes something below the first path whose payload makes the second; returns where it is."""


class Payload:
    """Unpickled, it makes a directory."""

    def __init__(self, mark: Path) -> None:
        self._mark = str(mark)

    def __reduce__(self):
        return (os.mkdir, (self._mark,))


def payload(mark: Path) -> bytes:
    return pickle.dumps(Payload(mark))


# -- files of frameworks that execute what they hold -----------------------------------------------


def torch_file(root: Path, mark: Path) -> Path:
    """What ``torch.save`` writes: a zip archive with a pickle."""
    with zipfile.ZipFile(root / "model.pt", "w") as archive:
        archive.writestr("archive/data.pkl", payload(mark))
        archive.writestr("archive/version", "3\n")
    return root / "model.pt"


def legacy_torch_file(root: Path, mark: Path) -> Path:
    """What ``torch.save`` wrote before: pickles one after the other."""
    magic = pickle.dumps(0x1950A86A20F9469CFC6C) + pickle.dumps(1001) + pickle.dumps({})
    (root / "model.pt").write_bytes(magic + payload(mark))
    return root / "model.pt"


def torch_file_in_a_checkpoint(root: Path, mark: Path) -> Path:
    (root / NAME).mkdir()
    torch_file(root / NAME, mark)
    return root / NAME


def object_arrays(root: Path, mark: Path) -> Path:
    """An ``.npz`` whose array is of objects, as a part that the manifest lists."""
    buffer = io.BytesIO()
    np.savez(buffer, w=np.array([Payload(mark)], dtype=object))
    return listed(root, {"state.json": b"{}", "model.npz": buffer.getvalue()})


def paddle_parameters(root: Path, mark: Path) -> Path:
    """``.pdparams`` is a pickle."""
    (root / NAME).mkdir()
    (root / NAME / "model.pdparams").write_bytes(payload(mark))
    return root / NAME


def distributed_checkpoint(root: Path, mark: Path) -> Path:
    """A directory of ``torch.distributed.checkpoint``, whose metadata are a pickle."""
    (root / NAME).mkdir()
    (root / NAME / ".metadata").write_bytes(payload(mark))
    (root / NAME / "__0_0.distcp").write_bytes(payload(mark))
    return root / NAME


# -- checkpoints with a right manifest -------------------------------------------------------------


def listed(root: Path, files: dict[str, bytes]) -> Path:
    """A checkpoint whose manifest fits its files, whatever these hold."""
    path = root / NAME
    path.mkdir()
    for name, content in files.items():
        (path / name).write_bytes(content)
    entries = tuple(
        FileEntry(name, len(content), hashlib.sha256(content).hexdigest())
        for name, content in files.items()
    )
    (path / "MANIFEST.json").write_bytes(Manifest(STEP, 0, {}, None, entries).to_bytes())
    return path


def tree(**more: object) -> bytes:
    return json.dumps({"model": {"w": None}, "trainer": {}, **more}).encode()


def pickle_as_weights(root: Path, mark: Path) -> Path:
    return listed(root, {"state.json": tree(), "model.safetensors": payload(mark)})


def archive_as_weights(root: Path, mark: Path) -> Path:
    """An archive that ``torch.load`` takes, under the name of the weights."""
    content = torch_file(root, mark).read_bytes()
    return listed(root, {"state.json": tree(), "model.safetensors": content})


def weights_and_pickle(root: Path, mark: Path) -> Path:
    """Weights that are followed by a pickle."""
    parts = {part.name: b"".join(part.chunks) for part in encode({"model": {"w": np.ones(3)}})}
    return listed(root, parts | {"model.safetensors": parts["model.safetensors"] + payload(mark)})


def pickle_as_state(root: Path, mark: Path) -> Path:
    return listed(root, {"state.json": payload(mark)})


def names_of_code(root: Path, mark: Path) -> Path:
    """Strings that elsewhere choose what is imported and called."""
    evil = {"_target_": "os.mkdir", "_args_": [str(mark)], "_instantiator": "os.mkdir"}
    state = {"model": evil, "trainer": evil, "callbacks": {"evil": evil}, "origin": evil, **evil}
    return listed(root, {"state.json": json.dumps(state).encode()})


def endless_header(root: Path, mark: Path) -> Path:
    """Weights whose header is said to have 10^12 bytes."""
    content = (10**12).to_bytes(8, "little") + b"{}"
    return listed(root, {"state.json": tree(), "model.safetensors": content})


def endless_shape(root: Path, mark: Path) -> Path:
    """An array of 10^12 numbers in no bytes."""
    header = {"w": {"dtype": "F32", "shape": [10**12], "data_offsets": [0, 0]}}
    text = json.dumps(header).encode()
    content = len(text).to_bytes(8, "little") + text
    return listed(root, {"state.json": tree(), "model.safetensors": content})


def endless_random_state(root: Path, mark: Path) -> Path:
    """The same in the JSON of a rank, of a type that NumPy would unpickle."""
    entry = {"dtype": "O", "shape": [10**12], "base64": ""}
    rank = json.dumps({"tree": {"a": None}, "arrays": {"a": entry}}).encode()
    return listed(root, {"state.json": b"{}", "rank-0000.json": rank})


def deep_state(root: Path, mark: Path) -> Path:
    return listed(root, {"state.json": b"[" * 10**6})


def deep_manifest(root: Path, mark: Path) -> Path:
    (root / NAME).mkdir()
    (root / NAME / "MANIFEST.json").write_bytes(b'{"a":' * 10**6)
    return root / NAME


def wide_manifest(root: Path, mark: Path) -> Path:
    """So many empty lists that they take twenty times the file's bytes in memory."""
    (root / NAME).mkdir()
    (root / NAME / "MANIFEST.json").write_bytes(b"[" + b"[]," * (5 << 20) + b"[]]")
    return root / NAME


def repeated_part(root: Path, mark: Path) -> Path:
    """One part, listed so often that reading it takes minutes."""
    content = bytes(1 << 20)
    path = listed(root, {"state.json": content})
    entry = FileEntry("state.json", len(content), hashlib.sha256(content).hexdigest())
    manifest = Manifest(STEP, 0, {}, None, (entry,) * 5_000)
    (path / "MANIFEST.json").write_bytes(manifest.to_bytes())
    return path


# -- ways out of the directory ---------------------------------------------------------------------


def way_out(root: Path, mark: Path) -> Path:
    """A part that is elsewhere."""
    path = listed(root, {"state.json": b"{}"})
    entry = FileEntry(f"../../{mark.name}/x.json", 2, hashlib.sha256(b"{}").hexdigest())
    (path / "MANIFEST.json").write_bytes(Manifest(STEP, 0, {}, None, (entry,)).to_bytes())
    return path


def linked_part(root: Path, mark: Path) -> Path:
    path = listed(root, {"state.json": b"{}"})
    outside = root / "outside.json"
    (path / "state.json").rename(outside)
    (path / "state.json").symlink_to(outside)
    return path


def linked_checkpoint(root: Path, mark: Path) -> Path:
    outside = root / "outside"
    outside.mkdir()
    pickle_as_state(outside, mark)
    (root / NAME).symlink_to(outside / NAME)
    return root / NAME


def archive_of_ways_out(root: Path, mark: Path) -> Path:
    """An archive whose members go elsewhere, in place of a checkpoint."""
    with tarfile.open(root / NAME, "w:gz") as archive:
        link = tarfile.TarInfo("link")
        link.type, link.linkname = tarfile.SYMTYPE, str(mark.parent)
        archive.addfile(link)
        member = tarfile.TarInfo(f"link/{mark.name}")
        member.type = tarfile.DIRTYPE
        archive.addfile(member)
    return root / NAME


def zip_bomb(root: Path, mark: Path) -> Path:
    """Two gigabytes of zeros in two megabytes, under the name of the weights."""
    zeros = io.BytesIO()
    with zipfile.ZipFile(zeros, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("0", bytes(16 << 20))
    with zipfile.ZipFile(root / "bomb", "w", zipfile.ZIP_DEFLATED) as archive:
        for number in range(128):  # each unpacks again
            archive.writestr(f"archive/data/{number}", zeros.getvalue())
        archive.writestr("archive/data.pkl", payload(mark))
    content = (root / "bomb").read_bytes()
    return listed(root, {"state.json": tree(), "model.safetensors": content})


# -- what is no file -------------------------------------------------------------------------------


def pipe_as_part(root: Path, mark: Path) -> Path:
    path = listed(root, {"state.json": b"{}"})
    (path / "state.json").unlink()
    os.mkfifo(path / "state.json")
    return path


def pipe_as_checkpoint(root: Path, mark: Path) -> Path:
    os.mkfifo(root / NAME)
    return root / NAME


def device_as_part(root: Path, mark: Path) -> Path:
    path = listed(root, {"state.json": b"{}"})
    (path / "state.json").unlink()
    os.mknod(path / "state.json", 0o20644, os.makedev(1, 5))  # /dev/zero
    return path


def device_as_checkpoint(root: Path, mark: Path) -> Path:
    return Path("/dev/zero")


LOADS = (names_of_code,)
"""What can be read, for nothing in it is executed."""

CORPUS: dict[str, Builder] = {
    builder.__name__: builder
    for builder in (
        torch_file,
        legacy_torch_file,
        torch_file_in_a_checkpoint,
        object_arrays,
        paddle_parameters,
        distributed_checkpoint,
        pickle_as_weights,
        archive_as_weights,
        weights_and_pickle,
        pickle_as_state,
        *LOADS,
        endless_header,
        endless_shape,
        endless_random_state,
        deep_state,
        deep_manifest,
        wide_manifest,
        repeated_part,
        way_out,
        linked_part,
        linked_checkpoint,
        archive_of_ways_out,
        zip_bomb,
        pipe_as_part,
        pipe_as_checkpoint,
        device_as_part,
        device_as_checkpoint,
    )
}
