"""Power of t-tests: what a number of replicates can find."""

from __future__ import annotations

import math

ALPHA = 0.05
POWER = 0.8


def power_at(shift: float, freedom: float) -> float:
    """Power of a two-sided t-test whose statistic is centred on `shift` standard errors.

    P(|Z + shift| > critical * S) with S^2 = chi^2 / freedom, integrated over S: scipy's non-central
    t has no value in places with few degrees of freedom.
    """
    from scipy.integrate import quad
    from scipy.stats import t

    critical, half = float(t.ppf(1 - ALPHA / 2, freedom)), freedom / 2
    scale = math.log(2) + half * math.log(half) - math.lgamma(half)  # of the density of S

    def above(x: float) -> float:
        return math.erfc(x / math.sqrt(2)) / 2

    def beyond(s: float) -> float:
        if s == 0:
            return 0.0
        density = math.exp(scale + (freedom - 1) * math.log(s) - half * s * s)
        return density * (above(critical * s - shift) + above(critical * s + shift))

    # S stays near 1; its tail beyond is less than 1e-12.
    return float(
        quad(
            beyond, 0, 1 + 10 / math.sqrt(freedom), limit=200, points=[min(1.0, shift / critical)]
        )[0]
    )


def detectable_difference(error: float, freedom: float) -> float:
    """The true difference found with power `POWER`, from a standard error; 0 without spread."""
    from scipy.optimize import brentq

    if error == 0:
        return 0.0
    high = 2.0
    while power_at(high, freedom) < POWER:
        high *= 2
    return error * float(brentq(lambda shift: power_at(shift, freedom) - POWER, 0.0, high))


def power_of(effect: float, sd: float, count: int, paired: bool = True) -> float:
    """Power of a two-sided t-test to find a true difference.

    Parameters
    ----------
    effect : float
        True difference of the means.
    sd : float
        True deviation of the differences; unpaired, of the values on either side.
    count : int
        Pairs, or values per side; at least 2.

    Raises
    ------
    ValueError
        If the effect is not finite, sd not positive, or the count below 2.
    """
    if count < 2 or not 0 < sd < math.inf or not math.isfinite(effect):
        raise ValueError(
            f"given effect {effect}, sd {sd}, count {count}; expected a finite effect, a positive "
            "sd, and a count of at least 2"
        )
    per_side = count if paired else count / 2
    return power_at(abs(effect) / sd * math.sqrt(per_side), count - 1 if paired else 2 * count - 2)


def pairs_needed(effect: float, sd: float, power: float = POWER) -> int:
    """Fewest pairs with which a paired t-test finds a true difference with this power.

    Raises
    ------
    ValueError
        If effect or sd is not positive, or the power not between ALPHA and 1.
    """
    if not (effect > 0 and sd > 0 and ALPHA < power < 1):
        raise ValueError(
            f"given effect {effect}, sd {sd}, power {power}; expected positive numbers and a power "
            f"from {ALPHA} to 1"
        )
    high = 2
    while power_of(effect, sd, high) < power:
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        if middle >= 2 and power_of(effect, sd, middle) >= power:
            high = middle
        else:
            low = middle
    return high
