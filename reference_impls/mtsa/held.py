"""Bytes that Algorithm 1 and the fused layer hold at their peak, as their code allocates them.

Every term of a maximum is one moment of the pass, with what is alive at it: the numbers over pairs
(B H N N), over tokens and features (B N d_out), over the input (B N d_in), over one sample's pairs
(N N: the masks' geometry, two groups of heads), and the weights. For the default options, without
padding; where no query has to be computed again.
"""

from __future__ import annotations

from reference_impls.kernels import sizes
from reference_impls.mechanism import Size


def paper(s: Size) -> float:
    """Eq. 7-13: q, k, v from x, the scores' two layers, an output layer."""
    return _paper(s, layers=2, scaled=0, masks=2)


def translation(s: Size) -> float:
    """As `paper`, with one mask for all heads, one layer for s, and s before and after scaling."""
    return _paper(s, layers=1, scaled=1, masks=1)


def _paper(s: Size, layers: int, scaled: int, masks: int) -> float:
    p, f, i, geometry = s.pairs, s.features, s.inputs, masks * s.length**2
    w, output, of_scores = 3 * s.d_in * s.d_out, s.d_out**2, layers * s.d_out**2 // s.heads
    if not s.training:
        held = max(
            w + w // 3,  # the weights of q, k and v side by side, and those of q divided
            w // 3 + 8 * f,  # q, k, v in one and head first, the layers of s
            p + 4 * f + geometry,  # r and the masks' biases; q, k, v, s
            4 * f + 9 * geometry // 4,  # the masks' biases are made
            p + 9 * f,  # P, its product with [v*E | E] (2 + 2); q, k, v, s, E
        )
        return float(s.item_bytes * held)
    held = max(
        w + output + p + (17 + scaled) * f,  # the gradients of the quotient, all else is kept
        w + output + 2 * p + (13 + scaled) * f,  # the product's gradient to P
        w + output + 3 * p + (6 + scaled) * f,  # P, its gradient and that of r
        2 * w + output + of_scores + i + 4 * f,  # gradients of x and of the weights
    )
    return float(s.item_bytes * held)


def released(s: Size) -> float:
    """The program's form: v from x; q, k and s from v; a gate in place of the output layer."""
    p, f, i = s.pairs, s.features, s.inputs
    w, square = s.d_in * s.d_out, s.d_out**2 // s.heads  # the values' weights, one of a head's
    if not s.training:
        held = max(
            w + square,
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


def fused_native(s: Size) -> float:
    """The paper's layer on a kernel that holds next to nothing itself: linear in N."""
    return s.item_bytes * _fused(s, 0)


def fused_tiled(s: Size) -> float:
    """As `fused_native`, and what one cut of pairs is computed of."""
    length, d_h = s.length, s.d_out // s.heads
    pairs = sizes.SCORE_BYTES["cpu"] // s.item_bytes
    rows = length
    if length > sizes.SHORT:
        rows = min(length, max(sizes.LEAST_QUERIES, pairs // length))
    samples = min(s.batch, max(1, pairs // (rows * length)))
    wide = 2 * sizes.fast_width(d_h)  # [v*E | E], and its gradient, and that of both sums
    cut = samples * (length * (2 * wide + d_h) + rows * wide + 3 * rows * length)
    return s.item_bytes * _fused(s, cut)


def _fused(s: Size, cut: int) -> float:
    f, i = s.features, s.inputs
    scores = s.batch * s.length * s.heads * sizes.fast_width(s.d_out // s.heads)
    w, output, layers = 3 * s.d_in * s.d_out, s.d_out**2, 2 * s.d_out**2 // s.heads
    if not s.training:
        return float(5 * f + scores)  # q, k, v, s, the attended values and the output
    # Of many tokens the weights side by side, of few the gradient of x head by head.
    beside = s.heads * i if s.few else w
    held = max(
        output + 11 * f + scores + cut,  # q, k, v, s, a, denominators; gradients; the output
        # gradients of q, k, v, s, x and the weights; q, k, v
        w + beside + output + layers + i + 9 * f,
    )
    return float(held)
