"""Float64 oracle of reinforced sequence sampling (RSS): which tokens a policy selects.

Shen et al., ReSAN (IJCAI 2018), section 3.1, eq. 5-7, whose formulas the text has lost; they are
those of the section "rss" of the goldens' README (what taoshen58/ReSAN computes). j is the token:

    eq. 6   z_j = [x_j; m; x_j * m],  m the mean of x over the real tokens     z[j]
    eq. 7   p_j = sigmoid(w^T f(W z_j + b) + b')          w1.T = W, b1, w2 = w, b2 = b';  p[j]
    eq. 5   p(a | x) = prod_j p(a_j | x): all a_j are drawn at once            actions[j]
    eq. 17  reward's share: selected tokens over real tokens                   share
    eq. 19-20  REINFORCE's sum of log p(a_j | x), each clipped at 1e-10        log_probabilities
    eq. 21-25  (appendix A, iterative sampling) every a_j knows those before   iterative_actions
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from reference_impls.disa.naive import activate

Array = np.ndarray
CLIP = 1e-10
"""Probabilities below count as this much before their logarithm is taken."""


def probabilities(x: Array, W: Mapping[str, Array], activation: str = "elu") -> Array:
    """Return p [n] of eq. 6-7 for the real tokens x [n, D].

    `W` holds w1 [3D, h], b1 [h], w2 [h, 1] and b2 [1].
    """
    logit = _forward(x, W, activation)[-1]
    return np.exp(-np.logaddexp(0.0, -logit))


def iterative_actions(x: Array, W: Mapping[str, Array], uniform: Array) -> Array:
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
        p = np.exp(-np.logaddexp(0.0, -(h @ W["out_w"][:, 0] + W["out_b"][0])))
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
    W: Mapping[str, Array],
    selected: Array,
    grad_log: Array,
    activation: str = "elu",
) -> tuple[Array, dict[str, Array]]:
    """Return the gradients of ``sum(log_probabilities * grad_log)``: x [n, D], and weights.

    The actions are given numbers (eq. 19-20); a clipped logarithm has no gradient.
    """
    m, z, t, slope, logit = _forward(x, W, activation)
    p = np.exp(-np.logaddexp(0.0, -logit))
    kept = np.where(selected, p, 1 - p) > CLIP
    g_logit = (grad_log * kept * (selected - p))[:, None]  # derivative of log p, log (1 - p)
    g_t = g_logit @ W["w2"].T * slope
    grads = {
        "w1": z.T @ g_t, "b1": g_t.sum(axis=0), "w2": t.T @ g_logit, "b2": g_logit.sum(axis=0),
    }  # fmt: skip
    g_own, g_mean, g_product = np.split(g_t @ W["w1"].T, 3, axis=1)  # of the three parts of z
    g_m = (g_mean + g_product * x).sum(axis=0)
    return g_own + g_product * m + g_m / len(x), grads


def _forward(
    x: Array, W: Mapping[str, Array], activation: str
) -> tuple[Array, Array, Array, Array, Array]:
    """Return m [D], z [n, 3D], the hidden layer [n, h] and its slope, and the logits [n]."""
    m = x.mean(axis=0)
    z = np.concatenate([x, np.broadcast_to(m, x.shape), x * m], axis=1)  # eq. 6
    t, slope = activate(z @ W["w1"] + W["b1"], activation)
    return m, z, t, slope, (t @ W["w2"] + W["b2"])[:, 0]  # eq. 7 without its sigmoid
