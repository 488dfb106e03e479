"""The optimisers of recipes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from typing import Any

import torch
from torch import nn

from harness.train.recipe import Recipe

TENSORFLOW_ADADELTA: Mapping[str, Any] = {"rho": 0.95, "eps": 1e-8}
"""The defaults of the library that the papers' programs use; torch's are .9 and 1e-6."""

_BIAS = re.compile(r"(.*_)?h?b\d*|.*bias.*|(.*_)?ln\d*_(scale|offset)")
Named = Iterable[tuple[str, nn.Parameter]]


def is_bias(name: str) -> bool:
    """Whether a parameter of this name is a bias, or belongs to a norm.

    ``hidden.b``, ``s1_b``, ``head_b2``, ``fw_cand_hb``, ``lstm.bias_hh_l0``, ``l0_ln_offset``.
    """
    return _BIAS.fullmatch(name.rpartition(".")[2]) is not None


def make_optimiser(parameters: Named, recipe: Recipe) -> torch.optim.Optimizer:
    """The optimiser of a recipe for named parameters.

    AdamW's decay is decoupled and takes all of them. That of the others is the gradient of an L2
    penalty, ``weight_decay / 2`` times the sum of squares, on all but biases.
    """
    named = list(parameters)
    # Fused: one pass over the weights, where the plain loop is a third of a small model's step.
    if recipe.optimiser == "adamw":
        return torch.optim.AdamW(
            [p for _, p in named], lr=recipe.rate, weight_decay=recipe.weight_decay, fused=True
        )
    groups = [
        {"params": [p for n, p in named if is_bias(n) == bias], "weight_decay": decay}
        for bias, decay in ((False, recipe.weight_decay), (True, 0.0))
    ]
    groups = [group for group in groups if group["params"]]
    if recipe.optimiser == "adam":
        return torch.optim.Adam(groups, lr=recipe.rate, fused=True)
    return torch.optim.Adadelta(groups, lr=recipe.rate, **TENSORFLOW_ADADELTA)
