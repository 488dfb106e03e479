"""A conclusion on the terminal: verdict and interval first, then p-values, costs, warnings."""

from __future__ import annotations

import math
from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.experiments.conclusion import Comparison, Conclusion
from harness.experiments.overall import Overall
from harness.experiments.tables import (
    BASELINE,
    COSTS,
    OVER_TASKS,
    columns,
    cost_rows,
    counted_tasks,
    exact_tests,
    headed,
    omnibus,
    overall_rows,
    reading,
    statistics_rows,
    task_rows,
    value_columns,
    value_rows,
)

COLOURS = {"better": "green", "worse": "red", "practically equal": "blue"}


def print_conclusion(out: Console, conclusion: Conclusion) -> None:
    """Sentences, a section per task, tests over tasks, how to read them, warnings."""
    first, *others = map(escape, conclusion.sentences)
    only = conclusion.comparisons[0] if len(conclusion.comparisons) == 1 else None
    colour = "" if only is None else f" {COLOURS.get(only.verdict, 'yellow')}"
    out.print()
    out.print(f"[bold{colour}]{first}[/]", highlight=False, soft_wrap=True)
    for said in others:
        out.print(said, highlight=False, soft_wrap=True)
    for task in conclusion.tasks:
        out.print()
        _print_task(out, task, conclusion.of_task(task))
    if conclusion.overall is not None:
        out.print()
        _print_overall(out, conclusion.baseline, conclusion.overall)
    out.print()
    for line in reading(conclusion):
        out.print(line, highlight=False, markup=False, soft_wrap=True)
    for warning in conclusion.warnings:
        out.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False, soft_wrap=True)


def _print_task(out: Console, task: str, comparisons: Sequence[Comparison]) -> None:
    """One comparison with every value and every test; several as a row each."""
    said = f"[bold]{escape(task)}[/]: {escape(headed(comparisons))}"
    out.print(said, highlight=False, soft_wrap=True)
    if len(comparisons) > 1:
        out.print(_verdicts(columns(comparisons), task_rows(comparisons)))
    elif comparisons[0].difference is not None:
        out.print(_values(comparisons[0]))
        out.print()
        tests = _table(("", ""), [row[:2] for row in statistics_rows(comparisons[0])])
        tests.show_header, tests.columns[1].justify = False, "left"
        out.print(tests)
    if costs := cost_rows(comparisons):
        out.print()
        out.print(_table(COSTS, costs))
    if coverage := next((c.coverage for c in comparisons if c.coverage), ""):
        out.print(coverage, highlight=False, markup=False, soft_wrap=True)


def _print_overall(out: Console, baseline: str, overall: Overall) -> None:
    said = f"[bold]over tasks[/]: {escape(counted_tasks(overall))}"
    out.print(said, highlight=False, soft_wrap=True)
    if overall.omnibus is not None:
        out.print(omnibus(overall.omnibus), highlight=False, markup=False, soft_wrap=True)
    out.print(_verdicts(OVER_TASKS, overall_rows(baseline, overall)))
    for said in exact_tests(overall):
        out.print(said, highlight=False, markup=False, soft_wrap=True)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Names at the left, numbers at the right."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(names):
        table.add_column(escape(name), justify="right" if number else "left")
    for row in rows:
        table.add_row(*map(escape, row))
    return table


def _values(comparison: Comparison) -> Table:
    """Every seed or fold, then means and deviations."""
    unit, d = comparison.unit, comparison.difference
    assert d is not None
    table = _table(value_columns(comparison), value_rows(comparison))
    if not d.paired:
        table.add_column("difference (unpaired)", justify="right")
    means = [unit.value(d.mean_first), unit.value(d.mean_second), unit.difference(d.difference)]
    table.add_row("mean", *means, style="bold")
    if not math.isnan(d.sd_first):
        table.add_row("sd", unit.value(d.sd_first), unit.value(d.sd_second))
    return table


def _verdicts(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Models at the left, the baseline first and grey, each verdict in its colour."""
    table = _table(names, [])
    for *cells, verdict in rows:
        grey = verdict == BASELINE
        colour = "dim" if grey else COLOURS.get(verdict, "yellow")
        table.add_row(
            *map(escape, cells), f"[{colour}]{escape(verdict)}[/]", style="dim" if grey else ""
        )
    return table
