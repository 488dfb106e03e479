"""How much `tiled` takes at once, and how wide heads may be for others.

Without torch, because formulas for memory read it, and the choice of a backend loads none.
"""

from __future__ import annotations

WIDEST = {"triton": 320, "flex": 128}
"""The widest keys and values of a head that the backends of CUDA take."""
SHORT = 256
"""Up to this length a sequence is not cut: all its scores are one product."""
LEAST_QUERIES = 64
"""Fewer queries to a product are slow on any machine, whatever the cache holds."""
FEW = 2**15
"""Numbers in a head's queries up to which copying several heads together beats a loop over them."""
SCORE_BYTES = {"cpu": 2 * 2**20, "cuda": 256 * 2**20}
"""Scores held at once: what stays in a core's cache, what keeps a GPU busy."""
VECTOR = 16
"""Numbers in a vector register, as wide as they come."""


def fast_width(width: int) -> int:
    """The width itself, or a few columns of zeros more: whole vectors in a product's result.

    75 columns take a third longer than 80.
    """
    whole = -(-width // VECTOR) * VECTOR
    return whole if 10 * whole <= 11 * width else width
