"""Float64 oracle of multi-scale multi-head self-attention, query by query.

Guo et al., Multi-Scale Self-Attention for Text Classification (AAAI 2020), eq. 6-10. The paper
writes tokens as rows, i for the head and j for the position that attends; here c is the head, i
attends and j is attended to:

W^Q, W^K, W^V of head c  q_w[c], k_w[c], v_w[c] [D, d_h];  W^O  o_w
omega_c, C_ij(x, omega)  width(scales[c], n), x[low:high]
norm (gain, bias)        layer_norm (ln_scale, ln_offset)

The size omega is a number or "n/m" of the sentence's length n, forced odd: max(1, 2 [v/2] + 1).
Reading "total" (figure 1): a window of omega tokens, its middle at i. "radius" (eq. 7 to the
letter): omega tokens on either side. Windows end where the sentence ends.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

import numpy as np

Array = np.ndarray
SCALES = (1, 3, "n/16", "n/8", "n/4")


def width(scale: float | str, n: int) -> int:
    """Return omega, an odd number: of the number or "n/m" given, in a sentence of n tokens."""
    # [(n/m)/2] = [n/(2m)], so that no fraction is rounded.
    half = n // (2 * int(scale[2:])) if isinstance(scale, str) else int(scale // 2)
    return max(1, 2 * half + 1)


def layer_norm(
    z: Array, gain: Array, bias: Array, epsilon: float, g: Array | None = None
) -> tuple[Array, ...]:
    """Return (norm(z) [R, d],), or for its cotangent g the gradients of z, gain and bias."""
    deviation = np.sqrt(z.var(axis=1, keepdims=True) + epsilon)  # biased variance
    unit = (z - z.mean(axis=1, keepdims=True)) / deviation
    if g is None:
        return (unit * gain + bias,)
    g_unit = g * gain
    g_z = g_unit - g_unit.mean(axis=1, keepdims=True)
    g_z = (g_z - unit * (g_unit * unit).mean(axis=1, keepdims=True)) / deviation
    return g_z, (g * unit).sum(axis=0), g.sum(axis=0)


def attend(
    q: Array,
    k: Array,
    v: Array,
    rows: Array,
    windows: Sequence[slice],
    root: float,
    g: Array | None = None,
) -> tuple[Array, ...]:
    """Return (head [R, d_h],) of eq. 6, or for its cotangent g the gradients of q, k and v."""
    head = np.zeros((len(rows), v.shape[1]))
    g_q, g_k, g_v = (np.zeros(z.shape) for z in (q, k, v))
    for m, (i, window) in enumerate(zip(rows, windows, strict=True)):
        r = k[window] @ q[i] / root
        e = np.exp(r - r.max())
        p = e / e.sum()  # SM
        head[m] = p @ v[window]
        if g is None:
            continue
        g_v[window] += np.outer(p, g[m])
        g_p = v[window] @ g[m]
        g_r = p * (g_p - p @ g_p) / root
        g_q[i] += g_r @ k[window]
        g_k[window] += np.outer(g_r, q[i])
    return (head,) if g is None else (g_q, g_k, g_v)


def naive(
    x: Array,
    weights: Mapping[str, Array],
    rows: Sequence[int] | Array | None = None,
    grad_out: Array | None = None,
    *,
    heads: int,
    scales: Sequence[float | str] | None = None,
    width_reading: str = "total",
    scaling: str = "head_width",
    layer: bool = False,
    ln_epsilon: float = 1e-5,
    head_dim: int | None = None,
) -> tuple[Array, Array | None, dict[str, Array] | None]:
    """Compute MSMSA and its gradients for one sequence.

    Parameters
    ----------
    x : ndarray [n, D] of float64
        Real tokens only.
    weights : mapping
        q_w, k_w, v_w [H, D, d_h], o_w [H*d_h, d_out]; with `layer` ln_scale, ln_offset [d_out].
    rows, grad_out : ints [R] (None: all n), ndarray [R, d_out] or None
        Queries to compute, and the cotangent of the output.
    heads, scales
        Number H of heads, and one scale for each; None: `SCALES`, repeated.
    width_reading : {"total", "radius"}
    scaling : {"head_width", "model_width"}
        Scores over sqrt(d_h) (eq. 2) or sqrt(D) (eq. 6).
    layer, ln_epsilon
        Whether eq. 10 stands around the attention, and what its norm adds to the variance.
    head_dim
        Not read: the weights tell it.

    Returns
    -------
    tuple
        Output [R, d_out]; with `grad_out` also the gradients of ``sum(out * grad_out)`` with
        respect to x [n, D] and to each weight, otherwise two times None.
    """
    n, W = len(x), weights
    rows = np.arange(n) if rows is None else np.asarray(rows, dtype=int)
    scales = [SCALES[c % len(SCALES)] for c in range(heads)] if scales is None else scales
    d_h = W["v_w"].shape[2]
    root = np.sqrt({"head_width": d_h, "model_width": x.shape[1]}[scaling])
    Q, K, V = ([x @ W[name][c] for c in range(heads)] for name in ("q_w", "k_w", "v_w"))  # eq. 8
    omega = [width(scale, n) for scale in scales]
    half = [{"total": (w - 1) // 2, "radius": w}[width_reading] for w in omega]
    windows = [[slice(max(0, i - h), i + h + 1) for i in rows] for h in half]  # eq. 7
    one = [partial(attend, Q[c], K[c], V[c], rows, windows[c], root) for c in range(heads)]
    H = np.concatenate([head()[0] for head in one], axis=1)  # eq. 6; [head_1; ...; head_N']
    a = H @ W["o_w"]  # eq. 9
    z = x[rows] + np.maximum(a, 0.0) if layer else a
    out = layer_norm(z, W["ln_scale"], W["ln_offset"], ln_epsilon)[0] if layer else a  # eq. 10
    if grad_out is None:
        return out, None, None

    G = {name: np.zeros(w.shape) for name, w in W.items()}
    grad_x, g_a = np.zeros(x.shape), grad_out
    if layer:
        g_z, G["ln_scale"], G["ln_offset"] = layer_norm(
            z, W["ln_scale"], W["ln_offset"], ln_epsilon, grad_out
        )
        np.add.at(grad_x, rows, g_z)
        g_a = g_z * (a > 0)
    G["o_w"] = H.T @ g_a
    g_H = g_a @ W["o_w"].T
    for c in range(heads):
        g_qkv = one[c](g_H[:, c * d_h : (c + 1) * d_h])
        for name, g in zip(("q_w", "k_w", "v_w"), g_qkv, strict=True):
            G[name][c] = x.T @ g
            grad_x += g @ W[name][c].T
    return out, grad_x, G
