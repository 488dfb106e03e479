"""Bytes that Algorithm 1 holds at its peak, as its code allocates them.

Every term of a maximum is one moment of the pass, with what is alive at it: the numbers over pairs
(B H N N), over tokens and features (B N d_out), over the input (B N d_in), over one sample's pairs
(N N: the masks' geometry, two groups of heads), and the weights. For the default options, without
padding; where no query has to be computed again.
"""

from __future__ import annotations

from reference_impls.mechanism import Size


def paper(s: Size) -> float:
    """Eq. 7-13: q, k, v from x, the scores' two layers, an output layer."""
    p, f, i = s.pairs, s.features, s.inputs
    w, output, layers = 3 * s.d_in * s.d_out, s.d_out**2, 2 * s.d_out**2 // s.heads
    if not s.training:
        held = max(
            2 * w + w // 3,  # the weights of q (divided), k and v, apart and side by side
            w // 3 + 8 * f,  # q, k, v in one and head first, the layers of s
            p + 4 * f + 2 * s.length**2,  # r and the masks' biases; q, k, v, s
            4 * f + 9 * s.length**2 // 2,  # the masks' biases are made
            p + 9 * f,  # P, its product with [v*E | E] (2 + 2); q, k, v, s, E
        )
        return float(s.item_bytes * held)
    held = max(
        w + output + p + 17 * f,  # the gradients of the quotient, all else is kept
        w + output + 2 * p + 13 * f,  # the product's gradient to P
        w + output + 3 * p + 6 * f,  # P, its gradient and that of r
        2 * w + output + layers + i + 4 * f,  # gradients of x and of the weights
    )
    return float(s.item_bytes * held)


def translation(s: Size) -> float:
    """As `paper`, with one mask for all heads, one layer for s, and s before and after scaling."""
    p, f, i = s.pairs, s.features, s.inputs
    w, output, layers = 3 * s.d_in * s.d_out, s.d_out**2, s.d_out**2 // s.heads
    if not s.training:
        geometry = max(9 * s.length**2 // 4, p + s.length**2)
        held = max(2 * w + w // 3, w // 3 + 8 * f, geometry + 4 * f, p + 9 * f)
        return float(s.item_bytes * held)
    held = max(
        w + output + p + 18 * f,
        w + output + 2 * p + 14 * f,
        w + output + 3 * p + 7 * f,
        2 * w + output + layers + i + 4 * f,
    )
    return float(s.item_bytes * held)


def released(s: Size) -> float:
    """The program's form: v from x; q, k and s from v; a gate in place of the output layer."""
    p, f, i = s.pairs, s.features, s.inputs
    w, square = s.d_in * s.d_out, s.d_out**2 // s.heads  # the values' weights, one of a head's
    if not s.training:
        held = max(
            2 * w + square,
            5 * f + 4 * square,
            p + 5 * f + 2 * s.length**2,
            5 * f + 9 * s.length**2 // 2,
            p + 10 * f,  # as the paper's; q, k and s are one block, kept whole
        )
        return float(s.item_bytes * held)
    held = max(
        w + 5 * square + p + 20 * f,
        w + 5 * square + 2 * p + 15 * f,
        w + 5 * square + 3 * p + 8 * f,
        w + 9 * square + 7 * f,
        2 * w + 8 * square + i + 2 * f,  # gradients of x and of the weights
    )
    return float(s.item_bytes * held)
