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

import numpy as np

from reference_impls.mtsa.naive import attend, positional_mask, scale
from reference_impls.naive import Array, Oracle, Weights, activate


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
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
) -> Array:
    """Return this MTSA [R, d_out] of one sequence; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        q_w, k_w, v_w [H, D, d_h], s1_w [H, d_h, d_h], s1_b [H, d_h]; with `hidden_activation`
        s2_w [H, d_h, d_h], s2_b [H, d_h]; with `output_layer` o_w [H*d_h, d_out].
    heads ... output_layer
        Config of the README; ``head_dim`` is told by the weights and not read.
    """
    n, W = len(x), weights
    divisor = np.sqrt(W["v_w"].shape[2]) if source2token_scaled else 1.0
    found = []
    for c in range(heads):
        q, k, v = x[rows] @ W["q_w"][c], x @ W["k_w"][c], x @ W["v_w"][c]
        z = (k if source2token_from_keys else v) @ W["s1_w"][c] + W["s1_b"][c]
        if hidden_activation:
            z = activate(z, hidden_activation) @ W["s2_w"][c] + W["s2_b"][c]
        s = scale(z / divisor, scale_s)  # sigma_s(s)
        half = "forward_inclusive" if c < heads // 2 else "backward_inclusive"
        M = positional_mask(half if bi_direction else "none", rows, n)
        found.append(attend(q, k, v, s, M, scale_t))  # divides <q_i, k_j> by sqrt(d_h)
    a = np.concatenate(found, axis=1)
    return a @ W["o_w"] if output_layer else a
