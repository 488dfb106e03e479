"""Mirrored summation (Multi-Scale Transformer, figure 2): random data, needs no files."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from harness.errors import UsageError
from harness.train.recipe import Recipe
from harness.train.task import Data, Split, Task

if TYPE_CHECKING:
    import numpy as np

DEV_SHARE = 0.1


def examples(generator: np.random.Generator, count: int, length: int, width: int, k: int) -> Split:
    """Sequences a of U(0, 1) vectors and the targets sum over i <= k of a_i * a_(n-i+1).

    Returns
    -------
    Split
        Input [count, length, width], targets [count, width], float32.
    """
    import numpy as np

    a = generator.random((count, length, width), dtype=np.float32)
    mirrored = a[:, ::-1]
    targets = (a[:, :k] * mirrored[:, :k]).sum(axis=1)
    return Split((a,), targets)


def knowing_the_sum(length: int, k: int) -> float:
    """``relative_mse`` of what knows the sum of all tokens, and nothing of their order.

    Of the best that is linear in that sum: it explains 2k of the n tokens, of each product 6/7. For
    k up to n/2; above that, tokens stand in two products.
    """
    return 1 - 6 / 7 * 2 * k / length


def load(
    directory: Path | None,
    vectors: str,
    word_width: int,
    seed: int,
    *,
    length: int,
    width: int,
    k: int,
    train: int,
    test: int,
) -> Data:
    """Draw the data of one seed: `train` examples, a tenth of them dev, and `test` others.

    Every seed has its own data, so that intervals over seeds cover the data too.

    Raises
    ------
    UsageError
        If a size is not positive, or k is larger than the length.
    """
    import numpy as np

    sizes = {"length": length, "width": width, "k": k, "train": train, "test": test}
    for name, size in sizes.items():
        if size < 1:
            raise UsageError(f"{name}={size}; expected at least 1")
    if k > length:
        raise UsageError(f"k={k} with length={length}; expected k up to the length")
    generator = np.random.default_rng([seed, 0])
    dev = round(DEV_SHARE * train)
    return Data(
        train=examples(generator, train - dev, length, width, k),
        dev=examples(generator, dev, length, width, k),
        test=examples(generator, test, length, width, k),
        width=width,
        outputs=width,
    )


_SMALL = Task(
    name="mirrored_summation",
    summary="sum of the products of the k outermost pairs of tokens; n = 24, d = 16, k = 6",
    source="Guo et al., Multi-Scale Self-Attention for Text Classification (AAAI 2020), figure 2",
    kind="regression",
    metrics=("mse", "relative_mse"),
    split="drawn anew for every seed: a tenth of train is dev, test is drawn like it",
    load="harness.train.tasks.mirrored_summation:load",
    recipe=Recipe(
        width=72,
        heads=4,
        hidden=60,
        dropout=0.0,
        rate=3e-3,
        weight_decay=1e-4,
        clip=1.0,
        batch=128,
        epochs=200,
        patience=5,
        policy_epochs=200,
    ),
    options={"length": 24, "width": 16, "k": 6, "train": 20_000, "test": 20_000},
    free=("length", "width", "k", "train", "test"),
)

TASKS = (
    _SMALL,
    replace(
        _SMALL,
        name="mirrored_summation_paper",
        summary="the same at the paper's size: n = 100, d = 50, 200,000 samples; k = 25",
        options={"length": 100, "width": 50, "k": 25, "train": 200_000, "test": 200_000},
    ),
)
