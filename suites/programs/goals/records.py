"""The bare core of attention as mechanisms of its own, without projections; nothing imports torch.

The input holds queries, keys and values side by side, and for MTSA the source2token scores too, so
that the harness measures a core as it measures any layer: ``[B, N, 3 * d_out]`` or
``[B, N, 4 * d_out]`` to ``[B, N, d_out]``, no weights. Neither side divides scores by anything.
"""

from __future__ import annotations

from reference_impls.mechanism import Implementation, Mechanism, Size

GIVEN = "suites.programs.goals.records:MECHANISMS"
"""What ``--with`` takes."""
_CORES = "suites.programs.goals.cores:"


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


def _fused(name: str, summary: str, devices: tuple[str, ...], backend: str) -> Implementation:
    return Implementation(
        name, f"{_CORES}FusedCore", summary, {"backend": backend}, devices, mask_optional=True
    )


MECHANISMS = (
    Mechanism(
        name="core_mtsa",
        summary="MTSA's attention alone, half of the heads strictly forward, half backward",
        source="Shen et al., Tensorized Self-Attention (NAACL 2019), eq. 10-12",
        implementations=(
            Implementation(
                "plain",
                f"{_CORES}PlainCore",
                "the N x N x d scores, step by step",
                mask_optional=True,
            ),
            Implementation(
                "algorithm1",
                f"{_CORES}Algorithm1Core",
                "stabilised Algorithm 1",
                mask_optional=True,
            ),
            _fused("fused", "the fused kernel that suits best", ("cpu", "cuda"), "auto"),
            _fused("fused_native", "the native kernel", ("cpu",), "native"),
            _fused("fused_tiled", "the tiled autograd function", ("cpu", "cuda"), "tiled"),
            _fused("fused_triton", "the Triton kernels", ("cuda",), "triton"),
            _fused("fused_flex", "FlexAttention", ("cuda",), "flex"),
        ),
        folder="suites.programs.goals",
        oracle="suites.programs.goals.naive:mtsa",
        plain=f"{_CORES}PlainCore",
        options={"masks": None, "scale_t": "log_sigmoid"},
        takes_heads=True,
        even_heads=True,
        default="fused",
        parameters=_nothing,
        operations=_mtsa_operations,
    ),
    Mechanism(
        name="core_dot",
        summary="scaled dot-product attention alone, all pairs or causal",
        source="Vaswani et al. (NIPS 2017), eq. 1",
        implementations=(
            Implementation(
                "plain",
                f"{_CORES}PlainDotCore",
                "the N x N scores, step by step",
                mask_optional=True,
            ),
            Implementation(
                "matmul",
                f"{_CORES}ProductsCore",
                "matrix products and torch's softmax",
                mask_optional=True,
            ),
            Implementation(
                "sdpa", f"{_CORES}SdpaCore", "torch's fused attention", mask_optional=True
            ),
            Implementation(
                "sdpa_flash",
                f"{_CORES}SdpaCore",
                "torch's fused attention, flash backend",
                {"backend": "flash"},
                mask_optional=True,
            ),
        ),
        folder="suites.programs.goals",
        oracle="suites.programs.goals.naive:dot",
        plain=f"{_CORES}PlainDotCore",
        options={"causal": False},
        takes_heads=True,
        default="sdpa",
        parameters=_nothing,
        operations=_dot_operations,
        formula_options=("causal",),
    ),
)
