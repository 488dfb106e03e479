"""What the recorded runs of a declared comparison allow to say; from records alone, no torch."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.experiments.warnings import warnings_of
from harness.experiments.wording import Unit, paired_seeds, unit_of
from harness.stats import MeanDifference, compare_means, equivalence
from harness.stats import accuracy_verdict as judge


@dataclass(frozen=True)
class Cost:
    """What training a model took, medians over its runs.

    Attributes
    ----------
    parameters, parameters_with_words : int
        Trained weights without and with word vectors.
    seconds, seconds_per_epoch : float
        Wall time, several runs at a time on this machine.
    epochs, chosen_epoch : float
    peak_bytes : float
        Beyond loaded data, libraries and weights; nan where it can't be measured.
    """

    parameters: int
    parameters_with_words: int
    seconds: float
    seconds_per_epoch: float
    epochs: float
    chosen_epoch: float
    peak_bytes: float


@dataclass(frozen=True)
class Comparison:
    """A comparison as far as its runs are there.

    Attributes
    ----------
    key : str
        Of the design.
    design : mapping
        Its record: models, task, metric, recipes, seeds, margin, match.
    title : str
    first, second : str
        Models; the first is judged against the second.
    task, metric : str
    higher_is_better : bool
    choose : {"dev", "best-on-test"}
    seeds : tuple of int
        Declared.
    margin : float or None
    values : tuple of (seed, first, second)
        Test metric of each finished pair.
    difference : MeanDifference or None
        None without a pair.
    equivalence_p : float or None
        Of the two one-sided tests against the margin; None without one.
    verdict : str
        ``better``, ``worse``, ``practically equal``, ``undecided``, ``descriptive only``, or
        ``unfinished``.
    sentence : str
    warnings : tuple of str
    costs : mapping
        `Cost` by model; none for a model without a finished run.
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
    margin: float | None
    values: tuple[tuple[int, float, float], ...]
    difference: MeanDifference | None
    equivalence_p: float | None
    verdict: str
    sentence: str
    warnings: tuple[str, ...]
    costs: Mapping[str, Cost]
    runs: tuple[Mapping[str, Any], ...]
    coverage: str

    @property
    def unit(self) -> Unit:
        """How the metric is written."""
        return unit_of(self.metric)


def comparisons(records: Iterable[Mapping[str, Any]]) -> list[Comparison]:
    """All comparisons of a journal, the newest design of each question, oldest first.

    A design of which no run was ever recorded (an option that does not exist, say) is none.

    Parameters
    ----------
    records : iterable of mapping
        Of any kind.
    """
    everything = list(records)
    newest: dict[str, Mapping[str, Any]] = {}
    begun = {r["key"] for r in everything if r["kind"] == "run"}
    for record in sorted(everything, key=lambda r: str(r.get("at"))):
        if record["kind"] == "design" and any(key in begun for p in record["runs"] for key in p):
            newest.pop(record["question"], None)
            newest[record["question"]] = record
    return [conclude(design, everything) for design in newest.values()]


def conclude(design: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Comparison:
    """Judge one design by the runs that are there."""
    by_key = {r["key"]: r for r in records if r["kind"] == "run"}
    pairs = [(by_key.get(first), by_key.get(second)) for first, second in design["runs"]]
    metric, (first, second) = design["metric"], design["models"]
    choose = "best-on-test" if _by_test(design) else "dev"
    values = tuple(
        (seed, float(a["test"][metric]), float(b["test"][metric]))
        for seed, (a, b) in zip(design["seeds"], pairs, strict=True)
        if a is not None and b is not None and a["status"] == b["status"] == "ok"
    )
    difference, equal_p, verdict = None, None, "unfinished"
    if values:
        a_values, b_values = [v[1] for v in values], [v[2] for v in values]
        difference = compare_means(a_values, b_values, paired=True)
        if design["margin"] is not None and len(values) > 1:
            equal_p = equivalence(a_values, b_values, design["margin"], paired=True)
        if all(a is not None and b is not None for a, b in pairs):
            verdict = judge(difference, design["higher_is_better"], equal_p)
    runs = tuple(r for pair in pairs for r in pair if r is not None)
    costs = {}
    for model in (first, second):
        good = [r for r in runs if r["model"] == model and r["status"] == "ok"]
        if good:
            costs[model] = _cost(good)
    return Comparison(
        key=design["key"],
        design=design,
        title=f"{first} and {second} on {design['task']}",
        first=first,
        second=second,
        task=design["task"],
        metric=metric,
        higher_is_better=design["higher_is_better"],
        choose=choose,
        seeds=tuple(design["seeds"]),
        margin=design["margin"],
        values=values,
        difference=difference,
        equivalence_p=equal_p,
        verdict=verdict,
        sentence=_sentence(design, difference, verdict, len(pairs)),
        warnings=warnings_of(design, pairs, records),
        costs=costs,
        runs=runs,
        coverage=_coverage(runs),
    )


def _cost(runs: Sequence[Mapping[str, Any]]) -> Cost:
    def middle(values: Iterable[float]) -> float:
        return float(statistics.median(values))

    peaks = [float(r["peak_bytes"]) for r in runs if r.get("peak_bytes") is not None]
    return Cost(
        parameters=runs[0]["parameters"],
        parameters_with_words=runs[0]["parameters_with_words"],
        seconds=middle(r["seconds"] for r in runs),
        seconds_per_epoch=middle(middle(e["seconds"] for e in r["epochs"]) for r in runs),
        epochs=middle(len(r["epochs"]) for r in runs),
        chosen_epoch=middle(r["chosen_epoch"] for r in runs),
        peak_bytes=middle(peaks) if peaks else math.nan,
    )


def _sentence(
    design: Mapping[str, Any], difference: MeanDifference | None, verdict: str, pairs: int
) -> str:
    """Verdict in words, the interval before the p-value."""
    first, second = design["models"]
    where = f"on {design['task']}"
    if difference is None:
        return f"{first} and {second} {where}: no pair of runs is finished"
    unit = unit_of(design["metric"])
    how = "best over time on the test set" if _by_test(design) else "test"
    apart = unit.difference(difference.difference) + unit.of_differences
    size = (
        f"{how} {design['metric']} {unit.value(difference.mean_first)} and "
        f"{unit.value(difference.mean_second)}, difference {apart}"
    )
    if not math.isnan(difference.low):
        size += f" [{unit.difference(difference.low)}, {unit.difference(difference.high)}]"
    over = f"over {paired_seeds(difference.count_first)}"
    says = {
        "better": f"{first} is better than {second} {where}",
        "worse": f"{first} is worse than {second} {where}",
        "practically equal": f"{first} and {second} are practically equal {where}",
        "undecided": f"{first} or {second} {where}: undecided",
        "descriptive only": f"{first} and {second} {where}: too few seeds to conclude",
        "unfinished": f"{first} and {second} {where}: unfinished",
    }[verdict]
    text = f"{says}: {size} {over}"
    if verdict in ("better", "worse", "undecided"):
        text += f" (p = {difference.p:.2g})"
    if verdict == "unfinished":
        text += f" of {pairs}"
    return text


def _by_test(design: Mapping[str, Any]) -> bool:
    return any(recipe["choose"] == "best-on-test" for recipe in design["recipes"])


def _coverage(runs: Sequence[Mapping[str, Any]]) -> str:
    """The share of the words that have a vector, alike for all runs."""
    known = [r["coverage"] for r in runs if r.get("coverage")]
    if not known:
        return ""
    c = known[0]
    return (
        f"vectors {c['vectors']} cover {100 * c['covered'] / c['vocabulary']:.1f} % of "
        f"{c['vocabulary']:,} words, {100 * c['covered_running'] / c['running_words']:.1f} % of "
        f"{c['running_words']:,} running words"
    )
