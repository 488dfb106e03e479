"""Float64 oracle of the DiSAN sentence encoder, from the oracles of its two parts.

DiSAN slides, "DiSAN": the outputs of forward and backward DiSA side by side, u = [u^fw ; u^bw],
are pooled by multi-dim source2token: s = source2token(u). Weights are those of the parts with
prefixes: ``fusion.`` for disa, ``pooling.`` for source2token.
"""

from __future__ import annotations

import numpy as np

from reference_impls.disa.naive import naive as disa
from reference_impls.naive import Array, Oracle, Weights, with_prefix
from reference_impls.source2token.naive import naive as source2token


@Oracle
def naive(
    x: Array, weights: Weights, rows: Array, *, activation: str = "elu", tanh_scale: float = 5.0
) -> Array:
    """Return the sentence vector [d_out] of one sequence; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        Those of disa in both directions and of source2token, with their prefixes.
    activation, tanh_scale
        Configuration.
    """
    every = np.arange(len(x))
    fusion, pooling = (with_prefix(weights, part) for part in ("fusion.", "pooling."))
    u = disa.forward(x, fusion, every, activation=activation, tanh_scale=tanh_scale)
    return source2token.forward(u, pooling, every, activation=activation)
