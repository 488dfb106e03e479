"""Tags that depend on the words at one distance: drawn data, needs no files."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.train.data.texts import made_up
from harness.train.data.vectors import SPECIAL
from harness.train.recipe import Recipe
from harness.train.task import Data, Split, Task

if TYPE_CHECKING:
    import numpy as np

DEV_SHARE = 0.1


def examples(
    generator: np.random.Generator, count: int, length: int, words: int, distance: int
) -> Split:
    """Sentences of half the length to the length, of words drawn alike; and their tags.

    Words are numbers from 0 on. The tag of word i is 1 + the larger of words i - distance and
    i + distance, where outside of the sentence is 0: no word tells its own, and who attends to all
    words without knowing places can't.
    """
    import numpy as np

    sentences, targets = [], []
    for size in generator.integers((length + 1) // 2, length + 1, count):
        said = generator.integers(0, words, size)
        wide = np.pad(said, distance)
        tags = 1 + np.maximum(wide[:size], wide[2 * distance :])
        sentences.append((SPECIAL + said).tolist())
        targets.append(tags.tolist())
    return made_up(sentences, targets, [str(word) for word in range(words)])


def load(
    directory: Path | None,
    vectors: str,
    word_width: int,
    seed: int,
    *,
    distance: int,
    length: int,
    words: int,
    width: int,
    train: int,
    test: int,
) -> Data:
    """Draw the data of one seed: `train` examples, a tenth of them dev, and `test` others.

    Raises
    ------
    UsageError
        If a size is not positive, or there are more tags than a byte can number.
    """
    import numpy as np

    sizes = {"distance": distance, "length": length, "width": width, "train": train, "test": test}
    for name, size in sizes.items():
        if size < 1:
            raise UsageError(f"{name}={size}; expected at least 1")
    if not 2 <= words < 255:
        raise UsageError(f"words={words}; expected from 2 to 254")
    generator = np.random.default_rng([seed, 0])
    table = generator.normal(size=(SPECIAL + words, width)).astype(np.float32)
    table[0] = 0
    dev = round(DEV_SHARE * train)
    trained, chosen, tested = (
        examples(generator, count, length, words, distance) for count in (train - dev, dev, test)
    )
    return Data(trained, chosen, tested, width=width, outputs=words, embedding=table)


TASKS = (
    Task(
        name="neighbour_tags",
        summary="tag of each word: the larger of its two neighbours at a distance, here 1",
        source="ours: short windows tell it, words alone and attention without places do not",
        kind="tagging",
        metrics=("tag_accuracy",),
        split="drawn anew for every seed: a tenth of train is dev, test is drawn like it",
        load="harness.train.tasks.neighbour_tags:load",
        recipe=Recipe(
            width=60,
            heads=6,
            hidden=60,
            dropout=0.0,
            rate=2e-3,
            weight_decay=1e-4,
            clip=1.0,
            batch=64,
            epochs=100,
            patience=3,
            policy_epochs=100,
        ),
        options={
            "distance": 1,
            "length": 20,
            "words": 6,
            "width": 16,
            "train": 4000,
            "test": 2000,
        },
        free=("distance", "length", "words", "width", "train", "test"),
    ),
)
