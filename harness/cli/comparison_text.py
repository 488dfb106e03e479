"""A comparison on the terminal: interval and every difference first, p-values after."""

from __future__ import annotations

import math

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.experiments.conclusion import Comparison
from harness.experiments.wording import exact_test, no_interval, replicates_of
from harness.stats import too_few

COLOURS = {"better": "green", "worse": "red", "practically equal": "blue"}


def print_comparison(out: Console, comparison: Comparison) -> None:
    """Verdict, interval, differences by seed, tests, sizes and costs, warnings."""
    colour = COLOURS.get(comparison.verdict, "yellow")
    out.print()
    out.print(f"[bold {colour}]{escape(comparison.sentence)}[/]", highlight=False, soft_wrap=True)
    out.print()
    if comparison.difference is not None:
        out.print(_pairs(comparison))
        out.print()
        out.print(_statistics(comparison))
        out.print()
    if comparison.costs:
        out.print(_costs(comparison))
    if comparison.coverage:
        out.print(comparison.coverage, highlight=False, markup=False, soft_wrap=True)
    out.print(f"split: {comparison.design['split']}", highlight=False, markup=False, soft_wrap=True)
    for warning in comparison.warnings:
        out.print(f"[yellow]warning:[/] {escape(warning)}", highlight=False, soft_wrap=True)


def _table(*columns: str) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column(columns[0])
    for column in columns[1:]:
        table.add_column(column, justify="right")
    return table


def _pairs(comparison: Comparison) -> Table:
    unit = comparison.unit
    d = comparison.difference
    assert d is not None
    table = _table(
        comparison.replicate, comparison.first, comparison.second,
        "difference" if d.paired else "difference (unpaired)",
    )  # fmt: skip
    for number, first, second in comparison.values:
        values = ["" if math.isnan(v) else unit.value(v) for v in (first, second)]
        table.add_row(str(number), *values, unit.difference(first - second) if d.paired else "")
    table.add_row(
        "mean", unit.value(d.mean_first), unit.value(d.mean_second), unit.difference(d.difference),
        style="bold",
    )  # fmt: skip
    if not math.isnan(d.sd_first):
        table.add_row("sd", unit.value(d.sd_first), unit.value(d.sd_second), "")
    return table


def _statistics(comparison: Comparison) -> Table:
    """Rows in the order of the design's rules; of few replicates the interval alone."""
    unit, d = comparison.unit, comparison.difference
    assert d is not None
    better = "higher" if comparison.higher_is_better else "lower"
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column()
    table.add_column()

    def row(name: str, text: str) -> None:
        table.add_row(name, escape(text))

    name = f"{comparison.metric} ({better} is better)"
    if math.isnan(d.low):
        row(f"difference of {name}", f"{unit.difference(d.difference)}: {no_interval(d)}")
        return table
    row(
        f"difference of {name}",
        f"{unit.difference(d.difference)}, 95 % t-interval [{unit.difference(d.low)}, "
        f"{unit.difference(d.high)}]",
    )
    if too_few(d):
        return table
    row(f"p ({d.test}, two-sided)", f"{d.p:.3g}")
    row("Hedges g", f"{d.hedges_g:+.2f}")
    row(
        "minimum detectable effect",
        f"{unit.size(d.detectable)} (80 % power at these {replicates_of(d)})",
    )
    flips = f"{d.sign_flip_p:.3g}"
    if math.isnan(d.sign_flip_p):
        many = f"not enumerated for so many {'pairs' if d.paired else 'seeds'}"
        flips = many if comparison.units == "seeds" else "none: folds are not independent"
    row(f"p ({exact_test(d)}, sensitivity)", flips)
    if comparison.equivalence_p is not None and comparison.margin is not None:
        row(
            f"p (equal within {unit.size(comparison.margin)}, TOST)",
            f"{comparison.equivalence_p:.3g}",
        )
    return table


def _costs(comparison: Comparison) -> Table:
    table = _table(
        "model", "parameters", "with words", "training", "per epoch", "epochs", "chosen",
        "peak memory",
    )  # fmt: skip
    for model, c in comparison.costs.items():
        peak = "unknown" if math.isnan(c.peak_bytes) else f"{c.peak_bytes / 2**20:.0f} MiB"
        table.add_row(
            model, f"{c.parameters:,}", f"{c.parameters_with_words:,}", f"{c.seconds:.1f} s",
            f"{c.seconds_per_epoch:.2f} s", f"{c.epochs:g}", f"{c.chosen_epoch:g}", peak,
        )  # fmt: skip
    return table
