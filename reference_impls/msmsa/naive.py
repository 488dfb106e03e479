"""Float64 oracle of multi-scale multi-head self-attention, query by query.

Guo et al., Multi-Scale Self-Attention for Text Classification (AAAI 2020), eq. 6-10. The paper
writes tokens as rows, i for the head and j for the position that attends; here c is the head, i
attends and j is attended to:

W^Q, W^K, W^V of head c  q_w[c], k_w[c], v_w[c] [D, d_h];  W^O  o_w
omega_c, C_ij(x, omega)  width(scales[c], n), x[low:high]
norm (gain, bias)        layer_norm (ln_scale, ln_offset)

The size omega is a number or "n/m" of the sentence's length n, forced odd: max(1, 2 [v/2] + 1).
Reading "total" (figure 1): a window of omega tokens, its middle at i. "radius" (eq. 7 to the
letter): omega tokens on either side. Windows end where the sentence ends.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from reference_impls.naive import (
    Array,
    Oracle,
    Weights,
    activate,
    again,
    layer_norm,
    softmax,
    stack,
)

SCALES = (1, 3, "n/16", "n/8", "n/4")


def width(scale: float | str, n: int) -> int:
    """Return omega, an odd number: of the number or "n/m" given, in a sentence of n tokens."""
    # [(n/m)/2] = [n/(2m)], so that no fraction is rounded.
    half = n // (2 * int(scale[2:])) if isinstance(scale, str) else int(scale // 2)
    return max(1, 2 * half + 1)


def attend(q: Array, k: Array, v: Array, root: float) -> Array:
    """Return what one query [d_h] gets of the keys and values of its window, [d_h] (eq. 6)."""
    return softmax(k @ q / root, axis=0) @ v


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    heads: int,
    scales: Sequence[float | str] | None = None,
    width_reading: str = "total",
    scaling: str = "head_width",
    layer: bool = False,
    ln_epsilon: float = 1e-5,
    head_dim: int | None = None,
) -> Array:
    """Return MSMSA [R, d_out] of one sequence; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        q_w, k_w, v_w [H, D, d_h], o_w [H*d_h, d_out]; with `layer` ln_scale, ln_offset [d_out].
    heads, scales
        Number H of heads, and one scale for each; None: `SCALES`, repeated.
    width_reading : {"total", "radius"}
    scaling : {"head_width", "model_width"}
        Scores over sqrt(d_h) (eq. 2) or sqrt(D) (eq. 6).
    layer, ln_epsilon
        Whether eq. 10 stands around the attention, and what its norm adds to the variance.
    head_dim
        Not read: the weights tell it.
    """
    n, W = len(x), weights
    d_h = W["v_w"].shape[2]
    root = np.sqrt({"head_width": d_h, "model_width": x.shape[1]}[scaling])
    found = []
    for c in range(heads):
        w = width(SCALES[c % len(SCALES)] if scales is None else scales[c], n)
        half = {"total": (w - 1) // 2, "radius": w}[width_reading]
        q, k, v = (x @ W[name][c] for name in ("q_w", "k_w", "v_w"))  # eq. 8
        windows = [slice(max(0, i - half), i + half + 1) for i in rows]  # eq. 7
        near = zip(rows, windows, strict=True)
        head = [again(attend, q[i], k[window], v[window], root) for i, window in near]
        found.append(stack(head, d_h))
    a = np.concatenate(found, axis=1) @ W["o_w"]  # eq. 6, 9; [head_1; ...; head_N']
    if not layer:
        return a
    return layer_norm(x[rows] + activate(a, "relu"), W["ln_scale"], W["ln_offset"], ln_epsilon)
