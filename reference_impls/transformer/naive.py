"""Float64 oracle of the Transformer as a sentence encoder, the peer of the Multi-Scale one.

Guo et al., Multi-Scale Self-Attention for Text Classification (AAAI 2020), eq. 1-5 (Vaswani et
al. 2017), tokens as rows, l the layer (weights l0_*, l1_*, ...):

    Z_l     = norm(H_l + MSA(H_l))           eq. 4; MSA is eq. 1-3, norm LN1 (ln1_scale, ln1_offset)
    H_{l+1} = norm(Z_l + FFN(Z_l))           eq. 5; norm LN2 (ln2_scale, ln2_offset)
    FFN(Z)  = ReLU(Z ff1_w + ff1_b) ff2_w + ff2_b

H_0 is [CLS] and the tokens, [cls; x in_w] (in_w where the widths differ), plus sinusoidal
positions (Vaswani et al., section 3.5) in which [CLS] has position 0. "Classification node": the
last state of [CLS] and the maximum over the tokens' last states, feature by feature, make the
sentence: side by side (readout "concat") or added ("sum").
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from reference_impls.msmsa.naive import layer_norm
from reference_impls.multi_head import naive as multi_head
from reference_impls.naive import Array, Result, Rows, Weights, with_prefix


def encode(
    x: Array,
    weights: Weights,
    g_out: Array | None,
    layers: int,
    layer: Callable[[int, Array, dict[str, Array], Array | None], Any],
    readout: str,
    positions: bool = False,
    cls: bool = True,
) -> Result:
    """Compute the sentence vector [d_out] of x [n, D] and its gradients, with any kind of layer.

    ``layer(l, H, W, g)`` returns its output [n', d], and for its cotangent g the gradients of H
    and of its weights W (two times None without g). Readout "max" leaves the state of [CLS] out;
    without `cls` there is none.
    """
    e = x @ weights["in_w"] if "in_w" in weights else x
    H = np.vstack([weights["cls"], e]) if cls else e
    if positions:
        H = H + multi_head.position_encoding(np.arange(len(H)), H.shape[1], "paper")
    W = [with_prefix(weights, f"l{i}_") for i in range(layers)]
    states = [H]
    for i in range(layers):
        states.append(layer(i, states[-1], W[i], None)[0])
    top = states[-1]
    features = np.arange(top.shape[1])
    best = cls + top[cls:].argmax(axis=0)  # the token that has the maximum, for each feature
    pooled = top[best, features]
    if readout == "concat":
        out = np.concatenate([top[0], pooled])
    else:
        out = {"sum": top[0] + pooled, "max": pooled}[readout]
    if g_out is None:
        return out, None, None

    grads = {}
    g = np.zeros(top.shape)
    g_node, g_pooled = np.split(g_out, 2) if readout == "concat" else (g_out, g_out)
    if readout != "max":
        g[0] += g_node
    g[best, features] += g_pooled
    for i in reversed(range(layers)):
        _, g, G = layer(i, states[i], W[i], g)
        grads.update({f"l{i}_{name}": a for name, a in G.items()})
    if cls:
        grads["cls"], g = g[0], g[1:]
    if "in_w" in weights:
        grads["in_w"], g = x.T @ g, g @ weights["in_w"].T
    return out, g, grads


def transformer_layer(H: Array, W: Weights, g: Array | None, heads: int, eps: float) -> Result:
    """Return H_{l+1} [n, d], and for its cotangent g the gradients of H_l and of W."""
    attention = {name: W[name] for name in ("q_w", "k_w", "v_w", "o_w")}
    z1 = H + multi_head.naive(H, attention, heads=heads, positions=None)[0]
    (Z,) = layer_norm(z1, W["ln1_scale"], W["ln1_offset"], eps)  # eq. 4
    hidden = np.maximum(Z @ W["ff1_w"] + W["ff1_b"], 0.0)
    z2 = Z + hidden @ W["ff2_w"] + W["ff2_b"]
    (out,) = layer_norm(z2, W["ln2_scale"], W["ln2_offset"], eps)  # eq. 5
    if g is None:
        return out, None, None
    G: dict[str, Array] = {}
    g_z2, G["ln2_scale"], G["ln2_offset"] = layer_norm(z2, W["ln2_scale"], W["ln2_offset"], eps, g)
    g_hidden = g_z2 @ W["ff2_w"].T * (hidden > 0)
    G["ff2_w"], G["ff2_b"] = hidden.T @ g_z2, g_z2.sum(axis=0)
    G["ff1_w"], G["ff1_b"] = Z.T @ g_hidden, g_hidden.sum(axis=0)
    g_z1, G["ln1_scale"], G["ln1_offset"] = layer_norm(
        z1, W["ln1_scale"], W["ln1_offset"], eps, g_z2 + g_hidden @ W["ff1_w"].T
    )
    _, g_H, g_attention = multi_head.naive(H, attention, None, g_z1, heads=heads, positions=None)
    assert g_H is not None
    assert g_attention is not None
    return out, g_z1 + g_H, G | g_attention


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
    *,
    heads: int,
    layers: int = 2,
    ff_dim: int | None = None,
    readout: str = "concat",
    positions: bool = True,
    ln_epsilon: float = 1e-5,
) -> Result:
    """Compute the sentence vector of one sequence and its gradients.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [2d] or, with readout
    "sum", [d].

    Parameters
    ----------
    weights : mapping
        cls [d], in_w [D, d] unless D = d; for each layer, with prefix l0_, l1_, ...: q_w, k_w, v_w
        [H, d, d_h], o_w [H*d_h, d], ff1_w [d, ff], ff1_b [ff], ff2_w [ff, d], ff2_b, ln1_scale,
        ln1_offset, ln2_scale, ln2_offset [d].
    heads, layers, readout, positions, ln_epsilon
        Configuration; ``ff_dim`` is told by the weights and not read.
    """

    def layer(index: int, H: Array, W: dict[str, Array], g: Array | None) -> Result:
        return transformer_layer(H, W, g, heads, ln_epsilon)

    return encode(x, weights, grad_out, layers, layer, readout, positions)
