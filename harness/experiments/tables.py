"""A conclusion as rows and sentences, for the terminal and the page alike."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.experiments.conclusion import Comparison, Conclusion, costs_over
from harness.experiments.costs import at_dev_epoch, hours_of
from harness.experiments.replicates import (
    BEST_ON_TEST,
    Record,
    Unit,
    counted,
    counted_each,
    further,
    judged_by,
    pairs_of,
)
from harness.experiments.warnings import WIDE_MARGIN
from harness.stats import PRIOR, Friedman, MeanDifference, Ties, too_few

DETECTABLE, NEEDED = "detectable", "seeds needed"
SEEDS_NEEDED = (
    f"{NEEDED}: how many would find, four times in five and by the spread seen here, the declared "
    "margin, without one a true difference as large as the one seen; to folds seeds add no test "
    "examples."
)
BAYES = f"correlated Bayesian t-test, {PRIOR}; no verdict goes by it"
"""What the probabilities beside an interval are of."""
BASELINE = "baseline"
"""In the place of the baseline's verdict."""
COSTS = (
    "model",
    "parameters",
    "with words",
    "training",
    "per epoch",
    "epochs",
    "chosen",
    "steps",
    "examples seen",
    "peak memory",
    "test split",
)


def headed(comparisons: Sequence[Comparison]) -> str:
    """What one task's comparisons are of."""
    first = comparisons[0]
    better = "higher" if first.higher_is_better else "lower"
    how = BEST_ON_TEST if first.choose == "best-on-test" else "test"
    margin = "" if first.margin is None else f"; margin {first.unit.size(first.margin)}"
    return (
        f"{how} {first.metric} ({better} is better), {_counts(comparisons)}{margin}; "
        f"split: {first.design.get('split', 'not recorded')}"
    )


def _counts(comparisons: Sequence[Comparison]) -> str:
    """``over 5 paired seeds``, or how many at least and at most."""
    first = comparisons[0]
    if not first.paired and (d := first.difference) is not None:
        return counted_each(d.count_first, d.count_second)
    found = sorted({c.difference.count_first if c.difference else 0 for c in comparisons})
    if len(found) == 1:
        return counted(first.units, found[0], len(first.seeds))
    return f"{found[0]} to {counted(first.units, found[-1], len(first.seeds))}"


def value_columns(comparison: Comparison) -> list[str]:
    """Names of the columns of `value_rows`; unpaired values have no differences."""
    names = [comparison.replicate, comparison.first, comparison.second]
    return [*names, "difference"] if comparison.paired else names


def value_rows(comparison: Comparison) -> list[list[str]]:
    """Both test metrics of every seed or fold, and their difference."""
    unit = comparison.unit
    rows = []
    for number, first, second in comparison.values:
        row = [str(number), *("" if math.isnan(v) else unit.value(v) for v in (first, second))]
        rows.append([*row, unit.difference(first - second)] if comparison.paired else row)
    return rows


def statistics_rows(comparison: Comparison) -> list[tuple[str, str, str]]:
    """Name, value and how to read it: the interval first, then the tests.

    Of few replicates the interval alone; without a pair nothing.
    """
    unit, d = comparison.unit, comparison.difference
    if d is None:
        return []
    better = "higher" if comparison.higher_is_better else "lower"
    of = "difference" if d.paired else "difference of the means, unpaired,"
    name = f"{of} of {comparison.metric} ({better} is better)"
    if math.isnan(d.low):
        one = "pair" if d.paired else "seed"
        return [(name, f"{unit.difference(d.difference)}: one {one} has no interval", "")]
    rows = [
        (
            name,
            f"{unit.difference(d.difference)}, 95 % t-interval {unit.bounds(d)}",
            f"where the true difference is, over {comparison.replicate}s",
        )
    ]
    if comparison.chances is not None:
        of = "" if comparison.margin is None else ", equal: within the margin"
        value = f"{chances_text(comparison)} ({BAYES})"
        rows.append(
            (
                chances_named(comparison),
                value,
                f"what may be believed after these {comparison.replicate}s{of}",
            )
        )
    return rows if too_few(d) else rows + _tests(comparison, d)


def _outcomes(comparison: Comparison) -> tuple[str, ...]:
    """What `Chances` has a probability of: without a margin nothing is practically equal."""
    return ("better", "worse") if comparison.margin is None else ("better", "equal", "worse")


def chances_named(comparison: Comparison) -> str:
    """``P(better) / P(equal) / P(worse)``."""
    return " / ".join(f"P({name})" for name in _outcomes(comparison))


def chances_text(comparison: Comparison) -> str:
    """``0.93 / 0.05 / 0.02``, or without a margin ``0.95 / 0.05``; empty where there is none."""
    found = comparison.chances
    if found is None:
        return ""
    some = (getattr(found, name) for name in _outcomes(comparison))
    return " / ".join("<0.01" if p < 0.005 else ">0.99" if p > 0.995 else f"{p:.2f}" for p in some)


def _tests(comparison: Comparison, d: MeanDifference) -> list[tuple[str, str, str]]:
    unit, count = comparison.unit, comparison.together
    among = f", one of {count} judged together" if count > 1 else ""
    replicates = f"{d.count_first} pairs"
    if not d.paired:
        replicates = f"{d.count_first} and {d.count_second} seeds"
    flips = f"{d.sign_flip_p:.3g}"
    if math.isnan(d.sign_flip_p):
        many = f"not enumerated for so many {'pairs' if d.paired else 'seeds'}"
        flips = many if comparison.units == "seeds" else "none: folds are not independent"
    rows = [
        (
            f"p ({d.test}, two-sided)",
            f"{d.p:.3g}",
            "small: zero is not plausible; large: says nothing",
        ),
        (
            "Hedges g",
            "none of so few" if math.isnan(d.hedges_g) else f"{d.hedges_g:+.2f}",
            f"difference over the spread of {comparison.replicate}s",
        ),
        (
            "minimum detectable effect",
            f"{unit.size(d.detectable_among(count))} (80 % power at these {replicates}{among})",
            "a true difference that is found four times in five; less may have been missed",
        ),
        (
            f"p (exact {'sign-flip' if d.paired else 'permutation'}, sensitivity)",
            flips,
            "the same without assuming a normal distribution",
        ),
    ]
    if comparison.adjusted_p is not None and comparison.verdict != "unfinished":
        holm = f"p (Holm over {count} comparisons)"
        rows.insert(1, (holm, f"{comparison.adjusted_p:.3g}", "what the verdict goes by"))
    for p, by in (
        (comparison.equivalence_p, "TOST"),
        (comparison.adjusted_equivalence_p, f"TOST, Holm over {count} comparisons"),
    ):
        if p is not None and comparison.margin is not None:
            name = f"p (equal within {unit.size(comparison.margin)}, {by})"
            rows.append((name, f"{p:.3g}", "two one-sided tests; small: practically equal"))
    return rows


def of_examples(comparisons: Sequence[Comparison]) -> list[str]:
    """What a task's comparisons say beside the verdict; of several the same once, by whom."""
    said: dict[str, list[str]] = {}
    for c in comparisons:
        others = further(c.design, pairs_of(c.design, c.runs))
        lines = (*(c.examples.lines if c.examples else ()), others, _by_dev(c))
        for line in filter(None, lines):
            said.setdefault(line, []).append(c.first)
    several = len(comparisons) > 1
    return [f"{', '.join(by)}: {line}" if several else line for line, by in said.items()]


def _by_dev(c: Comparison) -> str:
    """What is left where dev chooses the epochs of runs whose epoch the test set chose."""
    if c.choose != "best-on-test":
        return ""

    def value(run: Record) -> float:
        return at_dev_epoch(run, c.metric, c.higher_is_better)

    found = judged_by(c.design, pairs_of(c.design, c.runs), value)
    d = found.difference
    if d is None or len(found.values.rows) != len(c.values):
        return ""
    p = "" if too_few(d) else f", p = {d.p:.2g} by itself"
    return f"by dev's epochs of the same runs: {c.unit.told(d)}{p}"


def cost_rows(comparisons: Sequence[Comparison]) -> list[list[str]]:
    """What training took, a row of `COSTS` per model; medians over its runs of all of them."""
    return [
        [
            model,
            f"{c.parameters:,}",
            f"{c.parameters_with_words:,}",
            f"{c.seconds:.1f} s",
            f"{c.seconds_per_epoch:.2f} s",
            f"{c.epochs:g}",
            f"{c.chosen_epoch:g}",
            *("unknown" if math.isnan(n) else f"{n:,.0f}" for n in (c.steps, c.examples)),
            "unknown" if math.isnan(c.peak_bytes) else f"{c.peak_bytes / 2**20:.0f} MiB",
            "unknown" if math.isnan(c.test_seconds) else f"{c.test_seconds:.3g} s",
        ]
        for model, c in costs_over(comparisons).items()
    ]


def columns(comparisons: Sequence[Comparison]) -> list[str]:
    """Names of a task's columns; that of equality only where a margin was declared."""
    equal = ["p equal, Holm"] if comparisons[0].margin is not None else []
    tests = [
        f"P {' / '.join(_outcomes(comparisons[0]))}",
        "p",
        "p Holm",
        *equal,
        DETECTABLE,
        NEEDED,
    ]
    return ["model", "mean (sd)", "difference", "95 % interval", *tests, "verdict"]


def task_rows(comparisons: Sequence[Comparison]) -> list[list[str]]:
    """One task's comparisons as rows of `columns`, the baseline first."""
    width = len(columns(comparisons))
    # The baseline's mean is over the pairs of the comparison that has most of them.
    best = max(comparisons, key=lambda c: c.finished)
    mean = [_mean(best.unit, d.mean_second, d.sd_second)] if (d := best.difference) else []
    rows = [[best.second, *mean, BASELINE], *map(_cells, comparisons)]
    return [[*cells, *[""] * (width - 1 - len(cells)), verdict] for *cells, verdict in rows]


def _cells(comparison: Comparison) -> list[str]:
    unit, d = comparison.unit, comparison.difference
    if d is None:
        return [comparison.first, comparison.said]
    found = [comparison.first, _mean(unit, d.mean_first, d.sd_first), unit.difference(d.difference)]
    if not math.isnan(d.low):
        found.append(unit.bounds(d))
    if not too_few(d):
        found += [chances_text(comparison), f"{d.p:.2g}"]
        if comparison.verdict != "unfinished":
            adjusted = (comparison.adjusted_p, comparison.adjusted_equivalence_p)
            found += [f"{p:.2g}" for p in adjusted if p is not None]
            found.append(unit.size(d.detectable_among(comparison.together)))
    if comparison.sought is not None:
        found.append(comparison.sought.count)
    return [*found, comparison.said]


def _mean(unit: Unit, mean: float, sd: float) -> str:
    """``90.20 (0.41) %``."""
    spread = "" if math.isnan(sd) else f" ({unit.number(sd)})"
    return f"{unit.number(mean)}{spread}{unit.of_values}"


def reading(conclusion: Conclusion) -> list[str]:
    """How the tables of several comparisons are to be read; one sentence each."""
    count = len(conclusion.comparisons)
    if count == 1:
        return []
    out = [
        f"p Holm and the verdict allow for {count} comparisons; an interval is of its difference "
        "alone, and covers in 95 of 100.",
        f"{DETECTABLE}: the smallest true difference that would be found four times in five, "
        f"judged as one of {count}.",
        f"P: {BAYES}.",
    ]
    if any(c.sought for c in conclusion.comparisons):
        out.append(SEEDS_NEEDED)
    narrow = [
        c
        for c in conclusion.comparisons
        if c.verdict == "undecided" and (d := c.difference) and (d.low > 0 or d.high < 0)
    ]
    if narrow:
        out.append(
            f"{len(narrow)} undecided though the interval excludes zero: of {count} comparisons "
            "without any difference one in twenty looks like that."
        )
    if conclusion.overall is not None:
        # A model's name keeps its small letters.
        named = tuple(conclusion.models)
        out += [
            f"{why if why.startswith(named) else why[0].upper() + why[1:]}."
            for why in conclusion.overall.why
        ]
    return out


def asked(conclusion: Conclusion) -> list[str]:
    """What the file says that declares a conclusion; nothing where there is none."""
    plan = conclusion.record.get("plan")
    if not plan:
        return []
    since = f"commit {plan['committed'][:10]}" if plan["committed"] else "not committed"
    void = f"; void if: {', '.join(plan['void'])}" if plan["void"] else ""
    return [
        f"asked in {plan['file']} ({since}, SHA-256 {plan['sha256'][:10]}): {plan['question']}",
        f"family: {plan['family']}; stopping rule: {plan['stopping']}{void}; hours: "
        f"{hours_of(conclusion.runs):.3g} of {plan['hours']:g}",
    ]


def omnibus(found: Friedman) -> str:
    """Friedman's test in words."""
    return f"any difference among the {len(found.ranks)} models (Friedman): {found.said}"


def tied(found: Ties, units: str) -> list[str]:
    """Friedman's test, the groups of models that can't be told apart, and by what.

    Parameters
    ----------
    units : str
        What was ranked inside of: ``tasks`` or ``seeds``.
    """
    how = (
        f"Wilcoxon's signed ranks over {found.omnibus.blocks} {units}, Holm over "
        f"{len(found.pairs)} pairs; the smallest p that is possible is {found.least_p:.2g}"
    )
    groups = " | ".join(", ".join(group) for group in found.groups)
    alone = all(len(group) == 1 for group in found.groups)
    said = f"{'all told apart' if alone else 'not told apart'}: {groups} ({how})"
    if not found.possible:
        said = (
            f"by mean rank: {groups}; no two can be told apart by their ranks with fewer than "
            f"{found.needed} {units} ({how})"
        )
    return [omnibus(found.omnibus), said]


def tied_on(conclusion: Conclusion, task: str) -> list[str]:
    """The same of one task of a family, by its seeds; or why there is none."""
    comparisons = conclusion.of_task(task)
    if len(comparisons) < 2:
        return []
    unlike = [c.first for c in comparisons if {*c.flaws} - {WIDE_MARGIN}]
    left_out = f"left out, as the training was not alike: {', '.join(unlike)}"
    if (found := conclusion.ties.get(task)) is not None:
        return [*tied(found, "seeds"), *([left_out] if unlike else [])]
    if comparisons[0].units != "seeds":
        return [
            "no ranks over folds: they share training examples, and no test of ranks allows for it"
        ]
    return [f"no ranks of fewer than three models; {left_out}"] if unlike else []
