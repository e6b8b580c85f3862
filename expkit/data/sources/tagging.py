"""Sequence labelling."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain, pairwise

import numpy as np

from expkit.data.padding import Pad
from expkit.data.ragged import Ragged
from expkit.data.sources.bundled import read_bundled
from expkit.data.sources.language import IGNORED_ID
from expkit.data.sources.text import PAD_ID, encode, encode_each, refuse_smaller, vocabulary
from expkit.data.splits import Splits, split

_MARKS = {".", ",", "?", "!", "-", "...", '"', "'"}
_MAX_NGRAMS = 12
_BEGIN, _MIDDLE, _END, _SINGLE = range(4)


def hkcancor_pos(
    vocab_size: int = 3700, ngram_vocab_size: int = 14700, split_seed: int = 0
) -> Splits:
    """Cantonese speech with the part of speech of each word: 16,162 utterances, 153,654 words.

    The Hong Kong Cantonese Corpus (K.-K. Luke and M. L. Y. Wong, "The Hong Kong Cantonese Corpus:
    design and uses", Journal of Chinese Linguistics 25, 2015; CC BY 4.0), as the package
    pycantonese holds it. It has 91 tags, and 8 punctuation marks that are tags of their own.

    Args:
        vocab_size: word ids in all: padding 0, unknown words 1, then the most frequent words of the
            training set.
        ngram_vocab_size: likewise for n-grams, which tell of unknown words; 0 = no field
            ``ngrams``.
        split_seed: seed of the 90/10 split of utterances.

    Returns:
        Sets of 14,545 and 1,617 utterances, which end with padding where they are shorter than
            others of their batch: ``x`` int64 of shape (n, words); ``y`` int64, tags in the order
            of their names, and -1 in the padding; ``ngrams`` int64 of shape (n, words, 12), the
            first 12 of all 1-, 2- and 3-grams of a word's characters, its bounds among them.
    """
    _check_sizes(vocab_size, ngram_vocab_size)
    utterances = _utterances()
    names = sorted({tag for utterance in utterances for _, tag in utterance})
    tag_ids = {name: number for number, name in enumerate(names)}
    sentences = [[word for word, _ in utterance] for utterance in utterances]
    tags = [[tag_ids[tag] for _, tag in utterance] for utterance in utterances]
    ngrams_of = {word: _word_ngrams(word) for word in {*chain.from_iterable(sentences)}}
    ngrams = [[ngrams_of[word] for word in sentence] for sentence in sentences]
    return _splits(sentences, tags, ngrams, vocab_size, ngram_vocab_size, split_seed)


def hkcancor_segmentation(
    vocab_size: int = 2000, ngram_vocab_size: int = 31000, split_seed: int = 0
) -> Splits:
    """Cantonese speech without blanks, where words are to be found: 16,162 utterances.

    The corpus of `hkcancor_pos`. Each character is at the beginning of a word (0), in its middle
    (1), at its end (2), or a word by itself (3): the tags B, M, E and S.

    Args:
        vocab_size: character ids in all: padding 0, unknown characters 1, then the most frequent
            characters of the training set.
        ngram_vocab_size: likewise for pairs of characters; 0 = no field ``ngrams``.
        split_seed: seed of the 90/10 split of utterances.

    Returns:
        Sets of 14,545 and 1,617 utterances, which end with padding where they are shorter than
            others of their batch: ``x`` int64 of shape (n, characters); ``y`` int64, -1 in the
            padding; ``ngrams`` int64 of shape (n, characters, 2), the pairs that a character makes
            with the one before and with the one after.
    """
    _check_sizes(vocab_size, ngram_vocab_size)
    words = [[word for word, _ in utterance] for utterance in _utterances()]
    texts = [list("".join(sentence)) for sentence in words]
    tags = [list(chain.from_iterable(map(_places, sentence))) for sentence in words]
    ngrams = [_pairs(text) for text in texts]
    return _splits(texts, tags, ngrams, vocab_size, ngram_vocab_size, split_seed)


def _check_sizes(vocab_size: int, ngram_vocab_size: int) -> None:
    least = 3 if ngram_vocab_size else 0
    refuse_smaller(vocab_size=(vocab_size, 3), ngram_vocab_size=(ngram_vocab_size, least))


def _utterances() -> list[list[tuple[str, str]]]:
    """The words of each utterance and their tags.

    A name in several words, such as ``Hong Kong``, has its tag at the first: the others get it too.
    """
    files = read_bundled(
        "pycantonese",
        "3.4.0",
        ["pycantonese/data/hkcancor/*.cha"],
        "428e96acd730d435b2efb0d1ae9d8453c1b4d1f91cd38112bbe4d52aa6515704",
    )
    utterances: list[list[tuple[str, str]]] = []
    for file in files:
        words: list[str] = []
        for line in file.decode("utf-8").replace("\r\n", "\n").replace("\n\t", " ").split("\n"):
            head, _, text = line.partition("\t")
            if head.startswith("*"):
                words = text.split()
            elif head == "%mor:":
                tags: list[str] = []
                for entry in text.split():
                    tag, is_tagged, _ = entry.partition("|")
                    tags.append(tag if is_tagged or tag in _MARKS else tags[-1])
                utterances.append(list(zip(words, tags, strict=True)))
    return utterances


def _word_ngrams(word: str) -> list[str]:
    """All 1-, 2- and 3-grams of a word, shorter ones first; with its bounds from 2 on."""
    bounded = f"<{word}>"
    longer = (bounded[i : i + n] for n in (2, 3) for i in range(len(bounded) - n + 1))
    return [*word, *longer][:_MAX_NGRAMS]


def _places(word: str) -> list[int]:
    """The tag of each character of a word."""
    if len(word) == 1:
        return [_SINGLE]
    return [_BEGIN, *[_MIDDLE] * (len(word) - 2), _END]


def _pairs(text: Sequence[str]) -> list[list[str]]:
    """The pair of characters that each one ends, and the pair that it begins."""
    bounded = ["", *text, ""]
    pairs = [before + after for before, after in pairwise(bounded)]
    return [[f"left {left}", f"right {right}"] for left, right in pairwise(pairs)]


def _splits(
    sentences: Sequence[Sequence[str]],
    tags: Sequence[Sequence[int]],
    ngrams: Sequence[Sequence[Sequence[str]]],
    vocab_size: int,
    ngram_vocab_size: int,
    split_seed: int,
) -> Splits:
    """Two sets from sentences of tokens, the tag of each token, and the n-grams of each token."""
    train, test = split(len(sentences), 0.1, split_seed)
    ids = vocabulary((sentences[index] for index in train), vocab_size)
    rows = {"x": encode_each(sentences, ids)}
    rows["y"] = [np.array(row) for row in tags]
    if ngram_vocab_size:
        of_training = (token for index in train for token in ngrams[index])
        ngram_ids = vocabulary(of_training, ngram_vocab_size)
        width = max(len(token) for sentence in ngrams for token in sentence)
        rows["ngrams"] = [encode(sentence, ngram_ids, width) for sentence in ngrams]
    pads = {"x": Pad(PAD_ID), "y": Pad(IGNORED_ID), "ngrams": Pad(PAD_ID)}
    parts = [
        {name: Ragged.of([row[index] for index in part], pads[name]) for name, row in rows.items()}
        for part in (train, test)
    ]
    return Splits(*parts)
