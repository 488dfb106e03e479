"""Recipes that several tasks share: the common one, and the papers'."""

from __future__ import annotations

import math
from dataclasses import replace

from harness.train.recipe import Recipe

SENTENCES = Recipe(
    width=300, heads=6, hidden=300, dropout=0.2, rate=1e-3, weight_decay=1e-4, clip=1.0,
    batch=32, epochs=25, patience=5,
)  # fmt: skip
"""The common recipe for single sentences: one for all mechanisms, settled on TREC's dev split."""

TUNED = {"mtsa": 5, "multi_head": 5}
"""How many recipes were tried, by the dev split of TREC with seed 100, until it was `SENTENCES`."""

PAPER = Recipe(
    width=600, heads=2, hidden=300, dropout=0.5, rate=0.5, weight_decay=1e-4, clip=0.0,
    batch=32, epochs=1, patience=1, word_width=300, optimiser="adadelta",
)  # fmt: skip
"""MTSA's (appendix B; what the paper leaves open from the released program): 2 heads x 300.

Its multi-head rows have 8 heads: ``--recipe paper --recipe multi_head:heads=8``."""


def lasting(recipe: Recipe, steps: int, examples: int) -> Recipe:
    """A recipe with as many epochs as so many steps are, none of them saved by patience.

    Parameters
    ----------
    steps : int
        As the paper counts.
    examples : int
        Of the training split here.
    """
    epochs = max(1, round(steps / math.ceil(examples / recipe.batch)))
    return replace(recipe, epochs=epochs, patience=epochs)
