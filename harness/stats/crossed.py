"""Two models by their test examples: one pair of runs, or all pairs over seeds and examples.

A t-test over seeds says what other seeds would give on the same test set. Here test examples are
drawn too: every seed meets every example, so both are crossed.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial
from typing import TYPE_CHECKING

from harness.stats.basics import ALPHA, sign_test

if TYPE_CHECKING:
    import numpy as np

RESAMPLES = 2000
_CHUNK = 250
"""Resamples at a time: of 5,000 examples 10 MB."""
_SMALLEST = 1e-12
"""Smaller p are 0: there scipy's quantiles of t are no longer exact."""


@dataclass(frozen=True)
class Crossed:
    """A mean difference over seeds and test examples."""

    seeds: int
    items: int
    difference: float  # difference, low, high: with its 95 % interval
    low: float
    high: float
    p: float  # two-sided
    error: float  # standard error
    # Share of the squared error that seeds have, from 0 to 1: the rest is that of the examples.
    of_seeds: float

    def equivalence(self, margin: float) -> float:
        """The p of two one-sided tests against a margin, as `harness.stats.equivalence`."""
        if self.error == 0:
            return 0.0 if abs(self.difference) < margin else 1.0
        quantile = partial(_quantile, share=self.of_seeds, seeds=self.seeds, items=self.items)
        half = _p((margin - abs(self.difference)) / self.error, quantile) / 2
        return half if abs(self.difference) < margin else 1.0 - half


def crossed(values: np.ndarray) -> Crossed:
    """Mean of differences [seeds, items], seeds and items both drawn at random.

    With the mean squares S of seeds, I of items and E of the rest (two-way layout, one value a
    cell; Searle, Casella and McCulloch 1992, chapter 4) the variance of the mean is estimated by
    (S + I - E) / (seeds items), and by no less than what seeds or items alone give: with three or
    five seeds the difference is noisy. There is no t distribution of such a sum; its quantile is
    the mean of both t quantiles, weighed with the parts of the variance (Cochran and Cox 1957 for
    two means of unequal variance), which errs on the safe side. The pigeonhole bootstrap (Owen
    2007), which resamples both, has false alarms far above 5 % with so few seeds.

    Raises
    ------
    ValueError
        For fewer than two seeds or items.
    """
    seeds, items = values.shape
    if seeds < 2 or items < 2:
        raise ValueError(f"given {seeds} seeds x {items} items; expected two or more of each")
    mean, by_seed, by_item = float(values.mean()), values.mean(axis=1), values.mean(axis=0)
    s = items * float(((by_seed - mean) ** 2).sum()) / (seeds - 1)
    i = seeds * float(((by_item - mean) ** 2).sum()) / (items - 1)
    rest = values - by_seed[:, None] - by_item + mean
    e = float((rest**2).sum()) / ((seeds - 1) * (items - 1))
    total = max(s, i, s + i - e)
    error = math.sqrt(total / (seeds * items))
    if not error > 1e-12 * max(1.0, abs(mean)):
        return Crossed(seeds, items, mean, mean, mean, 0.0 if mean else 1.0, 0.0, 1.0)
    share = s / total
    half = error * _quantile(ALPHA, share, seeds, items)
    p = _p(abs(mean) / error, partial(_quantile, share=share, seeds=seeds, items=items))
    return Crossed(seeds, items, mean, mean - half, mean + half, p, error, share)


def _quantile(p: float, share: float, seeds: int, items: int) -> float:
    """What a mean over its error exceeds, in either direction, with probability p at most."""
    from scipy.special import stdtrit

    of_seeds, of_items = (-float(stdtrit(count - 1, p / 2)) for count in (seeds, items))
    return share * of_seeds + (1 - share) * of_items


def _p(statistic: float, quantile: Callable[[float], float]) -> float:
    """The p whose quantile a statistic (by its size) is."""
    from scipy.optimize import brentq

    size = abs(statistic)
    if quantile(_SMALLEST) <= size:
        return 0.0
    found = brentq(lambda log: quantile(math.exp(log)) - size, math.log(_SMALLEST), 0.0, xtol=1e-12)
    return math.exp(found)


def mcnemar(first: np.ndarray, second: np.ndarray) -> float:
    """Exact two-sided p of one pair of runs, right or wrong on each example [S]; 1 if alike."""
    return sign_test(first.astype(int) - second.astype(int))


def correlation_parts(said: np.ndarray, truth: np.ndarray) -> np.ndarray:
    """What each example [S] has in Pearson's correlation: their mean is r.

    r and the influence of the example on it, z_a z_b - r (z_a^2 + z_b^2) / 2 (Devlin, Gnanadesikan
    and Kettenring 1975): so a correlation has a variance over examples as a mean has. All 0 for
    constant values, as `harness.train.kinds.sentences.correlation` has it.
    """
    import numpy as np

    centred = [v.astype(np.float64) - v.astype(np.float64).mean() for v in (said, truth)]
    spreads = [float(np.sqrt((v**2).mean())) for v in centred]
    if min(spreads) == 0.0:
        return np.zeros(len(said))
    a, b = (v / spread for v, spread in zip(centred, spreads, strict=True))
    r = float((a * b).mean())
    return np.asarray(r + a * b - r * (a**2 + b**2) / 2)


def correlation_p(pairs: Sequence[tuple[np.ndarray, np.ndarray]], truth: np.ndarray) -> list[float]:
    """Two-sided p by a paired bootstrap of the examples, for each pair of runs.

    Both models of a pair are judged on the same resamples; p is how often the difference of their
    correlations is as far from that of all examples as this is from zero.

    Parameters
    ----------
    pairs : sequence of (array [S], array [S])
        What both models said.
    truth : array, shape [S]
    """
    import numpy as np

    count, exact = len(truth), truth.astype(np.float64)
    sides = [side.astype(np.float64) for pair in pairs for side in pair]
    observed = _correlations(np.ones((1, count)), sides, exact)
    some = np.split(resamples(count), RESAMPLES // _CHUNK)
    drawn = np.concatenate([_correlations(w.astype(np.float64), sides, exact) for w in some])
    apart, centre = (found[:, ::2] - found[:, 1::2] for found in (drawn, observed))
    further = (np.abs(apart - centre) >= np.abs(centre)).sum(axis=0)
    return [(1 + int(n)) / (1 + RESAMPLES) for n in further]


@lru_cache(maxsize=2)
def resamples(count: int) -> np.ndarray:
    """How often each of so many examples comes in a resample, [RESAMPLES, count]; always alike."""
    import numpy as np

    generator = np.random.default_rng(0)
    out = np.empty((RESAMPLES, count), np.uint8)
    for row in out:
        row[:] = np.bincount(generator.integers(count, size=count), minlength=count)
    return out


def _correlations(
    weights: np.ndarray, sides: Sequence[np.ndarray], truth: np.ndarray
) -> np.ndarray:
    """Of each side with the truth [S], by row of weights [B, S]; 0 for constant values: [B, K]."""
    import numpy as np

    total = weights.sum(axis=1)

    def mean(values: np.ndarray) -> np.ndarray:
        return np.asarray(weights @ values) / total

    middle, square = mean(truth), mean(truth**2)
    out = []
    for side in sides:
        own = mean(side)
        product = (mean(side**2) - own**2) * (square - middle**2)
        alike = mean(side * truth) - own * middle
        out.append(np.where(product > 1e-24, alike / np.sqrt(np.maximum(product, 1e-24)), 0.0))
    return np.stack(out, axis=1)
