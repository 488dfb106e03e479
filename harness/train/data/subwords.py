"""Joint subwords of two languages by byte-pair encoding (Sennrich et al. 2016)."""

from __future__ import annotations

import os
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from reference_impls.models.tokens import END

UNKNOWN = 2
"""Token of a character that no training text has."""
SPECIAL = ("<padding>", "<end>", "<unknown>")
"""Tokens `PADDING`, `END` (of `reference_impls.models.tokens`) and `UNKNOWN`."""


@dataclass(frozen=True, eq=False)
class Subwords:
    """Pieces of words, learned from texts; made by `learn`.

    Attributes
    ----------
    tokenizer : tokenizers.Tokenizer
    size : int
        Tokens, the three of `SPECIAL` among them.
    """

    tokenizer: Any
    size: int

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
