"""Float64 oracle of the DiSAN sentence encoder, from the oracles of its two parts.

DiSAN slides, "DiSAN": the outputs of forward and backward DiSA side by side, u = [u^fw ; u^bw],
are pooled by multi-dim source2token: s = source2token(u). Weights are those of the parts with
prefixes: ``fusion.`` for disa, ``pooling.`` for source2token.
"""

from __future__ import annotations

from reference_impls.disa.naive import naive as disa
from reference_impls.naive import Array, Result, Rows, Weights, with_prefix
from reference_impls.source2token.naive import naive as source2token


def naive(
    x: Array,
    weights: Weights,
    rows: Rows = None,
    grad_out: Array | None = None,
    *,
    activation: str = "elu",
    tanh_scale: float = 5.0,
) -> Result:
    """Compute the sentence vector of one sequence and its gradients.

    x, rows and grad_out are as `reference_impls.naive` says; the output is [d_out].

    Parameters
    ----------
    weights : mapping
        Those of disa in both directions and of source2token, with their prefixes.
    activation, tanh_scale
        Configuration.
    """
    fusion, pooling = (with_prefix(weights, part) for part in ("fusion.", "pooling."))
    u, _, _ = disa(x, fusion, activation=activation, tanh_scale=tanh_scale)
    out, g_u, g_pooling = source2token(u, pooling, None, grad_out, activation=activation)
    if grad_out is None:
        return out, None, None
    _, grad_x, g_fusion = disa(x, fusion, None, g_u, activation=activation, tanh_scale=tanh_scale)
    assert g_fusion is not None
    assert g_pooling is not None
    grads = {f"fusion.{name}": g for name, g in g_fusion.items()}
    return out, grad_x, grads | {f"pooling.{name}": g for name, g in g_pooling.items()}
