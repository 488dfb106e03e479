"""Two models on one task: what their recorded runs allow to say; from records alone, no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.experiments.costs import TrainingCost, costs_of, coverage
from harness.experiments.preregistration import Order, judged_elsewhere
from harness.experiments.replicates import Units, is_paired, values_of
from harness.experiments.warnings import warnings_of
from harness.experiments.wording import Unit, by_test, sentence, unit_of
from harness.stats import MeanDifference
from harness.stats import accuracy_verdict as judge


@dataclass(frozen=True)
class Comparison:
    """A comparison as far as its runs are there.

    Attributes
    ----------
    key : str
        Of the design.
    design : mapping
        Its record: models, task, metric, recipes, seeds, folds, margin, match.
    title : str
    first, second : str
        Models; the first is judged against the second.
    task, metric : str
    higher_is_better : bool
    choose : {"dev", "best-on-test"}
    seeds : tuple of int
        Declared.
    units : {"seeds", "folds", "repeated folds"}
        What is counted.
    margin : float or None
    values : tuple of (seed, first, second)
        Test metric of each finished pair; with folds (fold, first, second), means over seeds.
        Unpaired also of a seed of which one run is finished; nan stands for the other.
    pairs, finished : int
        Declared pairs of runs, and those of which both runs are done.
    difference : MeanDifference or None
        None without a pair.
    equivalence_p : float or None
        Of the two one-sided tests against the margin; None without one.
    together : int
        How many comparisons it was declared and is judged with; 1 by itself.
    adjusted_p, adjusted_equivalence_p : float or None
        By Holm over these; None by itself.
    verdict : str
        ``better``, ``worse``, ``practically equal``, ``undecided``, ``descriptive only``, or
        ``unfinished``.
    sentence : str
    warnings : tuple of str
    costs : mapping
        `TrainingCost` by model; none for a model without a finished run.
    runs : tuple of mapping
        The run records, those that failed too.
    coverage : str
        One line, or empty for tasks without words.
    """

    key: str
    design: Mapping[str, Any]
    title: str
    first: str
    second: str
    task: str
    metric: str
    higher_is_better: bool
    choose: str
    seeds: tuple[int, ...]
    units: Units
    margin: float | None
    values: tuple[tuple[int, float, float], ...]
    pairs: int
    finished: int
    difference: MeanDifference | None
    equivalence_p: float | None
    verdict: str
    sentence: str
    warnings: tuple[str, ...]
    costs: Mapping[str, TrainingCost]
    runs: tuple[Mapping[str, Any], ...]
    coverage: str
    together: int = 1
    adjusted_p: float | None = None
    adjusted_equivalence_p: float | None = None

    @property
    def replicate(self) -> str:
        """What a value belongs to: ``seed`` or ``fold``."""
        return "seed" if self.units == "seeds" else "fold"

    @property
    def paired(self) -> bool:
        """Whether differences are of one seed or fold, as was declared."""
        return self.units != "seeds" or is_paired(self.design)

    @property
    def sides(self) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
        """The run records of the first model, and those of the second."""
        return sides_of(self.design, self.runs)

    @property
    def complete(self) -> bool:
        """Whether every declared pair is finished."""
        return self.finished == self.pairs

    @property
    def unit(self) -> Unit:
        """How the metric is written."""
        return unit_of(self.metric)


def compare(
    design: Mapping[str, Any], records: Sequence[Mapping[str, Any]], order: Order | None = None
) -> Comparison:
    """Judge one design by the runs that are there.

    Parameters
    ----------
    design : mapping
        Its record; one of several declared together has the key ``family``.
    records : sequence of mapping
        The whole journal.
    order : Order, optional
        Of the records, where it is known already.
    """
    order = order or Order(records)
    by_key = {r["key"]: r for r in records if r["kind"] == "run" and _says(r, design["metric"])}
    pairs = [(by_key.get(first), by_key.get(second)) for first, second in design["runs"]]
    values = values_of(design, pairs)
    difference, verdict = values.difference(), "unfinished"
    equal_p = values.equivalence(design["margin"])
    if difference is not None and all(a is not None and b is not None for a, b in pairs):
        verdict = judge(difference, design["higher_is_better"], equal_p)
    runs = tuple(r for pair in pairs for r in pair if r is not None)
    warnings = warnings_of(design, pairs, values, records, order)
    if not design.get("family"):
        warnings += tuple(judged_elsewhere(design, records))
    first, second = design["models"]
    return Comparison(
        key=design["key"],
        design=design,
        title=f"{first} and {second} on {design['task']}" + ("" if values.paired else ", unpaired"),
        first=first,
        second=second,
        task=design["task"],
        metric=design["metric"],
        higher_is_better=design["higher_is_better"],
        choose="best-on-test" if by_test(design) else "dev",
        seeds=tuple(design["seeds"]),
        units=values.units,
        margin=design["margin"],
        values=values.rows,
        pairs=len(pairs),
        finished=values.finished,
        difference=difference,
        equivalence_p=equal_p,
        verdict=verdict,
        sentence=sentence(design, difference, verdict, values.units),
        warnings=warnings,
        costs=costs_of(dict(zip((first, second), sides_of(design, runs), strict=True))),
        runs=runs,
        coverage=coverage(runs),
    )


def sides_of(
    design: Mapping[str, Any], runs: Sequence[Mapping[str, Any]]
) -> tuple[list[Mapping[str, Any]], list[Mapping[str, Any]]]:
    """Runs of a design's two models, by key: a run says its model as it was typed when trained."""
    first = {pair[0] for pair in design["runs"]}
    second = {pair[1] for pair in design["runs"]}
    return [r for r in runs if r["key"] in first], [r for r in runs if r["key"] in second]


def _says(run: Mapping[str, Any], metric: str) -> bool:
    """Whether a run has what is compared; one that failed needs no metric."""
    return run["status"] != "ok" or metric in run["test"]
