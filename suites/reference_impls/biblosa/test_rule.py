"""The rule of Bi-BloSA's blocks."""

from __future__ import annotations

import math

import pytest

from reference_impls.biblosa.rule import block_length, most_blocks


@pytest.mark.parametrize("extra", range(5))
def test_no_sequence_has_more_blocks_than_the_most(extra: int) -> None:
    most = 0
    for n in range(1, 1001):
        r = next(r for r in range(1, n + 2) if r**3 >= 2 * n) + extra
        most = max(most, math.ceil(n / r))
        assert block_length(n, extra) == r
        assert most_blocks(n, extra) == most
        assert extra or (block_length(n), most_blocks(n)) == (r, most)
