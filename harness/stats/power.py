"""Power of t-tests: what a number of replicates can find, and how many are needed."""

from __future__ import annotations

import math
from functools import lru_cache

ALPHA = 0.05
POWER = 0.8
MOST_REPLICATES = 10**7
"""Nobody trains more; a search ends there."""


def power_at(shift: float, freedom: float, alpha: float = ALPHA) -> float:
    """Power of a two-sided t-test whose statistic is centred on `shift` standard errors.

    The statistic has the non-central t-distribution: P(|Z + shift| > critical * S) with
    S^2 = chi^2 / freedom, integrated over S, because scipy's has no value in places with few
    degrees of freedom.
    """
    from scipy.integrate import quad
    from scipy.special import stdtrit

    critical, half = float(stdtrit(freedom, 1 - alpha / 2)), freedom / 2
    scale = math.log(2) + half * math.log(half) - math.lgamma(half)  # of the density of S

    def above(x: float) -> float:
        return math.erfc(x / math.sqrt(2)) / 2

    def beyond(s: float) -> float:
        if s == 0:
            return 0.0
        density = math.exp(scale + (freedom - 1) * math.log(s) - half * s * s)
        return density * (above(critical * s - shift) + above(critical * s + shift))

    # S stays near 1; its tails beyond are less than 1e-12.
    reach = 10 / math.sqrt(freedom)
    low, high = max(0.0, 1 - reach), 1 + reach
    places = sorted({p for p in (1.0, abs(shift) / critical) if low < p < high})
    # With its full output it does not warn where rounding ends it a digit early.
    found = quad(
        beyond, low, high, limit=500, points=places, epsabs=1e-13, epsrel=1e-12, full_output=1
    )
    return min(1.0, float(found[0]))


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
    high = 2
    while power_of(effect, sd, high, paired, alpha) < power:
        high *= 2
        if high > MOST_REPLICATES:
            raise ValueError(
                f"given effect {effect}, sd {sd}: more than {MOST_REPLICATES:,} are needed; expect "
                "a larger effect"
            )
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if middle >= 2 and power_of(effect, sd, middle, paired, alpha) >= power:
            high = middle
        else:
            low = middle
    return high


def pairs_needed(effect: float, sd: float, power: float = POWER) -> int:
    """Fewest pairs with which a paired t-test finds a true difference with this power.

    Raises
    ------
    ValueError
        As `replicates_needed`.
    """
    return replicates_needed(effect, sd, power)
