"""Corpora of labelled sentences, or of pairs of them: which tables, which columns, which tokens."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.train.data.directory import existing, read_table
from harness.train.task import Data

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


@dataclass(frozen=True)
class Texts:
    """A corpus of labelled texts as a task reads it; called, it loads what a `Task` needs.

    Attributes
    ----------
    files : tuple of str
        Tables below the data directory: of train, dev and test; of train and test, where a tenth
        of train, drawn by the seed, is dev; or a single one, which is cut into folds.
    columns : tuple of str
        Of the sentences, one per input of the model.
    target : str
        Column of the target.
    classes : tuple of str
        Names in the order of their numbers, where a target is a class (int64).
    degrees : int
        The largest degree, where a target is one, from 1 on (float32).
    tokenise : callable
        Cuts at white space where none is given: the texts are tokenised already.
    folds : int
        Of a single file.
    """

    files: tuple[str, ...]
    columns: tuple[str, ...]
    target: str
    classes: tuple[str, ...] = ()
    degrees: int = 0
    tokenise: Callable[[str], list[str]] = str.split
    folds: int = 0

    def __call__(
        self,
        directory: Path | None,
        vectors: str,
        word_width: int,
        seed: int,
        fold: int | None = None,
    ) -> Data:
        """The data of one seed, or of one seed and fold; see `harness.train.task.load`."""
        import numpy as np

        from harness.train.data.examples import Examples, assemble, in_splits

        assert directory is not None
        kind = np.float32 if self.degrees else np.int64
        read = [self.read(directory / f"{name}.gz") for name in self.files]
        tables = [Examples(sides, np.array(targets).astype(kind)) for sides, targets in read]
        parts = in_splits(tables, self.folds, fold, seed)
        outputs = len(self.classes) or self.degrees
        return assemble(parts, outputs, self.tokenise, vectors, directory, seed, word_width)

    def read(self, path: Path) -> tuple[list[list[list[str]]], list[float]]:
        """Tokens of the sentences of each column, and targets, of one table.

        Raises
        ------
        UsageError
            With the line of a target that is none.
        """
        path = existing(path)
        rows = read_table(path, (self.target, *self.columns))
        targets = []
        for number, row in enumerate(rows, start=2):
            target = self._number(row[self.target])
            if target is None:
                expected = ", ".join(self.classes) or f"a number from 1 to {self.degrees}"
                raise UsageError(
                    f"{path}:{number}: {self.target} {row[self.target]!r}; expected {expected}"
                )
            targets.append(target)
        return [[self.tokenise(row[column]) for row in rows] for column in self.columns], targets

    def _number(self, text: str) -> float | None:
        """Place of a class, or a degree; None for what is neither."""
        if self.classes:
            return self.classes.index(text) if text in self.classes else None
        try:
            degree = float(text)
        except ValueError:
            return None
        return degree if 1 <= degree <= self.degrees else None
