"""Context fusion and pooling of a model, with seeded weights; who draws which random numbers."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import nn

from harness.build import make
from harness.case import literal
from harness.errors import UsageError
from harness.registry import Registry
from harness.train.recipe import Recipe
from reference_impls.mechanism import BadSize
from reference_impls.models.encoders import Dense, Encoder
from reference_impls.models.tagging import TokenEncoder

POOLING = "source2token.direct"
"""Pools tokens in every model (MTSA, section 4)."""
OPEN = "relu"
"""Activation of mechanisms that have the papers' f, which depends on the data: relu, but elu on
SNLI (MTSA, appendix B); one with another activation always has that."""
STREAMS = ("fusion", "pooling", "head", "dropout", "actions", "test actions", "entry")
"""Parts of a run that draw random numbers by torch; each has a stream of its own."""


def stream(seed: int, part: str, *more: int) -> int:
    """A seed for one part of one run: no two parts, and no two seeds, share their numbers."""
    found = np.random.SeedSequence([seed, STREAMS.index(part), *more])
    return int(found.generate_state(1, np.uint64)[0])


def context_fusion(
    model: str,
    options: Mapping[str, str],
    widths: tuple[int, int],
    recipe: Recipe,
    registry: Registry,
    seed: int,
    beneath: Mapping[str, Any] = MappingProxyType({}),
) -> nn.Module:
    """A mechanism's module as a recipe has it.

    Parameters
    ----------
    options : mapping
        For the mechanism's factory, as texts: they win.
    widths : pair of int
        d_in and d_out.
    seed : int
        Of its weights.
    beneath : mapping
        Options that the model sets, of mechanisms that have them.

    Raises
    ------
    UsageError
        If its width can't be shared by its heads.
    """
    mechanism, implementation = registry.find(model)
    chosen = {**mechanism.options, **implementation.options}
    set_by_others = dict(beneath)
    if recipe.attention_dropout:
        set_by_others["attention_dropout"] = recipe.attention_dropout
    if mechanism.options.get("activation") == OPEN:
        set_by_others["activation"] = recipe.activation
    chosen |= {name: v for name, v in set_by_others.items() if name in mechanism.options}
    chosen |= {name: literal(text) for name, text in options.items()}
    try:
        return make(mechanism, implementation.factory, *widths, recipe.heads, chosen, seed)
    except BadSize as error:
        raise UsageError(f"{error} (--recipe width=... heads=...)") from None


def encoder(
    model: str,
    options: Mapping[str, str],
    features: int,
    recipe: Recipe,
    registry: Registry,
    seed: int,
    pooled: bool = True,
) -> tuple[Encoder, int]:
    """Context fusion and pooling of a model, with seeded weights, and the features out of it.

    A mechanism that keeps its width has that of the tokens if it gives a sentence. If it gives
    tokens, a dense layer without bias brings these to the recipe's width before it.

    Parameters
    ----------
    features : int
        Of a token.
    pooled : bool
        Whether a sentence is wanted; else a `TokenEncoder`, of a mechanism that gives sentences
        with its own options for that.

    Raises
    ------
    UsageError
        If tokens are wanted of a mechanism that has none to give.
    """
    mechanism, _ = registry.find(model)
    beneath: Mapping[str, Any] = {}
    if not pooled and mechanism.output == "sentence":
        if not mechanism.tokens:
            raise UsageError(
                f"{mechanism.name} makes a sentence vector and has no tokens to tag; give a model "
                "that has, e.g. multi_scale_transformer or bi_lstm"
            )
        beneath = mechanism.tokens
    tokens = mechanism.output == "tokens"
    d_in, width = features, recipe.width
    if mechanism.keeps_width:
        d_in = width = width if tokens else d_in
    fusion_seed = stream(seed, "fusion")
    widths = (d_in, width)
    fusion = context_fusion(model, options, widths, recipe, registry, fusion_seed, beneath)
    entry = None
    if d_in != features:
        torch.manual_seed(stream(seed, "entry"))
        entry = Dense(features, d_in, bias=False)
    if not pooled:
        return TokenEncoder(fusion, recipe.dropout, entry), getattr(fusion, "d_model", width)
    pooling = None
    if tokens:
        sizes, pooling_seed = (width, width), stream(seed, "pooling")
        pooling = context_fusion(POOLING, {}, sizes, recipe, registry, pooling_seed)
    return Encoder(fusion, pooling, recipe.dropout, entry), width


def parameters(module: nn.Module) -> tuple[int, int]:
    """Number of trained weights without and with word vectors; the papers count without."""
    everything = sum(p.numel() for p in module.parameters() if p.requires_grad)
    words: Sequence[nn.Module] = [m for m in module.modules() if isinstance(m, nn.Embedding)]
    return everything - sum(p.numel() for m in words for p in m.parameters()), everything
