"""Float64 oracle of MTSA as released for machine translation, query by query.

The text of MTSA (section 4, appendix B.1) gives no formulas for it; these are those of the section
"mtsa_nmt" of the goldens' README, what taoshen58/mtsa computes on heads that it is given. i
attends, j is attended to, c is the head:

    q = x q_w, k = x k_w, v = x v_w;  r_ij = <q_i, k_j> / sqrt(d_h)   (the README's q is scaled)
    s = u s1_w + s1_b, u = k if source2token_from_keys, else v
    s = f(s) s2_w + s2_b                       if hidden_activation f
    s = s / sqrt(d_h)                          if source2token_scaled
    a_il = sum_j w_ijl v_jl / sum_j w_ijl,     w_ijl = allowed_ij exp(sigma_t(r_ij) + sigma_s(s_jl))
    output = [a of all heads] o_w              if output_layer, else [a of all heads]

With bi_direction the first half of the heads allows j <= i and the second j >= i; otherwise all j.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reference_impls.mtsa.naive import attend, positional_mask, scale
from reference_impls.naive import activate

Array = np.ndarray


def naive(
    x: Array,
    weights: Mapping[str, Array],
    rows: Sequence[int] | Array | None = None,
    grad_out: Array | None = None,
    *,
    heads: int,
    scale_t: str = "identity",
    scale_s: str = "log_sigmoid",
    source2token_scaled: bool = True,
    source2token_from_keys: bool = False,
    hidden_activation: str | None = None,
    bi_direction: bool = False,
    output_layer: bool = True,
    head_dim: int | None = None,
) -> tuple[Array, Array | None, dict[str, Array] | None]:
    """Compute this MTSA and its gradients for one sequence.

    Parameters
    ----------
    x : ndarray [n, D] of float64
        Real tokens only.
    weights : mapping
        q_w, k_w, v_w [H, D, d_h], s1_w [H, d_h, d_h], s1_b [H, d_h]; with `hidden_activation`
        s2_w [H, d_h, d_h], s2_b [H, d_h]; with `output_layer` o_w [H*d_h, d_out].
    rows, grad_out : ints [R] (None: all n), ndarray [R, d_out] or None
        Queries to compute, and the cotangent of the output.
    heads ... output_layer
        Config of the README; ``head_dim`` is told by the weights and not read.

    Returns
    -------
    tuple
        Output [R, d_out]; with `grad_out` also the gradients of ``sum(out * grad_out)`` with
        respect to x [n, D] and to each weight, otherwise two times None.
    """
    n, W = len(x), weights
    rows = np.arange(n) if rows is None else np.asarray(rows, dtype=int)
    d_h = W["v_w"].shape[2]
    divisor = np.sqrt(d_h) if source2token_scaled else 1.0
    o_w = W["o_w"] if output_layer else np.eye(heads * d_h)
    out, grad_x = np.zeros((len(rows), o_w.shape[1])), np.zeros(x.shape)
    G = {name: np.zeros(w.shape) for name, w in W.items()}
    for c in range(heads):
        o_c = slice(c * d_h, (c + 1) * d_h)
        q, k, v = x[rows] @ W["q_w"][c], x @ W["k_w"][c], x @ W["v_w"][c]
        u = k if source2token_from_keys else v
        z = u @ W["s1_w"][c] + W["s1_b"][c]
        t, t_slope = z, None
        if hidden_activation:
            t, t_slope = activate(z, hidden_activation)
            z = t @ W["s2_w"][c] + W["s2_b"][c]
        s, s_slope = scale(z / divisor, scale_s)  # sigma_s(s)
        half = "forward_inclusive" if c < heads // 2 else "backward_inclusive"
        M = positional_mask(half if bi_direction else "none", rows, n)
        (a,) = attend(q, k, v, s, M, scale_t)  # attend divides <q_i, k_j> by sqrt(d_h)
        out += a @ o_w[o_c]
        if grad_out is None:
            continue
        if output_layer:
            G["o_w"][o_c] = a.T @ grad_out
        g_q, g_k, g_v, g_s = attend(q, k, v, s, M, scale_t, grad_out @ o_w[o_c].T)
        g_z = g_s * s_slope / divisor
        if t_slope is not None:
            G["s2_w"][c], G["s2_b"][c] = t.T @ g_z, g_z.sum(axis=0)
            g_z = g_z @ W["s2_w"][c].T * t_slope
        G["s1_w"][c], G["s1_b"][c] = u.T @ g_z, g_z.sum(axis=0)
        if source2token_from_keys:
            g_k = g_k + g_z @ W["s1_w"][c].T
        else:
            g_v = g_v + g_z @ W["s1_w"][c].T
        G["q_w"][c], G["k_w"][c], G["v_w"][c] = x[rows].T @ g_q, x.T @ g_k, x.T @ g_v
        grad_x += g_k @ W["k_w"][c].T + g_v @ W["v_w"][c].T
        np.add.at(grad_x, rows, g_q @ W["q_w"][c].T)
    return (out, None, None) if grad_out is None else (out, grad_x, G)
