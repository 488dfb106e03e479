"""Float64 oracle of multi-head self-attention: MTSA eq. 4-5 (Vaswani et al. 2017), head by head.

The paper writes tokens as columns: s = v softmax(q^T k / sqrt(d_q))^T. Here tokens are rows: i is
the query (row of r), j the key (column), and W_c^q, W_c^k, W_c^v, W^(o) are q_w[c].T, k_w[c].T,
v_w[c].T, o_w.T; the paper's d_q is the head's width d_h. Positions of the released program, and
its want of W^(o), are those of the section "multi_head" of the goldens' README; that with
q = relu(W^q x + b^q), and k and v alike, is of its section "multi_head_relu".
"""

from __future__ import annotations

import numpy as np

from reference_impls.naive import Array, Oracle, Weights, activate, softmax


def position_encoding(rows: Array, d: int, kind: str) -> Array:
    """Return pe [R, d]: sine at even features f, cosine of the same angle at f + 1.

    The angle is i / 10000^(f/d) in the paper (Vaswani et al., section 3.5, f = 2m) and
    i / 10000^(2f/d) in the released program, which doubles the feature's index once more.
    """
    f = np.arange(d)
    even = f - f % 2
    factor = {"paper": 1.0, "released": 2.0}[kind]
    angle = rows[:, None] / 10000.0 ** (factor * even / d)
    return np.where(f % 2 == 0, np.sin(angle), np.cos(angle))


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    heads: int,
    positions: str | None = "paper",
    output_layer: bool = True,
    head_dim: int | None = None,
    relu_projections: bool = False,
    causal: bool = False,
) -> Array:
    """Return multi-head attention [R, d_out] of one sequence; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        q_w, k_w, v_w [H, D, d_h], and o_w [H*d_h, d_out] with `output_layer`, and q_b, k_b, v_b
        [H, d_h] with `relu_projections`.
    heads, positions, output_layer, relu_projections, causal
        Configuration; ``head_dim`` is told by the weights and not read. ``causal``: values j > i
        are set to minus infinity in the input of the softmax (Vaswani et al., section 3.2.3).
    """
    n, d = x.shape
    z = x if positions is None else x + position_encoding(np.arange(n), d, positions)
    found = []
    for c in range(heads):
        projected = []
        for name, read in (("q", z[rows]), ("k", z), ("v", z)):
            p = read @ weights[f"{name}_w"][c]  # eq. 5; [R, d_h], [n, d_h], [n, d_h]
            projected.append(
                activate(p + weights[f"{name}_b"][c], "relu") if relu_projections else p
            )
        q, k, v = projected
        r = q @ k.T / np.sqrt(v.shape[1])  # eq. 4; [R, n]
        if causal:
            r = np.where(np.arange(n)[None, :] > rows[:, None], -np.inf, r)
        found.append(softmax(r, axis=1) @ v)  # eq. 4: H_c
    H = np.concatenate(found, axis=1)
    return H @ weights["o_w"] if output_layer else H  # eq. 5
