"""Audits by counting: ratios, averages, parameters, operations and paths, from what is printed."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reports.claims.printed import PrintedNumber, Tables, at, column_of, number, size_text
from reports.claims.reanalysis import added_parameters
from reports.claims.record import Claim
from reports.claims.verdict import Answer, Evidence


def cells_of(claim: Claim, tables: Tables, *sides: str) -> list[PrintedNumber]:
    """The printed numbers that a claim's parameters name.

    Those of the claim's ``table`` and ``column``, unless ``<side>_table``, ``<side>_column`` or
    ``<side>_paper`` say otherwise.
    """
    p = claim.parameters
    return [
        number(
            at(
                tables[p.get(f"{side}_paper", claim.paper)][p.get(f"{side}_table", p.get("table"))],
                p[side],
                p.get(f"{side}_column", p["column"]),
            )
        )
        for side in sides
    ]


def holds(claim_is_true: bool) -> Answer:
    """The answer of arithmetic, which leaves nothing open."""
    return "reproduced" if claim_is_true else "not reproduced"


def counted(count: float, reason: str, steps: tuple[str, ...], answer: Answer) -> Evidence:
    """Evidence that is a number without an interval."""
    return Evidence(count, count, count, reason, steps=steps, answer=answer)


def ratio(claim: Claim, tables: Tables) -> Evidence:
    """First over second as printed, with the ends that rounding allows.

    Parameters: ``table``, ``column``, ``first``, ``second``; ``second_paper`` and ``second_table``
    where the second stands elsewhere.
    """
    p = claim.parameters
    first, second = cells_of(claim, tables, "first", "second")
    found = first.over(second)
    steps = (
        f"{p['first']} / {p['second']}: {found.text}",
        f"rounding allows {size_text(found.low)} to {size_text(found.high)}",
    )
    said = f"{p['first']} over {p['second']}: {found.text}."
    return Evidence(found.value, found.low, found.high, said, steps=steps)


def difference(claim: Claim, tables: Tables) -> Evidence:
    """First minus second as printed, with the ends rounding allows; parameters as of `ratio`.

    And ``single_runs``: neither a deviation nor the number of examples is printed, so that an
    advantage is no more than one.
    """
    p = claim.parameters
    first, second = cells_of(claim, tables, "first", "second")
    found = first.minus(second)
    steps = (
        f"{p['first']} - {p['second']}: {found.text}",
        f"rounding allows {found.low:+.3g} to {found.high:+.3g}",
    )
    said = f"{p['first']} and {p['second']}, {p['column']}: {found.text}."
    # The sign of two single runs says which is printed higher, and no more.
    answer: Answer | None = "undecided" if p.get("single_runs") and found.high > 0 else None
    return Evidence(found.value, found.low, found.high, said, steps=steps, answer=answer)


def share(claim: Claim, tables: Tables) -> Evidence:
    """Which part of a gain is there without what is claimed to bring it.

    Parameters: ``table``, ``column``, ``first``, ``without``, and the ``base`` that all is counted
    from, which may stand in ``base_table``.
    """
    p = claim.parameters
    first, without, base = cells_of(claim, tables, "first", "without", "base")
    gain, kept = first.value - base.value, without.value - base.value
    steps = (
        f"{p['first']} - {p['base']} = {first.text} - {base.text} = {gain:+.1f}",
        f"{p['without']} - {p['base']} = {without.text} - {base.text} = {kept:+.1f}",
        f"{kept:.1f} of {gain:.1f} is there without it",
    )
    said = f"of the {gain:.1f} points over {p['base']}, {kept:.1f} are there in {p['without']}."
    lost = gain - kept
    return Evidence(lost, lost - 2 * first.half, lost + 2 * first.half, said, steps=steps)


def average(claim: Claim, tables: Tables) -> Evidence:
    """Whether a printed average is that of its column. Parameters: ``table``, ``column``."""
    p = claim.parameters
    table = tables[claim.paper][p["table"]]
    numbers = list(column_of(table, p["column"]).values())
    printed = number(at(table, table["average"], p["column"]))
    mean = math.fsum(n.value for n in numbers) / len(numbers)
    half = math.fsum(n.half for n in numbers) / len(numbers)
    steps = (
        f"({' + '.join(n.text for n in numbers)}) / {len(numbers)} = {mean:.3f}",
        f"printed: {printed.text}",
    )
    # Two ranges: what the column's rounding and what the average's own allow; do they meet?
    meet = mean - half <= printed.high and mean + half >= printed.low
    said = (
        f"the {len(numbers)} numbers of {p['column']} average {mean:.3f}; printed is "
        f"{printed.text}."
    )
    return Evidence(mean, mean - half, mean + half, said, steps=steps, answer=holds(meet))


def carried_over(claim: Claim, tables: Tables) -> Evidence:
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
        slower = number(at(theirs, other, "epoch")).over(number(at(ours, mine, "epoch")))
        times.append(slower.value)
        both = ", ".join(f"{c} {a} and {b}" for c, (a, b) in zip(p["columns"], pairs, strict=True))
        steps.append(f"{mine}: {both}; seconds per epoch {slower.text}")
    earlier = tables[p["other_paper"]]["paper"]["short"]
    reason = (
        f"{equal} of {total} accuracies are those of the earlier {earlier} paper, digit by digit, "
        f"though its times are {min(times):.1f} to {max(times):.1f} times as long."
    )
    answer: Answer = "not reproduced" if equal == total else "undecided"
    return counted(float(equal), reason, tuple(steps), answer)


def shortest_path(claim: Claim, tables: Tables) -> Evidence:
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
    said = (
        f"the least distance is N - 2K + 1 (N = {length}, K = {k}: {least[k]}); N - K = "
        f"{length - k} holds for {len(theirs)} of {len(depths)} K."
    )
    everywhere = len(theirs) == len(depths)
    return Evidence(float(least[k]), reason=said, steps=steps, answer=holds(everywhere))


def operations(claim: Claim, tables: Tables) -> Evidence:
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
    said = (
        f"{kind}: Algorithm 1 has {counts['MTSA']} per head, multi-head attention "
        f"{counts['multi-head']}; {more} more, claimed {claimed}."
    )
    return counted(float(more), said, tuple(steps), holds(more == claimed))


def layers_per_head(claim: Claim, tables: Tables) -> Evidence:
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
    said = (
        f"{layers} score layer{'s' * (layers > 1)} per head add{'s' * (layers == 1)} {added:.3f}M; "
        f"printed is {printed:.2f}M."
    )
    return counted(added, said, steps, holds(abs(added - printed) <= 0.01))


def like_for_like(claim: Claim, tables: Tables) -> Evidence:
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
        fits = [way for way, all_ in sums.items() if printed.low <= all_ / 1e6 <= printed.high]
        ways[row] = fits
        both = ", ".join(f"{way} a highway layer {total:,}" for way, total in sums.items())
        steps.append(
            f"{row}: {fusion:,} + {layers['pooling'][width]:,} + {layers['hidden'][width]:,} + "
            f"{layers['logits']}: {both}; printed {printed.text}: {' or '.join(fits) or 'neither'}"
        )
    common = [way for way in ("with", "without") if all(way in fits for fits in ways.values())]
    with_it, without = ([row for row, f in ways.items() if f == [w]] for w in ("with", "without"))
    said = (
        f"{', '.join(with_it)} count a highway layer ({layers['highway']:,}), "
        f"{', '.join(without)} do not: the column is not like for like."
    )
    answer = holds(bool(common))
    return Evidence(float(len(with_it)), reason=said, steps=tuple(steps), answer=answer)


def runs_agree(claim: Claim, tables: Tables) -> Evidence:
    """Whether table and caption name one number of runs. Parameter: ``setup``."""
    table = tables[claim.paper]["table6"]
    setup = next(s for s in table["setups"] if s["name"] == claim.parameters["setup"])
    inside, below = setup["runs_in_table"], setup["runs_in_caption"]
    text = f"the table says {inside} runs, the caption {below}"
    said = f"{setup['name']}: {text}."
    return Evidence(float(inside), reason=said, steps=(text,), answer=holds(inside == below))


def wins_everywhere(claim: Claim, tables: Tables) -> Evidence:
    """On how many data sets a column is ahead. Parameters: ``table``, ``first``, ``second``."""
    p = claim.parameters
    table = tables[claim.paper][p["table"]]
    first, second = (column_of(table, p[side]) for side in ("first", "second"))
    ahead = [name for name in first if first[name].value > second[name].value]
    behind = [name for name in first if first[name].value < second[name].value]
    text = f"ahead on {len(ahead)} of {len(first)} data sets"
    if behind:
        text += f", behind on {', '.join(behind)}"
    said = f"{p['first']} against {p['second']}: {text}."
    return counted(float(len(ahead)), said, (text,), holds(len(ahead) == len(first)))


def not_printed(claim: Claim, tables: Tables) -> Evidence:
    """A claim whose number the paper does not print. Parameter: ``column``."""
    column = claim.parameters["column"]
    printed = [t for t in tables[claim.paper].values() if isinstance(t, Mapping) and "columns" in t]
    found = [table["place"] for table in printed if column in table["columns"]]
    return Evidence(
        reason=f"{column} is printed in {', '.join(found) or 'no table'} of the paper.",
        steps=(f"{len(found)} of {len(printed)} tables have a column of {column}",),
        answer=None if found else "undecided",
    )


AUDITS = {
    query.__name__: query
    for query in (
        ratio,
        difference,
        share,
        average,
        carried_over,
        shortest_path,
        operations,
        layers_per_head,
        like_for_like,
        runs_agree,
        wins_everywhere,
        not_printed,
    )
}
