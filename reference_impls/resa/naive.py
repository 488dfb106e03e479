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
    eq. 7   p_j = sigmoid(w^T f(W z_j + b) + b')          w1.T = W, b1, w2 = w, b2 = b';  p[j]
    eq. 5   p(a | x) = prod_j p(a_j | x): all a_j are drawn at once            actions[j]
    eq. 17  reward's share: selected tokens over real tokens                   share
    eq. 19-20  REINFORCE's sum of log p(a_j | x), each clipped at 1e-10        log_probabilities
    eq. 21-25  (appendix A, iterative sampling) every a_j knows those before   iterative_actions
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from reference_impls.disa.naive import block_gradients
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

CLIP = 1e-10
"""Probabilities below count as this much before their logarithm is taken."""
POLICIES = ("head", "dep")


def probabilities(x: Array, W: Weights, activation: str = "elu") -> Array:
    """Return p [n] of eq. 6-7 for the real tokens x [n, D].

    `W` holds w1 [3D, h], b1 [h], w2 [h, 1] and b2 [1].
    """
    logit = _forward(x, W, activation)[-1]
    return sigmoid(logit)


def iterative_actions(x: Array, W: Weights, uniform: Array) -> Array:
    """Return what iterative sampling selects [n], token by token (appendix A, in its words).

    h_j = tanh(W [c_j; a_{j-1}] + U h_{j-1} + b), p_j = sigmoid(w h_j + b'), h and a start at 0; the
    context c_j is taken to be the z_j of eq. 6. in_w.T = W, state_w.T = U, state_b = b, out_w = w.
    """
    m = x.mean(axis=0)
    h, a = np.zeros(len(W["state_b"])), np.zeros(len(x))
    for j, token in enumerate(x):
        before = a[j - 1] if j else 0.0
        seen = np.concatenate([token, m, token * m, [before]])
        h = np.tanh(seen @ W["in_w"] + h @ W["state_w"] + W["state_b"])
        p = sigmoid(h @ W["out_w"][:, 0] + W["out_b"][0])
        a[j] = uniform[j] <= p
    return a > 0


def actions(p: Array, uniform: Array) -> Array:
    """Return which tokens random numbers from [0, 1) select [n]: token j with probability p_j."""
    return uniform <= p


def log_probabilities(p: Array, selected: Array) -> Array:
    """Return log p(a_j | x) [n] of actions, the probability no less than `CLIP`."""
    return np.log(np.maximum(np.where(selected, p, 1 - p), CLIP))


def share(selected: Array) -> float:
    """Return the share of selected tokens among the real ones."""
    return float(np.mean(selected))


def gradients(
    x: Array,
    W: Weights,
    selected: Array,
    grad_log: Array,
    activation: str = "elu",
) -> tuple[Array, dict[str, Array]]:
    """Return the gradients of ``sum(log_probabilities * grad_log)``: x [n, D], and weights.

    The actions are given numbers (eq. 19-20); a clipped logarithm has no gradient.
    """
    m, z, t, slope, logit = _forward(x, W, activation)
    p = sigmoid(logit)
    kept = np.where(selected, p, 1 - p) > CLIP
    g_logit = (grad_log * kept * (selected - p))[:, None]  # derivative of log p, log (1 - p)
    g_t = g_logit @ W["w2"].T * slope
    grads = {
        "w1": z.T @ g_t,
        "b1": g_t.sum(axis=0),
        "w2": t.T @ g_logit,
        "b2": g_logit.sum(axis=0),
    }
    g_own, g_mean, g_product = np.split(g_t @ W["w1"].T, 3, axis=1)  # of the three parts of z
    g_m = (g_mean + g_product * x).sum(axis=0)
    return g_own + g_product * m + g_m / len(x), grads


def _forward(x: Array, W: Weights, activation: str) -> tuple[Array, Array, Array, Array, Array]:
    """Return m [D], z [n, 3D], the hidden layer [n, h] and its slope, and the logits [n]."""
    m = x.mean(axis=0)
    z = np.concatenate([x, np.broadcast_to(m, x.shape), x * m], axis=1)  # eq. 6
    t, slope = activate(z @ W["w1"] + W["b1"], activation)
    return m, z, t, slope, (t @ W["w2"] + W["b2"])[:, 0]  # eq. 7 without its sigmoid


def iterative_probabilities(
    x: Array, W: Weights, selected: Array, grad_log: Array | float = 0.0
) -> tuple[Array, dict[str, Array]]:
    """Return p [n] of `iterative_actions` along given actions, and gradients as `gradients` does.

    Those of ``sum(log_probabilities * grad_log)``, for the weights; back through the states h.
    """
    m, n = x.mean(axis=0), len(x)
    a = np.concatenate([[0.0], selected[:-1]])[:, None]
    seen = np.concatenate([x, np.broadcast_to(m, x.shape), x * m, a], axis=1)
    h = np.zeros((n + 1, len(W["state_b"])))  # h[j + 1] is behind token j
    for j in range(n):
        h[j + 1] = np.tanh(seen[j] @ W["in_w"] + h[j] @ W["state_w"] + W["state_b"])
    p = sigmoid(h[1:] @ W["out_w"][:, 0] + W["out_b"][0])
    taken = np.where(selected, p, 1 - p) > CLIP
    g_logit = grad_log * taken * (selected - p)
    g_in, g_h = np.zeros(h[1:].shape), np.zeros(h.shape[1])
    for j in reversed(range(n)):
        g_h = g_h + g_logit[j] * W["out_w"][:, 0]
        g_in[j] = g_h * (1 - h[j + 1] ** 2)
        g_h = W["state_w"] @ g_in[j]
    grads = {
        "in_w": seen.T @ g_in,
        "state_w": h[:-1].T @ g_in,
        "state_b": g_in.sum(axis=0),
        "out_w": h[1:].T @ g_logit[:, None],
        "out_b": g_logit.sum(keepdims=True),
    }
    return p, grads


def odds_of(
    x: Array,
    weights: Weights,
    drawn: Weights,
    policies: Sequence[str],
    f: str,
    policy: str,
    grad_log: float = 0.0,
) -> tuple[dict[str, float], dict[str, tuple[Array, Array]], dict[str, Array]]:
    """Return what is said of drawn selections, what was drawn beside p, and gradients.

    `drawn` holds the actions [n] of each policy (that of heads first, that of dependents last);
    `grad_log` is the cotangent of the log-probability, which is what the gradients are of.
    """
    coins: dict[str, tuple[Array, Array]] = {}
    total, grads = 0.0, dict[str, Array]()
    for name in policies:
        W, chosen = with_prefix(weights, f"{name}_"), drawn[name]
        if policy == "iterative":
            p, own = iterative_probabilities(x, W, chosen, grad_log)
        else:
            p = probabilities(x, W, f)
            own = gradients(x, W, chosen, np.full(len(x), grad_log), f)[1]
        total += float(log_probabilities(p, chosen).sum())
        coins[name] = chosen, p
        grads |= {f"{name}_{weight}": g for weight, g in own.items()}
    said = {"log_probability": total}
    said |= {"head_share": share(drawn[policies[0]]), "dependent_share": share(drawn[policies[-1]])}
    return said, coins, grads


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
        return iterative_actions(x, W, np.full(len(x), 0.5))
    return probabilities(x, W, f) >= 0.5


def block(
    x: Array,
    W: Weights,
    rows: Array,
    g_u: Array | None,
    kind: str,
    f: str,
    c: float,
    dep_sel: Array,
    head_sel: Array,
    unselected: str,
) -> tuple[Array, Array, dict[str, Array]]:
    """Return u [R, d], and the gradients with respect to x and W if the cotangent g_u is given."""
    j = np.arange(len(x))
    h, h_slope = activate(x @ W["map_w"] + W["map_b"], f)  # [n, d]
    g_h, g_dep = np.zeros(h.shape), np.zeros(h.shape)
    a, u, g_head, g_gate = (np.zeros((len(rows), h.shape[1])) for _ in range(4))
    for m, i in enumerate(rows):
        p, tanh = np.zeros(h.shape), np.ones(h.shape)
        if head_sel[i]:
            met = {"forward": j < i, "backward": j > i, "diagonal": j != i}[kind]
            keys = np.flatnonzero(met & dep_sel)  # eq. 10 and the direction: M = 0
            if keys.size:
                tanh[keys] = np.tanh((h[keys] @ W["dep_w"] + h[i] @ W["head_w"] + W["f_b"]) / c)
                e = np.exp(c * tanh[keys] - (c * tanh[keys]).max(axis=0))  # eq. 11
                p[keys] = e / e.sum(axis=0)  # eq. 12, for each feature
        else:
            pool = {"all_real": j >= 0, "dependents": dep_sel, "others": j != i}[unselected]
            p[pool] = 1 / max(1, pool.sum())
        a[m] = (p * h).sum(axis=0)  # eq. 13
        gate = h[i] @ W["fi_w"] + W["fi_b"] + a[m] @ W["fa_w"] + W["fa_b"] + W["o_b"]
        F = sigmoid(gate)  # eq. 14
        u[m] = F * h[i] + (1 - F) * a[m]  # eq. 15
        if g_u is None:
            continue
        g_gate[m] = g_u[m] * (h[i] - a[m]) * F * (1 - F)
        g_a = g_u[m] * (1 - F) + W["fa_w"] @ g_gate[m]
        g_h[i] += g_u[m] * F
        g_h += p * g_a
        # Where p is 0 or one of equal constants tanh is 1: no score, no gradient.
        g_score = p * (h - a[m]) * g_a * (1 - tanh**2)  # c of eq. 11 and its 1/c cancel
        g_dep += g_score
        g_head[m] = g_score.sum(axis=0)
    back = g_dep, g_head, g_gate
    return u, *block_gradients(x, W, rows, (h, h_slope), a, g_h, back)


def fuse(
    x: Array,
    weights: Weights,
    rows: Array,
    grad_out: Array | None,
    dep_sel: Array,
    head_sel: Array,
    direction: str = "both",
    activation: str = "elu",
    tanh_scale: float = 5.0,
    unselected: str = "all_real",
) -> Result:
    """Compute eq. 10-15 as `naive` does, for given selections [n]; an RSS is not needed."""

    def one(W: Weights, kind: str, g_u: Array | None) -> tuple[Array, Array, dict[str, Array]]:
        how = kind, activation, tanh_scale, dep_sel, head_sel, unselected
        return block(x, W, rows, g_u, *how)

    out, grad_x, grads = side_by_side(x, weights, grad_out, directions(direction), one)
    if grads is not None:
        grads = {name: np.zeros(w.shape) for name, w in weights.items()} | grads
    return out, grad_x, grads


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
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
) -> Result:
    """Compute ReSA and its gradients for one sequence.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [R, d_out].

    Parameters
    ----------
    weights : mapping
        Those of DiSA; head_w1, dep_w1 [3D, h], head_b1, dep_b1 [h], head_w2, dep_w2 [h, 1],
        head_b2, dep_b2 [1] of the two RSS, or those of `iterative_actions`.
    direction, activation, tanh_scale, unselected, selection, rss_activation, policy
        Configuration; ``rss_hidden`` is told by the weights and not read.
    drawn : mapping, optional
        Actions [n] of the policies "head" and "dep", and the cotangent of their log-probability.

    Notes
    -----
    The weights of an RSS have the gradient zero, for a step has none, and beside it that of the
    log-probability of what they drew.
    """
    rows = positions(rows, len(x))
    dep_sel = select(x, weights, "dep", selection, rss_activation, policy, drawn)
    head_sel = select(x, weights, "head", selection, rss_activation, policy, drawn)
    how = direction, activation, tanh_scale, unselected
    out, grad_x, grads = fuse(x, weights, rows, grad_out, dep_sel, head_sel, *how)
    if drawn is not None and grads is not None:
        g = float(drawn["cotangent"])
        grads |= odds_of(x, weights, drawn, POLICIES, rss_activation, policy, g)[2]
    return out, grad_x, grads


def odds(
    x: Array, weights: Weights, drawn: Weights, **options: Any
) -> tuple[dict[str, float], dict[str, tuple[Array, Array]]]:
    """Return log-probability and shares of a selection, and actions beside their probabilities."""
    f, policy = options["rss_activation"], options["policy"]
    return odds_of(x, weights, drawn, POLICIES, f, policy)[:2]
