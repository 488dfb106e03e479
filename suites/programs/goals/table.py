"""The goals for people: a table in the terminal, and the table of docs/results."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.markup import escape

from harness.cli.output import bare_table, say
from harness.stats import Interval, ratio_text
from reports.core import words
from reports.core.words import bytes_text, known
from suites.programs.command import markdown_table
from suites.programs.goals.goal import Goal
from suites.programs.goals.judge import (
    MET,
    MISSED,
    NOT_HERE,
    SHOWN,
    UNDECIDED,
    Against,
    Held,
    Result,
    bounded_by,
)

HEADS = (
    "goal",
    "what",
    "measured : against",
    "bound",
    "found",
    "verdict",
    "off",
    "ops",
    "of peak",
    "memory",
    "margin",
    "prototype",
)
NOBODY = Against("", Interval(math.nan, math.nan, math.nan, 0), 1.0, "")
_COLOURS = {MET: "green", MISSED: "red", UNDECIDED: "yellow", SHOWN: "cyan"}


def number_text(goal: Goal, value: float) -> str:
    """A bound or a prototype's figure, in the goal's unit."""
    if goal.kind == "accuracy":
        return f"{value:.1e}"
    return f"n^{value:g}" if goal.kind == "growth" else f"{value:g}x"


def bound_text(goal: Goal) -> str:
    """``<= 1.2x``."""
    if goal.bound is None:
        return "fits" if goal.kind == "fits" else ""
    return f"{'<=' if goal.at_least is None else '>='} {number_text(goal, goal.bound)}"


def found_text(goal: Goal, one: Against | None, verdict: str) -> str:
    """``1.24x [1.20, 1.28]``."""
    if one is None:
        return "fits" if goal.kind == "fits" and verdict == MET else ""
    if goal.kind == "accuracy":
        return f"{one.value.ratio:.1e}"
    text = str(one.value)
    return f"n^{text.replace('x', '')}" if goal.kind == "growth" else text


def _cells(result: Result, one: Against | None, first: bool) -> list[str]:
    goal, beside = result.goal, one or NOBODY
    lengths = f", n = {', '.join(f'{n:,}' for n in goal.lengths)}" if goal.lengths else ""
    share, its = (words.number_text(part, ".0%") for part in (result.share, beside.share))
    ratio = known(beside.memory_ratio, ratio_text)
    return [
        goal.id if first else "",
        goal.what + lengths if first else "",
        " : ".join(filter(None, (goal.measured, beside.baseline))),
        bound_text(goal),
        found_text(goal, one, result.verdict),
        result.verdict,
        # beyond the bound (+) or within it (-)
        words.number_text(100 * result.distance, "+.0f", " %") if first else "",
        known(beside.operations_ratio, ratio_text),
        " : ".join(filter(None, (share, its))) if beside.baseline else share,
        " ".join(filter(None, (known(result.peak_bytes, bytes_text), ratio))),
        words.number_text(result.margin, ".3g", "x"),
        "" if goal.prototype is None else number_text(goal, goal.prototype),
    ]


def rows(results: Sequence[Result]) -> list[list[str]]:
    """One line for each goal, by its worst baseline; of what is only shown one for each.

    None for goals of a device that is not here: `sentences` names them.
    """
    lines = []
    for result in results:
        if result.verdict == NOT_HERE:
            continue
        shown: Sequence[Against | None] = result.against if result.verdict == SHOWN else ()
        for i, one in enumerate(shown or (result.worst,)):
            lines.append(_cells(result, one, i == 0))
    return lines


def remarks(results: Sequence[Result]) -> list[str]:
    """Below the table: what bounds a goal that was not met, and why something is not there.

    Goals of which the same is said share a line.
    """
    lines: dict[str, list[str]] = {}
    for result in results:
        says = [result.detail] if result.detail else []
        if result.verdict in (MISSED, UNDECIDED) and (bound := bounded_by(result)):
            says.append(bound)
        one = result.worst
        if result.verdict == UNDECIDED and one is not None and not one.value.known:
            says.append("one block gives no interval")
        elif result.verdict == UNDECIDED and one is not None and one.floor > 1:
            floor = f"{100 * (one.floor - 1):.1f} %" if math.isfinite(one.floor) else "not known"
            says.append(f"noise floor {floor}")
        if says and result.verdict != NOT_HERE:
            lines.setdefault(f"{result.verdict}: {'; '.join(says)}", []).append(result.goal.id)
    return [f"{', '.join(ids)}: {said}" for said, ids in lines.items()]


def sentences(results: Sequence[Result], held: Mapping[str, Held]) -> list[str]:
    """How many goals ended how, which wait for another device, and where they were measured."""
    counts = Counter(result.verdict for result in results)
    said = [", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()) + "."]
    elsewhere: dict[str, list[str]] = {}
    for result in results:
        if result.verdict == NOT_HERE:
            elsewhere.setdefault(result.detail, []).append(result.goal.id)
    said += [f"Not here ({why}): {', '.join(ids)}." for why, ids in elsewhere.items()]
    for device, one in held.items():
        f = one.fingerprint
        threads = ", one thread" if device == "cpu" else ""
        said.append(
            f"{f.get('model', device)} ({device}{threads}), torch {f.get('torch', '?')}; "
            f"up to {one.blocks} blocks; ratios with 95 % t-intervals over blocks"
            f"{'; commits ' * bool(one.commits)}{', '.join(one.commits)}."
        )
    return said


LEGEND = (
    "off: beyond the bound (+) or within it (-). ops: operations over the baseline's, by formulas. "
    "of peak: operations per second, of the session's best matrix product, ours : the baseline's. "
    "memory: our peak, and over the baseline's. margin: error budget over error at this size."
)


def print_results(out: Console, results: Sequence[Result], held: Mapping[str, Held]) -> None:
    """Print table, remarks and sentences."""
    table = bare_table()
    for head in HEADS:
        table.add_column(head, overflow="fold", no_wrap=head in ("bound", "found", "verdict"))
    verdict = HEADS.index("verdict")
    for line in rows(results):
        cells = [escape(cell) for cell in line]
        cells[verdict] = f"[{_COLOURS.get(line[verdict], 'bold red')}]{cells[verdict]}[/]"
        table.add_row(*cells)
    out.print(table)
    for text in [LEGEND, *remarks(results), *sentences(results, held)]:
        say(out, text)


def markdown(results: Sequence[Result], held: Mapping[str, Held]) -> str:
    """The table of docs/results, with what is said below it."""
    table = markdown_table(HEADS, rows(results))
    below = [LEGEND, *(f"- {line}" for line in remarks(results)), *sentences(results, held)]
    return table + "\n\n" + "\n".join(below)
