"""Scaled dot-product multi-head self-attention: the paper's form and the released baseline."""

from __future__ import annotations

from reference_impls.mechanism import Implementation, Mechanism, Size

_PLAIN = "reference_impls.multi_head.plain:PlainMultiHead"
_SDPA = "reference_impls.multi_head.optimized:SdpaMultiHead"

IMPLEMENTATIONS = (
    Implementation(
        "plain", _PLAIN, "the N x N scores and their softmax, step by step", mask_optional=True
    ),
    Implementation(
        "matmul",
        "reference_impls.multi_head.optimized:MatmulMultiHead",
        "two batched products and torch's softmax",
        mask_optional=True,
    ),
    Implementation("sdpa", _SDPA, "torch's fused attention, its own choice", mask_optional=True),
    Implementation(
        "sdpa_math",
        _SDPA,
        "torch's fused attention, math backend",
        options={"backend": "math"},
        mask_optional=True,
    ),
    Implementation(
        "sdpa_flash",
        _SDPA,
        "torch's fused attention, flash backend (no padding mask on CUDA)",
        options={"backend": "flash"},
        mask_optional=True,
    ),
    Implementation(
        "sdpa_efficient",
        _SDPA,
        "torch's fused attention, memory-efficient backend",
        options={"backend": "efficient"},
        devices=("cuda",),
        mask_optional=True,
    ),
    Implementation(
        "sdpa_cudnn",
        _SDPA,
        "torch's fused attention, cuDNN backend",
        options={"backend": "cudnn"},
        devices=("cuda",),
        mask_optional=True,
    ),
)


def _parameters(s: Size) -> int:
    """q, k, v and W^o, no biases."""
    return 3 * s.d_in * s.d_out + s.d_out * s.d_out


def _released_parameters(s: Size) -> int:
    """q, k, v, no biases."""
    return 3 * s.d_in * s.d_out


def _relu_parameters(s: Size) -> int:
    """q, k, v, a bias each."""
    return 3 * s.d_in * s.d_out + 3 * s.d_out


def _projections_and_core(s: Size) -> float:
    """Products only: Q K^T and P V over all N*N pairs, softmax not counted."""
    return s.batch * s.length * (6.0 * s.d_in * s.d_out + 4.0 * s.length * s.d_out)


def _passes(s: Size) -> int:
    """A product costs its forward once again for each of its two gradients."""
    return 3 if s.training else 1


def _operations(s: Size) -> float:
    return _passes(s) * (_projections_and_core(s) + 2.0 * s.batch * s.length * s.d_out**2)


def _released_operations(s: Size) -> float:
    return _passes(s) * _projections_and_core(s)


def _transient(s: Size) -> float:
    """The implementation "matmul": numbers over pairs, and over tokens and features.

    Forward: scores and their softmax, beside the projections and copies of q and k (5). Training:
    the softmax and all that is kept for the gradients, at the end of the forward pass (9), or the
    softmax, its gradient and that of the scores (5 beside them): whichever is more. Backends of
    sdpa other than math need no pairs.
    """
    pairs = s.batch * s.heads * s.length**2
    features = s.batch * s.length * s.d_out
    inputs = s.batch * s.length * s.d_in
    held = 2 * pairs + 5 * features + inputs
    if s.training:
        held = max(pairs + 9 * features, 3 * pairs + 5 * features) + inputs
    return float(s.item_bytes * held)


MECHANISMS = (
    Mechanism(
        name="multi_head",
        summary="scaled dot-product multi-head attention with sinusoidal positions",
        source="Vaswani et al. (NIPS 2017); Shen et al., Tensorized Self-Attention, eq. 4-5",
        implementations=IMPLEMENTATIONS,
        folder="reference_impls.multi_head",
        oracle="reference_impls.multi_head.naive:naive",
        plain=_PLAIN,
        options={"positions": "paper", "output_layer": True, "head_dim": None},
        variants={
            "no_positions": {"positions": None},
            "released_positions": {"positions": "released"},
            "no_output_layer": {"output_layer": False},
            "narrow_heads": {"head_dim": 3},
        },
        takes_heads=True,
        score_weights=("q_w",),
        default="sdpa",
        parameters=_parameters,
        operations=_operations,
        transient_bytes=_transient,
        goldens={"multi_head_paper": "reference_impls.multi_head.golden:paper"},
    ),
    Mechanism(
        name="multi_head_released",
        summary="the released multi-head baseline: no output layer, twice the positions' exponent",
        source="taoshen58/BiBloSA@ec67cbd",
        implementations=IMPLEMENTATIONS,
        folder="reference_impls.multi_head",
        oracle="reference_impls.multi_head.naive:naive",
        plain=_PLAIN,
        options={"positions": "released", "output_layer": False, "head_dim": None},
        variants={"one_head": {"heads": 1}, "eight_heads": {"heads": 8}},
        takes_heads=True,
        score_weights=("q_w",),
        default="sdpa",
        parameters=_released_parameters,
        operations=_released_operations,
        transient_bytes=_transient,
        goldens={"multi_head": "reference_impls.multi_head.golden:released"},
    ),
    Mechanism(
        name="multi_head_relu",
        summary="the other released multi-head: relu on queries, keys and values, no positions",
        source="taoshen58/BiBloSA@ec67cbd",
        implementations=IMPLEMENTATIONS,
        folder="reference_impls.multi_head",
        oracle="reference_impls.multi_head.naive:naive",
        plain=_PLAIN,
        options={
            "positions": None,
            "output_layer": False,
            "head_dim": None,
            "relu_projections": True,
        },
        variants={"one_head": {"heads": 1}, "output_layer": {"output_layer": True}},
        takes_heads=True,
        default="sdpa",
        parameters=_relu_parameters,
        operations=_released_operations,
        transient_bytes=_transient,
        goldens={"multi_head_relu": "reference_impls.multi_head.golden:relu"},
    ),
)
