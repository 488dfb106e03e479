"""The Transformer with positions and feed-forward blocks, the Multi-Scale Transformer's peer."""

from __future__ import annotations

from reference_impls.mechanism import Mechanism, Size, of_package

LAYERS = 2
"""Of the default options."""


def _depth_and_hidden(s: Size) -> tuple[int, int]:
    """Layers, and the hidden width of their feed-forward blocks."""
    return s.options.get("layers", LAYERS), s.options.get("ff_dim") or 4 * (s.d_out // 2)


def _parameters(s: Size) -> int:
    """Input layer if widths differ, [CLS]; per layer q, k, v, W^o, two norms, feed-forward."""
    d, (layers, hidden) = s.d_out // 2, _depth_and_hidden(s)
    entry = (s.d_in * d if s.d_in != d else 0) + d
    return entry + layers * (4 * d * d + 4 * d + 2 * d * hidden + hidden + d)


def _operations(s: Size) -> float:
    """Products: projections, Q K^T and P V, feed-forward; one costs its forward per gradient."""
    d, m, (layers, hidden) = s.d_out // 2, s.length + 1, _depth_and_hidden(s)
    entry = 2.0 * s.batch * s.length * s.d_in * d if s.d_in != d else 0.0
    layer = s.batch * m * (8.0 * d * d + 4.0 * m * d + 4.0 * d * hidden)
    return (entry + layers * layer) * (3 if s.training else 1)


def _transient(s: Size) -> float:
    """Forward: 12 numbers per token and feature. Training: all layers' states (hidden ones too) are
    kept, about 24. A fused kernel holds no scores; where it needs the padding as numbers, M * M.
    """
    m = s.length + 1
    features = s.batch * m * (s.d_out // 2)
    held = (24 * LAYERS if s.training else 12) * features + m * m
    return float(s.item_bytes * held)


MECHANISMS = (
    Mechanism(
        name="transformer",
        summary="Transformer sentence encoder: positions, feed-forward blocks, [CLS] and max",
        source="Vaswani et al. (NIPS 2017); Guo et al., Multi-Scale Self-Attention (AAAI 2020), "
        "eq. 1-5",
        **of_package(
            "reference_impls.transformer",
            plain=("PlainTransformer", "the N x N scores and their softmax"),
            sdpa=("SdpaTransformer", "torch's fused attention"),
        ),
        options={
            "layers": LAYERS,
            "ff_dim": None,
            "readout": "concat",
            "positions": True,
            "ln_epsilon": 1e-5,
        },
        variants={
            "sum": {"readout": "sum"},
            "no_positions": {"positions": False},
            "one_layer": {"layers": 1, "ff_dim": 5},
            "eight_heads": {"heads": 8},
            "wide_epsilon": {"ln_epsilon": 0.1},
        },
        output="sentence",
        # As many layers as its peer has for tagging; with "sum" d_model is the width asked for.
        tokens={"layers": 3, "readout": "sum"},
        takes_heads=True,
        presets="reference_impls.multi_scale_transformer.presets:written_out",
        # No score_weights: scores of 100 in two layers on end multiply rounding errors beyond any
        # budget for gradients, plain's own too. One layer is stressed as multi_head.
        default="sdpa",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
        formula_options=("layers", "ff_dim"),
    ),
)
