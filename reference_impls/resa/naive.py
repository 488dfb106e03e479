"""Float64 oracle of reinforced self-attention (ReSA), query by query, and of what selects tokens.

Shen et al., ReSAN (IJCAI 2018), eq. 8-15. The formulas are lost in the text; these are its words
and the section "resa" of the goldens' README. i is the query (a head token), j the key (a
dependent), h and the scores as in DiSA (see its oracle for the correspondence of weights):

    eq. 8-9    dep_sel, head_sel: two RSS, p_j >= .5 (below)      dep_w1..., head_w1...
    eq. 10     M_ij = 0 if i is a selected head, j a selected dependent, i != j; else -inf
    eq. 11     f(h_j, h_i) + M_ij + M^direction_ij;  the direction's mask is DiSA's  score
    eq. 12-13  a_i = sum_j p_ij * h_j, and 0 if no key is allowed        a[m], i = rows[m]
    eq. 14-15  F = sigmoid(...), u = F * h + (1 - F) * a                 F, u[m]

A query that is not selected has "scores over all dependent tokens [...] equal to -inf, [...] the
result of mean-pooling over all dependent tokens". Of what, has three readings (`unselected`):
"all_real", all real tokens, for all their scores are equal; "dependents", the selected ones;
"others", real tokens other than i, in either direction (released). The mean of nothing is 0.

Reinforced sequence sampling (RSS; section 3.1, eq. 5-7, whose formulas the text has lost too) is as
in the section "rss" of the goldens' README (what taoshen58/ReSAN computes). j is the token:

    eq. 6   z_j = [x_j; m; x_j * m],  m the mean of x over the real tokens     z[j]
    eq. 7   p_j = sigmoid(w^T f(W z_j + b) + b')          w1.T = W, b1, w2 = w, b2 = b';  logits
    eq. 5   p(a | x) = prod_j p(a_j | x): all a_j are drawn at once            drawn
    eq. 17  reward's share: selected tokens over real tokens                   share
    eq. 19-20  REINFORCE's sum of log p(a_j | x), each clipped at 1e-10        log_probabilities
    eq. 21-25  (appendix A, iterative sampling) every a_j knows those before   iterative
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import numpy as np

from reference_impls.disa.naive import attend, fused
from reference_impls.naive import (
    Array,
    Oracle,
    Weights,
    activate,
    again,
    directions,
    log_sigmoid,
    side_by_side,
    sigmoid,
    stack,
    value_of,
    with_prefix,
)

CLIP = 1e-10
"""Probabilities below count as this much before their logarithm is taken."""
POLICIES = ("head", "dep")


def logits(x: Array, W: Weights, activation: str = "elu") -> Array:
    """Return what eq. 7 takes the sigmoid of, [n], for the real tokens x [n, D].

    `W` holds w1 [3D, h], b1 [h], w2 [h, 1] and b2 [1].
    """
    m = x.mean(axis=0)
    z = np.concatenate([x, np.zeros(x.shape) + m, x * m], axis=1)  # eq. 6
    return (activate(z @ W["w1"] + W["b1"], activation) @ W["w2"] + W["b2"])[:, 0]


def iterative(x: Array, W: Weights, chosen: Callable[[int, float], bool]) -> tuple[Array, Array]:
    """Return the logits [n] and actions [n] of iterative sampling (appendix A, in its words).

    h_j = tanh(W [c_j; a_{j-1}] + U h_{j-1} + b), p_j = sigmoid(w h_j + b'), h and a start at 0; the
    context c_j is taken to be the z_j of eq. 6. in_w.T = W, state_w.T = U, state_b = b, out_w = w.
    ``chosen(j, p_j)`` says what a_j becomes.
    """
    m = x.mean(axis=0)
    h, a, found = np.zeros(len(W["state_b"])), [False], []
    for j in range(len(x)):
        seen = np.concatenate([x[j], m, x[j] * m, a[-1:]])
        h = np.tanh(seen @ W["in_w"] + h @ W["state_w"] + W["state_b"])
        found.append(h @ W["out_w"] + W["out_b"])
        a.append(bool(chosen(j, value_of(sigmoid(found[-1]))[0])))
    return stack(found, 1)[:, 0], np.array(a[1:])


def _given(actions: Array, j: int, p: float) -> bool:
    """Whether token j is among actions [n] that are known."""
    return bool(actions[j])


def log_probabilities(logit: Array, selected: Array) -> Array:
    """Return log p(a_j | x) [n] of actions, the probability no less than `CLIP`."""
    return np.maximum(log_sigmoid(np.where(selected, logit, -logit)), np.log(CLIP))


def share(selected: Array) -> float:
    """Return the share of selected tokens among the real ones."""
    return float(np.mean(selected))


def likelihood(
    x: Array, weights: Weights, drawn: Weights, policies: Sequence[str], f: str, policy: str
) -> tuple[Array, dict[str, tuple[Array, Array]]]:
    """Return the log-probability of drawn selections, and what was drawn beside p.

    `drawn` holds the actions [n] of each policy (that of heads first, that of dependents last).
    """
    coins: dict[str, tuple[Array, Array]] = {}
    total: Any = 0.0
    for name in policies:
        W, chosen = with_prefix(weights, f"{name}_"), drawn[name]
        if policy == "iterative":
            logit, _ = iterative(x, W, partial(_given, chosen))
        else:
            logit = logits(x, W, f)
        total = total + log_probabilities(logit, chosen).sum()
        coins[name] = chosen, value_of(sigmoid(logit))
    return total, coins


def select(
    x: Array,
    weights: Weights,
    name: str,
    selection: str,
    f: str,
    policy: str = "rss",
    drawn: Weights | None = None,
) -> Array:
    """Return which tokens [n] the policy with weights ``{name}_w1``... selects, or has drawn."""
    if drawn is not None:
        return drawn[name]
    if selection == "all":
        return np.full(len(x), True)
    if selection != "threshold":
        raise ValueError(f"selection {selection!r} is drawn at random; give the actions to fuse()")
    W = with_prefix(weights, f"{name}_")
    if policy == "iterative":
        return iterative(x, W, lambda j, p: p >= 0.5)[1]
    return value_of(sigmoid(logits(x, W, f))) >= 0.5


def block(
    x: Array,
    W: Weights,
    rows: Array,
    kind: str,
    f: str,
    c: float,
    dep_sel: Array,
    head_sel: Array,
    unselected: str,
) -> Array:
    """Return u [R, d] of one direction."""
    j = np.arange(len(x))
    h = activate(x @ W["map_w"] + W["map_b"], f)  # [n, d]
    dep, head, a = h @ W["dep_w"], h[rows] @ W["head_w"] + W["f_b"], []
    for m, i in enumerate(rows):
        if head_sel[i]:
            met = {"forward": j < i, "backward": j > i, "diagonal": j != i}[kind]
            a.append(again(attend, h, dep, head[m], met & dep_sel, c))  # eq. 10-13
        else:
            pool = {"all_real": j >= 0, "dependents": dep_sel, "others": j != i}[unselected]
            a.append(pool / max(1, pool.sum()) @ h)
    return fused(h[rows], stack(a, h.shape[1]), W)  # eq. 14-15


def fuse(
    x: Array,
    weights: Weights,
    rows: Array,
    dep_sel: Array,
    head_sel: Array,
    direction: str = "both",
    activation: str = "elu",
    tanh_scale: float = 5.0,
    unselected: str = "all_real",
) -> Array:
    """Return eq. 10-15, [R, d_out], for given selections [n]; an RSS is not needed."""

    def one(W: Weights, kind: str) -> Array:
        return block(x, W, rows, kind, activation, tanh_scale, dep_sel, head_sel, unselected)

    return side_by_side(weights, directions(direction), one)


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    direction: str = "both",
    activation: str = "elu",
    tanh_scale: float = 5.0,
    unselected: str = "all_real",
    selection: str = "threshold",
    rss_hidden: int | None = None,
    rss_activation: str = "elu",
    policy: str = "rss",
    drawn: Weights | None = None,
) -> Array | tuple[Array, Array]:
    """Return ReSA [R, d_out] of one sequence; see `reference_impls.naive`.

    Beside it the log-probability of what is drawn times its cotangent: the weights of an RSS have
    that gradient alone, for a step has none, and x has none by it.

    Parameters
    ----------
    weights : mapping
        Those of DiSA; head_w1, dep_w1 [3D, h], head_b1, dep_b1 [h], head_w2, dep_w2 [h, 1],
        head_b2, dep_b2 [1] of the two RSS, or those of `iterative`.
    direction, activation, tanh_scale, unselected, selection, rss_activation, policy
        Configuration; ``rss_hidden`` is told by the weights and not read.
    drawn : mapping, optional
        Actions [n] of the policies "head" and "dep", and the cotangent of their log-probability.
    """
    seen = value_of(x)
    dep_sel = select(seen, weights, "dep", selection, rss_activation, policy, drawn)
    head_sel = select(seen, weights, "head", selection, rss_activation, policy, drawn)
    how = direction, activation, tanh_scale, unselected
    out = fuse(x, weights, rows, dep_sel, head_sel, *how)
    if drawn is None:
        return out
    total = likelihood(seen, weights, drawn, POLICIES, rss_activation, policy)[0]
    return out, total * drawn["cotangent"]


def odds(
    x: Array,
    weights: Weights,
    drawn: Weights,
    policies: Sequence[str] = POLICIES,
    **options: Any,
) -> tuple[dict[str, float], dict[str, tuple[Array, Array]]]:
    """Return log-probability and shares of a selection, and actions beside their probabilities."""
    f, policy = options["rss_activation"], options["policy"]
    total, coins = likelihood(x, weights, drawn, policies, f, policy)
    said = {"log_probability": float(total), "head_share": share(drawn[policies[0]])}
    return said | {"dependent_share": share(drawn[policies[-1]])}, coins
