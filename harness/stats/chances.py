"""How probable it is that a model is better, practically equal or worse, after what was measured.

The correlated Bayesian t-test (Corani and Benavoli 2015, A Bayesian approach for comparing
cross-validated algorithms on multiple data sets, section 3): with the noninformative Normal-Gamma
prior the posterior of the mean difference is Student's t, with n - 1 degrees of freedom around the
mean that was seen, its scale the corrected standard error of `harness.stats.compare_means`: folds
are correlated by the share of the corpus that is tested, independent seeds are not.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from harness.stats.accuracy import MeanDifference

PRIOR = "noninformative Normal-Gamma prior"
"""All means and all logarithms of the spread are as probable before."""


@dataclass(frozen=True)
class Chances:
    """Posterior probabilities of the first side's true difference; they sum to 1.

    Attributes
    ----------
    better : float
        That it is better by more than the margin; by anything without one.
    equal : float or None
        That it lies within the margin; None without one.
    worse : float
    """

    better: float
    equal: float | None
    worse: float


def chances(found: MeanDifference, higher_is_better: bool, margin: float | None) -> Chances | None:
    """The posterior of a difference, cut at the margin.

    Unpaired sides have that prior each, independently: the posterior of their difference is that
    of Behrens and Fisher.

    Returns
    -------
    Chances or None
        None where there is no spread that a posterior could come from: a single value on a side,
        or values that are all the same.

    Raises
    ------
    ValueError
        If a margin is given that is not positive.
    """
    if margin is not None and not margin > 0:
        raise ValueError(f"given margin {margin}; expected a positive difference, or none")
    if not found.error > 0:
        return None
    edge = margin or 0.0
    above, below = _above(found, edge), 1 - _above(found, -edge)
    better, worse = (above, below) if higher_is_better else (below, above)
    return Chances(better, None if margin is None else max(0.0, 1 - above - below), worse)


def _above(found: MeanDifference, edge: float) -> float:
    """Probability that the true difference lies above a number."""
    from scipy.integrate import quad
    from scipy.special import stdtr, stdtrit

    apart = found.difference - edge
    if found.paired:
        return float(stdtr(found.freedom, apart / found.error))
    sides = [(found.sd_first, found.count_first), (found.sd_second, found.count_second)]
    (error, count), (other, others) = sorted((sd / math.sqrt(n), n) for sd, n in sides)

    # The side with the larger error is integrated out in closed form: the smaller may be 0.
    def given(quantile: float) -> float:
        shift = error * stdtrit(count - 1, quantile)
        return float(stdtr(others - 1, (apart + shift) / other))

    return float(quad(given, 0, 1, epsabs=1e-10)[0])
