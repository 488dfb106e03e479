"""Float64 oracle of no context fusion, token by token: u_i = f(W x_i + b).

What is left of MTSA without token2token, source2token and masks (Table 3, "w/o proposed modules";
the values' layer of its appendix B). Tokens are rows here: W, b are map_w.T and map_b.
"""

from __future__ import annotations

from reference_impls.naive import Array, Oracle, Weights, activate


@Oracle
def naive(x: Array, weights: Weights, rows: Array, *, activation: str = "relu") -> Array:
    """Return the layer [R, d_out] of one sequence; see `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        map_w [D, d_out], map_b [d_out].
    activation : {"relu", "elu", "selu"}
    """
    return activate(x[rows] @ weights["map_w"] + weights["map_b"], activation)
