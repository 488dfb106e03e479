"""Float64 oracle of stacked MTSA, the released context fusion for deep models.

The text of MTSA does not state it (section 4.2 and appendix B, for semantic role labeling, name
the network of Tan et al. 2017); this is the section "mtsa_stack" of the goldens' README, what
taoshen58/mtsa computes. For each layer, with arrays l0_*, l1_*, ...:

    x <- LN1(x + f(x ffn_w + ffn_b))
    x <- LN2(x + M(x))

M is the released MTSA in its fused form: scores from x, a source2token score of one layer (s2_*),
values without bias or activation, no gate, the first half of the heads forward and the second
backward (strictly), and f(. o_w + o_b) at its end. f is `activation`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from reference_impls.msmsa.naive import layer_norm
from reference_impls.mtsa import naive_released as released
from reference_impls.naive import activate

Array = np.ndarray
M_ARRAYS = ("q_w", "k_w", "v_w", "s2_w", "s2_b", "o_w", "o_b")


def layer(
    x: Array, W: Mapping[str, Array], g: Array | None, heads: int, scale_t: str, f: str, eps: float
) -> tuple[Array, Array | None, dict[str, Array]]:
    """Return one layer's output [n, d], and for its cotangent g the gradients of x and W."""
    M_W = {name: W[name] for name in M_ARRAYS}
    options = {
        "heads": heads,
        "scale_t": scale_t,
        "activation": f,
        "activation_on_values": False,
        "scores_from_input": True,
        "source2token_hidden_layer": False,
        "fusion_gate": False,
        "accelerate": True,
        "output_hidden": x.shape[1],
    }
    t, slope = activate(x @ W["ffn_w"] + W["ffn_b"], f)
    z1 = x + t
    (y,) = layer_norm(z1, W["ln1_scale"], W["ln1_offset"], eps)
    z2 = y + released.naive(y, M_W, **options)[0]
    (out,) = layer_norm(z2, W["ln2_scale"], W["ln2_offset"], eps)
    if g is None:
        return out, None, {}
    G = {}
    g_z2, G["ln2_scale"], G["ln2_offset"] = layer_norm(z2, W["ln2_scale"], W["ln2_offset"], eps, g)
    _, g_y, g_M = released.naive(y, M_W, None, g_z2, **options)
    assert g_M is not None
    g_z1, G["ln1_scale"], G["ln1_offset"] = layer_norm(
        z1, W["ln1_scale"], W["ln1_offset"], eps, g_z2 + g_y
    )
    g_t = g_z1 * slope
    G["ffn_w"], G["ffn_b"] = x.T @ g_t, g_t.sum(axis=0)
    return out, g_z1 + g_t @ W["ffn_w"].T, G | g_M


def naive(
    x: Array,
    weights: Mapping[str, Array],
    rows: Sequence[int] | Array | None = None,
    grad_out: Array | None = None,
    *,
    heads: int,
    layers: int = 2,
    scale_t: str = "identity",
    activation: str = "relu",
    ln_epsilon: float = 1e-6,
) -> tuple[Array, Array | None, dict[str, Array] | None]:
    """Compute the stack and its gradients for one sequence.

    Parameters
    ----------
    x : ndarray [n, d] of float64
        Real tokens only.
    weights : mapping
        For each layer, with prefix l0_, l1_, ...: ffn_w [d, d], ffn_b [d], q_w, k_w, v_w, s2_w
        [H, d, d_h], s2_b [H, d_h], o_w [H*d_h, d], o_b, ln1_scale, ln1_offset, ln2_scale,
        ln2_offset [d].
    rows, grad_out : ints [R] (None: all n), ndarray [R, d] or None
        Tokens to return, and the cotangent of the output.
    heads, layers, scale_t, activation, ln_epsilon
        Configuration.

    Returns
    -------
    tuple
        Output [R, d]; with `grad_out` also the gradients of ``sum(out * grad_out)`` with respect
        to x [n, d] and to each weight, otherwise two times None.
    """
    rows = np.arange(len(x)) if rows is None else np.asarray(rows, dtype=int)
    W = [
        {name.removeprefix(f"l{i}_"): w for name, w in weights.items() if name.startswith(f"l{i}_")}
        for i in range(layers)
    ]
    states = [x]
    for i in range(layers):
        states.append(layer(states[-1], W[i], None, heads, scale_t, activation, ln_epsilon)[0])
    out = states[-1][rows]
    if grad_out is None:
        return out, None, None
    g, grads = np.zeros(x.shape), {}
    np.add.at(g, rows, grad_out)
    for i in reversed(range(layers)):
        _, g_x, G = layer(states[i], W[i], g, heads, scale_t, activation, ln_epsilon)
        assert g_x is not None
        g = g_x
        grads.update({f"l{i}_{name}": a for name, a in G.items()})
    return out, g, grads
