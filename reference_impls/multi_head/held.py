"""Bytes that the implementation "matmul" holds at its peak, as its code allocates them.

Every term of a maximum is one moment of the pass, with what is alive at it: the numbers over pairs
(B H N N), over tokens and features (B N d_out), over the input (B N d_in), the three projections'
weights side by side (3 d_in d_out; in evaluation they are kept from call to call), and those of the
output layer. q, k and v are copied head by head. For the default options, without padding; sdpa
holds no pairs.
"""

from __future__ import annotations

from reference_impls.mechanism import Size


def paper(s: Size) -> float:
    """With positions and the output layer."""
    return _with_positions(s, output=s.d_out**2, kept=9)


def released(s: Size) -> float:
    """With positions, without the output layer: what it reads need not be kept."""
    return _with_positions(s, output=0, kept=8)


def _forward(s: Size, inputs: int, output: bool) -> float:
    """Without gradients."""
    p, f = s.pairs, s.features
    held = max(
        inputs + 3 * f,  # x with positions, q k v
        p + 5 * f,  # scores: q k v, copies of q and k; softmax: a copy of v, the attended values
        2 * p + 3 * f,  # scores and softmax: q k v
        (6 if output else 5) * f,  # q k v, attended values, in order, output
    )
    return float(s.item_bytes * held)


def _with_positions(s: Size, output: int, kept: int) -> float:
    p, f, i, w = s.pairs, s.features, s.inputs, 3 * s.d_in * s.d_out
    if not s.training:
        return _forward(s, i, bool(output))
    held = max(
        i + w + 3 * f,  # x with positions, the weights side by side, q k v
        i + w + 2 * p + 5 * f,  # scores and softmax: as above, and the copies of q and k are kept
        i + w + p + kept * f,  # end of the forward pass
        i + w + output + 3 * p + 4 * f,  # softmax, its gradient, the scores': q k, v's and output
        2 * i + 2 * w + output + 4 * f,  # gradients of x and of the weights from that of q k v
    )
    return float(s.item_bytes * held)


def relu(s: Size) -> float:
    """With biases and a relu on q k v, without positions and output layer."""
    p, f, i, w = s.pairs, s.features, s.inputs, 3 * s.d_in * s.d_out
    if not s.training:
        return _forward(s, 0, False)
    held = max(
        w + 3 * f,
        w + 3 * p + 9 * f,  # softmax, its gradient, the scores': q k v kept for the relu, copies
        w + 10 * f,  # gradients of q k v, stacked and in order, beside what the relu kept
        i + 2 * w + 4 * f,
    )
    return float(s.item_bytes * held)
