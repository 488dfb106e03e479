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

import numpy as np

from reference_impls.mtsa import naive_released as released
from reference_impls.naive import Array, Oracle, Weights, activate, layer_norm, with_prefix

M_ARRAYS = ("q_w", "k_w", "v_w", "s2_w", "s2_b", "o_w", "o_b")


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    heads: int,
    layers: int = 2,
    scale_t: str = "identity",
    activation: str = "relu",
    ln_epsilon: float = 1e-6,
) -> Array:
    """Return the stack [R, d] of one sequence; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        For each layer, with prefix l0_, l1_, ...: ffn_w [d, d], ffn_b [d], q_w, k_w, v_w, s2_w
        [H, d, d_h], s2_b [H, d_h], o_w [H*d_h, d], o_b, ln1_scale, ln1_offset, ln2_scale,
        ln2_offset [d].
    heads, layers, scale_t, activation, ln_epsilon
        Configuration.
    """
    every = np.arange(len(x))
    for i in range(layers):
        W = with_prefix(weights, f"l{i}_")
        z = x + activate(x @ W["ffn_w"] + W["ffn_b"], activation)
        y = layer_norm(z, W["ln1_scale"], W["ln1_offset"], ln_epsilon)
        M = released.naive.forward(
            y,
            {name: W[name] for name in M_ARRAYS},
            every,
            heads=heads,
            scale_t=scale_t,
            activation=activation,
            activation_on_values=False,
            scores_from_input=True,
            source2token_hidden_layer=False,
            fusion_gate=False,
            accelerate=True,
            output_hidden=x.shape[1],
        )
        x = layer_norm(y + M, W["ln2_scale"], W["ln2_offset"], ln_epsilon)
    return x[rows]
