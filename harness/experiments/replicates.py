"""What a comparison counts: seeds, or the folds of a cross-validation, which are no seeds."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal

from harness.stats import MeanDifference, compare_folds, compare_means, equivalence, fold_means

Units = Literal["seeds", "folds", "repeated folds"]
Run = Mapping[str, Any]
Pair = tuple[Run | None, Run | None]


@dataclass(frozen=True)
class Replicate:
    """One run of each model; both share its seed, and its fold if there are folds."""

    seed: int
    fold: int | None = None


def replicates(seeds: Sequence[int], folds: int) -> tuple[Replicate, ...]:
    """All replicates of a task: its seeds, or every fold once per seed.

    Parameters
    ----------
    folds : int
        0 for a task with an official split.
    """
    if not folds:
        return tuple(Replicate(seed) for seed in seeds)
    return tuple(Replicate(seed, fold) for seed in seeds for fold in range(folds))


def units_of(seeds: int, folds: int) -> Units:
    """What so many seeds of a task count as."""
    if not folds:
        return "seeds"
    return "folds" if seeds == 1 else "repeated folds"


@dataclass(frozen=True)
class Values:
    """Test metrics of a comparison's finished pairs.

    Attributes
    ----------
    units : {"seeds", "folds", "repeated folds"}
    folds : int
        Into how many the corpus was cut; 0 without cross-validation.
    replicates : tuple of Replicate
        Of the finished pairs.
    first, second : tuple of float
        Their metrics.
    paired : bool
        Otherwise a replicate needs one side only: nan stands for the other.
    """

    units: Units
    folds: int
    replicates: tuple[Replicate, ...]
    first: tuple[float, ...]
    second: tuple[float, ...]
    paired: bool = True

    @property
    def finished(self) -> int:
        """Of how many replicates both sides are there."""
        return sum(not math.isnan(a + b) for a, b in zip(self.first, self.second, strict=True))

    @property
    def rows(self) -> tuple[tuple[int, float, float], ...]:
        """What is counted: (seed, first, second), or (fold, mean first, mean second) over seeds."""
        if not self.folds:
            numbers = [r.seed for r in self.replicates]
            return tuple(zip(numbers, self.first, self.second, strict=True))
        first, second = (fold_means(self._of_fold, side) for side in (self.first, self.second))
        return tuple((fold, first[fold], second[fold]) for fold in first)

    @property
    def _of_fold(self) -> list[int]:
        return [r.fold for r in self.replicates if r.fold is not None]

    @property
    def means(self) -> tuple[float, float]:
        """Of both sides, over what is counted; nan without a pair."""
        if not self.rows:
            return math.nan, math.nan
        _, first, second = zip(*self.rows, strict=True)
        return math.fsum(first) / len(first), math.fsum(second) / len(second)

    def only(self, wanted: Collection[Replicate]) -> Values:
        """Those of some replicates."""
        rows = zip(self.replicates, self.first, self.second, strict=True)
        kept = [row for row in rows if row[0] in wanted]
        return Values(
            self.units,
            self.folds,
            tuple(r for r, *_ in kept),
            tuple(v for _, v, _ in kept),
            tuple(v for *_, v in kept),
            self.paired,
        )

    def difference(self) -> MeanDifference | None:
        """The first side minus the second; None without a pair, or a value of each."""
        first, second = self._there
        if not first or not second:
            return None
        if self.folds:
            return compare_folds(first, second, self._of_fold, self.folds)
        return compare_means(first, second, paired=self.paired)

    def equivalence(self, margin: float | None) -> float | None:
        """The p of two one-sided tests against a margin; None without one, or with a single row."""
        found = self.difference()
        if margin is None or found is None or math.isnan(found.error):
            return None
        return equivalence(found, margin)

    @property
    def _there(self) -> tuple[Sequence[float], Sequence[float]]:
        if self.paired:
            return self.first, self.second
        first, second = ([v for v in s if not math.isnan(v)] for s in (self.first, self.second))
        return first, second


def values_of(design: Mapping[str, Any], pairs: Sequence[Pair]) -> Values:
    """The finished pairs of a design's record; of one that is unpaired all finished runs.

    Runs say themselves of which fold they are: a design that takes them for seeds is not believed.
    """
    metric = design["metric"]
    done = [
        (Replicate(a["seed"], a.get("fold")), float(a["test"][metric]), float(b["test"][metric]))
        for a, b in pairs
        if a is not None and b is not None and a["status"] == b["status"] == "ok"
    ]
    folds, seeds = design.get("folds") or 0, len(set(design["seeds"]))
    found = {r.fold for r, *_ in done} - {None}
    if found and not folds:
        folds, seeds = max(2, len(found)), len({r.seed for r, *_ in done})
    paired = is_paired(design) or bool(folds)  # all models share the folds
    if folds:
        done = [row for row in done if row[0].fold is not None]
    if not paired:
        done = _each(pairs, metric)
    return Values(
        units=units_of(seeds, folds),
        folds=folds,
        replicates=tuple(r for r, *_ in done),
        first=tuple(v for _, v, _ in done),
        second=tuple(v for *_, v in done),
        paired=paired,
    )


def is_paired(design: Mapping[str, Any]) -> bool:
    """Whether a design's record declares pairs; older ones say nothing, and are of pairs."""
    return design.get("paired") is not False


def _each(pairs: Sequence[Pair], metric: str) -> list[tuple[Replicate, float, float]]:
    """Both values by seed, nan for a run that is not finished, where one of them is."""
    rows = []
    for pair in pairs:
        done = [run if run is not None and run["status"] == "ok" else None for run in pair]
        some = done[0] or done[1]
        if some is not None:
            first, second = (math.nan if r is None else float(r["test"][metric]) for r in done)
            rows.append((Replicate(some["seed"]), first, second))
    return rows


def counted_each(first: int, second: int) -> str:
    """``5 and 4 unpaired seeds``."""
    return f"{first} and {second} unpaired seeds"


def counted(units: Units, count: int, seeds: int) -> str:
    """``5 paired seeds``, ``10 folds``, ``10 folds, each the mean of 3 seeds``."""
    if units == "seeds":
        return f"{count} paired seed{'' if count == 1 else 's'}"
    text = f"{count} paired fold{'' if count == 1 else 's'}"
    return f"{text}, each the mean of {seeds} seeds" if units == "repeated folds" else text
