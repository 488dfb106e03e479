"""How long the blocks are and how many there can be; integers only, and no torch.

The released float32 rule overshoots where 2n is a cube of an even number (n = 108, 256, 864, ...).
"""

from __future__ import annotations


def block_length(n: int, extra: int = 0) -> int:
    """Smallest r with r^3 >= 2n (about half of n^(2/3) blocks, of which each pair is scored).

    Parameters
    ----------
    n : int
        Tokens of the sequence.
    extra : int
        Added to r.

    Examples
    --------
    >>> block_length(4), block_length(5), block_length(108)
    (2, 3, 6)
    """
    r = 1
    while r**3 < 2 * n:
        r += 1
    return r + extra


def most_blocks(n: int, extra: int = 0) -> int:
    """The most blocks that the rule gives to any sequence of at most n tokens.

    A sequence just short enough for a smaller r can have more blocks than the longest one.

    Examples
    --------
    >>> most_blocks(13), most_blocks(14)
    (5, 5)
    """
    r = block_length(n)
    longest_before = (r - 1) ** 3 // 2  # the longest sequence whose blocks are one token shorter
    before = -(-longest_before // (r - 1 + extra)) if longest_before else 0
    return max(before, -(-n // (r + extra)))
