"""The Multi-Scale Transformer: layers of multi-scale self-attention, [CLS] and max-pooling."""

from __future__ import annotations

from functools import partial

from reference_impls import kernels
from reference_impls.mechanism import Mechanism, Size, of_package
from reference_impls.msmsa import costs
from reference_impls.msmsa.scales import CANDIDATES, Scale, parse_all, scales_of_layers
from reference_impls.multi_scale_transformer.presets import PRESETS

LAYERS, ALPHA = 2, 0.5
"""Of the default options."""


def _scales(s: Size) -> list[tuple[Scale, ...]]:
    """Of each layer."""
    o = {"layers": LAYERS, "candidates": CANDIDATES, "alpha": ALPHA, **s.options}
    reading = o.get("width_reading", "total")
    layers = scales_of_layers(o["candidates"], o["alpha"], s.heads, o["layers"])
    return [parse_all(scales, s.heads, reading) for scales in layers]


def _parameters(s: Size) -> int:
    """Input layer if widths differ, [CLS]; per layer q, k, v, W^o and a norm."""
    d = s.d_out // 2
    layers = s.options.get("layers", LAYERS)
    return (s.d_in * d if s.d_in != d else 0) + d + layers * (4 * d * d + 2 * d)


def _products(way: costs.Way, s: Size) -> float:
    """Products that an implementation does; one costs its forward for each gradient."""
    d, m = s.d_out // 2, s.length + 1  # [CLS] is a token
    once = 2.0 * s.batch * s.length * s.d_in * d if s.d_in != d else 0.0
    for scales in _scales(s):
        once += costs.layer(way(scales, m), s.batch, m, d, d // s.heads, d)
    return once * (3 if s.training else 1)


def _transient(s: Size) -> float:
    """Of "windowed": 8 numbers per token and feature in one layer, or 14 in all of them for the
    gradients.
    """
    features = s.batch * (s.length + 1) * s.d_out // 2
    return s.item_bytes * (14 * LAYERS if s.training else 8) * features


_EVERY_PAIR = {"operations": partial(_products, costs.every_pair)}
MECHANISMS = (
    Mechanism(
        name="multi_scale_transformer",
        summary="Multi-Scale Transformer sentence encoder: windows per head, [CLS] and max",
        source="Guo et al., Multi-Scale Self-Attention for Text Classification (AAAI 2020)",
        **of_package(
            "reference_impls.multi_scale_transformer",
            *kernels.implementations(
                "reference_impls.multi_scale_transformer.modules:FusedMultiScaleTransformer"
            ),
            plain=(
                "PlainMultiScaleTransformer",
                "the N x N scores and their softmax",
                _EVERY_PAIR,
            ),
            masked=(
                "MaskedMultiScaleTransformer",
                "torch's fused attention over all pairs, windows in the mask",
                _EVERY_PAIR,
            ),
            windowed=(
                "WindowedMultiScaleTransformer",
                "windows by the kernels of fused, short sequences by all pairs",
            ),
        ),
        options={
            "layers": LAYERS,
            "scales": None,
            "candidates": CANDIDATES,
            "alpha": ALPHA,
            "readout": "concat",
            "cls": True,
            "width_reading": "total",
            "scaling": "head_width",
            "ln_epsilon": 1e-5,
        },
        variants={
            "sum": {"readout": "sum"},
            "max": {"readout": "max", "cls": False},
            "three_layers": {"layers": 3, "alpha": -1.0},
            "tagging": {"candidates": (1, 3, 5, 7, 9), "alpha": 1.0},
            "scales": {"scales": [[3, "n/16", "n/8", "n/2"], [65, 1, 5, 3]]},
            "radius": {"width_reading": "radius"},
            "model_width": {"scaling": "model_width"},
            "eight_heads": {"heads": 8},
            "wide_epsilon": {"ln_epsilon": 0.1},
        },
        output="sentence",
        tokens={k: v for k, v in PRESETS["ptb_pos"].options.items() if "head" not in k},
        takes_heads=True,
        presets="reference_impls.multi_scale_transformer.presets:written_out",
        # No score_weights: scores of 100 in two layers on end multiply rounding errors beyond any
        # budget for gradients, plain's own too. One layer is stressed as msmsa_layer.
        default="windowed",
        parameters=_parameters,
        operations=partial(_products, costs.ranges),
        transient_bytes=_transient,
        formula_options=("layers", "candidates", "alpha", "width_reading"),
    ),
)
