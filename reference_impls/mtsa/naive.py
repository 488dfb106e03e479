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

from reference_impls.naive import (
    Array,
    Oracle,
    Weights,
    activate,
    again,
    log_sigmoid,
    softmax,
    stack,
)


def scale(z: Array, name: str) -> Array:
    """Return a scale function of appendix A.1."""
    return log_sigmoid(z) if name == "log_sigmoid" else {"identity": z}[name]


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
    x: Array, weights: Weights, drawn: Mapping[str, Array], **options: Any
) -> tuple[dict[str, float], dict[str, tuple[Array, Array]]]:
    """Return nothing that a layer says, and what it kept beside sqrt(p_ad) (appendix A.3)."""
    p = np.sqrt(1 - options["attention_dropout"])
    return {}, {kind: (drawn[kind], np.full(drawn[kind].shape, p)) for kind in ("pairs", "values")}


def one_query(
    q: Array, k: Array, v: Array, s: Array, M: Array, scale_t: str, kept: Array | float
) -> Array:
    """Return what a query [d_i] attends to, [d_h]: 0 if no key is allowed."""
    r = scale(k @ q / np.sqrt(k.shape[1]), scale_t)  # eq. 8, and sigma_t of eq. 10
    p = softmax(r[:, None] + s + M[:, None], axis=0)  # eq. 10-11: over the keys, for each feature
    return (p * kept * v).sum(axis=0)  # eq. 12


def attend(
    q: Array, k: Array, v: Array, s: Array, M: Array, scale_t: str, kept: Array | None = None
) -> Array:
    """Return a [R, d_h] of one head: q [R, d_i], k [n, d_i], v [n, d_h], s [n, d_h or 1]."""
    keep = np.ones(len(q)) if kept is None else kept
    a = [again(one_query, q[m], k, v, s, M[m], scale_t, keep[m]) for m in range(len(q))]
    return stack(a, v.shape[1])


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
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
) -> Array:
    """Return MTSA [R, d_out] of one sequence; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        q_w, k_w [H, D, d_i], v_w [H, D, d_h], s1_w [H, d_i, d_a], s1_b [H, d_a],
        s2_w [H, d_a, d_h], s2_b [H, d_h], o_w [H*d_h, d_out]. An absent f^t has no q_w, an
        absent f^s no s*; without both there is no k_w.
    heads, masks, scale_t, scale_s, activation, key_dim, score_dim
        Configuration; masks None: forward on the first half of the heads, backward on the other.
        Widths are told by the weights.
    token2token, source2token : bool
        Whether f^t and f^s are there (Table 3). An absent one is 0, whose sigma is the same for all
        keys, so without effect.
    attention_dropout, drawn : float, mapping or None
        1 - p_ad, and which factors are kept, see `kept`; None is all.
    """
    assert (token2token, source2token) == ("q_w" in weights, "s2_w" in weights)
    n, W = len(x), weights
    masks = masks or ["forward"] * (heads // 2) + ["backward"] * (heads // 2)
    found = []
    for c in range(heads):
        v, k, q, s = x @ W["v_w"][c], np.zeros((n, 1)), np.zeros((len(rows), 1)), np.zeros((n, 1))
        if token2token or source2token:
            k = x @ W["k_w"][c]  # eq. 7; [n, d_i]
            q = np.zeros((len(rows), k.shape[1]))
        if token2token:
            q = x[rows] @ W["q_w"][c]  # [R, d_i]
        if source2token:
            hidden = activate(k @ W["s1_w"][c] + W["s1_b"][c], activation)
            s = scale(hidden @ W["s2_w"][c] + W["s2_b"][c], scale_s)  # eq. 9, sigma_s of eq. 10
        keep = kept(drawn, attention_dropout, c, rows)
        found.append(attend(q, k, v, s, positional_mask(masks[c], rows, n), scale_t, keep))
    return np.concatenate(found, axis=1) @ W["o_w"]  # eq. 13
