"""Scaled dot-product multi-head self-attention: the paper's form and the released baseline."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from reference_impls.mechanism import Implementation, Mechanism, Size
from reference_impls.multi_head import held

_PLAIN = "reference_impls.multi_head.plain:PlainMultiHead"
_SDPA = "reference_impls.multi_head.optimized:SdpaMultiHead"
_MATMUL = Implementation(
    "matmul",
    "reference_impls.multi_head.optimized:MatmulMultiHead",
    "two batched products and torch's softmax",
    mask_optional=True,
)

_SDPA_BACKENDS = (
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
_FLEX = Implementation(
    "flex",
    "reference_impls.multi_head.flex:FlexMultiHead",
    "torch's FlexAttention, compiled",
    devices=("cuda",),
    mask_optional=True,
)


def _implementations(matmul_bytes: Callable[[Size], float]) -> tuple[Implementation, ...]:
    """All of them; what "matmul" holds depends on the form."""
    plain = Implementation(
        "plain", _PLAIN, "the N x N scores and their softmax, step by step", mask_optional=True
    )
    return (plain, replace(_MATMUL, transient_bytes=matmul_bytes), *_SDPA_BACKENDS, _FLEX)


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
    """Products only: Q K^T and P V over all N*N pairs, or the causal ones; softmax not counted."""
    keys = (s.length + 1) / 2 if s.options.get("causal") else s.length
    return s.batch * s.length * (6.0 * s.d_in * s.d_out + 4.0 * keys * s.d_out)


def _passes(s: Size) -> int:
    """A product costs its forward once again for each of its two gradients."""
    return 3 if s.training else 1


def _operations(s: Size) -> float:
    return _passes(s) * (_projections_and_core(s) + 2.0 * s.batch * s.length * s.d_out**2)


def _released_operations(s: Size) -> float:
    return _passes(s) * _projections_and_core(s)


MECHANISMS = (
    Mechanism(
        name="multi_head",
        summary="scaled dot-product multi-head attention with sinusoidal positions",
        source="Vaswani et al. (NIPS 2017); Shen et al., Tensorized Self-Attention, eq. 4-5",
        implementations=_implementations(held.paper),
        folder="reference_impls.multi_head",
        oracle="reference_impls.multi_head.naive:naive",
        plain=_PLAIN,
        options={"positions": "paper", "output_layer": True, "head_dim": None, "causal": False},
        variants={
            "no_positions": {"positions": None},
            "released_positions": {"positions": "released"},
            "no_output_layer": {"output_layer": False},
            "narrow_heads": {"head_dim": 3},
            "causal": {"causal": True},
        },
        takes_heads=True,
        score_weights=("q_w",),
        default="sdpa",
        parameters=_parameters,
        operations=_operations,
        formula_options=("causal",),
        transient_bytes=held.paper,
        goldens={"multi_head_paper": "reference_impls.multi_head.golden:paper"},
    ),
    Mechanism(
        name="multi_head_released",
        summary="the released multi-head baseline: no output layer, twice the positions' exponent",
        source="taoshen58/BiBloSA@ec67cbd",
        implementations=_implementations(held.released),
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
        transient_bytes=held.released,
        goldens={"multi_head": "reference_impls.multi_head.golden:released"},
    ),
    Mechanism(
        name="multi_head_relu",
        summary="the other released multi-head: relu on queries, keys and values, no positions",
        source="taoshen58/BiBloSA@ec67cbd",
        implementations=_implementations(held.relu),
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
        transient_bytes=held.relu,
        goldens={"multi_head_relu": "reference_impls.multi_head.golden:relu"},
    ),
)
