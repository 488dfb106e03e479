"""Corpora of labelled sentences, pairs of them, or tagged tokens: which tables, which columns.

How words are spelled in numbers, too.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from harness.errors import UsageError
from harness.train.data.directory import existing, read_table
from harness.train.task import Data, Split

if TYPE_CHECKING:
    import numpy as np

    from harness.train.data.examples import Examples, Splits

LONGEST = 20
"""Characters of a word that are kept: of a longer one (an address, say) its first and last ten."""
UNKNOWN = 1
"""Number of a character that training has not; 0 is padding."""
_PIECES = re.compile(
    r"""\w+(?:-\w+)*?(?=n't\b)     # what "n't" is attached to: do|n't, ca|n't
      | n't\b
      | '(?:s|re|ve|ll|d|m)\b      # the other clitics of English
      | \w+(?:-\w+)*               # a word, with hyphens inside
      | [^\w\s]                    # a mark of punctuation
    """,
    re.VERBOSE | re.IGNORECASE,
)


def tokens_raw(text: str) -> list[str]:
    """Tokens of raw English text, such as SICK's.

    Words keep their case and their inner hyphens; the clitics n't, 's, 're, 've, 'll, 'd, 'm are
    tokens of their own, and so is every mark of punctuation. A typographic apostrophe counts as
    a plain one. Nothing but white space is lost, and tokens joined by spaces give the same tokens.

    Examples
    --------
    >>> tokens_raw("The man's T-shirt isn't dry, is it?")
    ['The', 'man', "'s", 'T-shirt', 'is', "n't", 'dry', ',', 'is', 'it', '?']
    """
    return _PIECES.findall(text.replace("\N{RIGHT SINGLE QUOTATION MARK}", "'"))


Rows = list[tuple[int, dict[str, str]]]
"""Of a table, with the numbers of their lines."""


@dataclass(frozen=True)
class Texts:
    """A corpus of labelled texts as a task reads it; called, it loads what a `Task` needs."""

    # Tables below the data directory: of train, dev and test; of train and test, where a tenth of
    # train, drawn by the seed, is dev; or a single one, which is cut into folds.
    files: tuple[str, ...]
    columns: tuple[str, ...]  # of the sentences, one per input of the model
    target: str  # column of the target
    # Names in the order of their numbers, where a target is a class (int64).
    classes: tuple[str, ...] = ()
    degrees: int = 0  # the largest degree, where a target is one, from 1 on (float32)
    # Cuts at white space where none is given: the texts are tokenised already.
    tokenise: Callable[[str], list[str]] = str.split
    folds: int = 0  # of a single file
    last: int = 0  # of train and test, how many rows at the end of train are dev instead of a tenth
    # Column that says to which part of the corpus a row belongs; the task's option of that name
    # chooses the part that is read. Empty where all of it is.
    part: str = ""
    parts: tuple[str, ...] = ()  # what stands in that column

    def __call__(
        self,
        directory: Path | None,
        vectors: str,
        word_width: int,
        seed: int,
        fold: int | None = None,
        longest: int | None = None,
        **chosen: str,
    ) -> Data:
        """The data of one seed, or of one seed and fold; see `harness.train.task.load`.

        Parameters
        ----------
        longest : int, optional
            Tokens of a text, the first ones; the others are left out.
        chosen
            The part, by the name of its column.

        Raises
        ------
        UsageError
            With the line of what is none of the classes, degrees or parts; for texts of no token;
            or if a table can't be read, or has no row for train.
        """
        from harness.train.data.examples import assemble, in_splits

        assert directory is not None
        if longest is not None and longest < 1:
            raise UsageError(f"longest={longest}; expected at least 1")

        def cut(text: str) -> list[str]:
            return self.tokenise(text)[:longest]

        tables, mine, examples = [], [], []
        for name in self.files:
            path = existing(directory / f"{name}.gz")
            tables.append(self._rows(path))
            mine.append([one for one in tables[-1] if chosen.items() <= one[1].items()])
            examples.append(self._examples(path, mine[-1], cut))
        if len(mine[0]) <= self.last > 0:
            raise UsageError(
                f"{self.files[0]}: {len(mine[0])} rows of {' '.join(chosen.values())}; the last "
                f"{self.last} are dev, and train needs more"
            )
        splits = in_splits(examples, self.folds, fold, seed, self.last)
        if self.part:
            splits = self._as_of_the_whole(splits, tables[0], mine[-1])
        outputs = len(self.classes) or self.degrees
        return assemble(splits, outputs, cut, vectors, directory, seed, word_width)

    def _rows(self, path: Path) -> Rows:
        """Of one table; their parts are known."""
        needed = (*filter(None, [self.part]), self.target, *self.columns)
        rows = list(enumerate(read_table(path, needed), start=2))
        for number, row in rows if self.part else ():
            if row[self.part] not in self.parts:
                raise self._mistaken(path, number, self.part, row, self.parts)
        return rows

    def _examples(self, path: Path, rows: Rows, cut: Callable[[str], list[str]]) -> Examples:
        """Tokens of the sentences of each column, and targets."""
        import numpy as np

        from harness.train.data.examples import Examples

        targets = []
        for number, row in rows:
            target = self._number(row[self.target])
            if target is None:
                expected = self.classes or (f"a number from 1 to {self.degrees}",)
                raise self._mistaken(path, number, self.target, row, expected)
            for column in self.columns:
                if not row[column].strip():
                    raise UsageError(
                        f"{path}:{number}: {column} is empty; expected a text: leave the line out"
                    )
            targets.append(target)
        sides = [[cut(row[column]) for _, row in rows] for column in self.columns]
        kind = np.float32 if self.degrees else np.int64
        return Examples(sides, np.array(targets).astype(kind))

    def _as_of_the_whole(self, splits: Splits, train: Rows, test: Rows) -> Splits:
        """Places in the whole test table; seen is what stands in any part of the training table.

        Before anything is cut off.
        """
        import numpy as np

        def texts(row: Mapping[str, str]) -> tuple[str, ...]:
            return tuple(row[column] for column in self.columns)

        standing = {texts(row) for _, row in train}
        seen = np.array([texts(row) in standing for _, row in test], dtype=bool)
        return replace(splits, items=np.array([n - 2 for n, _ in test], np.intp), seen=seen)

    def _mistaken(
        self, path: Path, number: int, column: str, row: Mapping[str, str], expected: Sequence[str]
    ) -> UsageError:
        said = f"{path}:{number}: {column} {row[column]!r}; expected {', '.join(expected)}"
        return UsageError(said)

    def _number(self, text: str) -> float | None:
        """Place of a class, or a degree; None for what is neither."""
        if self.classes:
            return self.classes.index(text) if text in self.classes else None
        try:
            degree = float(text)
        except ValueError:
            return None
        return degree if 1 <= degree <= self.degrees else None


# Tagged tokens.


def tokens(text: str) -> list[str]:
    """Tokens of a line: a single space stands between two of them."""
    return text.split(" ")


@dataclass(frozen=True)
class Spelling:
    """Numbers of characters."""

    numbers: Mapping[str, int]  # of each character of the training words, from `UNKNOWN` + 1 on

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
    """A corpus of tagged sentences as a task reads it; called, it loads what a `Task` needs."""

    # Tables of train, dev and test below the data directory, with a column ``tokens``.
    files: tuple[str, ...]
    column: str  # of the tags, as many as tokens, a space between them
    tags: tuple[str, ...]  # in the order of their numbers, from 1 on; ``B-X`` and ``I-X`` are BIO

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
