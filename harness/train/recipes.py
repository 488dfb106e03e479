"""Recipes that several tasks share, how they were found, and the papers' rows."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import Any

from harness.train.recipe import Recipe

SENTENCES = Recipe(
    width=300,
    heads=6,
    hidden=300,
    dropout=0.2,
    rate=1e-3,
    weight_decay=1e-4,
    clip=1.0,
    batch=32,
    epochs=100,
    patience=5,
    policy_epochs=100,
)
"""The common recipe for single sentences: one for all mechanisms, settled on TREC's dev split.
Patience ends its runs: the epochs are a ceiling that none is to reach."""

ALIKE = 4
"""Recipes tried with each of these nine mechanisms, by a dev split with seed 100: the common
one and three others (``plans/tuning.toml``; their records are published too)."""
EARLIER = ("mtsa", "multi_head")
"""Tried with some more before, until the common recipe was settled. Those records were not kept;
the same recipes were run again (``plans/tuning-first.toml``, published), after the others had been
tried with as many more (``plans/tuning-more.toml``, published; ReSA on SICK later,
``plans/tuning-resa.toml``), and each with one dropout more where the best was at the edge of the
grid (``plans/tuning-edges.toml``)."""
LATER = ("none", "mtsa_released", "disa", "bi_lstm", "multi_cnn", "msmsa", "resa")
FORMS = ("multi_head[positions=none]", "multi_head_relu", "multi_head_released")
"""Of multi-head attention, tried with as many later (``plans/tuning-forms.toml``)."""
TRANSFORMERS = ("transformer", "multi_scale_transformer")
"""Tried with as many on TREC (``plans/tuning-scales.toml``)."""
PARTS = (
    "mtsa_released[directional=false]",
    "mtsa_released[token2token=false]",
    "mtsa_released[source2token=false]",
)
"""Of MTSA without one of them, tried with as many (``plans/tuning-parts.toml``)."""
ABLATIONS = (*PARTS, "disa[direction=diagonal]", "additive", "resa[policy=iterative]")
"""Tried with as many (the last by ``plans/tuning-sampling.toml``), and described by themselves: a
mean over the mechanisms would count their whole models several times."""


def tried(more: int, *models: str) -> Mapping[str, int]:
    """How many recipes each mechanism was tried with: the same number each.

    Parameters
    ----------
    more : int
        Than `ALIKE`.
    models : str
        Tried with as many, besides the nine mechanisms.
    """
    return MappingProxyType(dict.fromkeys((*EARLIER, *LATER, *models), ALIKE + more))


TUNED, TUNED_ON = tried(6, *FORMS, *TRANSFORMERS, "biblosa_released", *ABLATIONS), "trec"
"""How many recipes were tried, and on which task; its common one is that of all sentences."""

PAPER = Recipe(
    width=600,
    heads=2,
    hidden=300,
    dropout=0.5,
    rate=0.5,
    weight_decay=1e-4,
    clip=0.0,
    batch=32,
    epochs=1,
    patience=1,
    word_width=300,
    optimiser="adadelta",
)
"""MTSA's (appendix B; what the paper leaves open from the released program): 2 heads x 300.

`word_width` counts where no table gives one (``--vectors none``). The papers' vectors have 300
components; those of the tasks' own tables have 100, but for SICK. A record's `vectors` names the
table."""

RESAN = ("resa", "resan", "resan_no_fusion")

MULTI_HEAD = "multi_head multi_head_released multi_head_relu"
PLAIN = (
    "bi_lstm bi_gru bi_gru_released multi_cnn kim_cnn kim_cnn_released disa disan biblosa "
    "biblosa_released"
)
"""Rows whose printed parameters count no highway layer, as multi-head's don't (MTSA Table 1), and
of which no other difference is known."""
HIERARCHICAL_CNN = "hrchy_cnn hrchy_cnn_released"

ROWS: Mapping[str, Mapping[str, Any]] = MappingProxyType(
    {
        **{name: {"heads": 8, "highway": False} for name in MULTI_HEAD.split()},
        **{name: {"highway": False} for name in PLAIN.split()},
        **{name: {"width": 300} for name in HIERARCHICAL_CNN.split()},
    }
)
"""What the papers' rows have instead of MTSA's (MTSA section 4, ReSAN section 5): 8 heads x 75,
three convolutions of 300. All are 600 wide but these. The dropout was tuned for each row (appendix
B), and is printed of MTSA alone. What stands in no table is trained by MTSA's numbers."""


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
