"""Numbers that the papers print: of weights, and of heads per scale (Multi-Scale eq. 11-12)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import nn

from harness.build import make
from harness.registry import builtins
from reference_impls.models.encoders import Embedding, Encoder, PairClassifier
from reference_impls.models.translation import Translator
from reference_impls.msmsa.scales import heads_per_scale

EMBEDDING, HIDDEN, CLASSES = 300, 300, 3
LAYERS, WIDTH, HEADS = 6, 512, 8
"""Of the Transformer in MTSA Table 6, encoder and decoder alike."""


def heads(alpha: float, heads: int, layers: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Compare heads per scale, layer by layer, with the paper's example."""
    found = heads_per_scale(len(layers[0]), alpha, heads, len(layers))
    parts = {
        f"layer {number}": {
            "verdict": "ok" if list(mine) == list(wanted) else "wrong",
            "detail": f"layer {number}: {list(mine)}, printed {list(wanted)}",
        }
        for number, (mine, wanted) in enumerate(zip(found, layers, strict=True), start=1)
    }
    return _of_parts(parts)


def fusion(
    name: str, d_in: int, d_out: int, heads: int = 0, options: Mapping[str, Any] | None = None
) -> nn.Module:
    """A mechanism's default implementation."""
    mechanism = builtins()[name]
    names = [i.name for i in mechanism.implementations]
    implementation = mechanism.implementation(mechanism.default or names[-1])
    whole = {**mechanism.options, **implementation.options, **(options or {})}
    return make(mechanism, implementation.factory, d_in, d_out, heads, whole)


def trained(module: nn.Module) -> int:
    """Trained weights without embeddings."""
    return sum(
        p.numel()
        for name, p in module.named_parameters()
        if p.requires_grad and not name.startswith("embedding.")
    )


def pair_model(
    mechanism: str,
    highway: bool,
    width: int = 600,
    heads: int = 0,
    options: Mapping[str, Any] | None = None,
) -> PairClassifier:
    """The papers' SNLI model around a mechanism."""
    pooling = None
    if builtins()[mechanism].output == "tokens":
        pooling = fusion("source2token", width, width)
    fused = fusion(mechanism, EMBEDDING, width, heads, options)
    return PairClassifier(
        Embedding(torch.zeros(2, EMBEDDING)),
        Encoder(fused, pooling, dropout=0.0),
        width=width,
        hidden=HIDDEN,
        classes=CLASSES,
        dropout=0.0,
        highway=highway,
    )


def _said(found: int, weights: int, what: str) -> dict[str, Any]:
    return {
        "verdict": "ok" if found == weights else "wrong",
        "value": found,
        "expected": weights,
        "comparisons": 1,
        "detail": f"{what}: {found:,} weights, wanted {weights:,}",
    }


def row(weights: int, **model: Any) -> dict[str, Any]:
    """Count the weights of one row of a table."""
    highway = "with" if model["highway"] else "without"
    return _said(
        trained(pair_model(**model)), weights, f"{model['mechanism']}, {highway} a highway layer"
    )


def translation(vocabulary: int, spaces: int, weights: Mapping[str, int]) -> dict[str, Any]:
    """Count the weights of the whole Transformer around each mechanism, at MTSA Table 6's size.

    Parameters
    ----------
    vocabulary, spaces : int
        Tokens of both languages, and rows of tensor2tensor's table of output languages.
    weights : mapping
        What is wanted, by mechanism.
    """
    parts = {}
    for name, wanted in weights.items():
        with torch.device("meta"):
            fusions = [fusion(name, WIDTH, WIDTH, HEADS) for _ in range(LAYERS)]
            model = Translator(
                fusions,
                width=WIDTH,
                heads=HEADS,
                hidden=4 * WIDTH,
                vocabulary=vocabulary,
                dropout=0.0,
                spaces=spaces,
            )
        parts[name] = _said(trained(model), wanted, f"the Transformer with {name}")
    return _of_parts(parts)


def _of_parts(parts: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    fine = all(part["verdict"] == "ok" for part in parts.values())
    return {
        "verdict": "ok" if fine else "wrong",
        "parts": parts,
        "comparisons": len(parts),
        "detail": "; ".join(part["detail"] for part in parts.values()),
    }
