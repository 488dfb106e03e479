"""Float64 oracle of the released MTSA program, query by query.

The formulas are those of the section "mtsa" of the goldens' README (`README` below), which states
what taoshen58/mtsa computes; names of arrays are its names. i attends, j is attended to. It
differs from the paper's eq. 7-13: queries, keys and scores may come from the values, the values
have bias and activation, a gate fuses value and attended vector, and a layer may stand before
and after everything.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from reference_impls.mtsa.naive import attend, kept, positional_mask
from reference_impls.naive import Array, Oracle, Weights, activate, sigmoid


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    heads: int,
    head_dim: int | None = None,
    scale_t: str = "log_sigmoid",
    activation: str = "relu",
    activation_on_values: bool = True,
    scores_from_input: bool = False,
    source2token_hidden_layer: bool = True,
    fusion_gate: bool = True,
    directional: bool = True,
    include_self: bool = False,
    accelerate: bool = False,
    input_hidden: int | None = None,
    output_hidden: int | None = None,
    token2token: bool = True,
    source2token: bool = True,
    attention_dropout: float = 0.0,
    drawn: Mapping[str, Array] | None = None,
) -> Array:
    """Return the released MTSA [R, d_out] of one sequence; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        Arrays of the README; in_*, o_*, g_*, s1_* and v_b only where the configuration has them.
    heads ... output_hidden
        Config of the README. Widths are told by the weights.
    token2token, source2token
        Whether r and s are there (the paper's Table 3); if not, q_w and k_w, or s1_* and s2_*, are
        missing: an absent score is 0, and sigma_t(0) is the same for all keys, so without effect.
    attention_dropout, drawn
        As the paper's, see `reference_impls.mtsa.naive.kept`.
    """
    assert (token2token, source2token) == ("q_w" in weights, "s2_w" in weights)
    n, f = len(x), activation
    # The fused path has no v_b with scores_from_input, without it it applies f to the values twice.
    biased = not (accelerate and scores_from_input)
    times = activation_on_values * (2 if accelerate and not scores_from_input else 1)
    own_token = "_inclusive" if include_self else ""
    hid = activate(x @ weights["in_w"] + weights["in_b"], f) if input_hidden else x  # x'
    found = []
    for c in range(heads):
        W = {name: w[c] for name, w in weights.items() if name[:2] not in ("in", "o_")}
        v = hid @ W["v_w"] + (W["v_b"] if biased else 0.0)
        for _ in range(times):
            v = activate(v, f)  # A
        u = hid if scores_from_input else v
        q, k, s = np.zeros((len(rows), 1)), np.zeros((n, 1)), np.zeros((n, 1))
        if token2token:
            q, k = u[rows] @ W["q_w"], u @ W["k_w"]
        if source2token:
            hidden = activate(u @ W["s1_w"] + W["s1_b"], f) if source2token_hidden_layer else u
            s = hidden @ W["s2_w"] + W["s2_b"]
        side = ("forward" if c < heads // 2 else "backward") + own_token
        M = positional_mask(side if directional else "diagonal", rows, n)
        y = attend(q, k, v, s, M, scale_t, kept(drawn, attention_dropout, c, rows))
        if fusion_gate:
            g = sigmoid(np.concatenate([v[rows], y], axis=1) @ W["g_w"] + W["g_b"])
            y = g * v[rows] + (1 - g) * y
        found.append(y)
    Y = np.concatenate(found, axis=1)  # [R, H*d_h]
    return activate(Y @ weights["o_w"] + weights["o_b"], f) if output_hidden else Y
