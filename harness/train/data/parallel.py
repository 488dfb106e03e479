"""Sentences and their translations: from tables, or from tokens, to what a run trains on.

Of tables by joint subwords of both languages, by byte-pair encoding (Sennrich et al. 2016).
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.train.data.directory import existing, read_table
from harness.train.task import Data, Split
from reference_impls.models.tokens import END, PADDING

UNKNOWN = 2
"""Token of a character that no training text has."""
SPECIAL = ("<padding>", "<end>", "<unknown>")
"""Tokens `PADDING`, `END` (of `reference_impls.models.tokens`) and `UNKNOWN`."""

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
        (list(source), previous), list(target), {"references": list(references), "write": write}
    )


@dataclass(frozen=True, eq=False)
class Subwords:
    """Pieces of words, learned from texts; made by `learn`."""

    tokenizer: Any
    size: int  # tokens, the three of `SPECIAL` among them

    @classmethod
    def learn(cls, texts: Iterable[str], size: int) -> Subwords:
        """The pieces of texts, the most frequent pairs joined until there are so many tokens.

        Raises
        ------
        UsageError
            If that is fewer than the texts have characters.
        """
        # A run has one thread; and the library warns where it had several before a fork.
        os.environ["TOKENIZERS_PARALLELISM"] = "false"
        from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

        tokenizer = Tokenizer(models.BPE(unk_token=SPECIAL[UNKNOWN]))
        # A mark before each word. With the usual one behind it the library numbers the last letters
        # of words in an order that differs from process to process, and so do the pieces.
        tokenizer.pre_tokenizer = pre_tokenizers.Metaspace()
        tokenizer.decoder = decoders.Metaspace()
        trainer = trainers.BpeTrainer(
            vocab_size=size, special_tokens=list(SPECIAL), show_progress=False
        )
        tokenizer.train_from_iterator(texts, trainer)
        found = tokenizer.get_vocab_size()
        if found > size:
            raise UsageError(
                f"subwords={size}; expected at least {found}: the texts have so many characters"
            )
        return cls(tokenizer, found)

    def encode(self, texts: Sequence[str]) -> list[list[int]]:
        """Tokens of each text, `END` behind them."""
        return [[*one.ids, END] for one in self.tokenizer.encode_batch(list(texts))]

    def pieces(self, text: str) -> list[str]:
        """What the tokens of a text stand for, as `encode` gives them."""
        return [str(self.tokenizer.id_to_token(token)) for token in self.encode([text])[0]]

    def write(self, tokens: Sequence[int]) -> str:
        """The text of tokens, words joined by spaces; those of `SPECIAL` say nothing."""
        text: str = self.tokenizer.decode(list(tokens))
        return text.strip()


@dataclass(frozen=True)
class Parallel:
    """A corpus of translated sentences as a task reads it; called, it loads what a `Task` needs."""

    # Tables below the data directory: of train, dev and test; then a further test set.
    files: tuple[str, ...]
    source: str  # source, target: columns of sentences whose tokens are separated by spaces
    target: str
    treated: Callable[[str], str]  # a sentence of somebody's as those of the corpus are written

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
            encode=lambda text: learned.encode([self.treated(text)])[0],
            tokenise=lambda text: learned.pieces(self.treated(text)),
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
