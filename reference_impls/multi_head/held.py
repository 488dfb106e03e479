"""Bytes that the implementation "matmul" holds at its peak, as its code allocates them.

Every term of a maximum is one moment of the pass, with what is alive at it: the numbers over pairs
(B H N N), over tokens and features (B N d_out), over the input (B N d_in), the three projections'
weights side by side (3 d_in d_out), and those of the output layer. torch's batched product copies
q, k and v head by head. For the default options, without padding; sdpa holds no pairs.
"""

from __future__ import annotations

from reference_impls.mechanism import Size


def paper(s: Size) -> float:
    """With positions and the output layer."""
    return _with_positions(s, output=s.d_out**2, kept=9)


def released(s: Size) -> float:
    """With positions, without the output layer: what it reads need not be kept."""
    return _with_positions(s, output=0, kept=8)


def _with_positions(s: Size, output: int, kept: int) -> float:
    p, f, i, w = s.pairs, s.features, s.inputs, 3 * s.d_in * s.d_out
    projecting = i + 2 * w + 3 * f  # x with positions, the weights twice, q k v
    if not s.training:
        held = max(
            projecting,
            p + 6 * f,  # scores: q k v, q divided, copies of q and k
            2 * p + 5 * f,  # scores and softmax: q k v, a copy of v, the attended values
        )
        return float(s.item_bytes * held)
    held = max(
        projecting,
        i + w + 2 * p + 7 * f,  # scores and softmax: as above, and the copies of q and k are kept
        i + w + p + kept * f,  # end of the forward pass
        i + w + output + 3 * p + 4 * f,  # softmax, its gradient, the scores': q k, v's and output
        2 * i + 2 * w + output + 4 * f,  # gradients of x and of the weights from that of q k v
    )
    return float(s.item_bytes * held)


def relu(s: Size) -> float:
    """With biases and a relu on q k v, without positions and output layer."""
    p, f, i, w = s.pairs, s.features, s.inputs, 3 * s.d_in * s.d_out
    if not s.training:
        held = max(
            2 * w + 3 * f,
            w + 9 * f,  # q k v three times: product, with bias, after the relu
            p + 6 * f,
            2 * p + 5 * f,
        )
        return float(s.item_bytes * held)
    held = max(
        2 * w + 9 * f,
        w + 2 * p + 9 * f,  # softmax and its gradient, or the scores': q k v kept for the relu
        w + 3 * p + 7 * f,  # all three, with most copies gone
        w + 10 * f,  # gradients of q k v, stacked and in order, beside what the relu kept
        i + 2 * w + 4 * f,
    )
    return float(s.item_bytes * held)
