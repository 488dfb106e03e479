"""MTSA in the Transformer's encoder: the form of the translation experiments."""

from __future__ import annotations

from typing import Any

from reference_impls.golden_rows import Adapted, Arrays, Config, float64
from reference_impls.mechanism import Mechanism, Size
from reference_impls.mtsa import attentions, held


def _parameters(s: Size) -> int:
    """q, k, v; one layer of s; W^o."""
    d_h = s.d_out // s.heads
    return s.heads * (3 * s.d_in * d_h + d_h * d_h + d_h) + s.d_out * s.d_out


def _operations(s: Size) -> float:
    """Products only: q, k, v, s and W^o; Q K^T, and P [v*E | E] of twice the width, over N*N."""
    d_h = s.d_out // s.heads
    tokens = 2.0 * s.batch * s.length * s.d_out * (3 * s.d_in + d_h + s.d_out)
    pairs = 6.0 * s.batch * s.length**2 * s.d_out
    return (3 if s.training else 1) * (tokens + pairs)


GOLDEN_OPTIONS = (
    "heads",
    "scale_t",
    "scale_s",
    "source2token_scaled",
    "source2token_from_keys",
    "bi_direction",
)


def from_golden(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case: the program is given q (scaled already), k and v of every head.

    They stand side by side in x [b, n, 3*H*d_h], the weights pick each one's columns, and the heads
    [b, H, n, d_h] of the output become columns [b, n, H*d_h].
    """
    import numpy as np

    def tokens(name: str) -> Any:
        values = arrays[name]  # [b, H, n, d_h] -> [b, n, H*d_h]
        return np.moveaxis(values, 1, 2).reshape(*values.shape[::2], -1)

    heads, d_h = arrays["q"].shape[1], arrays["q"].shape[3]
    columns = np.eye(3 * heads * d_h).reshape(3 * heads * d_h, 3, heads, d_h)
    picks = np.moveaxis(columns, 0, 2)  # [3, H, 3*H*d_h, d_h]
    weights = {"q_w": picks[0] * np.sqrt(d_h), "k_w": picks[1], "v_w": picks[2]}
    weights |= float64(arrays, [n for n in ("s1_w", "s1_b", "s2_w", "s2_b") if n in arrays])
    hidden = config["hidden_activation"]
    options = {name: config[name] for name in GOLDEN_OPTIONS}
    options |= {"hidden_activation": None if hidden == "none" else hidden, "output_layer": False}
    replaced = {name: tokens(name) for name in ("output", "output_f64")}
    replaced["x"] = np.concatenate([tokens(name) for name in ("q", "k", "v")], axis=-1)
    return options, weights, heads * d_h, replaced


MECHANISMS = (
    Mechanism(
        name="mtsa_nmt",
        summary="multi-mask tensorized self-attention in a translation encoder",
        source="MTSA section 4.4; taoshen58/mtsa@2c5907e, its tensor2tensor part",
        **attentions(
            "reference_impls.mtsa_nmt",
            held.translation,
            plain="modules:PlainTranslationMTSA",
            algorithm1="modules:Algorithm1TranslationMTSA",
            fused="modules:FusedTranslationMTSA",
        ),
        options={
            "scale_t": "identity",
            "scale_s": "log_sigmoid",
            "source2token_scaled": True,
            "source2token_from_keys": False,
            "hidden_activation": None,
            "bi_direction": False,
            "output_layer": True,
            "head_dim": None,
        },
        variants={
            "bi_direction": {"bi_direction": True},
            "log_sigmoid_t_identity_s": {"scale_t": "log_sigmoid", "scale_s": "identity"},
            "from_keys_unscaled": {"source2token_from_keys": True, "source2token_scaled": False},
            "hidden_layer": {"hidden_activation": "relu"},
            "hidden_layer_from_keys": {
                "hidden_activation": "elu",
                "source2token_from_keys": True,
                "bi_direction": True,
            },
            "no_output_layer": {"output_layer": False},
            "narrow_heads": {"head_dim": 3},
        },
        takes_heads=True,
        score_weights=("q_w", "s1_w", "s1_b"),
        default="fused",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=held.translation,
        goldens={"mtsa_nmt": "reference_impls.mtsa_nmt:from_golden"},
    ),
)
