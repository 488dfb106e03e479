"""What the tests of means are made of: moments, Student's t, Welch's error; and Holm's method."""

from __future__ import annotations

import math
from collections.abc import Sequence

ALPHA = 0.05
CONFIDENCE = 0.95


def mean(values: Sequence[float]) -> float:
    """Of one value or more."""
    return math.fsum(values) / len(values)


def deviation(values: Sequence[float]) -> float:
    """Sample deviation (n - 1); nan of one value."""
    if len(values) < 2:
        return math.nan
    centre = mean(values)
    return math.sqrt(math.fsum((v - centre) ** 2 for v in values) / (len(values) - 1))


def half_width(error: float, freedom: float, confidence: float = CONFIDENCE) -> float:
    """Half the length of the t-interval around a number with this standard error."""
    from scipy.special import stdtrit

    return float(stdtrit(freedom, (1 + confidence) / 2)) * error


def two_sided(difference: float, error: float, freedom: float) -> float:
    """The p of a t-test that a difference with this standard error is zero.

    Without any spread it is 1 for a difference of zero and 0 otherwise.
    """
    from scipy.special import stdtr

    if error == 0:
        return 0.0 if difference else 1.0
    return float(2 * stdtr(freedom, -abs(difference) / error))


def welch_error(deviations: Sequence[float], counts: Sequence[int]) -> tuple[float, float]:
    """Standard error of the difference of two means, and its degrees of freedom.

    Those of Welch and Satterthwaite, of both sample deviations and numbers of values; without any
    variance there is nothing to divide, and the freedom is that of equal variances.
    """
    squares = [sd**2 / count for sd, count in zip(deviations, counts, strict=True)]
    total = math.fsum(squares)
    if not total > 0:
        return math.sqrt(total), float(sum(counts) - 2)
    below = math.fsum(s**2 / (count - 1) for s, count in zip(squares, counts, strict=True) if s)
    return math.sqrt(total), total**2 / below


def holm(p_values: Sequence[float]) -> list[float]:
    """p-values adjusted for their number by Holm's method, in the order given.

    Of m, the i-th smallest times m - i + 1, no smaller than the one before, and at most 1 (Holm
    1979). Done here because statsmodels collects Python's garbage at each call, 0.05 s and more.

    Raises
    ------
    ValueError
        If one is not between 0 and 1.
    """
    if not all(0 <= p <= 1 for p in p_values):
        raise ValueError(f"given p-values {list(p_values)}; expected numbers from 0 to 1")
    adjusted, largest = [0.0] * len(p_values), 0.0
    for rank, place in enumerate(sorted(range(len(p_values)), key=lambda i: p_values[i])):
        largest = max(largest, min(1.0, (len(p_values) - rank) * float(p_values[place])))
        adjusted[place] = largest
    return adjusted
