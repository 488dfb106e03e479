"""One answer over several tasks: tasks are the replicates, their means the values (Demsar 2006).

Seeds only make a task's mean more exact; that a model is better *on such tasks* rests on how many
tasks there are. Ranks and signs may mix metrics; means may not. Friedman's test ranks inside blocks
of any kind: tasks, or the seeds of one of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING

from harness.stats.accuracy import MeanDifference, compare_means
from harness.stats.exact import ROUNDING, sign_test

if TYPE_CHECKING:
    import numpy as np

LEAST_MODELS = 3
"""Of two models the ranks say no more than the signs."""
LEAST_TASKS = 2
"""Or blocks of any kind."""
SAME = 1e-12
"""Means that differ by less, relative to the larger, are the same: the rest is rounding."""
DRAWS = 20_000
SEED = 0


@dataclass(frozen=True)
class Friedman:
    """Whether any of several models differs, from their ranks inside each block: a task, a seed.

    Attributes
    ----------
    ranks : mapping
        Mean rank of each model; 1 is best.
    blocks : int
    statistic, freedom, chi_squared_p : float
        The usual approximation, which is only good for more than ten blocks.
    p : float
        Of the same statistic, from random orders of the ranks inside blocks: no approximation but
        the number of draws, which are the same every time, in any order of models and blocks.
    draws : int
        How many; p can't be less than 1 / (draws + 1).
    """

    ranks: Mapping[str, float]
    blocks: int
    statistic: float
    freedom: int
    chi_squared_p: float
    p: float
    draws: int = DRAWS

    @property
    def at_floor(self) -> bool:
        """Whether no draw was as extreme: p is then a bound, not a value."""
        return self.p <= 1 / (self.draws + 1)


@dataclass(frozen=True)
class OverTasks:
    """One model against the baseline, over tasks.

    Attributes
    ----------
    difference : MeanDifference or None
        Paired t over the means of those tasks that share a metric, with its exact sign-flip p;
        None where fewer than two do.
    wins, losses : int
        Tasks on which the mean is better, and worse; over all tasks.
    sign_p : float
        Exact sign test of wins and losses.
    """

    difference: MeanDifference | None
    wins: int
    losses: int
    sign_p: float


def friedman(scores: Mapping[str, Sequence[float]]) -> Friedman:
    """Friedman's test of models over blocks.

    Parameters
    ----------
    scores : mapping
        By model, one value per block; higher is better, in any unit of the block's own.

    Raises
    ------
    ValueError
        For fewer than three models, or two blocks, or unequal numbers of blocks.
    """
    import numpy as np
    from scipy.stats import friedmanchisquare, rankdata

    counts = {len(v) for v in scores.values()}
    if len(scores) < LEAST_MODELS or len(counts) > 1 or min(counts) < LEAST_TASKS:
        raise ValueError(
            f"given {len(scores)} models, {sorted(counts)} blocks; expected three models or more "
            "with as many blocks each, two or more"
        )
    table = np.array(list(scores.values()), dtype=float).T  # [blocks, models]
    # Means of the same counts may differ in the last bit: those tie.
    largest = np.abs(table).max(axis=1, keepdims=True)
    steps = np.round(table / np.where(largest > 0, largest, 1) / SAME)
    ranks = rankdata(-steps, axis=1)
    statistic, chi_squared_p = 0.0, 1.0
    if (ranks != ranks[:, :1]).any():  # else all tie everywhere: nothing to divide by
        found = friedmanchisquare(*steps.T)
        statistic, chi_squared_p = float(found.statistic), float(found.pvalue)
    return Friedman(
        ranks=dict(zip(scores, ranks.mean(axis=0).tolist(), strict=True)),
        blocks=len(table),
        statistic=statistic,
        freedom=len(scores) - 1,
        chi_squared_p=chi_squared_p,
        p=_permuted(ranks),
    )


def _permuted(ranks: np.ndarray) -> float:
    """Share of random orders inside blocks whose rank sums lie as far apart, this one counted."""
    import numpy as np

    expected = ranks.shape[0] * (ranks.shape[1] + 1) / 2
    observed = ((ranks.sum(axis=0) - expected) ** 2).sum()
    # Blocks and models in another order are the same question: the same draws answer it.
    inside = sorted(map(tuple, np.sort(ranks, axis=1).tolist()))
    reached = (_spreads(tuple(inside)) >= observed - ROUNDING).sum()
    return float((1 + reached) / (1 + DRAWS))


@lru_cache(maxsize=4)
def _spreads(inside: tuple[tuple[float, ...], ...]) -> np.ndarray:
    """How far apart the sums of the models' ranks lie, in random orders of the ranks of a block."""
    import numpy as np

    ranks = np.array(inside)
    expected = ranks.shape[0] * (ranks.shape[1] + 1) / 2
    random, sums = np.random.default_rng(SEED), np.zeros((DRAWS, ranks.shape[1]))
    for row in ranks:  # one by one: of many seeds not all draws have room at a time
        sums += random.permuted(np.broadcast_to(row, sums.shape), axis=1)
    spread: np.ndarray = ((sums - expected) ** 2).sum(axis=1)
    return spread


def over_tasks(
    model: Mapping[str, float],
    baseline: Mapping[str, float],
    metrics: Mapping[str, str],
    higher_is_better: Mapping[str, bool],
) -> OverTasks:
    """Compare two models over tasks.

    Parameters
    ----------
    model, baseline : mapping
        Mean test metric by task, of the tasks that both have.
    metrics, higher_is_better : mapping
        By task.

    Raises
    ------
    ValueError
        If the tasks of both are not the same.
    """
    if model.keys() != baseline.keys():
        raise ValueError(f"given tasks {list(model)} and {list(baseline)}; expected the same")
    gains = [_apart(model[t], baseline[t]) * (1 if higher_is_better[t] else -1) for t in model]
    alike = sharing(list(model), metrics)
    difference = None
    if len(alike) >= LEAST_TASKS:
        difference = compare_means(
            [model[t] for t in alike], [baseline[t] for t in alike], paired=True
        )
    return OverTasks(
        difference,
        wins=sum(g > 0 for g in gains),
        losses=sum(g < 0 for g in gains),
        sign_p=sign_test(gains) if gains else 1.0,
    )


def _apart(first: float, second: float) -> float:
    """The difference; 0 where it is no more than rounding."""
    difference = first - second
    return difference if abs(difference) > SAME * max(abs(first), abs(second)) else 0.0


def sharing(tasks: Sequence[str], metrics: Mapping[str, str]) -> list[str]:
    """The tasks of the metric that most of them have; of equals the first in the alphabet.

    Tasks named in another order are the same question, and get the same test.
    """
    if not tasks:
        return []
    names = [metrics[t] for t in tasks]
    most = max(sorted(set(names)), key=names.count)
    return [t for t in tasks if metrics[t] == most]
