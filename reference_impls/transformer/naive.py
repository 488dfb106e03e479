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

import numpy as np

from reference_impls.multi_head import naive as multi_head
from reference_impls.naive import Array, Oracle, Weights, activate, layer_norm, with_prefix


def encode(
    x: Array,
    weights: Weights,
    layers: int,
    layer: Callable[[int, Array, dict[str, Array]], Array],
    readout: str,
    positions: bool = False,
    cls: bool = True,
) -> Array:
    """Return the sentence vector [d_out] of x [n, D], with any kind of layer.

    ``layer(l, H, W)`` returns its output [n', d]. Readout "max" leaves the state of [CLS] out;
    without `cls` there is none.
    """
    H = x @ weights["in_w"] if "in_w" in weights else x
    if cls:
        H = np.concatenate([weights["cls"].reshape(1, -1), H])
    if positions:
        H = H + multi_head.position_encoding(np.arange(len(H)), H.shape[1], "paper")
    for i in range(layers):
        H = layer(i, H, with_prefix(weights, f"l{i}_"))
    best = cls + H[cls:].argmax(axis=0)  # the token that has the maximum, for each feature
    pooled = H[best, np.arange(H.shape[1])]
    if readout == "concat":
        return np.concatenate([H[0], pooled])
    return {"sum": H[0] + pooled, "max": pooled}[readout]


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    heads: int,
    layers: int = 2,
    ff_dim: int | None = None,
    readout: str = "concat",
    positions: bool = True,
    ln_epsilon: float = 1e-5,
) -> Array:
    """Return the sentence vector of one sequence; see `reference_impls.naive`.

    The output is [2d] or, with readout "sum", [d].

    Parameters
    ----------
    weights : mapping
        cls [d], in_w [D, d] unless D = d; for each layer, with prefix l0_, l1_, ...: q_w, k_w, v_w
        [H, d, d_h], o_w [H*d_h, d], ff1_w [d, ff], ff1_b [ff], ff2_w [ff, d], ff2_b, ln1_scale,
        ln1_offset, ln2_scale, ln2_offset [d].
    heads, layers, readout, positions, ln_epsilon
        Configuration; ``ff_dim`` is told by the weights and not read.
    """

    def layer(index: int, H: Array, W: dict[str, Array]) -> Array:
        every = np.arange(len(H))
        attended = multi_head.naive.forward(H, W, every, heads=heads, positions=None)
        Z = layer_norm(H + attended, W["ln1_scale"], W["ln1_offset"], ln_epsilon)  # eq. 4
        hidden = activate(Z @ W["ff1_w"] + W["ff1_b"], "relu")
        fed = hidden @ W["ff2_w"] + W["ff2_b"]
        return layer_norm(Z + fed, W["ln2_scale"], W["ln2_offset"], ln_epsilon)  # eq. 5

    return encode(x, weights, layers, layer, readout, positions)
