"""Power of t-tests: what a number of replicates can find, and how many are needed."""

from __future__ import annotations

import math
from bisect import bisect_left
from functools import lru_cache

from harness.stats.basics import ALPHA

POWER = 0.8
MOST_REPLICATES = 10**7
"""Nobody trains more; a search ends there."""
FAR = 50.0
"""Times the critical value: beyond it the power is 1 to the last bit, and scipy has no number."""


def power_at(shift: float, freedom: float, alpha: float = ALPHA) -> float:
    """Power of a two-sided t-test whose statistic is centred on `shift` standard errors.

    The statistic has the non-central t-distribution.
    """
    from scipy.special import stdtrit
    from scipy.stats import nct

    critical = -float(stdtrit(freedom, alpha / 2))  # 1 - alpha / 2 would lose a small alpha
    if shift > FAR * max(1.0, critical):
        return 1.0
    above, below = nct.sf(critical, freedom, shift), nct.cdf(-critical, freedom, shift)
    # Far out in the lower tail, where nothing is left, scipy has no number.
    power = float(above) + (0.0 if math.isnan(below) else float(below))
    if math.isnan(power):
        raise ArithmeticError(f"no power of t({freedom}) at {shift} standard errors, {alpha=}")
    return min(1.0, power)


@lru_cache(maxsize=4096)
def _shift_found(freedom: float, power: float, alpha: float) -> float:
    """How many standard errors away the truth must be to be found with this power."""
    from scipy.optimize import brentq

    high = 2.0
    while power_at(high, freedom, alpha) < power:
        high *= 2
    return float(brentq(lambda shift: power_at(shift, freedom, alpha) - power, 0.0, high))


def detectable_difference(
    error: float, freedom: float, power: float = POWER, alpha: float = ALPHA
) -> float:
    """The true difference found with this power, from a standard error; 0 without spread."""
    return 0.0 if error == 0 else error * _shift_found(freedom, power, alpha)


def sd_of_differences(sd: float, correlation: float) -> float:
    """Deviation of paired differences, from that of the values (alike on both sides).

    Raises
    ------
    ValueError
        If sd is not positive or the correlation not between -1 and 1.
    """
    if not (0 < sd < math.inf and -1 <= correlation < 1):
        raise ValueError(
            f"given sd {sd}, correlation {correlation}; expected a positive sd and a correlation "
            "from -1 to less than 1"
        )
    return sd * math.sqrt(2 * (1 - correlation))


def _error(sd: float, count: int, paired: bool) -> tuple[float, float]:
    """Standard error of a difference of means, and its degrees of freedom."""
    per_side = count if paired else count / 2
    return sd / math.sqrt(per_side), float(count - 1 if paired else 2 * count - 2)


def power_of(
    effect: float, sd: float, count: int, paired: bool = True, alpha: float = ALPHA
) -> float:
    """Power of a two-sided t-test to find a true difference.

    Parameters
    ----------
    effect : float
        True difference of the means.
    sd : float
        True deviation of the differences; unpaired, of the values on either side.
    count : int
        Pairs, or values per side; at least 2.
    alpha : float
        Of the test; divided by their number for one of several comparisons.

    Raises
    ------
    ValueError
        If the effect is not finite, sd not positive, the count below 2, or alpha no probability.
    """
    if count < 2 or not 0 < sd < math.inf or not math.isfinite(effect) or not 0 < alpha < 1:
        raise ValueError(
            f"given effect {effect}, sd {sd}, count {count}, alpha {alpha}; expected a finite "
            "effect, a positive sd, a count of at least 2 and an alpha between 0 and 1"
        )
    error, freedom = _error(sd, count, paired)
    return power_at(abs(effect) / error, freedom, alpha)


def difference_found(
    sd: float, count: int, power: float = POWER, paired: bool = True, alpha: float = ALPHA
) -> float:
    """The true difference that a number of pairs, or of values per side, finds with this power."""
    error, freedom = _error(sd, count, paired)
    return detectable_difference(error, freedom, power, alpha)


def replicates_needed(
    effect: float, sd: float, power: float = POWER, paired: bool = True, alpha: float = ALPHA
) -> int:
    """Fewest pairs, or values per side, with which a t-test finds a true difference.

    Raises
    ------
    ValueError
        If effect or sd is not positive, the power not between alpha and 1, alpha no probability,
        or more than `MOST_REPLICATES` would be needed.
    """
    if not (effect > 0 and sd > 0 and 0 < alpha < power < 1):
        raise ValueError(
            f"given effect {effect}, sd {sd}, power {power}, alpha {alpha}; expected positive "
            "numbers and a power between alpha and 1"
        )

    def found(count: int) -> float:
        return power_of(effect, sd, count, paired, alpha)

    high = 2
    while found(high) < power:
        high *= 2
        if high > MOST_REPLICATES:
            raise ValueError(
                f"given effect {effect}, sd {sd}: more than {MOST_REPLICATES:,} are needed; expect "
                "a larger effect"
            )
    return bisect_left(range(high), power, lo=max(2, high // 2), key=found)
