"""More than two models: which of them can't be told apart.

Friedman's test asks whether any differs; then every pair has Wilcoxon's signed-rank test, Holm over
all pairs (Demsar 2006; Benavoli, Corani and Mangili 2016, because what Nemenyi's test of mean ranks
says of two models depends on which others are there, and finds too much where spreads differ).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations, count

from harness.stats.basics import ALPHA, holm
from harness.stats.exact import signed_ranks
from harness.stats.overall import SAME, Friedman, friedman


@dataclass(frozen=True)
class RankedPair:
    """Two models over the same blocks.

    Attributes
    ----------
    first, second : str
    p : float
        Of Wilcoxon's signed-rank test, exact.
    adjusted_p : float
        By Holm over all pairs, and no smaller than Friedman's p, without which no pair is looked
        at: below 5 % the two are told apart.
    """

    first: str
    second: str
    p: float
    adjusted_p: float


@dataclass(frozen=True)
class Ties:
    """Which of several models can't be told apart.

    Attributes
    ----------
    omnibus : Friedman
        Of all of them; with their mean ranks.
    pairs : tuple of RankedPair
    groups : tuple of tuple of str
        The largest sets of models of which no two are told apart, best ranks first; a model that
        is told apart from all others is one by itself, and one may stand in several.
    least_p : float
        The smallest that an adjusted p over so many blocks can be.
    needed : int
        Fewest blocks with which any pair could be told apart.
    """

    omnibus: Friedman
    pairs: tuple[RankedPair, ...]
    groups: tuple[tuple[str, ...], ...]
    least_p: float
    needed: int

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
