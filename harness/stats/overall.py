"""One answer over several tasks: tasks are the replicates, their means the values (Demsar 2006).

Seeds only make a task's mean more exact; that a model is better *on such tasks* rests on how many
tasks there are. Ranks and signs may mix metrics; means may not. Friedman's test ranks inside blocks
of any kind: tasks, or the seeds of one of them.

Friedman's test asks whether any of more than two models differs; then every pair has Wilcoxon's
signed-rank test, Holm over all pairs (Demsar 2006; Benavoli, Corani and Mangili 2016, because what
Nemenyi's test of mean ranks says of two models depends on which others are there, and finds too
much where spreads differ).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, count
from typing import TYPE_CHECKING

from harness.stats.accuracy import MeanDifference, compare_means
from harness.stats.basics import ALPHA, ROUNDING, holm, sign_test, signed_ranks

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
    """Whether any of several models differs, from their ranks inside each block: a task, a seed."""

    ranks: Mapping[str, float]  # mean rank of each model; 1 is best
    blocks: int
    # statistic, freedom, chi_squared_p: the usual approximation, which is only good for more than
    # ten blocks.
    statistic: float
    freedom: int
    chi_squared_p: float
    # Of the same statistic, from random orders of the ranks inside blocks: no approximation but the
    # number of draws, which are the same every time, in any order of models and blocks.
    p: float
    draws: int = DRAWS  # how many; p can't be less than 1 / (draws + 1)

    @property
    def said(self) -> str:
        """``chi2(4) = 14.60, p = 0.0002 by 20,000 permutations``; a p of no draw is a bound.

        The p beside the statistic is not that of chi-squared, and says so.
        """
        bound = 10 ** math.ceil(-math.log10(self.draws + 1))
        p = f"p < {bound:g}" if self.p <= 1 / (self.draws + 1) else f"p = {self.p:.2g}"
        statistic = f"chi2({self.freedom}) = {self.statistic:.2f}"
        return f"{statistic}, {p} by {self.draws:,} permutations"


@dataclass(frozen=True)
class OverTasks:
    """One model against the baseline, over tasks."""

    # Paired t over the means of those tasks that share a metric, with its exact sign-flip p; None
    # where fewer than two do.
    difference: MeanDifference | None
    wins: int  # wins, losses: tasks on which the mean is better, and worse; over all tasks
    losses: int
    sign_p: float  # exact sign test of wins and losses


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


@dataclass(frozen=True)
class RankedPair:
    """Two models over the same blocks."""

    first: str
    second: str
    p: float  # of Wilcoxon's signed-rank test, exact
    # By Holm over all pairs, and no smaller than Friedman's p, without which no pair is looked at:
    # below 5 % the two are told apart.
    adjusted_p: float


@dataclass(frozen=True)
class Ties:
    """Which of several models can't be told apart."""

    omnibus: Friedman  # of all of them; with their mean ranks
    pairs: tuple[RankedPair, ...]
    # The largest sets of models of which no two are told apart, best ranks first; a model that is
    # told apart from all others is one by itself, and one may stand in several.
    groups: tuple[tuple[str, ...], ...]
    least_p: float  # the smallest that an adjusted p over so many blocks can be
    needed: int  # fewest blocks with which any pair could be told apart

    @property
    def possible(self) -> bool:
        """Whether so many blocks could tell any pair apart."""
        return self.omnibus.blocks >= self.needed


def ties(scores: Mapping[str, Sequence[float]]) -> Ties:
    """Groups of models that can't be told apart.

    Parameters
    ----------
    scores : mapping
        By model, one value per block (a task, or a seed of one task), in the same order; higher is
        better. Blocks are independent: folds of one corpus are not.

    Raises
    ------
    ValueError
        As `harness.stats.friedman`.
    """
    import networkx

    omnibus = friedman(scores)
    models = sorted(scores, key=lambda model: (omnibus.ranks[model], model))
    couples = list(combinations(models, 2))
    p_values = [signed_ranks(_steps(scores[a], scores[b])) for a, b in couples]
    adjusted = [max(p, omnibus.p) for p in holm(p_values)]
    graph = networkx.Graph()
    graph.add_nodes_from(models)
    graph.add_edges_from(c for c, p in zip(couples, adjusted, strict=True) if not p < ALPHA)
    cliques = (sorted(map(models.index, clique)) for clique in networkx.find_cliques(graph))
    return Ties(
        omnibus=omnibus,
        pairs=tuple(RankedPair(*c, *p) for c, *p in zip(couples, p_values, adjusted, strict=True)),
        groups=tuple(tuple(models[place] for place in group) for group in sorted(cliques)),
        least_p=_least(len(couples), omnibus.blocks),
        needed=next(n for n in count(1) if _least(len(couples), n) < ALPHA),
    )


def _least(pairs: int, blocks: int) -> float:
    """The smallest p by Holm over so many pairs: of the one whose differences all have one sign."""
    return float(min(1.0, pairs * 2.0 ** (1 - blocks)))


def _steps(first: Sequence[float], second: Sequence[float]) -> list[int]:
    """Differences as whole steps of what is rounding, so that equal ones tie."""
    step = SAME * max(map(abs, (*first, *second))) or 1.0
    return [round((a - b) / step) for a, b in zip(first, second, strict=True)]
