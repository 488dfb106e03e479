"""Audits by statistics: tests that printed means, deviations, shares and p-values allow."""

from __future__ import annotations

import math
from collections.abc import Sequence

from harness.stats import ALPHA, Summary, compare_means, holm, two_proportions, welch
from reports.claims.arithmetic import counted, holds
from reports.claims.printed import Asked, at, number, summaries
from reports.claims.reanalysis import fold_deviations, implied, p_by_rounding, rounding_of
from reports.claims.verdict import Answer, Evidence

NORMAL_95 = 1.959964
"""Half the width of a 95 % interval, in standard errors of a normal distribution."""


def p_words(p: float) -> str:
    """``.017``, ``4.4e-05``, ``1``."""
    if p >= 0.9995:
        return "1"
    return f"{p:.3f}".lstrip("0") if p >= 0.001 else f"{p:.1e}"


FOLDS = "; folds share training examples: its p is smaller than is right"
"""What a test of printed means over folds, taken as independent, can't allow for."""

ALLOWED = "rounding, and deviations that may be over n as well as over n - 1, allow a p of"
"""Of what is printed; before two numbers."""


def by_p(advantage: float, p: float) -> Answer:
    """Three-way from a difference (positive: as claimed) and its p-value."""
    return holds(advantage > 0) if p < ALPHA else "undecided"


def _in_family(names: Sequence[str], tests: Sequence[float], own: int) -> tuple[float, str, str]:
    """Holm over a family: the adjusted p of one of its tests, a step, and what is said of p."""
    adjusted = holm(list(tests))[own]
    said = f"p = {p_words(tests[own])}"
    if len(tests) == 1:
        return adjusted, "", said
    listed = ", ".join(f"{name} {p_words(p)}" for name, p in zip(names, tests, strict=True))
    step = f"Holm over {len(tests)} ({listed}): p = {p_words(adjusted)}"
    return adjusted, step, f"{said}, {p_words(adjusted)} after Holm over {len(tests)}"


def _worse(name: str, advantage: float) -> str:
    return f"; {name} is the worse one" if advantage < 0 else ""


def welch_test(asked: Asked) -> Evidence:
    """Welch's test of two printed means; with ``family``, Holm over several columns decides.

    Parameters: ``table``, ``column``, ``first``, ``second``, ``lower_is_better``, and ``family``,
    the other model by column.
    """
    p, column = asked.p, asked.p["column"]
    known = summaries(asked.table)
    family: dict[str, str] = p.get("family") or {column: p["second"]}
    tests = {c: welch(known[c][p["first"]], known[c][other]) for c, other in family.items()}
    test, first, second = tests[column], known[column][p["first"]], known[column][family[column]]
    digits = max(1, round(-math.log10(2 * asked.cell("first").half)))
    error = math.hypot(first.sd / math.sqrt(first.count), second.sd / math.sqrt(second.count))
    adjusted, step, said = _in_family(
        list(tests), [t.p for t in tests.values()], list(tests).index(column)
    )
    half = rounding_of(asked.table, column)
    ends = p_by_rounding(first, second, half)
    rounded = [p_words(end) for end in ends]
    steps = (
        f"{_summary(first, digits)} - {_summary(second, digits)} = {test.difference:+.{digits}f}",
        f"standard error sqrt({first.sd:g}^2 / {first.count} + {second.sd:g}^2 / {second.count}) = "
        f"{error:.3g}",
        f"t = {test.difference:.{digits}f} / {error:.3g} = {test.t:.2f} on {test.freedom:.1f} "
        f"degrees of freedom (Welch), p = {p_words(test.p)}",
        f"95 % interval [{test.low:.{digits + 1}f}, {test.high:.{digits + 1}f}]",
        *filter(None, [step]),
        f"{ALLOWED} {rounded[0]} to {rounded[1]}",
    )
    advantage = (-1 if p.get("lower_is_better") else 1) * test.difference
    unfit = FOLDS * (column in asked.table.get("folds", ()))
    said = (
        f"{p['first']} against {family[column]} on {column}: {said}"
        f"{_worse(p['first'], advantage)} (Welch{unfit})."
    )
    answer = by_p(advantage, adjusted)
    # Holm's factor for the p as printed is that for one which rounding allows, too.
    most = min(1.0, ends[1] * (adjusted / test.p if test.p else 1.0))
    if answer != "undecided" and most >= ALPHA:
        answer = "undecided"
        after = f", which is {p_words(most)} after Holm" * (len(tests) > 1)
        said += f" {ALLOWED[0].upper()}{ALLOWED[1:]} {rounded[0]} to {rounded[1]}{after}."
    return Evidence(test.difference, test.low, test.high, said, steps=steps, answer=answer)


def _summary(s: Summary, digits: int) -> str:
    return f"{s.mean:.{digits}f} (sd {s.sd:g}, n = {s.count})"


def proportions(asked: Asked) -> Evidence:
    """Two printed accuracies as shares of one test set's examples; z-test, in points.

    Parameters: ``table``, ``column``, ``first``, ``second``, and ``family``, the other rows of a
    family over which Holm's method decides.
    """
    p, count = asked.p, int(asked.table["examples"])
    printed = asked.cell("first"), asked.cell("second")
    first, second = (one.value / 100 for one in printed)
    others = list(dict.fromkeys([p["second"], *p.get("family", ())]))
    shares = [number(at(asked.table, name, p["column"])).value / 100 for name in others]
    tests = [two_proportions(first, count, other, count) for other in shares]
    pooled = (first + second) / 2
    error = math.sqrt(2 * pooled * (1 - pooled) / count)
    points = 100 * (first - second)
    half = NORMAL_95 * 100 * math.sqrt((first * (1 - first) + second * (1 - second)) / count)
    adjusted, step, said = _in_family(others, tests, 0)
    steps = (
        printed[0].minus(printed[1]).text + " points",
        f"pooled share ({first:.4f} + {second:.4f}) / 2 = {pooled:.4f}; standard error "
        f"sqrt(2 x {pooled:.4f} x {1 - pooled:.4f} / {count:,}) = {error:.5f}",
        f"z = {first - second:.4f} / {error:.5f} = {(first - second) / error:.2f}, "
        f"p = {p_words(tests[0])}",
        f"95 % interval [{points - half:+.2f}, {points + half:+.2f}] points; as if on two "
        "test sets: how often the two models agree is not printed",
        *filter(None, [step]),
    )
    said = (
        f"{p['first']} against {p['second']} on {count:,} test examples: {said}"
        f"{_worse(p['first'], points)} (two proportions)."
    )
    answer = by_p(points, adjusted)
    return Evidence(points, points - half, points + half, said, steps=steps, answer=answer)


def implied_by_p(asked: Asked) -> Evidence:
    """Whether a difference called significant is, by its own printed p. Parameter: ``setup``."""
    mine = [r for r in implied(asked.paper["table6"]) if r.setup == asked.p["setup"]]
    one = next(r for r in mine if r.paired)
    steps = tuple(
        f"{r.reading}: {r.difference_bleu:.2f} with p = {r.p:.3f} implies a 95 % interval of "
        f"[{r.low_bleu:.2f}, {r.high_bleu:.2f}]"
        for r in mine
    )
    shown = one.p < ALPHA
    answer = holds(shown)
    said = f"the printed p is {one.p:.3f}: {'below' if shown else 'not below'} .05."
    return Evidence(
        one.difference_bleu, one.low_bleu, one.high_bleu, said, steps=steps, answer=answer
    )


def paired(asked: Asked) -> Evidence:
    """Two columns, paired by data set. Parameters: ``table``, ``first``, ``second``."""
    p, names = asked.p, list(asked.column("first"))
    first, second = ([n.value for n in asked.column(s).values()] for s in ("first", "second"))
    d = compare_means(first, second, paired=True)
    wins, losses = sum(v > 0 for v in d.differences), sum(v < 0 for v in d.differences)
    steps = (
        f"differences of {len(names)} data sets: "
        + ", ".join(f"{n} {v:+.2f}" for n, v in zip(names, d.differences, strict=True)),
        f"mean {d.difference:+.3f}; paired t: p = {p_words(d.p)}, 95 % interval "
        f"[{d.low:+.2f}, {d.high:+.2f}]",
        f"better on {wins}, equal on {len(names) - wins - losses}, worse on {losses}",
    )
    said = (
        f"{p['first']} against {p['second']}: mean {d.difference:+.2f} points over "
        f"{len(names)} data sets, p = {p_words(d.p)} (paired t); better on {wins}, worse on "
        f"{losses}."
    )
    answer = by_p(d.difference, d.p)
    return Evidence(d.difference, d.low, d.high, said, steps=steps, answer=answer)


def correlations(asked: Asked) -> Evidence:
    """Two printed correlations on one test set, as if on two: Fisher's z.

    Parameters: ``table``, ``column``, ``first``, ``second``.
    """
    from scipy.stats import norm

    p, count = asked.p, int(asked.table["examples"])
    a, b = asked.cell("first").value, asked.cell("second").value
    apart = math.atanh(a) - math.atanh(b)
    error = math.sqrt(2 / (count - 3))
    p_value = float(2 * norm.sf(abs(apart) / error))
    half = NORMAL_95 * error
    steps = (
        f"atanh({a:.4f}) - atanh({b:.4f}) = {math.atanh(a):.4f} - {math.atanh(b):.4f} = "
        f"{apart:+.4f}",
        f"standard error sqrt(2 / ({count:,} - 3)) = {error:.4f}; z = {apart / error:.2f}, "
        f"p = {p_words(p_value)}",
        "as if on two test sets: the correlation of the two models' errors is not printed",
    )
    said = (
        f"{p['first']} {a:.4f} against {p['second']} {b:.4f} on {count:,} pairs: "
        f"p = {p_words(p_value)} (Fisher's z); test examples alone leave that much open."
    )
    answer = by_p(apart, p_value)
    return Evidence(apart, apart - half, apart + half, said, steps=steps, answer=answer)


def deviation(asked: Asked) -> Evidence:
    """Whether a deviation can be one over folds. Parameters: ``table``, ``column``, ``row``."""
    p, table = asked.p, asked.table
    every = fold_deviations(table)
    f = next(one for one in every if (one.data, one.model) == (p["column"], p["row"]))
    examples = table["folds"][p["column"]] / table["replicates"][p["column"]]
    share = f.accuracy_percent / 100
    steps = (
        f"folds of {examples:g} examples at {100 * share:.1f} % differ at least by counting: "
        f"sqrt({share:.3f} x {1 - share:.3f} / {examples:g}) = "
        f"{f.counting_points:.2f} points",
        f"printed {f.printed_points:.1f}; so little, if it is over n, has p = {p_words(f.p)} "
        f"(chi squared; over n - 1 less), "
        f"{p_words(f.p_holm)} after Holm over {len(every)} printed deviations",
    )
    said = (
        f"{f.model} on {f.data}: printed {f.printed_points:.1f}, counting alone gives "
        f"{f.counting_points:.1f} (p = {p_words(f.p_holm)} after Holm)."
    )
    return counted(
        f.printed_points, said, steps, "not reproduced" if f.implausible else "undecided"
    )
