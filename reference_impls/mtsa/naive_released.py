"""Float64 oracle of the released MTSA program, query by query.

The formulas are those of the section "mtsa" of the goldens' README (`README` below), which states
what taoshen58/mtsa computes; names of arrays are its names. i attends, j is attended to. It
differs from the paper's eq. 7-13: queries, keys and scores may come from the values, the values
have bias and activation, a gate fuses value and attended vector, and a layer may stand before
and after everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np

from reference_impls.mtsa.naive import attend, kept, positional_mask
from reference_impls.naive import activate

Array = np.ndarray


class Head(NamedTuple):
    """What the forward pass of a head leaves for the backward pass, by the README's names."""

    v: Array
    v_slope: Array
    u: Array
    q: Array
    k: Array
    t: Array
    t_slope: Array | None
    s: Array
    M: Array
    keep: Array | None
    a: Array
    both: Array
    g: Array | None


def values(
    hid: Array, W: Mapping[str, Array], f: str, times: int, biased: bool
) -> tuple[Array, Array]:
    """Return v [n, d_h], with the activation applied so many times, and its slope."""
    v = hid @ W["v_w"] + (W["v_b"] if biased else 0.0)
    v_slope = np.ones(v.shape)
    for _ in range(times):
        v, slope = activate(v, f)  # A
        v_slope = v_slope * slope
    return v, v_slope


def forward(
    u: Array,
    v: Array,
    v_slope: Array,
    rows: Array,
    W: Mapping[str, Array],
    M: Array,
    keep: Array | None,
    scale_t: str,
    f: str,
) -> Head:
    """Scores from u, attention, and the gate where there is one."""
    q, k = u[rows] @ W["q_w"], u @ W["k_w"]
    t, t_slope = activate(u @ W["s1_w"] + W["s1_b"], f) if "s1_w" in W else (u, None)
    s = t @ W["s2_w"] + W["s2_b"]
    (a,) = attend(q, k, v, s, M, scale_t, None, keep)
    both, g = np.concatenate([v[rows], a], axis=1), None
    if "g_w" in W:
        g = np.exp(-np.logaddexp(0.0, -(both @ W["g_w"] + W["g_b"])))  # sigma
    return Head(v, v_slope, u, q, k, t, t_slope, s, M, keep, a, both, g)


def backward(
    head: Head, rows: Array, W: Mapping[str, Array], scale_t: str, g_y: Array
) -> tuple[Array, Array, dict[str, Array]]:
    """Return the gradients of v (before its slope), of u, and of the weights of scores and gate."""
    v, u, t, g, d_h = head.v, head.u, head.t, head.g, head.v.shape[1]
    G: dict[str, Array] = {}
    g_a, g_v_gate = g_y, np.zeros(g_y.shape)
    if g is not None:
        g_gate = g_y * (v[rows] - head.a) * g * (1 - g)
        G["g_w"], G["g_b"] = head.both.T @ g_gate, g_gate.sum(axis=0)
        g_both = g_gate @ W["g_w"].T  # [R, 2*d_h]
        g_a, g_v_gate = g_y * (1 - g) + g_both[:, d_h:], g_y * g + g_both[:, :d_h]
    g_q, g_k, g_v, g_s = attend(head.q, head.k, v, head.s, head.M, scale_t, g_a, head.keep)
    np.add.at(g_v, rows, g_v_gate)
    G["s2_w"], G["s2_b"] = t.T @ g_s, g_s.sum(axis=0)
    g_u = g_s @ W["s2_w"].T
    if head.t_slope is not None:
        g_t = g_u * head.t_slope
        G["s1_w"], G["s1_b"], g_u = u.T @ g_t, g_t.sum(axis=0), g_t @ W["s1_w"].T
    G["q_w"], G["k_w"] = u[rows].T @ g_q, u.T @ g_k
    g_u += g_k @ W["k_w"].T
    np.add.at(g_u, rows, g_q @ W["q_w"].T)
    return g_v, g_u, G


def naive(
    x: Array,
    weights: Mapping[str, Array],
    rows: Sequence[int] | Array | None = None,
    grad_out: Array | None = None,
    *,
    heads: int,
    head_dim: int | None = None,
    scale_t: str = "log_sigmoid",
    activation: str = "relu",
    activation_on_values: bool = True,
    scores_from_input: bool = False,
    source2token_hidden_layer: bool = True,
    fusion_gate: bool = True,
    directional: bool = True,
    include_self: bool = False,
    accelerate: bool = False,
    input_hidden: int | None = None,
    output_hidden: int | None = None,
    token2token: bool = True,
    source2token: bool = True,
    attention_dropout: float = 0.0,
    drawn: Mapping[str, Array] | None = None,
) -> tuple[Array, Array | None, dict[str, Array] | None]:
    """Compute the released MTSA and its gradients for one sequence.

    Parameters
    ----------
    x : ndarray [n, D] of float64
        Real tokens only.
    weights : mapping
        Arrays of the README; in_*, o_*, g_*, s1_* and v_b only where the configuration has them.
    rows, grad_out : ints [R] (None: all n), ndarray [R, d_out] or None
        Queries to compute, and the cotangent of the output.
    heads ... output_hidden
        Config of the README. Widths are told by the weights.
    token2token, source2token
        Whether r and s are there (the paper's Table 3); if not, q_w and k_w, or s1_* and s2_*, are
        missing.
    attention_dropout, drawn
        As the paper's, see `reference_impls.mtsa.naive.kept`.

    Returns
    -------
    tuple
        Output [R, d_out]; with `grad_out` also the gradients of ``sum(out * grad_out)`` with
        respect to x [n, D] and to each weight, otherwise two times None.
    """
    assert (token2token, source2token) == ("q_w" in weights, "s2_w" in weights)
    n, f, (h, d_x, d_h) = len(x), activation, weights["v_w"].shape
    # With weights 0 an absent score is 0; sigma_t(0) is the same for all keys, so without effect.
    zeros = np.zeros((h, d_x if scores_from_input else d_h, d_h))
    W = {"q_w": zeros, "k_w": zeros, "s2_w": zeros, "s2_b": zeros[:, 0], **weights}
    # Only what the configuration has: the fused path has no v_b with scores_from_input.
    has = {"s1": source2token_hidden_layer and source2token, "g_": fusion_gate}
    per_head = [
        {k: w[c] for k, w in W.items() if k[:2] not in ("in", "o_") and has.get(k[:2], True)}
        for c in range(heads)
    ]
    biased = not (accelerate and scores_from_input)
    # The fused path applies f to the values twice, unless scores come from the input.
    times = activation_on_values * (2 if accelerate and not scores_from_input else 1)
    rows = np.arange(n) if rows is None else np.asarray(rows, dtype=int)
    own_token = "_inclusive" if include_self else ""
    hid, hid_slope = activate(x @ W["in_w"] + W["in_b"], f) if input_hidden else (x, None)  # x'
    found, y = [], []
    for c, own in enumerate(per_head):
        v, v_slope = values(hid, own, f, times, biased)
        u = hid if scores_from_input else v
        side = ("forward" if c < heads // 2 else "backward") + own_token
        M = positional_mask(side if directional else "diagonal", rows, n)
        keep = kept(drawn, attention_dropout, c, rows)
        head = forward(u, v, v_slope, rows, own, M, keep, scale_t, f)
        y.append(head.a if head.g is None else head.g * v[rows] + (1 - head.g) * head.a)
        found.append(head)
    Y = np.concatenate(y, axis=1)  # [R, H*d_h]
    out, out_slope = activate(Y @ W["o_w"] + W["o_b"], f) if output_hidden else (Y, None)
    if grad_out is None:
        return out, None, None

    G = {name: np.zeros(w.shape) for name, w in W.items()}
    g_Y, g_hid = grad_out, np.zeros(hid.shape)
    if out_slope is not None:
        g_out = grad_out * out_slope
        G["o_w"], G["o_b"], g_Y = Y.T @ g_out, g_out.sum(axis=0), g_out @ W["o_w"].T
    for c, (head, own) in enumerate(zip(found, per_head, strict=True)):
        g_y = g_Y[:, c * d_h : (c + 1) * d_h]
        g_v, g_u, own_G = backward(head, rows, own, scale_t, g_y)
        for name, gradient in own_G.items():
            G[name][c] = gradient
        g_v = (g_v if scores_from_input else g_v + g_u) * head.v_slope
        G["v_w"][c] = hid.T @ g_v
        if biased:
            G["v_b"][c] = g_v.sum(axis=0)
        g_hid += g_v @ W["v_w"][c].T + (g_u if scores_from_input else 0.0)
    G = {name: G[name] for name in weights}
    if hid_slope is None:
        return out, g_hid, G
    g_hid = g_hid * hid_slope
    G["in_w"], G["in_b"] = x.T @ g_hid, g_hid.sum(axis=0)
    return out, g_hid @ W["in_w"].T, G
