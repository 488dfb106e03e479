"""Corpora whose tokens have tags: which tables, which tags; how words are spelled in numbers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError
from harness.train.data.directory import existing, read_table
from harness.train.task import Data, Split

if TYPE_CHECKING:
    import numpy as np

LONGEST = 20
"""Characters of a word that are kept: of a longer one (an address, say) its first and last ten."""
UNKNOWN = 1
"""Number of a character that training has not; 0 is padding."""


def tokens(text: str) -> list[str]:
    """Tokens of a line: a single space stands between two of them."""
    return text.split(" ")


@dataclass(frozen=True)
class Spelling:
    """Numbers of characters.

    Attributes
    ----------
    numbers : mapping
        Of each character of the training words, from `UNKNOWN` + 1 on.
    """

    numbers: Mapping[str, int]

    @classmethod
    def build(cls, words: Iterable[str]) -> Spelling:
        """Of the characters of some words."""
        found = sorted({character for word in words for character in word})
        return cls({character: place for place, character in enumerate(found, start=UNKNOWN + 1)})

    def encode(self, words: Sequence[str]) -> np.ndarray:
        """Characters of words, int32 [n, LONGEST], 0 behind them."""
        import numpy as np

        out = np.zeros((len(words), LONGEST), np.int32)
        for row, word in zip(out, words, strict=True):
            half = LONGEST // 2
            kept = word if len(word) <= LONGEST else word[:half] + word[-half:]
            row[: len(kept)] = [self.numbers.get(character, UNKNOWN) for character in kept]
        return out

    @property
    def size(self) -> int:
        """How many numbers there are, those of padding and of unknown characters too."""
        return len(self.numbers) + UNKNOWN + 1


@dataclass(frozen=True)
class Tagged:
    """A corpus of tagged sentences as a task reads it; called, it loads what a `Task` needs.

    Attributes
    ----------
    files : tuple of str
        Tables of train, dev and test below the data directory, with a column ``tokens``.
    column : str
        Of the tags, as many as tokens, a space between them.
    tags : tuple of str
        In the order of their numbers, from 1 on; ``B-X`` and ``I-X`` are BIO.
    """

    files: tuple[str, ...]
    column: str
    tags: tuple[str, ...]

    def __call__(self, directory: Path | None, vectors: str, word_width: int, seed: int) -> Data:
        """The data of one seed; see `harness.train.task.load`."""
        import numpy as np

        from harness.train.data.examples import Examples, assemble, in_splits

        assert directory is not None
        tables = []
        for name in self.files:
            sentences, tags = self.read(directory / f"{name}.gz")
            held = np.empty(len(tags), object)  # of lists, each with its own length
            held[:] = tags
            tables.append(Examples([sentences], held))
        parts = in_splits(tables, 0, None, seed)
        data = assemble(parts, len(self.tags), tokens, vectors, directory, seed, word_width)
        known = {word for sentence in parts.train.sides[0] for word in sentence}
        spelling = Spelling.build(known)

        def spelled(split: Split, examples: Examples) -> Split:
            sentences = examples.sides[0]
            unseen = [np.array([w not in known for w in s], bool) for s in sentences]
            return Split(
                (*split.inputs, [spelling.encode(s) for s in sentences]),
                list(split.targets),
                {"unseen": unseen, "tags": self.tags},
            )

        return replace(
            data,
            train=spelled(data.train, parts.train),
            dev=spelled(data.dev, parts.dev),
            test=spelled(data.test, parts.test),
            spell=spelling.encode,
            characters=spelling.size,
        )

    def read(self, path: Path) -> tuple[list[list[str]], list[list[int]]]:
        """Tokens and numbers of the tags of each sentence of one table.

        Raises
        ------
        UsageError
            With the line of an empty token, of tags that are not as many as tokens or not known,
            and of a span that begins with I.
        """
        path = existing(path)
        sentences, numbers = [], []
        for line, row in enumerate(read_table(path, ("tokens", self.column)), start=2):
            words, tags = tokens(row["tokens"]), row[self.column].split(" ")
            wrong = self._wrong(words, tags)
            if wrong:
                raise UsageError(f"{path}:{line}: {wrong}")
            sentences.append(words)
            numbers.append([self._numbers[tag] for tag in tags])
        return sentences, numbers

    @cached_property
    def _numbers(self) -> Mapping[str, int]:
        return {tag: number for number, tag in enumerate(self.tags, start=1)}

    def _wrong(self, words: Sequence[str], tags: Sequence[str]) -> str:
        """What is wrong with a sentence; empty if nothing is."""
        if not all(words):
            return "an empty token; expected tokens with one space between two of them"
        if len(words) != len(tags):
            return f"{len(words)} tokens and {len(tags)} tags; expected a tag for each token"
        before = "O"
        for place, (word, tag) in enumerate(zip(words, tags, strict=True), start=1):
            here = f"tag {tag!r} of token {place}, {word!r}"
            if tag not in self._numbers:
                return f"{here}; expected one of {', '.join(self.tags)}"
            # What models say is counted as conlleval does, and begins a span; truth must be plain.
            if tag.startswith("I-") and before[2:] != tag[2:]:
                return f"{here}, begins a span; expected BIO, where B-{tag[2:]} does: write that"
            before = tag
        return ""


def made_up(sentences: Sequence[Any], targets: Sequence[Any], tags: Sequence[str]) -> Split:
    """A split of drawn sentences of word ids, whose words all are seen in training."""
    import numpy as np

    unseen = [np.zeros(len(sentence), bool) for sentence in sentences]
    return Split((list(sentences),), list(targets), {"unseen": unseen, "tags": tuple(tags)})
