"""Float64 oracle of the released MTSA program, query by query.

The formulas are those of the section "mtsa" of the goldens' README (`README` below), which states
what taoshen58/mtsa computes; names of arrays are its names. i attends, j is attended to. It
differs from the paper's eq. 7-13: queries, keys and scores may come from the values, the values
have bias and activation, a gate fuses value and attended vector, and a layer may stand before
and after everything.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reference_impls.mtsa.naive import activate, scale

Array = np.ndarray


def attend(
    q: Array, k: Array, v: Array, s: Array, allowed: Array, scale_t: str, g_a: Array | None = None
) -> tuple[Array, ...]:
    """Return (a [R, d_h],), or the gradients with respect to q, k, v and s for a cotangent of a."""
    root = np.sqrt(k.shape[1])
    a = np.zeros((len(q), v.shape[1]))
    g_q, g_k, g_v, g_s = (np.zeros(z.shape) for z in (q, k, v, s))
    for m in range(len(q)):
        if not allowed[m].any():
            continue  # a = 0 without an allowed key, and nothing depends on the scores
        r, r_slope = scale(k @ q[m] / root, scale_t)  # r_ij = <q_i, k_j> / sqrt(d_h)
        log_w = np.where(allowed[m][:, None], r[:, None] + s, -np.inf)  # log of w_ijl
        w = np.exp(log_w - log_w.max(axis=0))
        p = w / w.sum(axis=0)
        a[m] = (p * v).sum(axis=0)  # a_il = sum_j w_ijl v_jl / sum_j w_ijl
        if g_a is None:
            continue
        g_v += p * g_a[m]
        g_log_w = p * (v - a[m]) * g_a[m]
        g_s += g_log_w
        g_r = g_log_w.sum(axis=1) * r_slope / root
        g_q[m] = g_r @ k
        g_k += np.outer(g_r, q[m])
    return (a,) if g_a is None else (g_q, g_k, g_v, g_s)


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
    token2token, source2token, attention_dropout
        Whether r and s are there (the paper's Table 3); if not, q_w and k_w, or s1_* and s2_*, are
        missing; dropout must be 0.

    Returns
    -------
    tuple
        Output [R, d_out]; with `grad_out` also the gradients of ``sum(out * grad_out)`` with
        respect to x [n, D] and to each weight, otherwise two times None.
    """
    assert (token2token, source2token) == ("q_w" in weights, "s2_w" in weights)
    assert attention_dropout == 0, "dropout is random: the oracle has none"
    n, f, (h, d_x, d_h) = len(x), activation, weights["v_w"].shape
    # With weights 0 an absent score is 0; sigma_t(0) is the same for all keys, so without effect.
    zeros = np.zeros((h, d_x if scores_from_input else d_h, d_h))
    W = {"q_w": zeros, "k_w": zeros, "s2_w": zeros, "s2_b": zeros[:, 0], **weights}
    source2token_hidden_layer &= source2token
    rows = np.arange(n) if rows is None else np.asarray(rows, dtype=int)
    i, j = rows[:, None], np.arange(n)
    before, after = (j <= i, j >= i) if include_self else (j < i, j > i)
    hid, hid_slope = activate(x @ W["in_w"] + W["in_b"], f) if input_hidden else (x, None)  # x'
    kept, y = [], []
    for c in range(heads):
        # The fused path has no v_b with scores_from_input, and applies f twice without it.
        biased = not (accelerate and scores_from_input)
        v = hid @ W["v_w"][c] + (W["v_b"][c] if biased else 0.0)
        v_slope = np.ones(v.shape)
        for _ in range(activation_on_values * (2 if accelerate and not scores_from_input else 1)):
            v, slope = activate(v, f)  # A
            v_slope = v_slope * slope
        u = hid if scores_from_input else v
        q, k = u[rows] @ W["q_w"][c], u @ W["k_w"][c]
        t, t_slope = u, None
        if source2token_hidden_layer:
            t, t_slope = activate(u @ W["s1_w"][c] + W["s1_b"][c], f)
        s = t @ W["s2_w"][c] + W["s2_b"][c]
        allowed = (before if c < heads // 2 else after) if directional else j != i
        (a,) = attend(q, k, v, s, allowed, scale_t)
        both, g = np.concatenate([v[rows], a], axis=1), None
        if fusion_gate:
            g = np.exp(-np.logaddexp(0.0, -(both @ W["g_w"][c] + W["g_b"][c])))  # sigma
        y.append(a if g is None else g * v[rows] + (1 - g) * a)
        kept.append((biased, v, v_slope, u, q, k, t, t_slope, s, allowed, a, both, g))
    Y = np.concatenate(y, axis=1)  # [R, H*d_h]
    out, out_slope = activate(Y @ W["o_w"] + W["o_b"], f) if output_hidden else (Y, None)
    if grad_out is None:
        return out, None, None

    G = {name: np.zeros(w.shape) for name, w in W.items()}
    g_Y, g_hid = grad_out, np.zeros(hid.shape)
    if out_slope is not None:
        g_out = grad_out * out_slope
        G["o_w"], G["o_b"], g_Y = Y.T @ g_out, g_out.sum(axis=0), g_out @ W["o_w"].T
    for c, (biased, v, v_slope, u, q, k, t, t_slope, s, allowed, a, both, g) in enumerate(kept):
        d_h = v.shape[1]
        g_a, g_v_gate = g_Y[:, c * d_h : (c + 1) * d_h], np.zeros(a.shape)
        if g is not None:
            g_gate = g_a * (v[rows] - a) * g * (1 - g)
            G["g_w"][c], G["g_b"][c] = both.T @ g_gate, g_gate.sum(axis=0)
            g_both = g_gate @ W["g_w"][c].T  # [R, 2*d_h]
            g_a, g_v_gate = g_a * (1 - g) + g_both[:, d_h:], g_a * g + g_both[:, :d_h]
        g_q, g_k, g_v, g_s = attend(q, k, v, s, allowed, scale_t, g_a)
        np.add.at(g_v, rows, g_v_gate)
        G["s2_w"][c], G["s2_b"][c] = t.T @ g_s, g_s.sum(axis=0)
        g_u = g_s @ W["s2_w"][c].T
        if t_slope is not None:
            g_t = g_u * t_slope
            G["s1_w"][c], G["s1_b"][c], g_u = u.T @ g_t, g_t.sum(axis=0), g_t @ W["s1_w"][c].T
        G["q_w"][c], G["k_w"][c] = u[rows].T @ g_q, u.T @ g_k
        g_u += g_k @ W["k_w"][c].T
        np.add.at(g_u, rows, g_q @ W["q_w"][c].T)
        g_v = (g_v if scores_from_input else g_v + g_u) * v_slope
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
