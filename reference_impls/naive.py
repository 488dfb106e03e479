"""What the float64 oracles share: what they take and return, activations, blocks side by side.

An oracle is ``naive(x, weights, rows=None, grad_out=None, **options)``, for one sequence:

x : ndarray [n, D] of float64
    Real tokens only.
weights : mapping
    By the names of the module's weights.
rows : ints [R] or None
    Positions to return; None is all n. Where the amount of padding matters padded ones may be among
    them. Not read where the output is a sentence.
grad_out : ndarray, shape of the output, or None
    Cotangent of the output.

It returns the output, [R, d_out] or [d_out], and with `grad_out` the gradients of
``sum(out * grad_out)`` with respect to x and to each weight, otherwise two times None.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

Array = np.ndarray
Weights = Mapping[str, Array]
Rows = Sequence[int] | Array | None
Result = tuple[Array, Array | None, dict[str, Array] | None]
SELU = (1.0507009873554805, 1.6732632423543772)


def activate(z: Array, name: str) -> tuple[Array, Array]:
    """Return an activation of z and its derivative."""
    if name == "tanh":
        return np.tanh(z), 1 - np.tanh(z) ** 2
    if name == "relu":
        return np.maximum(z, 0.0), (z > 0) * 1.0
    outer, alpha = {"elu": (1.0, 1.0), "selu": SELU}[name]
    low = np.minimum(z, 0.0)
    value = np.where(z > 0, z, alpha * np.expm1(low))
    return outer * value, outer * np.where(z > 0, 1.0, alpha * np.exp(low))


def sigmoid(z: Array) -> Array:
    """Return the logistic function, for z of any size."""
    return np.exp(-np.logaddexp(0.0, -z))


def positions(rows: Rows, n: int) -> Array:
    """Return the rows asked for as integers [R]."""
    return np.arange(n) if rows is None else np.asarray(rows, dtype=int)


def with_prefix(weights: Weights, prefix: str) -> dict[str, Array]:
    """Return the weights whose names begin with a prefix, without it."""
    return {name[len(prefix) :]: w for name, w in weights.items() if name.startswith(prefix)}


def directions(direction: str) -> dict[str, str]:
    """Return the direction of each block, by the prefix of its weights."""
    return {"fw_": "forward", "bw_": "backward"} if direction == "both" else {"": direction}


def side_by_side(
    x: Array,
    weights: Weights,
    grad_out: Array | None,
    kinds: Mapping[str, Any],
    block: Callable[[dict[str, Array], Any, Array | None], tuple[Array, Array, dict[str, Array]]],
) -> Result:
    """Compute blocks that read the same x, their features side by side.

    ``block(W, kind, g)`` returns the features u [R, d] of the block with the weights W, and for
    its part g [R, d] of `grad_out` the gradients of x and of W. `kinds` tells the blocks apart, by
    the prefix of their weights.
    """
    outs, grad_x, grads = [], np.zeros(x.shape), {}
    for part, (prefix, kind) in enumerate(kinds.items()):
        g = None if grad_out is None else np.split(grad_out, len(kinds), axis=1)[part]
        u, g_x, g_w = block(with_prefix(weights, prefix), kind, g)
        outs.append(u)
        grad_x += g_x
        grads.update({prefix + name: g for name, g in g_w.items()})
    out = np.concatenate(outs, axis=1)  # [R, d_out]
    return (out, None, None) if grad_out is None else (out, grad_x, grads)
