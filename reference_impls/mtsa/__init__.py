"""Multi-mask tensorized self-attention: the paper's equations, and the authors' program."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from reference_impls.golden_rows import Adapted, Arrays, Config, float64
from reference_impls.kernels import REPAIRED
from reference_impls.kernels import implementations as on_kernels
from reference_impls.mechanism import Mechanism, Size, of_package
from reference_impls.mtsa import held

_PAPER = {
    "masks": None,
    "scale_t": "log_sigmoid",
    "scale_s": "identity",
    "activation": "relu",
    "key_dim": None,
    "score_dim": None,
    "token2token": True,
    "source2token": True,
    "attention_dropout": 0.0,
}
RELEASED = {
    "head_dim": None,
    "scale_t": "log_sigmoid",
    "activation": "relu",
    "activation_on_values": True,
    "scores_from_input": False,
    "source2token_hidden_layer": True,
    "fusion_gate": True,
    "directional": True,
    "include_self": False,
    "accelerate": False,
    "input_hidden": None,
    "output_hidden": None,
    "token2token": True,
    "source2token": True,
    "attention_dropout": 0.0,
}
_DROPPING: Mapping[str, Mapping[str, Any]] = {
    "dropout": {"attention_dropout": 0.4},
    "dropout_identity": {"attention_dropout": 0.4, "scale_t": "identity"},
}
_ALL_MASKS = (
    "none",
    "diagonal",
    "forward",
    "backward",
    "forward_inclusive",
    "backward_inclusive",
    "window:1",
    "distance:0.7",
)


def _parameters(s: Size) -> int:
    """q, k, v; two layers of s; W^o; with d_i = d_a = d_h."""
    d_h = s.d_out // s.heads
    return s.heads * (3 * s.d_in * d_h + 2 * d_h * d_h + 2 * d_h) + s.d_out * s.d_out


def _released_parameters(s: Size) -> int:
    """Values with bias; q, k, two layers of s from v; the gate."""
    d_h = s.d_out // s.heads
    return s.heads * (s.d_in * d_h + 6 * d_h * d_h + 4 * d_h)


def _core(s: Size) -> float:
    """Q K^T, and P [v*E | E] of twice the width, over all N*N pairs."""
    return 6.0 * s.batch * s.length**2 * s.d_out


def _passes(s: Size) -> int:
    """A product costs its forward once again for each of its two gradients."""
    return 3 if s.training else 1


def _operations(s: Size) -> float:
    """Products only: elementwise operations, softmax and activations are not counted."""
    d_h = s.d_out // s.heads
    per_token = 2 * s.d_out * (3 * s.d_in + 2 * d_h + s.d_out)
    return _passes(s) * (s.batch * s.length * per_token + _core(s))


def _skipped(s: Size) -> float:
    """Products of the core that the default masks make needless: j >= i or j <= i, per head."""
    return _passes(s) * _core(s) * (s.length + 1) / (2 * s.length)


def _fused_operations(s: Size) -> float:
    """Without the pairs that strict forward and backward masks close."""
    return _operations(s) - _skipped(s)


def _released_operations(s: Size) -> float:
    """Products only, as above; the gate reads 2*d_h."""
    d_h = s.d_out // s.heads
    per_token = 2 * s.d_out * (s.d_in + 6 * d_h)
    return _passes(s) * (s.batch * s.length * per_token + _core(s))


def _released_fused_operations(s: Size) -> float:
    """Alike."""
    return _released_operations(s) - _skipped(s)


def attentions(
    folder: str,
    algorithm1_bytes: Callable[[Size], float],
    tiled_bytes: Callable[[Size], float] | None = None,
    native_bytes: Callable[[Size], float] | None = None,
    fused_operations: Callable[[Size], float] | None = None,
    oracle: str = "naive:naive",
    **classes: str,
) -> dict[str, Any]:
    """`of_package` of any form of the layer, by its three classes: plain, algorithm1 and fused."""
    fused = f"{folder}.{classes['fused']}"
    return of_package(
        folder,
        *on_kernels(fused, tiled_bytes, native_bytes, fused_operations),
        oracle=oracle,
        plain=(
            classes["plain"],
            "the tensor of N x N x d scores and its softmax: slow and stable",
        ),
        algorithm1=(
            classes["algorithm1"],
            "Algorithm 1, stabilised: matrix products only",
            {"transient_bytes": algorithm1_bytes, "forced": REPAIRED},
        ),
    )


def _golden_weights(arrays: Arrays) -> dict[str, Any]:
    return float64(arrays, [name for name in arrays if name[-2:] in ("_w", "_b")])


def golden_released(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the folder ``mtsa``."""
    options = {name: config[name] for name in ("heads", *RELEASED) if name in config}
    width = config["output_hidden"] or config["heads"] * config["head_dim"]
    return options, _golden_weights(arrays), width


def golden_paper(config: Config, arrays: Arrays) -> Adapted:
    """Adapt a case of the folder ``mtsa_paper``: masks such as {"window": 1} become "window:1"."""
    options = {name: config[name] for name in ("heads", "scale_t", "scale_s", "activation")}
    options["masks"] = [
        m if isinstance(m, str) else ":".join(str(part) for pair in m.items() for part in pair)
        for m in config["masks"]
    ]
    options |= {"key_dim": arrays["q_w"].shape[-1], "score_dim": arrays["s1_w"].shape[-1]}
    return options, _golden_weights(arrays), arrays["o_w"].shape[1]


MECHANISMS = (
    Mechanism(
        name="mtsa",
        summary="multi-mask tensorized self-attention, the paper's equations",
        source="Shen et al., Tensorized Self-Attention (NAACL 2019), eq. 7-13",
        **attentions(
            "reference_impls.mtsa",
            held.paper,
            held.fused_tiled,
            held.fused_native,
            _fused_operations,
            plain="plain:PlainMTSA",
            algorithm1="optimized:Algorithm1MTSA",
            fused="fused:FusedMTSA",
        ),
        options=_PAPER,
        variants={
            "identity": {"scale_t": "identity"},
            "log_sigmoid_both": {"scale_s": "log_sigmoid"},
            "identity_t_log_sigmoid_s": {"scale_t": "identity", "scale_s": "log_sigmoid"},
            "elu": {"activation": "elu"},
            "selu": {"activation": "selu"},
            "all_masks": {"heads": 8, "masks": list(_ALL_MASKS)},
            "all_masks_identity": {
                "heads": 8,
                "masks": list(_ALL_MASKS),
                "scale_t": "identity",
            },
            "windows": {"masks": ["window:0", "window:2", "window:7", "window:100"]},
            "distances": {
                "masks": ["distance:0", "distance:3", "forward", "distance:0.05"],
                "scale_t": "identity",
            },
            "other_widths": {"key_dim": 3, "score_dim": 5},
            "no_token2token": {"token2token": False},
            "no_token2token_all_masks": {
                "heads": 8,
                "masks": list(_ALL_MASKS),
                "token2token": False,
            },
            "no_source2token": {"source2token": False},
            "no_source2token_identity": {"source2token": False, "scale_t": "identity"},
            "masks_alone": {"token2token": False, "source2token": False},
        },
        takes_heads=True,
        even_heads=True,
        score_weights=("q_w", "s2_w", "s2_b"),
        random=_DROPPING,
        recorder="reference_impls.mtsa.dropout:recorded",
        odds="reference_impls.mtsa.naive:odds",
        default="fused",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=held.fused_native,
        goldens={"mtsa_paper": "reference_impls.mtsa:golden_paper"},
    ),
    Mechanism(
        name="mtsa_released",
        summary="multi-mask tensorized self-attention as the authors' program computes it",
        source="taoshen58/mtsa@2c5907e, multi_mask_tensorized_self_attn",
        **attentions(
            "reference_impls.mtsa",
            held.released,
            fused_operations=_released_fused_operations,
            oracle="naive_released:naive",
            plain="plain:PlainReleasedMTSA",
            algorithm1="optimized:Algorithm1ReleasedMTSA",
            fused="fused:FusedReleasedMTSA",
        ),
        options=RELEASED,
        variants={
            "snli": {"activation": "elu"},
            "identity": {"scale_t": "identity", "activation": "elu"},
            "scores_from_input_no_gate": {"scores_from_input": True, "fusion_gate": False},
            "no_direction": {"directional": False, "activation": "elu"},
            "stack": {
                "scale_t": "identity",
                "activation_on_values": False,
                "scores_from_input": True,
                "source2token_hidden_layer": False,
                "fusion_gate": False,
                "accelerate": True,
                "head_dim": 3,
                "output_hidden": 16,
            },
            "accelerated": {"activation": "elu", "accelerate": True},
            "accelerated_from_input": {"accelerate": True, "scores_from_input": True},
            "include_self": {"include_self": True},
            "one_score_layer": {"source2token_hidden_layer": False},
            "no_token2token": {"token2token": False, "activation": "elu"},
            "no_source2token": {"source2token": False, "activation": "elu"},
            "masks_and_gate": {"token2token": False, "source2token": False},
            "no_token2token_from_input": {"token2token": False, "scores_from_input": True},
            "no_source2token_from_input": {"source2token": False, "scores_from_input": True},
            "input_layer": {"input_hidden": 10, "activation": "selu"},
            "input_layer_from_input": {"input_hidden": 10, "scores_from_input": True},
        },
        takes_heads=True,
        even_heads=True,
        score_weights=("q_w", "s2_w", "s2_b"),
        random=_DROPPING,
        recorder="reference_impls.mtsa.dropout:recorded",
        odds="reference_impls.mtsa.naive:odds",
        default="fused",
        parameters=_released_parameters,
        operations=_released_operations,
        transient_bytes=held.released,
        goldens={"mtsa": "reference_impls.mtsa:golden_released"},
        part_goldens={"snli_model": "reference_impls.golden_encoders:inference_model"},
    ),
)
