"""How many seeds a comparison needs, by the spread that recorded runs of two models show."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, product
from typing import Any

from harness.errors import UsageError
from harness.experiments.replicates import Unit
from harness.records import schema
from harness.stats import (
    ALPHA,
    LEAST_REPLICATES,
    POWER,
    MeanDifference,
    PairedSpread,
    paired_spread,
    power_of,
    replicates_needed,
)
from harness.train.recipe import HOW_FOUND, Recipe
from harness.train.task import trained_by

LEAST_PAIRS = 3
"""Two pairs leave a factor of thirty between the ends of the deviation's interval."""
ALIKE = ("task", "vectors", "data", "fingerprint")
"""Fields in which two runs must agree to be paired."""

Run = Mapping[str, Any]
Pairs = dict[int, tuple[Run, Run]]
"""By seed."""


@dataclass(frozen=True)
class Recorded:
    """Paired runs of two models."""

    metric: str
    seeds: tuple[int, ...]
    spread: PairedSpread
    recipes: tuple[Mapping[str, Any], Mapping[str, Any]]  # of the models' newest runs
    others: int  # pairs of other settings (recipe, vectors, machine) that are not used


def recorded_spread(
    records: Sequence[Mapping[str, Any]],
    models: tuple[str, str],
    task: str,
    metric: str,
    recipes: tuple[Recipe, Recipe] | None = None,
) -> Recorded:
    """Estimate from the setting under which both models were trained with most seeds.

    By the newest code of which there are enough; of settings with as many the one that was trained
    last.

    Parameters
    ----------
    records : sequence of mapping
        A journal.
    models : pair of str
        As in its records: ``mtsa.algorithm1``.
    recipes : pair of Recipe, optional
        Runs under others are not used.

    Raises
    ------
    UsageError
        If they are too few, or folds of a cross-validation.
    """
    runs = [
        r
        for r in records
        if r["kind"] == "run"
        and r["status"] == "ok"
        and r.get("task") == task
        and r["model"] in models
        and metric in (r.get("test") or {})
    ]
    if any(r.get("fold") is not None for r in runs):
        raise UsageError(
            f"{task} is cross-validated: its folds are given, and more seeds add no test examples; "
            "a plan counts seeds"
        )
    runs.sort(key=lambda r: str(r.get("at")))  # sessions run beside each other
    every = _pairs(runs, models)
    wanted = dict(zip(models, recipes, strict=True)) if recipes is not None else {}
    # What a record does not know of a recipe speaks for no other.
    under = [r for r in runs if not wanted or trained_by(r, wanted[r["model"]])]
    ended = {_code(r): str(r.get("at")) for r in runs}  # its last run

    def preference(pairs: Pairs) -> tuple[int, list[str], int, str]:
        both = next(iter(pairs.values()))
        codes = sorted(ended[_code(r)] for r in both)
        return min(len(pairs), LEAST_PAIRS), codes, len(pairs), _newest(chain(*pairs.values()))

    found = max(_pairs(under, models), key=preference, default={})
    if len(found) < LEAST_PAIRS:
        raise UsageError(
            f"{len(found)} seeds were trained with both {models[0]} and {models[1]} on {task} "
            f"under {'one' if recipes is None else 'this'} recipe; expected {LEAST_PAIRS} or more, "
            "or give --sd"
        )
    first, second = (
        [float(pair[side]["test"][metric]) for pair in found.values()] for side in (0, 1)
    )
    spread = paired_spread(first, second)
    if not spread.sd.value > 0:
        raise UsageError(
            f"all differences of {models[0]} and {models[1]} on {task} are the same: they tell no "
            "spread; give --sd"
        )
    others = sum(map(len, every)) - len(found)
    newest = [run.get("recipe") or {} for run in max(found.values(), key=_newest)]
    return Recorded(metric, tuple(found), spread, (newest[0], newest[1]), others)


def _pairs(runs: Sequence[Run], models: tuple[str, str]) -> list[Pairs]:
    """The newest run of both models by seed, for each setting; runs are the oldest first.

    The two may differ in how their recipe was found, and in the code and the width that all runs of
    one have.
    """
    found: dict[str, dict[str, dict[object, dict[int, Run]]]] = {}
    for run in runs:
        recipe = {k: v for k, v in (run.get("recipe") or {}).items() if k not in HOW_FOUND}
        width = recipe.pop("width", None)
        setting = schema.digest([recipe, *(run.get(name) for name in ALIKE)])
        of_model = found.setdefault(setting, {}).setdefault(run["model"], {})
        of_model.setdefault((_code(run), width), {})[run["seed"]] = run
    return [
        {seed: (first[seed], second[seed]) for seed in sorted(both)}
        for of in found.values()
        for first, second in product(*(of.get(model, {}).values() for model in models))
        if (both := first.keys() & second.keys())
    ]


def _code(run: Run) -> tuple[str, str]:
    """Runs of other code are another subject."""
    return run["model"], str(run.get("code"))


def _newest(runs: Iterable[Run]) -> str:
    return max(str(run.get("at")) for run in runs)


@dataclass(frozen=True)
class SeedPlan:
    """What is asked for."""

    effect: float  # true difference that is to be found
    sd: float  # of the differences if paired, else of either model's values
    power: float
    alpha: float
    paired: bool
    # Judged together; the first step of Holm's method is at ``alpha / comparisons``.
    comparisons: int

    @property
    def level(self) -> float:
        """At which a comparison is found whatever the others show."""
        return self.alpha / self.comparisons

    def power_with(self, count: int) -> float:
        """Probability of finding the difference with so many seeds."""
        return power_of(self.effect, self.sd, count, self.paired, self.level)

    def needed(self, alpha: float | None = None) -> int:
        """Seeds, at least as many as are needed to conclude anything.

        Raises
        ------
        UsageError
            If there is no such number.
        """
        try:
            count = replicates_needed(
                self.effect, self.sd, self.power, self.paired, alpha or self.level
            )
        except ValueError as error:
            raise UsageError(f"plan: {error}") from None
        return max(count, LEAST_REPLICATES)


UNLIKE = "unlike training"


@dataclass(frozen=True)
class Sought:
    """What an undecided comparison could have found, and how many seeds would decide it.

    By the spread that was seen, which is an estimate itself, and by the t-distribution's quantiles
    at these numbers of pairs; as one of those judged together, at the level of Holm's first step.
    """

    # The true difference that is found with 80 % power by what there is. Of folds its error is the
    # corrected one (`harness.stats.compare_folds`).
    detectable: float
    # What `needed` finds: the declared margin, without one the difference that was seen.
    effect: float
    is_margin: bool
    # Seeds, unpaired for each model. None for folds, to which seeds add no test examples, and where
    # no number of seeds will do: without a difference, without any spread, or of models that were
    # not trained alike.
    needed: int | None
    by_folds: bool
    unlike: bool = False

    @property
    def count(self) -> str:
        """``18``, or why there is no number."""
        if self.needed is not None:
            return f"{self.needed:,}"
        why = ["folds are given"] * self.by_folds + [UNLIKE] * self.unlike
        return ", ".join(why) or "no number"

    def short(self, unit: Unit) -> str:
        """`` (detectable 3.90 points; 24 seeds needed)``: behind the verdict in a table."""
        needed = self.count if self.needed is None else f"{self.count} seeds needed"
        return f" (detectable {unit.size(self.detectable)}; {needed})"

    def said(self, unit: Unit) -> str:
        """What it could have found, and what it takes, in words."""
        found = f"undecided: with 80 % power a true difference of {unit.size(self.detectable)}"
        if self.by_folds:
            return f"{found} is found; the folds are given, and seeds add no test examples"
        if self.unlike:
            return f"{found} is found here; {UNLIKE}, which no number of seeds makes up for"
        which = "the margin" if self.is_margin else "a true difference as large as the one seen"
        takes = f"{self.count} seeds" if self.needed is not None else "no number of seeds"
        return f"{found} is found here; {which}, {unit.size(self.effect)}, takes {takes}"


def sought(d: MeanDifference, margin: float | None, together: int, unlike: bool = False) -> Sought:
    """What is missing to decide a comparison, one of so many judged together.

    Parameters
    ----------
    unlike : bool
        Whether its models were not trained alike.
    """
    by_folds = d.test == "corrected resampled t"
    effect = abs(d.difference) if margin is None else margin
    pooled = math.sqrt((d.sd_first**2 + d.sd_second**2) / 2)
    sd = d.error * math.sqrt(d.count_first) if d.paired else pooled
    needed = None
    if not (by_folds or unlike) and sd > 0 and effect > 0:
        plan = SeedPlan(effect, sd, POWER, ALPHA, d.paired, together)
        try:
            needed = plan.needed()
        except UsageError:  # more than anybody trains
            needed = None
    detectable = d.detectable_among(together)
    return Sought(detectable, effect, margin is not None, needed, by_folds, unlike)


def together_sought(several: Sequence[Sought]) -> str:
    """`` (12 to 480 seeds needed; 7 by folds, which are given)``: beside how many are undecided."""
    needed = sorted(one.needed for one in several if one.needed is not None)
    folds = sum(one.by_folds for one in several)
    said = []
    if needed:
        most = f" to {needed[-1]:,}" if needed[-1] > needed[0] else ""
        said.append(f"{needed[0]:,}{most} seeds needed")
    if folds:
        said.append(f"{folds} by folds, which are given")
    if unlike := sum(one.unlike for one in several):
        said.append(f"{unlike} of {UNLIKE}")
    if none := sum(one.count == "no number" for one in several):
        said.append(f"{none} without a number of seeds")
    return f" ({'; '.join(said)})" if said else ""
