"""Many comparisons on the terminal: one table per task, the tasks together, warnings."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.cli.comparison_text import COLOURS
from harness.experiments.many import Many
from harness.experiments.many_wording import (
    BASELINE,
    OVER_TASKS,
    columns,
    counted_tasks,
    exact_tests,
    headed,
    omnibus,
    overall_rows,
    reading,
    task_rows,
)
from harness.experiments.overall import Overall


def print_many(out: Console, many: Many) -> None:
    """Sentences, tables, tests over tasks, how to read them, warnings."""
    out.print()
    for number, said in enumerate(many.sentences):
        out.print(escape(said), highlight=False, soft_wrap=True, style="" if number else "bold")
    for task in many.tasks:
        out.print()
        _print_task(out, many, task)
    if many.overall is not None:
        out.print()
        _print_overall(out, many, many.overall)
    out.print()
    for line in reading(many):
        out.print(line, highlight=False, markup=False, soft_wrap=True)
    for warning in many.warnings:
        out.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False, soft_wrap=True)


def _print_task(out: Console, many: Many, task: str) -> None:
    comparisons = many.of_task(task)
    said = f"[bold]{escape(task)}[/]: {escape(headed(comparisons))}"
    out.print(said, highlight=False, soft_wrap=True)
    out.print(_table(columns(comparisons), task_rows(comparisons)))


def _print_overall(out: Console, many: Many, overall: Overall) -> None:
    said = f"[bold]over tasks[/]: {escape(counted_tasks(overall))}"
    out.print(said, highlight=False, soft_wrap=True)
    if overall.omnibus is not None:
        out.print(omnibus(overall.omnibus), highlight=False, markup=False, soft_wrap=True)
    out.print(_table(OVER_TASKS, overall_rows(many.baseline, overall)))
    for said in exact_tests(overall):
        out.print(said, highlight=False, markup=False, soft_wrap=True)


def _table(names: Sequence[str], rows: Sequence[Sequence[str]]) -> Table:
    """Models at the left, the baseline first and grey, each verdict in its colour."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for number, name in enumerate(names):
        table.add_column(name, justify="right" if number else "left")
    for *cells, verdict in rows:
        grey = verdict == BASELINE
        colour = "dim" if grey else COLOURS.get(verdict, "yellow")
        table.add_row(
            *map(escape, cells), f"[{colour}]{escape(verdict)}[/]", style="dim" if grey else ""
        )
    return table
