"""MTSA in a stack with layer normalisation and residuals: the form of semantic role labelling."""

from __future__ import annotations

import re

from reference_impls.golden_rows import Adapted, Arrays, Config, float64, without_padded_rows
from reference_impls.mechanism import Mechanism, Size
from reference_impls.mtsa import attentions

_LAYERS = 2
"""Of the default configuration, which the formulas are for."""


def _parameters(s: Size) -> int:
    """Per layer six square matrices (feed-forward, q, k, v, s, W^o), three biases, two norms."""
    return _LAYERS * (6 * s.d_in**2 + 7 * s.d_in)


def _operations(s: Size) -> float:
    """Products only: six square ones; Q K^T, and P [v*E | E] of twice the width, over N*N."""
    tokens = 12.0 * s.batch * s.length * s.d_in**2
    pairs = 6.0 * s.batch * s.length**2 * s.d_in
    return (3 if s.training else 1) * _LAYERS * (tokens + pairs)


def _transient(s: Size) -> float:
    """Algorithm 1 in two layers; moments as in `reference_impls.mtsa.held`, square weights w."""
    p, f, w = s.pairs, s.inputs, s.d_in**2
    if not s.training:
        geometry = max(9 * s.length**2 // 2, p + 2 * s.length**2)
        return float(s.item_bytes * max(9 * w + f, p + 11 * f, geometry + 6 * f))
    held = max(
        9 * w + 2 * p + 37 * f,  # both layers' P and all that is kept; gradients of the quotient
        9 * w + 3 * p + 33 * f,
        9 * w + 4 * p + 26 * f,  # the last layer's P, its gradient and that of r
        15 * w + 10 * f,  # gradients of the first layer's weights
    )
    return float(s.item_bytes * held)


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case: the arrays ``l0_*``, ``l1_*``, ... are the weights.

    The program's padded rows hold values that depend on no real token, so the gradient of the real
    tokens is the same with a cotangent that leaves those rows out.
    """
    options = {name: config[name] for name in ("heads", "layers", "scale_t", "activation")}
    options["ln_epsilon"] = config["layer_norm_epsilon"]
    weights = float64(arrays, [name for name in arrays if re.match(r"l\d+_", name)])
    return options, weights, arrays["x"].shape[-1], without_padded_rows(arrays)


MECHANISMS = (
    Mechanism(
        name="mtsa_stack",
        summary="layers of feed-forward block and tensorized self-attention, with residuals",
        source="MTSA section 4.2, appendix B; taoshen58/mtsa@2c5907e, stacked_mtsa",
        **attentions(
            "reference_impls.mtsa_stack",
            _transient,
            plain="modules:PlainStackedMTSA",
            algorithm1="modules:Algorithm1StackedMTSA",
            fused="modules:FusedStackedMTSA",
        ),
        options={
            "layers": _LAYERS,
            "scale_t": "identity",
            "activation": "relu",
            "ln_epsilon": 1e-6,
        },
        variants={
            "one_layer": {"layers": 1},
            "three_layers_log_sigmoid": {"layers": 3, "scale_t": "log_sigmoid"},
            "elu": {"activation": "elu"},
            "selu_large_epsilon": {"activation": "selu", "ln_epsilon": 0.5},
        },
        takes_heads=True,
        even_heads=True,
        keeps_width=True,
        # Of the first layer: in a second one such scores multiply the first one's rounding errors.
        score_weights=("l0_q_w", "l0_s2_w", "l0_s2_b"),
        default="fused",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
        goldens={"mtsa_stack": "reference_impls.mtsa_stack:from_golden"},
    ),
)
