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
    Result,
    Rows,
    Weights,
    activate,
    directions,
    positions,
    side_by_side,
    sigmoid,
    with_prefix,
)


def rule(length: int) -> int:
    """Return the smallest r with r^3 >= 2 length, in integers: a float's cube root overshoots."""
    return next(r for r in range(1, 2 * length + 1) if r**3 >= 2 * length)


def inside(
    h: Array, dh: Array, W: Weights, kind: str, c: float, g_a: Array, g_o: Array
) -> tuple[Array, ...]:
    """Return a [r, d], o [d] of a block of real tokens, and gradients for h, dh, z of (4)."""
    d, i, j = h.shape[1], np.arange(len(h))[:, None], np.arange(len(h))
    allowed = {"forward": j < i, "backward": j > i}[kind][:, :, None]
    tanh = np.tanh((dh[:, :d] + dh[:, None, d:] + W["f_b"]) / c)  # [i, j, d]
    top = (c * tanh).max(axis=1, keepdims=True, where=allowed, initial=-c)
    e = np.exp(np.where(allowed, c * tanh - top, -np.inf))  # (2)
    p = e / np.maximum(e.sum(axis=1, keepdims=True), 1.0)  # no sum is below 1 but the empty one
    a = (p * h).sum(axis=1)  # (3)
    z = a @ W["s2t_w"] + W["s2t_b"]  # (4)
    e_o = np.exp(z - z.max(axis=0))
    p_o = e_o / e_o.sum(axis=0)
    o = (p_o * a).sum(axis=0)  # (5)
    g_z = p_o * (a - o) * g_o  # derivative of the softmax's expectation
    g_a = (g_a + p_o * g_o + g_z @ W["s2t_w"].T)[:, None]
    g_e = p * (h - a[:, None]) * g_a * (1 - tanh**2)  # c of (2) and its 1/c cancel
    g_dh = np.concatenate([g_e.sum(axis=0), g_e.sum(axis=1)], axis=1)  # [r, 2d]
    return a, o, (p * g_a).sum(axis=0), g_dh, g_z


def one_direction(
    x: Array,
    n: int,
    r: int,
    W: Weights,
    rows: Array,
    g_y: Array | None,
    kind: str,
    f: str,
    c: float,
) -> tuple[Array, Array, dict[str, Array]]:
    """Return y [R, d], and the gradients for x [N, D], whose first n rows are real, and W."""
    h, h_slope = activate(x @ W["map_w"] + W["map_b"], f)  # (1)
    d, dh = h.shape[1], h @ W["dh_w"]
    real = [slice(s, min(s + r, n)) for s in range(0, n, r)]  # tokens of each block that has any
    a, o = np.zeros(h.shape), np.zeros((-(-len(x) // r), d))
    for b, own in enumerate(real):
        a[own], o[b] = inside(h[own], dh[own], W, kind, c, np.zeros(d), np.zeros(d))[:2]
    blk = with_prefix(W, "blk_")
    G = disa(o, blk, direction=kind, activation=f, tanh_scale=c)[0]  # (6)
    parts = np.concatenate([h[rows], a[rows], G[rows // r]], axis=1)
    cq = parts @ W["comb_w"] + W["comb_b"]  # (7)
    C, C_slope = activate(cq[:, :d], f)
    gate = sigmoid(cq[:, d:])
    y = gate * C + (1 - gate) * h[rows]  # (8)
    if g_y is None:
        return y, x, {}
    g_gate = g_y * (C - h[rows]) * gate * (1 - gate)
    g_cq = np.concatenate([g_y * gate * C_slope, g_gate], axis=1)
    g_parts = g_cq @ W["comb_w"].T
    g_h, g_a, g_G = np.zeros(h.shape), np.zeros(h.shape), np.zeros(G.shape)
    np.add.at(g_h, rows, g_parts[:, :d] + g_y * (1 - gate))
    np.add.at(g_a, rows, g_parts[:, d : 2 * d])
    np.add.at(g_G, rows // r, g_parts[:, 2 * d :])
    _, g_o, g_blk = disa(o, blk, None, g_G, direction=kind, activation=f, tanh_scale=c)
    assert g_o is not None and g_blk is not None  # noqa: PT018
    g_dh, g_z = np.zeros(dh.shape), np.zeros(h.shape)
    for b, own in enumerate(real):
        back = inside(h[own], dh[own], W, kind, c, g_a[own], g_o[b])
        g_h[own], g_dh[own], g_z[own] = g_h[own] + back[2], back[3], back[4]
    g_map = (g_h + g_dh @ W["dh_w"].T) * h_slope
    grads = {
        "map_w": x.T @ g_map,
        "map_b": g_map.sum(axis=0),
        "dh_w": h.T @ g_dh,
        "f_b": g_dh[:, :d].sum(axis=0),
        "s2t_w": a.T @ g_z,
        "s2t_b": g_z.sum(axis=0),
        "comb_w": parts.T @ g_cq,
        "comb_b": g_cq.sum(axis=0),
    }
    return y, g_map @ W["map_w"].T, grads | {"blk_" + name: g for name, g in g_blk.items()}


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
    *,
    block_len: int | None = None,
    extra: int = 0,
    direction: str = "both",
    activation: str = "relu",
    tanh_scale: float = 5.0,
    form: str = "paper",
    padded: int | None = None,
) -> Result:
    """Compute Bi-BloSA (or one direction of it) and its gradients for one sequence.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [R, d_out].

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
    rows = positions(rows, len(x))
    length = {"paper": len(x), "released": padded or len(x)}[form]
    r = rule(length) + extra if block_len is None else block_len
    xp = np.concatenate([x, np.zeros((length - len(x), x.shape[1]))])

    def one(W: Weights, kind: str, g_y: Array | None) -> tuple[Array, Array, dict[str, Array]]:
        how = kind, activation, tanh_scale
        y, g_x, g_w = one_direction(xp, len(x), r, W, rows, g_y, *how)
        return y, g_x[: len(x)], g_w

    return side_by_side(x, weights, grad_out, directions(direction), one)
