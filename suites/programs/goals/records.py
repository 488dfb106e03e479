"""The bare core of attention as mechanisms of its own, without projections; nothing imports torch.

The input holds queries, keys and values side by side, and for MTSA the source2token scores too, so
that the harness measures a core as it measures any layer: ``[B, N, 3 * d_out]`` or
``[B, N, 4 * d_out]`` to ``[B, N, d_out]``, no weights. Dot products are divided by sqrt(d_h), which
the kernels do; MTSA's are not, since its layers divide the weight.
"""

from __future__ import annotations

from typing import Any

from reference_impls.mechanism import Mechanism, Size, of_package

GIVEN = "suites.programs.goals.records:MECHANISMS"
"""What ``--with`` takes."""
_FOLDER = "suites.programs.goals"


def _nothing(s: Size) -> int:
    """There are no weights."""
    return 0


def _mtsa_operations(s: Size) -> float:
    """Products of the pairs that strict forward and backward masks leave.

    Forward Q K^T, and P [v*E | E] of twice the width: 6 per pair and feature. Training 20: forward,
    two gradients of each product, and Q K^T once more, since nobody keeps N x N scores.
    """
    pairs = s.batch * s.length * (s.length - 1) / 2
    return (20.0 if s.training else 6.0) * pairs * s.d_out


def _dot_operations(s: Size) -> float:
    """Products of all pairs, or with a causal mask of those up to the query: 4, training 14."""
    pairs = s.batch * s.length**2
    if s.options.get("causal"):
        pairs = s.batch * s.length * (s.length + 1) // 2
    return (14.0 if s.training else 4.0) * pairs * s.d_out


def _forced(layer: str, summary: str, *devices: str, **options: str) -> tuple[str, str, Any]:
    """Dot-product attention by one kernel, for `of_package`."""
    return f"cores:{layer}", summary, {"options": options, "devices": devices}


MECHANISMS = (
    Mechanism(
        name="core_mtsa",
        summary="MTSA's attention alone, half of the heads strictly forward, half backward",
        source="Shen et al., Tensorized Self-Attention (NAACL 2019), eq. 10-12",
        **of_package(
            _FOLDER,
            oracle="naive:mtsa",
            plain=("cores:PlainCore", "the N x N x d scores, step by step"),
            fused=("cores:FusedCore", "the fused kernel that suits best"),
        ),
        takes_heads=True,
        even_heads=True,
        parameters=_nothing,
        operations=_mtsa_operations,
    ),
    Mechanism(
        name="core_dot",
        summary="scaled dot-product attention alone, all pairs or causal",
        source="Vaswani et al. (NIPS 2017), eq. 1",
        **of_package(
            _FOLDER,
            oracle="naive:dot",
            plain=("cores:PlainDotCore", "the N x N scores, step by step"),
            matmul=("cores:ProductsCore", "matrix products and torch's softmax"),
            sdpa=("cores:SdpaCore", "torch's fused attention"),
            sdpa_flash=_forced("SdpaCore", "flash backend", "cpu", "cuda", backend="flash"),
            sdpa_efficient=_forced(
                "SdpaCore", "memory-efficient backend", "cuda", backend="efficient"
            ),
            sdpa_cudnn=_forced("SdpaCore", "cuDNN backend", "cuda", backend="cudnn"),
            flash3=_forced("FlashCore", "FlashAttention 3", "cuda", release="flash3"),
            flash4=_forced("FlashCore", "FlashAttention 4", "cuda", release="flash4"),
        ),
        options={"causal": False},
        takes_heads=True,
        default="sdpa",
        parameters=_nothing,
        operations=_dot_operations,
        formula_options=("causal",),
    ),
)
