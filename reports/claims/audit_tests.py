"""Audits by statistics: tests that printed means, deviations, shares and p-values allow."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from harness.stats import Summary, compare_means, holm, two_proportions, welch
from reports.claims.published import Tables, apart, cell_of
from reports.claims.record import Claim
from reports.claims.verdict import Answer, Finding
from reports.printed import at, folds, implied, number, summaries

ALPHA = 0.05


def p_words(p: float) -> str:
    """``.017``, ``4.4e-05``, ``1``."""
    if p >= 0.9995:
        return "1"
    return f"{p:.3f}".lstrip("0") if p >= 0.001 else f"{p:.1e}"


def by_p(advantage: float, p: float) -> Answer:
    """Three-way from a difference (positive: as claimed) and its p-value."""
    if not p < ALPHA:
        return "undecided"
    return "reproduced" if advantage > 0 else "not reproduced"


def welch_test(claim: Claim, tables: Tables) -> Finding:
    """Welch's test of two printed means; with ``family``, Holm over several columns decides.

    Parameters: ``table``, ``column``, ``first``, ``second``, ``lower_is_better``, and ``family``,
    the other model by column.
    """
    p = claim.parameters
    table = tables[claim.paper][p["table"]]
    known = summaries(table)
    sign = -1 if p.get("lower_is_better") else 1
    family: Mapping[str, str] = p.get("family") or {p["column"]: p["second"]}
    tests = {
        column: welch(known[column][p["first"]], known[column][other])
        for column, other in family.items()
    }
    adjusted = dict(zip(tests, holm([t.p for t in tests.values()]), strict=True))
    column = p["column"]
    test, first, second = (
        tests[column], known[column][p["first"]], known[column][family[column]],
    )  # fmt: skip
    half = number(at(table, p["first"], column)).half
    digits = max(1, round(-math.log10(2 * half)))
    error = math.hypot(first.sd / math.sqrt(first.count), second.sd / math.sqrt(second.count))
    steps = [
        f"{_summary(first, digits)} - {_summary(second, digits)} = {test.difference:+.{digits}f}",
        f"standard error sqrt({first.sd:g}^2 / {first.count} + {second.sd:g}^2 / {second.count}) = "
        f"{error:.3g}",
        f"t = {test.difference:.{digits}f} / {error:.3g} = {test.t:.2f} on {test.freedom:.1f} "
        f"degrees of freedom (Welch), p = {p_words(test.p)}",
        f"95 % interval [{test.low:.{digits + 1}f}, {test.high:.{digits + 1}f}]",
    ]
    if len(tests) > 1:
        listed = ", ".join(f"{name} {p_words(t.p)}" for name, t in tests.items())
        steps.append(f"Holm over {len(tests)} ({listed}): p = {p_words(adjusted[column])}")
    said = f"p = {p_words(test.p)}"
    if len(tests) > 1:
        said += f", {p_words(adjusted[column])} after Holm over {len(tests)}"
    if sign * test.difference < 0:
        said += f"; {p['first']} is the worse one"
    return Finding(
        test.difference, test.low, test.high,
        f"{p['first']} against {family[column]} on {column}: {said} (Welch).",
        steps=tuple(steps), answer=by_p(sign * test.difference, adjusted[column]),
    )  # fmt: skip


def _summary(s: Summary, digits: int) -> str:
    return f"{s.mean:.{digits}f} (sd {s.sd:g}, n = {s.count})"


def proportions(claim: Claim, tables: Tables) -> Finding:
    """Two printed accuracies as shares of one test set's examples; z-test, in points.

    Parameters: ``table``, ``column``, ``first``, ``second``, and ``family``, the other rows of a
    family over which Holm's method decides.
    """
    p = claim.parameters
    table = tables[claim.paper][p["table"]]
    count = int(table["examples"])
    cells = {name: number(at(table, name, p["column"])) for name in
             (p["first"], p["second"], *p.get("family", ()))}  # fmt: skip
    others = list(dict.fromkeys([p["second"], *p.get("family", ())]))
    first = cells[p["first"]].value / 100
    tests = [two_proportions(first, count, cells[name].value / 100, count) for name in others]
    adjusted = holm(tests)
    second = cells[p["second"]].value / 100
    pooled = (first + second) / 2
    error = math.sqrt(2 * pooled * (1 - pooled) / count)
    difference = 100 * (first - second)
    half = 1.959964 * 100 * math.sqrt((first * (1 - first) + second * (1 - second)) / count)
    steps = [
        apart(cells[p["first"]], cells[p["second"]]).text + " points",
        f"pooled share ({first:.4f} + {second:.4f}) / 2 = {pooled:.4f}; standard error "
        f"sqrt(2 x {pooled:.4f} x {1 - pooled:.4f} / {count:,}) = {error:.5f}",
        f"z = {first - second:.4f} / {error:.5f} = {(first - second) / error:.2f}, "
        f"p = {p_words(tests[0])}",
        f"95 % interval [{difference - half:+.2f}, {difference + half:+.2f}] points; as if on two "
        "test sets: how often the two models agree is not printed",
    ]
    said = f"p = {p_words(tests[0])}"
    if len(tests) > 1:
        listed = ", ".join(f"{n} {p_words(t)}" for n, t in zip(others, tests, strict=True))
        steps.append(f"Holm over {len(tests)} ({listed}): p = {p_words(adjusted[0])}")
        said += f", {p_words(adjusted[0])} after Holm over {len(tests)}"
    if difference < 0:
        said += f"; {p['first']} is the worse one"
    return Finding(
        difference, difference - half, difference + half,
        f"{p['first']} against {p['second']} on {count:,} test examples: {said} (two proportions).",
        steps=tuple(steps), answer=by_p(difference, adjusted[0]),
    )  # fmt: skip


def implied_by_p(claim: Claim, tables: Tables) -> Finding:
    """Whether a difference called significant is, by its own printed p. Parameter: ``setup``."""
    table = tables[claim.paper]["table6"]
    mine = [r for r in implied(table) if r.setup == claim.parameters["setup"]]
    one = next(r for r in mine if r.paired)
    steps = [
        f"{r.reading}: {r.difference:.2f} with p = {r.p:.3f} implies a 95 % interval of "
        f"[{r.low:.2f}, {r.high:.2f}]"
        for r in mine
    ]
    shown = one.p < ALPHA
    return Finding(
        one.difference, one.low, one.high,
        f"the printed p is {one.p:.3f}: {'below' if shown else 'not below'} .05.",
        steps=tuple(steps), answer="reproduced" if shown else "not reproduced",
    )  # fmt: skip


def _sets(table: Mapping[str, Any], column: str) -> dict[str, float]:
    """Numbers of a column by data set, without the row of averages."""
    names = [r["name"] for r in table["rows"] if r["name"] != table.get("average")]
    return {name: number(at(table, name, column)).value for name in names}


def paired(claim: Claim, tables: Tables) -> Finding:
    """Two columns, paired by data set. Parameters: ``table``, ``first``, ``second``."""
    p = claim.parameters
    table = tables[claim.paper][p["table"]]
    first, second = (_sets(table, p[side]) for side in ("first", "second"))
    d = compare_means(list(first.values()), list(second.values()), paired=True)
    wins, losses = sum(v > 0 for v in d.differences), sum(v < 0 for v in d.differences)
    steps = [
        f"differences of {len(d.differences)} data sets: "
        + ", ".join(f"{n} {v:+.2f}" for n, v in zip(first, d.differences, strict=True)),
        f"mean {d.difference:+.3f}; paired t: p = {p_words(d.p)}, 95 % interval "
        f"[{d.low:+.2f}, {d.high:+.2f}]",
        f"better on {wins}, equal on {len(first) - wins - losses}, worse on {losses}",
    ]
    return Finding(
        d.difference, d.low, d.high,
        f"{p['first']} against {p['second']}: mean {d.difference:+.2f} points over "
        f"{len(first)} data sets, p = {p_words(d.p)} (paired t); better on {wins}, worse on "
        f"{losses}.",
        steps=tuple(steps), answer=by_p(d.difference, d.p),
    )  # fmt: skip


def wins_everywhere(claim: Claim, tables: Tables) -> Finding:
    """On how many data sets the first column is ahead. Parameters as of `paired`."""
    p = claim.parameters
    table = tables[claim.paper][p["table"]]
    first, second = (_sets(table, p[side]) for side in ("first", "second"))
    ahead = [name for name in first if first[name] > second[name]]
    behind = [name for name in first if first[name] < second[name]]
    text = f"ahead on {len(ahead)} of {len(first)} data sets"
    if behind:
        text += f", behind on {', '.join(behind)}"
    return Finding(
        float(len(ahead)), float(len(ahead)), float(len(ahead)),
        f"{p['first']} against {p['second']}: {text}.", steps=(text,),
        answer="reproduced" if len(ahead) == len(first) else "not reproduced",
    )  # fmt: skip


def correlations(claim: Claim, tables: Tables) -> Finding:
    """Two printed correlations on one test set, as if on two: Fisher's z.

    Parameters: ``table``, ``column``, ``first``, ``second``.
    """
    from scipy.stats import norm

    p = claim.parameters
    table = tables[claim.paper][p["table"]]
    count = int(table["examples"])
    a, b = (cell_of(tables, claim.paper, p["table"], p[s], p["column"]).value
            for s in ("first", "second"))  # fmt: skip
    apart_by = math.atanh(a) - math.atanh(b)
    error = math.sqrt(2 / (count - 3))
    p_value = float(2 * norm.sf(abs(apart_by) / error))
    half = 1.959964 * error
    steps = (
        f"atanh({a:.4f}) - atanh({b:.4f}) = {math.atanh(a):.4f} - {math.atanh(b):.4f} = "
        f"{apart_by:+.4f}",
        f"standard error sqrt(2 / ({count:,} - 3)) = {error:.4f}; z = {apart_by / error:.2f}, "
        f"p = {p_words(p_value)}",
        "as if on two test sets: the correlation of the two models' errors is not printed",
    )
    return Finding(
        apart_by, apart_by - half, apart_by + half,
        f"{p['first']} {a:.4f} against {p['second']} {b:.4f} on {count:,} pairs: "
        f"p = {p_words(p_value)} (Fisher's z); test examples alone leave that much open.",
        steps=steps, answer=by_p(apart_by, p_value),
    )  # fmt: skip


def deviation(claim: Claim, tables: Tables) -> Finding:
    """Whether a deviation can be one over folds. Parameters: ``table``, ``column``, ``row``."""
    p = claim.parameters
    table = tables[claim.paper][p["table"]]
    found = folds(table)
    adjusted = holm([f.p for f in found])
    index = next(
        i for i, f in enumerate(found) if (f.data, f.model) == (p["column"], p["row"])
    )  # fmt: skip
    f = found[index]
    examples = table["folds"][p["column"]] / table["replicates"][p["column"]]
    steps = (
        f"folds of {examples:g} examples at {f.accuracy:.1f} % differ at least by counting: "
        f"sqrt({f.accuracy / 100:.3f} x {1 - f.accuracy / 100:.3f} / {examples:g}) = "
        f"{f.expected:.2f} points",
        f"printed {f.printed:.1f}; so little has p = {p_words(f.p)} (chi squared), "
        f"{p_words(adjusted[index])} after Holm over {len(found)} printed deviations",
    )
    odd = adjusted[index] < ALPHA
    return Finding(
        f.printed, f.printed, f.printed,
        f"{f.model} on {f.data}: printed {f.printed:.1f}, counting alone gives {f.expected:.1f} "
        f"(p = {p_words(adjusted[index])} after Holm).",
        steps=steps, answer="not reproduced" if odd else "undecided",
    )  # fmt: skip
