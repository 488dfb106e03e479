"""Made-up sentences and what a rule makes of them: translation that needs no files."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from harness.errors import UsageError
from harness.train.data.parallel import pairs
from harness.train.recipe import Recipe
from harness.train.task import Data, Split, Task
from reference_impls.models.tokens import END

FIRST = 2
"""Token of the first word."""
SHORTEST = 4
"""Words of a sentence at least: BLEU counts four in a row."""


def _swapped(words: Sequence[int]) -> list[int]:
    """Neighbours change places, two by two; of an odd number the last one stays."""
    last = len(words) // 2 * 2
    return [words[i ^ 1] if i < last else words[i] for i in range(len(words))]


RULES: Mapping[str, Callable[[Sequence[int]], list[int]]] = {
    "copy": list,
    "reverse": lambda words: list(words)[::-1],
    "swap": _swapped,
}


def write(tokens: Sequence[int]) -> str:
    """``w0 w3``: tokens as text, without what is no word."""
    return " ".join(f"w{token - FIRST}" for token in tokens if token >= FIRST)


def load(
    directory: Path | None,
    vectors: str,
    word_width: int,
    seed: int,
    *,
    rule: str,
    words: int,
    length: int,
    train: int,
    test: int,
) -> Data:
    """Draw the data of one seed: sentences of `SHORTEST` to `length` of so many different words.

    Dev and test have as many sentences each, and every seed its own.

    Raises
    ------
    UsageError
        For an unknown rule, a size that is not positive, or a length below `SHORTEST`.
    """
    import numpy as np

    if rule not in RULES:
        raise UsageError(f"rule={rule}; expected {', '.join(RULES)}")
    least = {"words": 1, "length": SHORTEST, "train": 1, "test": 1}
    given = {"words": words, "length": length, "train": train, "test": test}
    for name, size in given.items():
        if size < least[name]:
            raise UsageError(f"{name}={size}; expected at least {least[name]}")
    generator = np.random.default_rng([seed, 0])

    def drawn(count: int) -> Split:
        sizes = generator.integers(SHORTEST, length + 1, count)
        source = [generator.integers(FIRST, FIRST + words, size).tolist() for size in sizes]
        target = [RULES[rule](sentence) for sentence in source]
        said, wanted = ([[*sentence, END] for sentence in side] for side in (source, target))
        return pairs(said, wanted, [write(sentence) for sentence in target], write)

    return Data(
        train=drawn(train), dev=drawn(test), test=drawn(test), width=0, outputs=FIRST + words
    )


TASKS = (
    Task(
        name="rewriting",
        summary="sentences of made-up words, copied, reversed or with neighbours swapped",
        source="in no paper: translation that needs no data",
        kind="translation",
        metrics=("bleu", "chrf"),
        split="drawn anew for every seed, dev and test like train",
        load="harness.train.tasks.rewriting:load",
        recipe=Recipe(
            width=32,
            heads=4,
            hidden=64,
            dropout=0.0,
            rate=5e-3,
            weight_decay=0.0,
            clip=1.0,
            batch=512,
            epochs=30,
            patience=3,
            policy_epochs=30,
            optimiser="adam",
            smoothing=0.1,
            warmup=100,
            beta2=0.98,
        ),
        options={"rule": "reverse", "words": 20, "length": 10, "train": 4000, "test": 500},
        free=("rule", "words", "length", "train", "test"),
    ),
)
