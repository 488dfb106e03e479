"""Exact tests by enumeration: no distribution is assumed."""

from __future__ import annotations

import itertools
import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import numpy as np

MOST_SIGN_FLIPS = 20
"""2^20 sign flips are enumerated; above that the exact test is left out."""
MOST_SPLITS = 200_000
ROUNDING = 1e-9
"""Equal sums must count as equal although they were added in another order."""


def sign_flip(differences: Sequence[float]) -> float:
    """Share of sign patterns whose mean is at least as far from zero as the one observed.

    Two-sided p of independent differences that are symmetric around zero. nan for more than
    `MOST_SIGN_FLIPS`, unless all have one sign: then only that pattern and its opposite count.
    """
    import numpy as np

    values = np.array(differences, dtype=float)
    if (values > 0).all() or (values < 0).all():
        return float(2.0 ** (1 - len(values)))
    if len(values) > MOST_SIGN_FLIPS:
        return math.nan
    totals = np.zeros(1)
    for value in values:
        totals = np.concatenate([totals + value, totals - value])
    tolerance = ROUNDING * np.abs(values).sum()
    return float(np.mean(np.abs(totals) >= abs(values.sum()) - tolerance))


def signed_ranks(differences: Sequence[float]) -> float:
    """Two-sided p of Wilcoxon's signed-rank test: exact, with ties too.

    The null distribution of the sum of the ranks that have a plus is built up rank by rank.
    Differences of zero are left out (Wilcoxon 1945); without any other p is 1. It asks for
    differences that are independent and symmetric around zero; no p is below 2^(1 - n).
    """
    import numpy as np
    from scipy.stats import rankdata

    values = np.array([d for d in differences if d], dtype=float)
    ranks = np.rint(2 * rankdata(np.abs(values))).astype(int)  # ties have half ranks
    share = np.zeros(ranks.sum() + 1)  # of all signs, by the sum of the doubled ranks with a plus
    share[0] = 1.0
    for rank in ranks:
        share /= 2
        share[rank:] += share[:-rank].copy()
    from_middle = np.abs(2 * np.arange(len(share)) - ranks.sum())
    return float(share[from_middle >= abs(2 * ranks[values > 0].sum() - ranks.sum())].sum())


def permutation(first: Sequence[float], second: Sequence[float]) -> float:
    """Share of splits whose difference of means is at least as large as the one observed.

    Two-sided p of two independent groups; nan where there are more than `MOST_SPLITS`.
    """
    values, count = [*first, *second], len(first)
    if math.comb(len(values), count) > MOST_SPLITS:
        return math.nan
    total = math.fsum(values)
    observed = abs(math.fsum(first) / len(first) - math.fsum(second) / len(second))
    tolerance = ROUNDING * max(map(abs, values))
    hits = splits = 0
    for chosen in itertools.combinations(values, count):
        part = math.fsum(chosen)
        difference = part / count - (total - part) / (len(values) - count)
        hits += abs(difference) >= observed - tolerance
        splits += 1
    return hits / splits


def sign_test(differences: Sequence[float] | np.ndarray) -> float:
    """Two-sided p of as many positive among the differences that are not zero; 1 without any.

    It looks at signs alone, so that differences in different units may stand together.
    """
    from scipy.stats import binomtest

    positive = sum(d > 0 for d in differences)
    apart = positive + sum(d < 0 for d in differences)
    return float(binomtest(positive, apart).pvalue) if apart else 1.0
