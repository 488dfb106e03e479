"""Corpora of labelled sentences, or of pairs of them: which tables, which columns, which tokens."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.train.data.directory import existing, read_table
from harness.train.task import Data

if TYPE_CHECKING:
    from harness.train.data.examples import Examples, Splits

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
    last : int
        Of train and test, how many rows at the end of train are dev instead of a tenth.
    part : str
        Column that says to which part of the corpus a row belongs; the task's option of that name
        chooses the part that is read. Empty where all of it is.
    parts : tuple of str
        What stands in that column.
    """

    files: tuple[str, ...]
    columns: tuple[str, ...]
    target: str
    classes: tuple[str, ...] = ()
    degrees: int = 0
    tokenise: Callable[[str], list[str]] = str.split
    folds: int = 0
    last: int = 0
    part: str = ""
    parts: tuple[str, ...] = ()

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
