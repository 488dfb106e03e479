"""Float64 oracle of multi-mask tensorized self-attention: MTSA eq. 7-13, query by query.

The paper writes tokens as columns, i for the key and j for the query. Here tokens are rows, i is
the query (it attends), j the key (it is attended to), c the head and l the feature:

W_c^(t1), W_c^(t2), W_c^(t3)     q_w[c].T, k_w[c].T [d_i, d_e], v_w[c].T [d_h, d_e]; d_e is D
W_c^(s1), b^(s1), W^(s2), b^(s2)  s1_w[c].T [d_a, d_i], s1_b[c], s2_w[c].T [d_h, d_a], s2_b[c]
W^(o), sigma_m                   o_w.T, activate
f^t(k_j, q_i), f^s(k_j)          r[j] [n] for one i, s[j] [n, d_h]; sigma_t, sigma_s: scale
M_ji, [p_j^i]_l, s_i             M[m, j], p[j, l], a[m, l], where i = rows[m]
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from reference_impls.naive import activate

Array = np.ndarray
PER_HEAD = ("q_w", "k_w", "v_w", "s1_w", "s1_b", "s2_w", "s2_b")


def scale(z: Array, name: str) -> tuple[Array, Array]:
    """Return a scale function of appendix A.1 and its derivative, for z of any size."""
    if name == "log_sigmoid":
        return -np.logaddexp(0.0, -z), np.exp(-np.logaddexp(0.0, z))
    return {"identity": (z, np.ones_like(z))}[name]


def positional_mask(mask: str, rows: Array, n: int) -> Array:
    """Return M [R, n]: 0 where the query may attend to the key, -inf where not (or a distance)."""
    i, j = rows[:, None], np.arange(n)
    kind, _, number = mask.partition(":")
    if kind == "distance":
        return -float(number) * np.abs(i - j)
    allowed = {
        "none": np.full((len(rows), n), True),
        "diagonal": j != i,
        "forward": j < i,
        "backward": j > i,
        "forward_inclusive": j <= i,
        "backward_inclusive": j >= i,
        "window": np.abs(i - j) <= float(number or 0),
    }[kind]
    return np.where(allowed, 0.0, -np.inf)


def kept(drawn: Mapping[str, Array] | None, dropout: float, c: int, rows: Array) -> Array | None:
    """Return by what head c multiplies each term of eq. 12's sum, [R, n, d_h] (appendix A.3).

    ``Dropout(E^X) Dropout(E^R) / E^S E^R``: two factors that are both kept, over p_ad.
    """
    if drawn is None:
        return None
    return drawn["pairs"][c, rows, :, None] * drawn["values"][c] / (1 - dropout)


def odds(
    x: Array, weights: Mapping[str, Array], drawn: Mapping[str, Array], **options: Any
) -> tuple[dict[str, float], dict[str, tuple[Array, Array]]]:
    """Return nothing that a layer says, and what it kept beside sqrt(p_ad) (appendix A.3)."""
    p = np.sqrt(1 - options["attention_dropout"])
    return {}, {kind: (drawn[kind], np.full(drawn[kind].shape, p)) for kind in ("pairs", "values")}


def attend(
    q: Array,
    k: Array,
    v: Array,
    s: Array,
    M: Array,
    scale_t: str,
    g_a: Array | None = None,
    kept: Array | None = None,
) -> tuple[Array, ...]:
    """Return (a [R, d_h],) of one head, or the gradients of q, k, v and s for a cotangent of a."""
    root = np.sqrt(k.shape[1])
    a = np.zeros((len(q), v.shape[1]))
    g_q, g_k, g_v, g_s = (np.zeros(z.shape) for z in (q, k, v, s))
    for m in range(len(q)):
        if np.isneginf(M[m]).all():
            continue  # no key is allowed: a = 0, and nothing depends on the scores
        r, r_slope = scale(k @ q[m] / root, scale_t)  # eq. 8, and sigma_t of eq. 10
        score = r[:, None] + s + M[m][:, None]  # eq. 10
        e = np.exp(score - score.max(axis=0))
        p = e / e.sum(axis=0)  # eq. 11: over the keys, for each feature l
        keep = 1.0 if kept is None else kept[m]
        a[m] = (p * keep * v).sum(axis=0)  # eq. 12
        if g_a is None:
            continue
        g_v += p * keep * g_a[m]
        g_score = p * (keep * v - a[m]) * g_a[m]  # derivative of the softmax's expectation
        g_s += g_score
        g_r = g_score.sum(axis=1) * r_slope / root
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
    masks: Sequence[str] | None = None,
    scale_t: str = "log_sigmoid",
    scale_s: str = "identity",
    activation: str = "relu",
    key_dim: int | None = None,
    score_dim: int | None = None,
    token2token: bool = True,
    source2token: bool = True,
    attention_dropout: float = 0.0,
    drawn: Mapping[str, Array] | None = None,
) -> tuple[Array, Array | None, dict[str, Array] | None]:
    """Compute MTSA and its gradients for one sequence.

    Parameters
    ----------
    x : ndarray [n, D] of float64
        Real tokens only.
    weights : mapping
        q_w, k_w [H, D, d_i], v_w [H, D, d_h], s1_w [H, d_i, d_a], s1_b [H, d_a],
        s2_w [H, d_a, d_h], s2_b [H, d_h], o_w [H*d_h, d_out]. An absent f^t has no q_w, an
        absent f^s no s*; without both there is no k_w.
    rows, grad_out : ints [R] (None: all n), ndarray [R, d_out] or None
        Queries to compute, and the cotangent of the output.
    heads, masks, scale_t, scale_s, activation, key_dim, score_dim
        Configuration; masks None: forward on the first half of the heads, backward on the other.
        Widths are told by the weights.
    token2token, source2token : bool
        Whether f^t and f^s are there (Table 3).
    attention_dropout, drawn : float, mapping or None
        1 - p_ad, and which factors are kept, see `kept`; None is all.

    Returns
    -------
    tuple
        Output [R, d_out]; with `grad_out` also the gradients of ``sum(out * grad_out)`` with
        respect to x [n, D] and to each weight, otherwise two times None.
    """
    assert (token2token, source2token) == ("q_w" in weights, "s2_w" in weights)
    given, n, o_w, (h, d_e, d_h) = weights, len(x), weights["o_w"], weights["v_w"].shape
    d_i = weights["k_w"].shape[-1] if "k_w" in weights else 1
    # With weights 0 an absent score is 0; sigma(0) too is the same for all keys, so without effect.
    zeros = dict.fromkeys(("q_w", "k_w"), np.zeros((h, d_e, d_i)))
    zeros |= {"s1_w": np.zeros((h, d_i, 1)), "s1_b": np.zeros((h, 1))}
    zeros |= {"s2_w": np.zeros((h, 1, d_h)), "s2_b": np.zeros((h, d_h))}
    weights = {**zeros, **weights}
    rows = np.arange(n) if rows is None else np.asarray(rows, dtype=int)
    masks = masks or ["forward"] * (heads // 2) + ["backward"] * (heads // 2)
    out, grad_x = np.zeros((len(rows), o_w.shape[1])), np.zeros(x.shape)
    grads = {name: np.zeros(w.shape) for name, w in weights.items()}
    for c in range(heads):
        q_w, k_w, v_w, s1_w, s1_b, s2_w, s2_b = (weights[name][c] for name in PER_HEAD)
        o_c = slice(c * d_h, (c + 1) * d_h)  # rows of W^(o) that meet head c in eq. 13
        q, k, v = x[rows] @ q_w, x @ k_w, x @ v_w  # eq. 7; [R, d_i], [n, d_i], [n, d_h]
        t, t_slope = activate(k @ s1_w + s1_b, activation)
        s, s_slope = scale(t @ s2_w + s2_b, scale_s)  # eq. 9, and sigma_s of eq. 10
        M = positional_mask(masks[c], rows, n)
        keep = kept(drawn, attention_dropout, c, rows)
        (a,) = attend(q, k, v, s, M, scale_t, None, keep)  # eq. 8, 10-12
        out += a @ o_w[o_c]  # eq. 13
        if grad_out is None:
            continue
        g_q, g_k, g_v, g_s = attend(q, k, v, s, M, scale_t, grad_out @ o_w[o_c].T, keep)
        grads["o_w"][o_c] = a.T @ grad_out
        g_s = g_s * s_slope
        g_t = g_s @ s2_w.T * t_slope
        grads["s2_w"][c], grads["s2_b"][c] = t.T @ g_s, g_s.sum(axis=0)
        grads["s1_w"][c], grads["s1_b"][c] = k.T @ g_t, g_t.sum(axis=0)
        g_k += g_t @ s1_w.T
        grads["q_w"][c], grads["k_w"][c], grads["v_w"][c] = x[rows].T @ g_q, x.T @ g_k, x.T @ g_v
        grad_x += g_k @ k_w.T + g_v @ v_w.T
        np.add.at(grad_x, rows, g_q @ q_w.T)
    grads = {name: grads[name] for name in given}
    return (out, None, None) if grad_out is None else (out, grad_x, grads)
