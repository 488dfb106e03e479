"""Sentences and their translations: from tables, or from tokens, to what a run trains on."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness.errors import UsageError
from harness.train.data.directory import existing, read_table
from harness.train.task import Data, Split
from reference_impls.models.tokens import PADDING

Tokens = Sequence[Sequence[int]]
Write = Callable[[Sequence[int]], str]
"""Tokens to the text that they stand for."""


def pairs(source: Tokens, target: Tokens, references: Sequence[str], write: Write) -> Split:
    """Sentences and translations, tokens with `END` behind them, as a model takes them.

    The inputs are the source, and the target one place to the right; ``also`` has ``references``
    (texts) and ``write``.
    """
    previous = [[PADDING, *tokens[:-1]] for tokens in target]
    return Split(
        (list(source), previous), list(target), {"references": tuple(references), "write": write}
    )


@dataclass(frozen=True)
class Parallel:
    """A corpus of translated sentences as a task reads it; called, it loads what a `Task` needs.

    Attributes
    ----------
    files : tuple of str
        Tables below the data directory: of train, dev and test; then a further test set.
    source, target : str
        Columns of sentences whose tokens are separated by spaces.
    """

    files: tuple[str, str, str, str]
    source: str
    target: str

    def __call__(
        self, directory: Path | None, vectors: str, word_width: int, seed: int, *, subwords: int
    ) -> Data:
        """The data of every seed; subwords are learned from both sides of train.

        Raises
        ------
        UsageError
            For word vectors: the model's embedding is trained with it.
        """
        import numpy as np

        from harness.train.data.subwords import Subwords
        from harness.train.data.vectors import NO_VECTORS

        if vectors != NO_VECTORS:
            raise UsageError(
                f"--vectors {vectors}: {self.files[0]} is split into subwords, which have no "
                f"vectors; leave it out, or give {NO_VECTORS}"
            )
        assert directory is not None
        tables = [self.read(directory / f"{name}.gz") for name in self.files]
        (sources, targets), *_ = tables
        learned = Subwords.learn([*sources, *targets], subwords)
        train, dev, test, further = (
            pairs(learned.encode(s), learned.encode(t), t, learned.write) for s, t in tables
        )
        known = set(sources)
        return Data(
            train=train,
            dev=dev,
            test=Split(test.inputs, test.targets, {**test.also, "further": further}),
            width=0,
            outputs=learned.size,
            encode=lambda text: learned.encode([text])[0],
            tokenise=learned.pieces,
            test_items=np.arange(len(test)),
            seen=np.array([source in known for source in tables[2][0]], dtype=bool),
        )

    def read(self, path: Path) -> tuple[list[str], list[str]]:
        """Sentences and translations of one table.

        Raises
        ------
        UsageError
            For a table without rows, and with the line of a sentence that is empty.
        """
        path = existing(path)
        rows = read_table(path, (self.source, self.target))
        if not rows:
            raise UsageError(f"{path} has no row; expected sentences and their translations")
        for number, row in enumerate(rows, start=2):
            for column in (self.source, self.target):
                if not row[column].strip():
                    raise UsageError(
                        f"{path}:{number}: {column} is empty; expected a sentence: leave the "
                        "line out"
                    )
        return [row[self.source] for row in rows], [row[self.target] for row in rows]
