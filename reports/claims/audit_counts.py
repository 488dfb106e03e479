"""Audits by counting: ratios, averages, parameters, operations and paths, from what is printed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reports.claims.published import Tables, apart, cell_of, quotient
from reports.claims.record import Claim
from reports.claims.verdict import Finding, size_text
from reports.printed import Number, added_parameters, at, number


def ratio(claim: Claim, tables: Tables) -> Finding:
    """First over second as printed, with the ends that rounding allows.

    Parameters: ``table``, ``column``, ``first``, ``second``; ``second_paper`` and ``second_table``
    where the second stands elsewhere.
    """
    p = claim.parameters
    first = cell_of(tables, claim.paper, p["table"], p["first"], p["column"])
    paper, table = p.get("second_paper", claim.paper), p.get("second_table", p["table"])
    second = cell_of(tables, paper, table, p["second"], p.get("second_column", p["column"]))
    found = quotient(first, second)
    steps = (
        f"{p['first']} / {p['second']}: {found.text}",
        f"rounding allows {size_text(found.low)} to {size_text(found.high)}",
    )
    return Finding(
        found.value, found.low, found.high,
        f"{p['first']} over {p['second']}: {found.text}.", steps=steps,
    )  # fmt: skip


def difference(claim: Claim, tables: Tables) -> Finding:
    """First minus second as printed, with the ends rounding allows; parameters as of `ratio`.

    And ``single_runs``: neither a deviation nor the number of examples is printed, so that an
    advantage is no more than one.
    """
    p = claim.parameters
    first, second = (
        cell_of(tables, claim.paper, p["table"], p[side], p["column"])
        for side in ("first", "second")
    )
    found = apart(first, second)
    steps = (
        f"{p['first']} - {p['second']}: {found.text}",
        f"rounding allows {found.low:+.3g} to {found.high:+.3g}",
    )
    return Finding(
        found.value, found.low, found.high,
        f"{p['first']} and {p['second']}, {p['column']}: {found.text}.", steps=steps,
        # The sign of two single runs says which is printed higher, and no more.
        answer="undecided" if p.get("single_runs") and found.high > 0 else None,
    )  # fmt: skip


def share(claim: Claim, tables: Tables) -> Finding:
    """Which part of a gain is there without what is claimed to bring it.

    Parameters: ``table``, ``column``, ``first``, ``without``, and the ``base`` that all is counted
    from, which may stand in ``base_table``.
    """
    p = claim.parameters
    first, without = (
        cell_of(tables, claim.paper, p["table"], p[name], p["column"])
        for name in ("first", "without")
    )
    base = cell_of(tables, claim.paper, p["base_table"], p["base"], p["column"])
    gain, kept = first.value - base.value, without.value - base.value
    steps = (
        f"{p['first']} - {p['base']} = {first.text} - {base.text} = {gain:+.1f}",
        f"{p['without']} - {p['base']} = {without.text} - {base.text} = {kept:+.1f}",
        f"{kept:.1f} of {gain:.1f} is there without it",
    )
    return Finding(
        gain - kept, gain - kept - 2 * first.half, gain - kept + 2 * first.half,
        f"of the {gain:.1f} points over {p['base']}, {kept:.1f} are there in {p['without']}.",
        steps=steps,
    )  # fmt: skip


def average(claim: Claim, tables: Tables) -> Finding:
    """Whether a printed average is that of its column. Parameters: ``table``, ``column``."""
    p = claim.parameters
    table = tables[claim.paper][p["table"]]
    numbers = [
        number(at(table, r["name"], p["column"]))
        for r in table["rows"]
        if r["name"] != table["average"]
    ]
    printed = number(at(table, table["average"], p["column"]))
    mean = math.fsum(n.value for n in numbers) / len(numbers)
    half = math.fsum(n.half for n in numbers) / len(numbers)
    steps = (
        f"({' + '.join(n.text for n in numbers)}) / {len(numbers)} = {mean:.3f}",
        f"printed: {printed.text}",
    )
    # Two ranges: what the column's rounding and what the average's own allow; do they meet?
    meet = mean - half <= printed.high and mean + half >= printed.low
    return Finding(
        mean, mean - half, mean + half,
        f"the {len(numbers)} numbers of {p['column']} average {mean:.3f}; printed is "
        f"{printed.text}.",
        steps=steps, answer="reproduced" if meet else "not reproduced",
    )  # fmt: skip


def carried_over(claim: Claim, tables: Tables) -> Finding:
    """Accuracies that an earlier paper prints digit by digit, beside times that differ.

    Parameters: ``table``, ``other_paper``, ``other_table``, ``rows`` (the other paper's name of a
    row by ours), ``columns`` (of accuracies).
    """
    p = claim.parameters
    ours, theirs = tables[claim.paper][p["table"]], tables[p["other_paper"]][p["other_table"]]
    steps, equal, total, times = [], 0, 0, []
    for mine, other in p["rows"].items():
        pairs = [(at(ours, mine, c), at(theirs, other, c)) for c in p["columns"]]
        equal += sum(number(a).value == number(b).value for a, b in pairs)
        total += len(pairs)
        slower = quotient(number(at(theirs, other, "epoch")), number(at(ours, mine, "epoch")))
        times.append(slower.value)
        said = ", ".join(f"{c} {a} and {b}" for c, (a, b) in zip(p["columns"], pairs, strict=True))
        steps.append(f"{mine}: {said}; seconds per epoch {slower.text}")
    earlier = tables[p["other_paper"]]["paper"]["short"]
    reason = (
        f"{equal} of {total} accuracies are those of the earlier {earlier} paper, digit by digit, "
        f"though its times are {min(times):.1f} to {max(times):.1f} times as long."
    )
    return Finding(
        float(equal), float(equal), float(equal), reason, steps=tuple(steps),
        answer="not reproduced" if equal == total else "undecided",
    )  # fmt: skip


def shortest_path(claim: Claim, tables: Tables) -> Finding:
    """Least distance of two tokens whose product the target has, by listing them all."""
    length = int(tables[claim.paper]["figure2"]["length"])
    depths = range(1, length // 2 + 1)
    # Of a_i and a_(N-i+1), for every K.
    least = {k: min((length - i + 1) - i for i in range(1, k + 1)) for k in depths}
    ours = [k for k in depths if least[k] == length - 2 * k + 1]
    theirs = [k for k in depths if least[k] == length - k]
    k = length // 4
    steps = (
        "token i is multiplied with token N - i + 1: they are N - 2i + 1 apart",
        f"the least over i = 1 ... K, for N = {length}, K = {k}: {least[k]}; N - 2K + 1 = "
        f"{length - 2 * k + 1}, printed N - K = {length - k}",
        f"all K from 1 to {length // 2} listed: N - 2K + 1 holds for {len(ours)} of "
        f"{len(depths)}, N - K for {len(theirs)}",
    )
    return Finding(
        float(least[k]), reason=f"the least distance is N - 2K + 1 (N = {length}, K = {k}: "
        f"{least[k]}); N - K = {length - k} holds for {len(theirs)} of {len(depths)} K.",
        steps=steps, answer="reproduced" if len(theirs) == len(depths) else "not reproduced",
    )  # fmt: skip


def operations(claim: Claim, tables: Tables) -> Finding:
    """What Algorithm 1 computes beyond multi-head attention. Parameter: ``operation``."""
    table = tables[claim.paper]["operations"]
    kind = claim.parameters["operation"]
    counts = {"MTSA": 0, "multi-head": 0}
    steps = []
    for step in table["steps"]:
        own = step["counts"].get(kind, 0)
        counts[step["of"]] += own
        if own:
            steps.append(f"{step['of']}, {step['step']}: {own}")
    more, claimed = counts["MTSA"] - counts["multi-head"], table["claimed"][kind]
    steps.append(f"{counts['MTSA']} - {counts['multi-head']} = {more} more; claimed: {claimed}")
    return Finding(
        float(more), float(more), float(more),
        f"{kind}: Algorithm 1 has {counts['MTSA']} per head, multi-head attention "
        f"{counts['multi-head']}; {more} more, claimed {claimed}.",
        steps=tuple(steps), answer="reproduced" if more == claimed else "not reproduced",
    )  # fmt: skip


def layers_per_head(claim: Claim, tables: Tables) -> Finding:
    """Whether so many score layers per head give the printed parameters. Parameter: ``layers``."""
    table = tables[claim.paper]["table6"]
    counts, e = table["parameters_millions"], table["encoder"]
    printed = counts["MTSA"] - counts["Multi-head"]
    layers = int(claim.parameters["layers"])
    added = added_parameters(table, layers)
    width = e["head_width"]
    steps = (
        f"printed: {counts['MTSA']:.2f}M - {counts['Multi-head']:.2f}M = {printed:.2f}M, +- .01M",
        f"{layers} x {e['layers']} layers x {e['heads']} heads x ({width}^2 + {width}) = "
        f"{added * 1e6:,.0f}",
    )
    fits = abs(added - printed) <= 0.01
    return Finding(
        added, added, added,
        f"{layers} score layer{'s' * (layers > 1)} per head add{'s' * (layers == 1)} {added:.3f}M; "
        f"printed is {printed:.2f}M.",
        steps=steps, answer="reproduced" if fits else "not reproduced",
    )  # fmt: skip


def like_for_like(claim: Claim, tables: Tables) -> Finding:
    """Whether one way of counting gives all printed parameters: with the highway layer, or without.

    Parameter: ``table``.
    """
    table = tables[claim.paper][claim.parameters["table"]]
    layers: Mapping[str, Any] = table["layers"]
    steps, ways = [], {}
    for row, fusion in layers["fusion"].items():
        width = layers["width"][row]
        base = fusion + layers["pooling"][width] + layers["hidden"][width] + layers["logits"]
        printed = number(at(table, row, "parameters"))
        sums = {"without": base, "with": base + layers["highway"]}
        fits = [way for way, total in sums.items() if _prints_as(total, printed)]
        ways[row] = fits
        said = ", ".join(f"{way} a highway layer {total:,}" for way, total in sums.items())
        steps.append(
            f"{row}: {fusion:,} + {layers['pooling'][width]:,} + {layers['hidden'][width]:,} + "
            f"{layers['logits']}: {said}; printed {printed.text}: {' or '.join(fits) or 'neither'}"
        )
    common = [way for way in ("with", "without") if all(way in fits for fits in ways.values())]
    with_it = [row for row, fits in ways.items() if fits == ["with"]]
    return Finding(
        float(len(with_it)), reason=f"{', '.join(with_it)} count a highway layer "
        f"({layers['highway']:,}), {', '.join(r for r, f in ways.items() if f == ['without'])} "
        "do not: the column is not like for like.",
        steps=tuple(steps), answer="reproduced" if common else "not reproduced",
    )  # fmt: skip


def _prints_as(count: int, printed: Number) -> bool:
    return printed.low <= count / 1e6 <= printed.high


def runs_agree(claim: Claim, tables: Tables) -> Finding:
    """Whether table and caption name one number of runs. Parameter: ``setup``."""
    table = tables[claim.paper]["table6"]
    setup = next(s for s in table["setups"] if s["name"] == claim.parameters["setup"])
    inside, below = setup["runs_in_table"], setup["runs_in_caption"]
    text = f"the table says {inside} runs, the caption {below}"
    return Finding(
        float(inside), reason=f"{setup['name']}: {text}.", steps=(text,),
        answer="reproduced" if inside == below else "not reproduced",
    )  # fmt: skip


def not_printed(claim: Claim, tables: Tables) -> Finding:
    """A claim whose number the paper does not print. Parameter: ``column``."""
    column = claim.parameters["column"]
    paper = tables[claim.paper]
    found = [
        table["place"]
        for table in paper.values()
        if isinstance(table, Mapping) and column in table.get("columns", ())
    ]
    places = ", ".join(found) or "no table"
    tables_of = [t for t in paper.values() if isinstance(t, Mapping) and "columns" in t]
    return Finding(
        reason=f"{column} is printed in {places} of the paper.",
        steps=(f"{len(found)} of {len(tables_of)} tables have a column of {column}",),
        answer="undecided" if not found else None,
    )  # fmt: skip
