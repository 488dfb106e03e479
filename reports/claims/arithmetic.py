"""Audits by counting: ratios, averages, parameters, operations and paths, from what is printed."""

from __future__ import annotations

import math
from collections.abc import Mapping

from reports.claims.printed import Asked, at, number, size_text
from reports.claims.reanalysis import added_parameters
from reports.claims.verdict import Answer, Evidence


def holds(claim_is_true: bool) -> Answer:
    """The answer of arithmetic, which leaves nothing open."""
    return "reproduced" if claim_is_true else "not reproduced"


def counted(count: float, reason: str, steps: tuple[str, ...], answer: Answer) -> Evidence:
    """Evidence that is a number without an interval."""
    return Evidence(count, count, count, reason, steps=steps, answer=answer)


def ratio(asked: Asked) -> Evidence:
    """First over second as printed, with the ends that rounding allows.

    Parameters: ``table``, ``column``, ``first``, ``second``.
    """
    found = asked.cell("first").over(asked.cell("second"))
    what = "{first} / {second}".format_map(asked.p)
    span = f"rounding allows {size_text(found.low)} to {size_text(found.high)}"
    said = "{first} over {second}".format_map(asked.p) + f": {found.text}."
    return Evidence(found.value, found.low, found.high, said, steps=(f"{what}: {found.text}", span))


def difference(asked: Asked) -> Evidence:
    """First minus second as printed, with the ends rounding allows; parameters as of `ratio`.

    And ``single_runs``: neither a deviation nor the number of examples is printed, so that an
    advantage is no more than one.
    """
    found = asked.cell("first").minus(asked.cell("second"))
    what = "{first} - {second}".format_map(asked.p)
    span = f"rounding allows {found.low:+.3g} to {found.high:+.3g}"
    said = "{first} and {second}, {column}".format_map(asked.p) + f": {found.text}."
    # The sign of two single runs says which is printed higher, and no more.
    answer: Answer | None = "undecided" if asked.p.get("single_runs") and found.high > 0 else None
    steps = (f"{what}: {found.text}", span)
    return Evidence(found.value, found.low, found.high, said, steps=steps, answer=answer)


def share(asked: Asked) -> Evidence:
    """Which part of a gain is there without what is claimed to bring it.

    Parameters: ``table``, ``column``, ``first``, ``without``, and the ``base`` that all is counted
    from, which may stand in ``base_table``.
    """
    p = asked.p
    first, without, base = (asked.cell(side) for side in ("first", "without", "base"))
    gain, kept = first.value - base.value, without.value - base.value
    steps = (
        f"{p['first']} - {p['base']} = {first.text} - {base.text} = {gain:+.1f}",
        f"{p['without']} - {p['base']} = {without.text} - {base.text} = {kept:+.1f}",
        f"{kept:.1f} of {gain:.1f} is there without it",
    )
    said = f"of the {gain:.1f} points over {p['base']}, {kept:.1f} are there in {p['without']}."
    lost = gain - kept
    return Evidence(lost, lost - 2 * first.half, lost + 2 * first.half, said, steps=steps)


def average(asked: Asked) -> Evidence:
    """Whether a printed average is that of its column. Parameters: ``table``, ``column``."""
    column = asked.p["column"]
    numbers = list(asked.column("column").values())
    printed = number(at(asked.table, asked.table["average"], column))
    mean = math.fsum(n.value for n in numbers) / len(numbers)
    half = math.fsum(n.half for n in numbers) / len(numbers)
    steps = (
        f"({' + '.join(n.text for n in numbers)}) / {len(numbers)} = {mean:.3f}",
        f"printed: {printed.text}",
    )
    # Two ranges: what the column's rounding and what the average's own allow; do they meet?
    meet = mean - half <= printed.high and mean + half >= printed.low
    said = f"the {len(numbers)} numbers of {column} average {mean:.3f}; printed is {printed.text}."
    return Evidence(mean, mean - half, mean + half, said, steps=steps, answer=holds(meet))


def carried_over(asked: Asked) -> Evidence:
    """Accuracies that an earlier paper prints digit by digit, beside times that differ.

    Parameters: ``table``, ``other_paper``, ``other_table``, ``rows`` (the other paper's name of a
    row by ours), ``columns`` (of accuracies).
    """
    p, ours = asked.p, asked.table
    other_paper = asked.tables[p["other_paper"]]
    theirs = other_paper[p["other_table"]]
    steps, equal, total, times = [], 0, 0, []
    for mine, other in p["rows"].items():
        pairs = [(at(ours, mine, c), at(theirs, other, c)) for c in p["columns"]]
        equal += sum(number(a).value == number(b).value for a, b in pairs)
        total += len(pairs)
        slower = number(at(theirs, other, "epoch")).over(number(at(ours, mine, "epoch")))
        times.append(slower.value)
        both = ", ".join(f"{c} {a} and {b}" for c, (a, b) in zip(p["columns"], pairs, strict=True))
        steps.append(f"{mine}: {both}; seconds per epoch {slower.text}")
    reason = (
        f"{equal} of {total} accuracies are those of the earlier {other_paper['paper']['short']} "
        "paper, digit by digit, "
        f"though its times are {min(times):.1f} to {max(times):.1f} times as long."
    )
    answer: Answer = "not reproduced" if equal == total else "undecided"
    return counted(float(equal), reason, tuple(steps), answer)


def shortest_path(asked: Asked) -> Evidence:
    """Least distance of two tokens whose product the target has, by listing them all."""
    length = int(asked.paper["figure2"]["length"])
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


def operations(asked: Asked) -> Evidence:
    """What Algorithm 1 computes beyond multi-head attention. Parameter: ``operation``."""
    table, kind = asked.paper["operations"], asked.p["operation"]
    counts = {"MTSA": 0, "multi-head": 0}
    steps = []
    for step in table["steps"]:
        if own := step["counts"].get(kind, 0):
            counts[step["of"]] += own
            steps.append(f"{step['of']}, {step['step']}: {own}")
    more, claimed = counts["MTSA"] - counts["multi-head"], table["claimed"][kind]
    steps.append(f"{counts['MTSA']} - {counts['multi-head']} = {more} more; claimed: {claimed}")
    said = (
        f"{kind}: Algorithm 1 has {counts['MTSA']} per head, multi-head attention "
        f"{counts['multi-head']}; {more} more, claimed {claimed}."
    )
    return counted(float(more), said, tuple(steps), holds(more == claimed))


def layers_per_head(asked: Asked) -> Evidence:
    """Whether so many score layers per head give the printed parameters. Parameter: ``layers``."""
    table, layers = asked.paper["table6"], int(asked.p["layers"])
    counts, e = table["parameters_millions"], table["encoder"]
    printed = counts["MTSA"] - counts["Multi-head"]
    added, width = added_parameters(table, layers), e["head_width"]
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


def like_for_like(asked: Asked) -> Evidence:
    """Whether one way of counting gives all printed parameters: with the highway layer, or without.

    Parameter: ``table``.
    """
    layers = asked.table["layers"]
    steps, ways = [], {}
    for row, fusion in layers["fusion"].items():
        width = layers["width"][row]
        base = fusion + layers["pooling"][width] + layers["hidden"][width] + layers["logits"]
        printed = number(at(asked.table, row, "parameters"))
        sums = {"without": base, "with": base + layers["highway"]}
        ways[row] = [way for way, all_ in sums.items() if printed.low <= all_ / 1e6 <= printed.high]
        both = ", ".join(f"{way} a highway layer {total:,}" for way, total in sums.items())
        steps.append(
            f"{row}: {fusion:,} + {layers['pooling'][width]:,} + {layers['hidden'][width]:,} + "
            f"{layers['logits']}: {both}; printed {printed.text}: "
            f"{' or '.join(ways[row]) or 'neither'}"
        )
    common = any(all(way in fits for fits in ways.values()) for way in ("with", "without"))
    with_it, without = ([row for row, f in ways.items() if f == [w]] for w in ("with", "without"))
    said = (
        f"{', '.join(with_it)} count a highway layer ({layers['highway']:,}), "
        f"{', '.join(without)} do not: the column is not like for like."
    )
    return Evidence(float(len(with_it)), reason=said, steps=tuple(steps), answer=holds(common))


def runs_agree(asked: Asked) -> Evidence:
    """Whether table and caption name one number of runs. Parameter: ``setup``."""
    setup = next(s for s in asked.paper["table6"]["setups"] if s["name"] == asked.p["setup"])
    inside, below = setup["runs_in_table"], setup["runs_in_caption"]
    text = f"the table says {inside} runs, the caption {below}"
    said = f"{setup['name']}: {text}."
    return Evidence(float(inside), reason=said, steps=(text,), answer=holds(inside == below))


def wins_everywhere(asked: Asked) -> Evidence:
    """On how many data sets a column is ahead. Parameters: ``table``, ``first``, ``second``."""
    first, second = asked.column("first"), asked.column("second")
    ahead = [name for name in first if first[name].value > second[name].value]
    behind = [name for name in first if first[name].value < second[name].value]
    text = f"ahead on {len(ahead)} of {len(first)} data sets"
    if behind:
        text += f", behind on {', '.join(behind)}"
    said = "{first} against {second}".format_map(asked.p) + f": {text}."
    return counted(float(len(ahead)), said, (text,), holds(len(ahead) == len(first)))


def not_printed(asked: Asked) -> Evidence:
    """A claim whose number the paper does not print. Parameter: ``column``."""
    column = asked.p["column"]
    printed = [t for t in asked.paper.values() if isinstance(t, Mapping) and "columns" in t]
    found = [table["place"] for table in printed if column in table["columns"]]
    return Evidence(
        reason=f"{column} is printed in {', '.join(found) or 'no table'} of the paper.",
        steps=(f"{len(found)} of {len(printed)} tables have a column of {column}",),
        answer=None if found else "undecided",
    )
