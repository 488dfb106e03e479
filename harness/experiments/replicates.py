"""What a comparison counts: seeds, or folds, which are no seeds; and how that is written."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal, TypeGuard

from harness.stats import (
    Crossed,
    MeanDifference,
    accuracy_verdict,
    compare_folds,
    compare_means,
    equivalence,
    fold_means,
    holm,
    judged_p,
    too_few,
)

Units = Literal["seeds", "folds", "repeated folds"]
Record = Mapping[str, Any]
Pair = tuple[Record | None, Record | None]
EXPLORATORY = "exploratory"
"""What is concluded from runs that are older than the question."""
LATE = "declared after runs of it, or after runs that these repeat"
"""What makes a family exploratory."""
FEW_LATE = 3
"""Such comparisons of a family, not all of it, up to which they are named."""

BEST_ON_TEST = "best over time on the test set"
"""What a test metric is called of a run whose epoch was chosen by it, as the papers do."""


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
    each = range(folds) if folds else (None,)
    return tuple(Replicate(seed, fold) for seed in seeds for fold in each)


def units_of(seeds: int, folds: int) -> Units:
    """What so many seeds of a task count as."""
    if not folds:
        return "seeds"
    return "folds" if seeds == 1 else "repeated folds"


@dataclass(frozen=True)
class Values:
    """Test metrics of a comparison's finished pairs."""

    units: Units  # {"seeds", "folds", "repeated folds"}
    folds: int  # into how many the corpus was cut; 0 without cross-validation
    of_each: Mapping[Replicate, tuple[float, float]]  # both metrics of each finished pair
    paired: bool = True  # otherwise a replicate needs one side only: nan stands for the other

    @property
    def both(self) -> frozenset[Replicate]:
        """Replicates of which both sides are there."""
        return frozenset(r for r, (a, b) in self.of_each.items() if not math.isnan(a + b))

    @property
    def finished(self) -> int:
        """Of how many replicates both sides are there."""
        return len(self.both)

    @property
    def rows(self) -> tuple[tuple[int, float, float], ...]:
        """What is counted: (seed, first, second), or (fold, mean first, mean second) over seeds."""
        if not self.folds:
            return tuple((r.seed, a, b) for r, (a, b) in self.of_each.items())
        first, second = (fold_means(self._of_fold, side) for side in self._sides)
        return tuple((fold, first[fold], second[fold]) for fold in first)

    @property
    def _sides(self) -> tuple[list[float], list[float]]:
        return [a for a, _ in self.of_each.values()], [b for _, b in self.of_each.values()]

    @property
    def _of_fold(self) -> list[int]:
        return [r.fold for r in self.of_each if r.fold is not None]

    def only(self, wanted: Collection[Replicate]) -> Values:
        """Those of some replicates."""
        return replace(self, of_each={r: v for r, v in self.of_each.items() if r in wanted})

    def difference(self) -> MeanDifference | None:
        """The first side minus the second; None without a pair, or a value of each."""
        first, second = ([v for v in s if not math.isnan(v)] for s in self._sides)
        if not first or not second:
            return None
        if self.folds:
            return compare_folds(first, second, self._of_fold, self.folds)
        return compare_means(first, second, paired=self.paired)


@dataclass(frozen=True)
class Measured:
    """What the runs of a design show, before it is judged as one of several."""

    design: Record  # its record
    pairs: list[Pair]  # runs by seed (and fold), in the order of the design
    values: Values  # of the finished pairs; of a design that is unpaired of all finished runs
    difference: MeanDifference | None
    # Of the two one-sided tests against the margin; None without one, or for a single value.
    equivalence_p: float | None

    @property
    def ended(self) -> bool:
        """Whether every declared run has a record, be it of a failure."""
        return all(None not in pair for pair in self.pairs)


def measured(design: Record, records: Iterable[Record]) -> Measured:
    """What a journal's runs show of a design; one that does not know the metric is no run of it."""
    metric = design["metric"]
    runs = (r for r in records if r["kind"] == "run")
    pairs = pairs_of(design, (r for r in runs if r["status"] != "ok" or metric in r["test"]))
    return judged_by(design, pairs, lambda run: float(run["test"][metric]))


def judged_by(design: Record, pairs: list[Pair], value: Callable[[Record], float]) -> Measured:
    """What pairs of runs show of a design by a number of each finished run; nan: it has none."""
    values, margin = values_of(design, pairs, value), design["margin"]
    difference, equal_p = values.difference(), None
    if margin is not None and difference is not None and not math.isnan(difference.error):
        equal_p = equivalence(difference, margin)
    return Measured(design, pairs, values, difference, equal_p)


def further(design: Record, pairs: list[Pair]) -> str:
    """What the task's other metrics show, by which no verdict goes; empty where it has none."""
    told = []
    for metric in (design.get("metrics") or ())[1:]:
        unit, d = unit_of(metric), values_of(design, pairs, _reader(metric)).difference()
        if d is not None:
            means = f"{unit.value(d.mean_first)} and {unit.value(d.mean_second)}"
            told.append(f"{metric} {means}, {unit.interval(d)}")
    return f"further metrics, by which no verdict goes: {'; '.join(told)}" if told else ""


def _reader(metric: str) -> Callable[[Record], float]:
    return lambda run: float(run["test"].get(metric, math.nan))


@dataclass(frozen=True)
class Ruled:
    """A verdict, and both p-values by which it is one, as adjusted for their number."""

    verdict: str
    p: float
    equal_p: float | None


def ruled(found: Sequence[Measured]) -> list[Ruled]:
    """The verdicts of comparisons that are judged together.

    Claims of a difference and claims of equality are two kinds, each adjusted by itself; a
    comparison without a p-value, or with runs to come, counts among them with 1.
    """
    p_values = holm([judged_p(m.difference) if m.difference and m.ended else 1.0 for m in found])
    equal = holm([_equal_p(m) for m in found])
    out = []
    for m, p, of_equality in zip(found, p_values, equal, strict=True):
        equal_p = None if m.equivalence_p is None else of_equality
        verdict, several = "unfinished", len(found) > 1
        if m.difference is not None and m.ended:
            higher = m.design["higher_is_better"]
            verdict = accuracy_verdict(m.difference, higher, equal_p, p if several else None)
        out.append(Ruled(verdict, p, equal_p))
    return out


def _equal_p(found: Measured) -> float:
    """Of the claim of equality; 1 where there is none yet, or nothing may be concluded."""
    few = found.difference is None or too_few(found.difference)
    return 1.0 if few or not found.ended or found.equivalence_p is None else found.equivalence_p


def pairs_of(design: Record, runs: Iterable[Record]) -> list[Pair]:
    """The runs of a design, as far as they are there, paired as it declares them."""
    by_key = {run["key"]: run for run in runs}
    return [(by_key.get(first), by_key.get(second)) for first, second in design["runs"]]


def sides_of(pairs: Sequence[Pair]) -> tuple[list[Record], list[Record]]:
    """The runs of the first model, and those of the second: a run may name them as once typed."""
    sides = zip(*pairs, strict=True) if pairs else ((), ())
    first, second = ([run for run in side if run is not None] for side in sides)
    return first, second


def is_ok(run: Record | None) -> TypeGuard[Record]:
    """Whether a run is there, and has a result."""
    return run is not None and run["status"] == "ok"


def values_of(design: Record, pairs: Sequence[Pair], value: Callable[[Record], float]) -> Values:
    """The finished pairs of a design's record; of one that is unpaired all finished runs.

    Runs say themselves of which fold they are: a design that takes them for seeds is not believed.
    """
    folds, seeds = design.get("folds") or 0, len(set(design["seeds"]))
    done = [(a, b) for a, b in pairs if is_ok(a) and is_ok(b)]
    found = {a.get("fold") for a, _ in done} - {None}
    if found and not folds:
        folds, seeds = max(2, len(found)), len({a["seed"] for a, _ in done})
    paired = is_paired(design) or bool(folds)  # all models share the folds
    found_of: dict[Replicate, tuple[float, float]] = {}
    for pair in pairs:
        some = next(filter(is_ok, pair), None)
        first, second = (value(r) if is_ok(r) else math.nan for r in pair)
        whole = not paired or not math.isnan(first + second)
        if some is not None and whole and (not folds or some.get("fold") is not None):
            found_of[Replicate(some["seed"], some.get("fold"))] = first, second
    return Values(units_of(seeds, folds), folds, found_of, paired)


def is_paired(design: Record) -> bool:
    """Whether a design's record declares pairs; older ones say nothing, and are of pairs."""
    return design.get("paired") is not False


def counted_each(first: int, second: int) -> str:
    """``5 and 4 unpaired seeds``."""
    return f"{first} and {second} unpaired seeds"


def counted(units: Units, count: int, seeds: int) -> str:
    """``5 paired seeds``, ``10 folds``, ``10 folds, each the mean of 3 seeds``."""
    if units == "seeds":
        return f"{count} paired seed{'' if count == 1 else 's'}"
    text = f"{count} paired fold{'' if count == 1 else 's'}"
    return f"{text}, each the mean of {seeds} seeds" if units == "repeated folds" else text


def counts_of(found: Iterable[tuple[str, int]]) -> str:
    """``5 or 18 seeds``, ``5 seeds and 10 folds``: over what several comparisons are.

    Parameters
    ----------
    found : iterable of (str, int)
        Of each ``seed`` or ``fold``, and how many.
    """
    by: dict[str, set[int]] = {}
    for what, count in found:
        by.setdefault(what, set()).add(count)
    return " and ".join(
        f"{' or '.join(map(str, sorted(counts)))} {what}{'s' * (counts != {1})}"
        for what, counts in sorted(by.items(), reverse=True)
    )


@dataclass(frozen=True)
class Unit:
    """Scale and form of a metric."""

    scale: float  # values are multiplied by it
    digits: int
    of_values: str = ""  # of_values, of_differences: behind a number
    of_differences: str = ""

    def value(self, value: float) -> str:
        """``90.20 %`` or ``0.8512``."""
        return f"{self.scale * value:.{self.digits}f}{self.of_values}"

    def number(self, value: float) -> str:
        """``90.20`` or ``0.8512``: where the unit stands beside it."""
        return f"{self.scale * value:.{self.digits}f}"

    def difference(self, value: float) -> str:
        """``+0.40`` or ``-0.0012``: in points for accuracies."""
        return f"{self.scale * value:+.{self.digits}f}"

    def interval(self, difference: MeanDifference) -> str:
        """``-0.64 [-1.33, +0.05]``: a difference with its interval, if it has one."""
        text = self.difference(difference.difference)
        return text if math.isnan(difference.low) else f"{text} {self.bounds(difference)}"

    def told(self, difference: MeanDifference | None) -> str:
        """``-0.64 [-1.33, +0.05] points``: the same with its unit; empty for none."""
        return "" if difference is None else f"{self.interval(difference)}{self.of_differences}"

    def change(self, difference: MeanDifference) -> str:
        """``-0.64 points [-1.33, +0.05]``: a difference with its unit, then its interval."""
        text = f"{self.difference(difference.difference)}{self.of_differences}"
        return text if math.isnan(difference.low) else f"{text} {self.bounds(difference)}"

    def bounds(self, difference: MeanDifference | Crossed) -> str:
        """``[-1.33, +0.05]``: the interval of a difference that has one."""
        return f"[{self.difference(difference.low)}, {self.difference(difference.high)}]"

    def size(self, value: float) -> str:
        """A positive difference, such as a margin: ``0.40 points``."""
        return f"{self.scale * value:.{self.digits}f}{self.of_differences}"

    def named(self, metric: str) -> str:
        """``accuracy (%)`` or ``pearson``: for an axis."""
        return f"{metric} ({self.of_values.strip()})" if self.of_values else metric


SHARE = Unit(100.0, 2, " %", " points")
_PLAIN = Unit(1.0, 4)
_UNITS = {
    **dict.fromkeys(("accuracy", "tag_accuracy", "tag_accuracy_unseen", "span_f1"), SHARE),
    **dict.fromkeys(("bleu", "chrf", "bleu_2017", "chrf_2017"), Unit(1.0, 2)),
}


def unit_of(metric: str) -> Unit:
    """The unit of a metric."""
    return _UNITS.get(metric, _PLAIN)


def by_test(design: Record) -> bool:
    """Whether a run's epoch was chosen by the test set, as the papers do."""
    return any(recipe["choose"] == "best-on-test" for recipe in design["recipes"])


def late_text(late: Sequence[str], of: int) -> str:
    """What is said before a family of so many comparisons, of which these are exploratory."""
    if len(late) == of:
        return f"{EXPLORATORY}, {LATE}"
    which = f" ({', '.join(late)})" if len(late) <= FEW_LATE else ""
    return f"{EXPLORATORY} in {len(late)} of {of}, {LATE}{which}"


def first_line(
    found: Measured, rule: Ruled, together: int, flaws: Sequence[str], exploratory: bool
) -> str:
    """Verdict in words, the interval before the p-value; then that by Holm, if of several."""
    design, values, d, verdict = found.design, found.values, found.difference, rule.verdict
    first, second = design["models"]
    where = f"on {design['task']}"
    if d is None:
        none = "no pair of runs is finished"
        if not values.paired:
            none = "unpaired, and not a run of each is finished"
        return f"{first} and {second} {where}: {none}"
    unit = unit_of(design["metric"])
    how = BEST_ON_TEST if by_test(design) else "test"
    size = (
        f"{how} {design['metric']} {unit.value(d.mean_first)} and {unit.value(d.mean_second)}, "
        f"difference {unit.change(d)}"
    )
    seeds = len(design["seeds"])
    over = f"over {counted(values.units, d.count_first, seeds)}"
    if not d.paired:
        over = f"over {counted_each(d.count_first, d.count_second)}"
    few = "too few seeds to conclude" if values.units == "seeds" else "too few folds to conclude"
    says = {
        "better": f"{first} is better than {second} {where}",
        "worse": f"{first} is worse than {second} {where}",
        "practically equal": f"{first} and {second} are practically equal {where}",
        "undecided": f"{first} or {second} {where}: undecided",
        "descriptive only": f"{first} and {second} {where}: {few}",
        "unfinished": f"{first} and {second} {where}: unfinished",
    }[verdict]
    if flaws:
        says += f" (not counted: {'; '.join(flaws)})"
    text = f"{says}: {size} {over}"
    if verdict in ("better", "worse", "undecided"):
        text += f" ({'' if d.paired else 'Welch, '}p = {d.p:.2g}"
        if together > 1:
            text += f"; {rule.p:.2g} by Holm over {together} comparisons"
        text += ")"
    if verdict == "practically equal":
        text += f" (margin {unit.size(design['margin'])})"
    if verdict == "unfinished":
        text += f" of {design.get('folds') or seeds}"
    return f"{EXPLORATORY}: {text}" if exploratory else text
