"""Float64 oracle of the Multi-Scale Transformer, a sentence encoder.

Guo et al., Multi-Scale Self-Attention for Text Classification (AAAI 2020), tokens as rows:

    H_{l+1} = norm(H_l + ReLU(MSMSA(H_l, Omega_l)))          eq. 10, l = 1..L (weights l0_*, ...)
    z^l_k = 0 if l = L or k = |Omega|, else z^l_{k+1} + alpha/l        eq. 11
    n^l = softmax(z^l) N'                                              eq. 12

MSMSA is the oracle of that name (eq. 6-9): no positions, no feed-forward part. n^l_k is the
number of heads of layer l with candidate scale k. Its integers are the paper's example (alpha .5,
N' = 10, L = 3) and nothing else: they are there the differences of the cumulative sums, each
rounded up. In eq. 11 k counts from 0 to |Omega|; the extra entry only shifts z.

H_1 is [CLS] and the tokens, [cls; x in_w] (in_w where the widths differ). "There is no difference
between the [CLS] node and other tokens": it is position 0 of a sequence of n + 1, whose length
the scales "n/16"... are of. The sentence is its last state and the maximum over the other tokens'
last states: side by side (readout "concat"), added ("sum"), or the maximum alone ("max").
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from math import ceil

import numpy as np

from reference_impls.msmsa import naive as msmsa
from reference_impls.naive import Array, Oracle, Weights
from reference_impls.transformer.naive import encode

Scales = Sequence[float | str]


def head_numbers(alpha: float, heads: int, layers: int, candidates: int) -> list[list[int]]:
    """Return n^l_k: for each layer l, the number of heads with candidate k."""
    numbers = []
    for number in range(1, layers + 1):  # l
        z = [0.0] * candidates
        for k in reversed(range(candidates - 1)):
            z[k] = 0.0 if number == layers else z[k + 1] + alpha / number  # eq. 11
        e = np.exp(np.array(z) - max(z))
        shares = e / e.sum() * heads  # eq. 12
        upto = [0, *(ceil(total - 1e-9) for total in np.cumsum(shares))]
        numbers.append([b - a for a, b in pairwise(upto)])
    return numbers


def scales_of_layers(alpha: float, heads: int, layers: int, candidates: Scales) -> list[Scales]:
    """Return Omega_l for each layer: its heads' scales, in the order of the candidates."""
    return [
        [scale for scale, n in zip(candidates, row, strict=True) for _ in range(n)]
        for row in head_numbers(alpha, heads, layers, len(candidates))
    ]


@Oracle
def naive(
    x: Array,
    weights: Weights,
    rows: Array,
    *,
    heads: int,
    layers: int = 2,
    scales: Sequence[Scales] | None = None,
    candidates: Scales = (1, 3, "n/16", "n/8", "n/4"),
    alpha: float = 0.5,
    readout: str = "concat",
    cls: bool = True,
    width_reading: str = "total",
    scaling: str = "head_width",
    ln_epsilon: float = 1e-5,
) -> Array:
    """Return the sentence vector of one sequence, [2d] with readout "concat", else [d].

    See `reference_impls.naive`.

    Parameters
    ----------
    weights : mapping
        cls [d] with `cls`, in_w [D, d] unless D = d; for each layer, with prefix l0_, l1_, ...:
        q_w, k_w, v_w [H, d, d_h], o_w [H*d_h, d], ln_scale, ln_offset [d].
    heads, layers
        Numbers N' and L.
    scales, candidates, alpha
        Scales of each layer's heads; None: from `candidates` and `alpha` by eq. 11-12.
    readout, cls, width_reading, scaling, ln_epsilon
        Further configuration; without `cls` only readout "max" has a meaning.
    """
    omega = scales_of_layers(alpha, heads, layers, candidates) if scales is None else scales

    def layer(index: int, H: Array, W: dict[str, Array]) -> Array:
        return msmsa.naive.forward(
            H,
            W,
            np.arange(len(H)),
            heads=heads,
            scales=omega[index],
            width_reading=width_reading,
            scaling=scaling,
            layer=True,
            ln_epsilon=ln_epsilon,
        )

    return encode(x, weights, layers, layer, readout, cls=cls)
