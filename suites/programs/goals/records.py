"""The bare core of attention as mechanisms of its own, without projections; nothing imports torch.

The input holds queries, keys and values side by side, and for MTSA the source2token scores too, so
that the harness measures a core as it measures any layer: ``[B, N, 3 * d_out]`` or
``[B, N, 4 * d_out]`` to ``[B, N, d_out]``, no weights. Dot products are divided by sqrt(d_h), which
the kernels do; MTSA's are not, since its layers divide the weight.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reference_impls.mechanism import Mechanism, Size, implementations_in
from reference_impls.mtsa.naive import attend, positional_mask
from reference_impls.multi_head.naive import naive

GIVEN = "suites.programs.goals.records:MECHANISMS"
"""What ``--with`` takes."""
_FOLDER = "suites.programs.goals"

Array = np.ndarray
Result = tuple[Array, Array | None, dict[str, Array] | None]


def mtsa(
    x: Array,
    weights: Mapping[str, Array],
    rows: Sequence[int] | Array | None = None,
    grad_out: Array | None = None,
    *,
    heads: int,
) -> Result:
    """MTSA eq. 10-12 of one sequence x [n, 4 * d_out] in float64, and the gradient of x.

    Parameters
    ----------
    rows, grad_out : ints [R] (None: all n), ndarray [R, d_out] or None

    Returns
    -------
    tuple
        Output [R, d_out], with `grad_out` the gradient [n, 4 * d_out], and of no weight.
    """
    n, width = len(x), x.shape[1] // 4
    rows = np.arange(n) if rows is None else np.asarray(rows, dtype=int)
    parts = x.reshape(n, 4, heads, -1)
    out, grad = np.zeros((len(rows), heads, width // heads)), np.zeros(parts.shape)
    cotangent = None if grad_out is None else grad_out.reshape(out.shape)
    root = np.sqrt(width // heads)  # by which the oracle of a head divides
    for c in range(heads):
        q, k, v, s = (parts[:, part, c] for part in range(4))
        mask = positional_mask("forward" if c < heads // 2 else "backward", rows, n)
        given = (q[rows] * root, k, v, s, mask, "log_sigmoid")
        (out[:, c],) = attend(*given)
        if cotangent is not None:
            g_q, *others = attend(*given, cotangent[:, c])
            np.add.at(grad[:, 0, c], rows, g_q * root)
            for part, g in enumerate(others, start=1):
                grad[:, part, c] = g
    flat = out.reshape(len(rows), width)
    return (flat, None, None) if grad_out is None else (flat, grad.reshape(x.shape), {})


def dot(
    x: Array,
    weights: Mapping[str, Array],
    rows: Sequence[int] | Array | None = None,
    grad_out: Array | None = None,
    *,
    heads: int,
    causal: bool = False,
) -> Result:
    """Multi-head attention whose weights take the parts of x [n, 3 * d_out]; as of `mtsa`."""
    whole = np.eye(x.shape[1]).reshape(x.shape[1], 3, heads, -1)
    taking = {
        name: whole[:, part].swapaxes(0, 1) for part, name in enumerate(("q_w", "k_w", "v_w"))
    }
    configuration: dict[str, Any] = {"positions": None, "output_layer": False, "causal": causal}
    out, grad, _ = naive(x, taking, rows, grad_out, heads=heads, **configuration)
    return out, grad, None if grad is None else {}


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
    """Dot-product attention by one kernel, for `implementations_in`."""
    return f"cores:{layer}", summary, {"options": options, "devices": devices}


MECHANISMS = (
    Mechanism(
        name="core_mtsa",
        summary="MTSA's attention alone, half of the heads strictly forward, half backward",
        source="Shen et al., Tensorized Self-Attention (NAACL 2019), eq. 10-12",
        implementations=implementations_in(
            _FOLDER,
            plain=("cores:PlainCore", "the N x N x d scores, step by step"),
            fused=("cores:FusedCore", "the fused kernel that suits best"),
        ),
        folder=_FOLDER,
        oracle=f"{_FOLDER}.records:mtsa",
        plain=f"{_FOLDER}.cores:PlainCore",
        takes_heads=True,
        even_heads=True,
        parameters=_nothing,
        operations=_mtsa_operations,
    ),
    Mechanism(
        name="core_dot",
        summary="scaled dot-product attention alone, all pairs or causal",
        source="Vaswani et al. (NIPS 2017), eq. 1",
        implementations=implementations_in(
            _FOLDER,
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
        folder=_FOLDER,
        oracle=f"{_FOLDER}.records:dot",
        plain=f"{_FOLDER}.cores:PlainDotCore",
        options={"causal": False},
        takes_heads=True,
        default="sdpa",
        parameters=_nothing,
        operations=_dot_operations,
        formula_options=("causal",),
    ),
)
