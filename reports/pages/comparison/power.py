"""The power curve of a comparison: what how many seeds would find, at the spread seen here."""

from __future__ import annotations

from dataclasses import dataclass

from matplotlib.figure import Figure
from matplotlib.ticker import FixedLocator, FuncFormatter, NullLocator

from harness.experiments.comparison import Comparison
from harness.stats import POWER, SpreadEstimate, paired_spread, power_of, replicates_needed
from reports.core.axes import MARGINS, SIZE, End, bare, label_ends, titled
from reports.core.style import BLACK, BLUE, GREEN, LINES, VERMILION, text_colour

COUNTS = (2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100)
INKS = (BLUE, VERMILION, GREEN, BLACK)


@dataclass(frozen=True)
class Curve:
    """Power for one true difference.

    Attributes
    ----------
    effect : float
        As the metric is, not scaled.
    name : str
    powers : tuple of float
        At `COUNTS` pairs.
    needed : int
        Fewest pairs with 80 % power.
    """

    effect: float
    name: str
    powers: tuple[float, ...]
    needed: int


def effects(comparison: Comparison, sd: float) -> list[tuple[float, str]]:
    """The differences that curves are drawn for, with their names, small to large."""
    unit = comparison.unit
    found = {c * sd: f"{unit.size(c * sd)} ({c:g} sd)" for c in (0.5, 1.0, 2.0)}
    if comparison.margin is not None:
        found[comparison.margin] = f"{unit.size(comparison.margin)} (the margin)"
    return sorted(found.items())


def spread_of(comparison: Comparison) -> SpreadEstimate | None:
    """Deviation of the paired differences; None for folds, unpaired, for fewer than two pairs.

    Folds share most of their training examples, so that pairs of them are no independent draws.
    """
    if comparison.units != "seeds" or not comparison.paired or len(comparison.values) < 2:
        return None
    first = [a for _, a, _ in comparison.values]
    second = [b for *_, b in comparison.values]
    sd = paired_spread(first, second).sd
    return sd if sd.value > 0 else None


def curves(comparison: Comparison) -> list[Curve]:
    """Power over the number of seeds for each of `effects`."""
    sd = spread_of(comparison)
    if sd is None:
        return []
    return [
        Curve(
            effect, name, tuple(power_of(effect, sd.value, n) for n in COUNTS),
            replicates_needed(effect, sd.value),
        )
        for effect, name in effects(comparison, sd.value)
    ]  # fmt: skip


def power(comparison: Comparison, found: list[Curve]) -> Figure:
    """One line per true difference; dotted: 80 %, and the seeds of this comparison."""
    figure = Figure(figsize=SIZE)
    axes = figure.subplots()
    figure.subplots_adjust(**MARGINS)
    ends: list[End] = []
    for number, curve in enumerate(found):
        ink = INKS[number % len(INKS)]
        axes.plot(COUNTS, curve.powers, color=ink, linestyle=LINES[number % len(LINES)],
                  linewidth=1.6, label=curve.name)  # fmt: skip
        ends.append((float(COUNTS[-1]), curve.powers[-1], curve.name, text_colour(ink)))
    axes.axhline(POWER, color="0.5", linewidth=1, linestyle=":")
    axes.axvline(len(comparison.values), color="0.5", linewidth=1, linestyle=":")
    axes.annotate("80 %", (2, POWER), xytext=(2, 3), textcoords="offset points", fontsize=7.5,
                  color="0.45")  # fmt: skip
    axes.annotate(
        f"{len(comparison.values)} seeds here", (len(comparison.values), 0.02), xytext=(4, 0),
        textcoords="offset points", fontsize=7.5, color="0.45",
    )  # fmt: skip
    axes.set_xscale("log")
    axes.set_ylim(0, 1.02)
    axes.xaxis.set_major_locator(FixedLocator([2, 3, 5, 10, 20, 50, 100]))
    axes.xaxis.set_minor_locator(NullLocator())
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
    axes.set_xlabel("paired seeds")
    axes.set_ylabel("power: how often it would be found")
    bare(axes)
    label_ends(axes, ends, 7.5)
    titled(
        axes, f"{comparison.task}: what more seeds would find",
        "two-sided paired t-test at 5 %, for true differences of this size",
    )  # fmt: skip
    return figure
