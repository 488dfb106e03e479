"""Float64 oracle of bi-directional block self-attention (Bi-BloSA), block by block.

Shen et al. 2018c, a baseline of MTSA; formulas of the section "biblosa" of the goldens' README.
i attends, j is attended to. For one direction, with blocks of r consecutive positions,

    h = f(x W + b)                                         map_w, map_b                  (1)
    e_ij = c tanh([W1 h_j + W2 h_i + b_f] / c)             [W1.T, W2.T] = dh_w, f_b      (2)
    a_i = sum_j p_ij * h_j, p = softmax over allowed j     j in the block of i           (3)
    z_i = a_i W_s + b_s                                    s2t_w, s2t_b                  (4)
    o = sum_i p_i * a_i, p = softmax over the block's i    one o per block               (5)
    G = DiSA(o)                                            blk_*, one G per block        (6)
    [C, Q] = [h_i ; a_i ; G of i's block] W_c + b_c        comb_w, comb_b                (7)
    y_i = sigma(Q) * f(C) + (1 - sigma(Q)) * h_i                                         (8)

All softmaxes are per feature. Allowed: j < i (forward) or j > i (backward); a_i = 0 if there is
none. Tokens at padding take no part in (3) and (5). (6) is `reference_impls.disa.naive`.

r is the smallest integer with r^3 >= 2 L, plus `extra`, or `block_len`. In the paper's form L is
the sample's real length n, and only real tokens are cut into blocks. The released form has L = N,
the padded length, and cuts all N positions: blocks without a real token enter (6) with o = 0.
"""

from __future__ import annotations

import numpy as np

from reference_impls.disa.naive import naive as disa
from reference_impls.naive import (
    Array,
    Oracle,
    Weights,
    activate,
    again,
    directions,
    side_by_side,
    sigmoid,
    softmax,
    with_prefix,
)


def rule(length: int) -> int:
    """Return the smallest r with r^3 >= 2 length, in integers: a float's cube root overshoots."""
    return next(r for r in range(1, 2 * length + 1) if r**3 >= 2 * length)


def inside(
    h: Array, dh: Array, f_b: Array, s2t_w: Array, s2t_b: Array, kind: str, c: float
) -> Array:
    """Return a [r, d] of a block of real tokens, and below it o [d]."""
    d, i, j = h.shape[1], np.arange(len(h))[:, None], np.arange(len(h))
    allowed = {"forward": j < i, "backward": j > i}[kind][:, :, None]
    e = c * np.tanh((dh[:, :d] + dh[:, None, d:] + f_b) / c)  # (2); [i, j, d]
    a = (softmax(np.where(allowed, e, -np.inf), axis=1) * h).sum(axis=1)  # (3)
    p = softmax(a @ s2t_w + s2t_b, axis=0)  # (4)
    return np.concatenate([a, (p * a).sum(axis=0).reshape(1, d)])  # (5)


def one_direction(
    x: Array, n: int, r: int, W: Weights, rows: Array, kind: str, f: str, c: float
) -> Array:
    """Return y [R, d] of x [N, D], whose first n rows are real."""
    h = activate(x @ W["map_w"] + W["map_b"], f)  # (1)
    d, dh = h.shape[1], h @ W["dh_w"]
    real = [slice(s, min(s + r, n)) for s in range(0, n, r)]  # tokens of each block that has any
    how = W["f_b"], W["s2t_w"], W["s2t_b"], kind, c
    blocks = [again(inside, h[own], dh[own], *how) for own in real]
    a = np.concatenate([*(block[:-1] for block in blocks), np.zeros((len(x) - n, d))])
    nothing = np.zeros((-(-len(x) // r) - len(real), d))  # blocks without a real token
    o = np.concatenate([*(block[-1:] for block in blocks), nothing])
    every, blk = np.arange(len(o)), with_prefix(W, "blk_")
    G = disa.forward(o, blk, every, direction=kind, activation=f, tanh_scale=c)  # (6)
    parts = np.concatenate([h[rows], a[rows], G[rows // r]], axis=1)
    cq = parts @ W["comb_w"] + W["comb_b"]  # (7)
    gate = sigmoid(cq[:, d:])
    return gate * activate(cq[:, :d], f) + (1 - gate) * h[rows]  # (8)


def fuse(
    x: Array, n: int, r: int, weights: Weights, rows: Array, direction: str, f: str, c: float
) -> Array:
    """Return y [R, d_out] of x [N, D] in blocks of r, whose first n rows are real."""

    def one(W: Weights, kind: str) -> Array:
        return one_direction(x, n, r, W, rows, kind, f, c)

    return side_by_side(weights, directions(direction), one)


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    block_len: int | None = None,
    extra: int = 0,
    direction: str = "both",
    activation: str = "relu",
    tanh_scale: float = 5.0,
    form: str = "paper",
    padded: int | None = None,
) -> Array:
    """Return Bi-BloSA, or one direction of it, [R, d_out]; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        map_w [D, d], dh_w [d, 2d], s2t_w [d, d], comb_w [3d, 2d], map_b, f_b, s2t_b [d], comb_b
        [2d], and blk_* of DiSA [d, d]; all twice with direction "both", prefixes fw_ and bw_.
    block_len, extra, direction, activation, tanh_scale, form
        Configuration; `extra` is not added to a given `block_len`.
    padded : int or None
        Padded length N >= n, read by the released form only; None is n.
    """
    n = len(x)
    length = {"paper": n, "released": padded or n}[form]
    r = rule(length) + extra if block_len is None else block_len
    xp = np.concatenate([x, np.zeros((length - n, x.shape[1]))])
    return fuse(xp, n, r, weights, rows, direction, activation, tanh_scale)
