"""May a device's numbers be believed? The control, drift, error margins: ``trust.ipynb``."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import pandas as pd
import seaborn
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, MaxNLocator, NullFormatter

from harness.case import parse
from harness.measure.ceilings import impossible
from harness.records.ratios import PROBLEM, block_ratios, margin_frame
from harness.stats import Interval, noise_floor, ratio_interval
from harness.stats.drift import LEAST_BLOCKS
from harness.verify.run import price, same_bits
from reports.core.axes import SIZE, bare, name_rows, note, panel, row_panel, titled
from reports.core.costs import Costs
from reports.core.curves import Point, draw_lines
from reports.core.forest import Line, forest
from reports.core.page import DevicePage, Shown, remark, says, together, warns
from reports.core.sentences import drift_sentences
from reports.core.style import NOT_SHOWN, VERMILION, look

STILL = "No movement of the machine is shown, and no ratio that moved."
MOST_LINES = 8


def bits_of(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The records of determinism that came to an end."""
    return [r for r in records if r["kind"] == "determinism" and r["status"] == "ok"]


def bits_rows(records: Iterable[Mapping[str, Any]]) -> list[dict[str, str]]:
    """A row for each record of determinism."""
    return [
        {
            "implementation": r["name"],
            "dtype": r["dtype"],
            "same bits": same_bits(r),
            "deterministic mode": price(r),
        }
        for r in bits_of(records)
    ]


def bits_sentence(records: Iterable[Mapping[str, Any]]) -> str:
    """What the records of determinism say together."""
    found = bits_of(records)
    counts = {kind: sum(r[kind] == 0 for r in found) for kind in ("again", "batch", "threads")}
    compiled = [r for r in found if r["compiled"] is not None]
    return (
        f"Of {len(found)} implementations {counts['again']} give the same bits in "
        f"{found[0]['repeats']} repeats, values and gradients; {counts['batch']} do for a sample "
        f"alone and in a batch, {counts['threads']} on one thread and on two; compiled, "
        f"{sum(r['compiled'] == 0 for r in compiled)} of {len(compiled)} give those of the plain "
        "call."
    )


@dataclass(frozen=True)
class Control:
    """The A/A control of one problem."""

    label: str
    problem: Mapping[str, Any]
    interval: Interval
    ratios: tuple[float, ...]


def _by_problem(times: pd.DataFrame) -> Iterator[tuple[str, dict[str, Any], pd.DataFrame]]:
    """Of each problem its name, ``training, B64 N64, f32, 1-thread``, what it is, and its times.

    Where there are inputs of several widths the name says which.
    """
    several = times["d_in"].nunique() > 1
    for values, group in times.groupby(PROBLEM, sort=False):
        p = dict(zip(PROBLEM, values, strict=True))
        size = f"B{p['batch']} N{p['length']}" + f" D{p['d_in']}" * several
        yield f"{p['phase']}, {size}, {p['dtype']}, {p['settings']}", p, group


def controls(found: Sequence[Control]) -> Figure:
    """Every block's ratio and the interval, one problem below the other, beside 1."""
    lines = [
        Line(c.label, "multi_head", t.ratio, t.low, t.high, True, c.ratios)
        for c in found
        for t in [c.interval]
    ]
    return forest(
        lines,
        "The baseline against itself",
        "should be 1; bars: 95 % t-intervals over blocks",
        "time of the control / time of the baseline",
        max(noise_floor(c.interval) for c in found),
        1.0,
    )


def drift(times: pd.DataFrame, baseline: str) -> Figure | None:
    """Times of the baseline by block, over their median; None with fewer than three blocks."""
    lines: dict[str, list[Point]] = {}
    for label, _, group in _by_problem(times[~times["control"].astype(bool)]):
        seconds = group.groupby("block")["seconds"].median()
        if len(seconds) >= 3 and len(lines) < MOST_LINES:
            over = seconds / seconds.median()
            lines[label] = [Point(float(str(block)), float(y)) for block, y in over.items()]
    if not lines:
        return None
    figure, axes = panel(margins={"left": 0.13, "right": 0.97, "bottom": 0.12, "top": 0.85})
    draw_lines(axes, lines, dict.fromkeys(lines, (look("multi_head"), "-")), bars=False)
    for line in axes.lines:
        line.set(alpha=0.65, linewidth=1, markersize=4)
    axes.axhline(1, color="0.4", linewidth=1, zorder=0)
    axes.xaxis.set_major_locator(MaxNLocator(integer=True))
    axes.set_xlabel("block, in the order of measuring")
    axes.set_ylabel("time / its median over blocks", fontsize=8.5)
    bare(axes)
    titled(axes, f"{baseline} over the session", f"one line per problem, at most {MOST_LINES}")
    return figure


def margins(found: Sequence[Mapping[str, Any]]) -> Figure:
    """Error over budget of all cases, sorted; one row per implementation."""
    rows: dict[str, list[float]] = {}
    for one in found:
        rows.setdefault(parse(one["case"]).name, []).append(one["error"] / one["error_budget"])
    names = sorted(rows, key=lambda name: -max(rows[name]))
    figure, axes = row_panel(len(names), 0.33, each=0.24, width=SIZE[0] + 0.4)
    for name in names:
        style = look(name.partition(".")[0])
        seaborn.stripplot(
            x=[max(v, 1e-4) for v in rows[name]],
            y=[name] * len(rows[name]),
            order=names,
            jitter=False,
            legend=False,
            marker=style.marker,
            color=style.colour,
            size=5.5,
            alpha=0.75,
            ax=axes,
        )
        axes.collections[-1].set_label(name)
    axes.axvline(1, color=VERMILION, linewidth=1.2)
    top = axes.get_xaxis_transform()
    note(axes, "budget", (1, 1), (-3, 3), ink=NOT_SHOWN, align="right baseline", within=top)
    axes.set_xscale("log")
    axes.set_xlim(right=max(1.5, axes.get_xlim()[1]))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    name_rows(axes, names, "error / budget")
    titled(axes, "Errors at the measured shapes", "one marker per case; 0.0001 stands for less")
    return figure


class Trusted(DevicePage):
    """What may be believed; every method shows one piece of the page."""

    kinds = ("time", "anchor", "margin")
    none = "Nothing was measured on this device: attnbench bench measures, with an A/A control."

    @cached_property
    def measured(self) -> Costs:
        """Costs of this device."""
        return Costs(self.device)

    @cached_property
    def _baseline(self) -> pd.DataFrame:
        """Times of the baseline and its control."""
        times = self.measured.times
        return times[(times["status"] == "ok") & (times["name"] == self.measured.baseline)]

    @cached_property
    def controls(self) -> list[Control]:
        """The A/A control of every problem: its ratio to the baseline, which should be 1."""
        found = []
        for label, problem, group in _by_problem(self._baseline):
            ratios = block_ratios(group[group["control"]], group[~group["control"]])
            if ratios:
                found.append(Control(label, problem, ratio_interval(ratios), tuple(ratios)))

        def order(c: Control) -> tuple[Any, ...]:
            p = c.problem
            return (p["phase"], str(p["dtype"]), str(p["settings"]), -p["batch"], p["length"])

        return sorted(found, key=order)

    @cached_property
    def margins(self) -> list[dict[str, Any]]:
        """Error and budget of every case that was checked at its own shape, the tightest first.

        The margin is the budget over the error, infinite without any error.
        """
        rows = margin_frame(self.device.records).dropna(subset=["error", "budget"])
        margin = np.where(rows["error"] > 0, rows["budget"] / rows["error"], np.inf)
        found = rows.rename(columns={"budget": "error_budget"}).assign(margin=margin)
        columns = ["case", "status", "error", "error_budget", "margin"]
        return [
            dict(zip(columns, values, strict=True))
            for values in found[columns].sort_values("margin").itertuples(index=False)
        ]

    def control(self) -> Shown:
        """The baseline against itself under another name."""
        known = [c for c in self.controls if c.interval.known]
        if not known:
            return remark(
                "No A/A control with two blocks or more is here; attnbench bench has one."
            )
        outside = [c for c in known if not c.interval.low <= 1 <= c.interval.high]
        floor = max(noise_floor(c.interval) for c in known)
        expected = 0.05 * len(known)
        sentence = (
            f"The baseline under a second name: of {len(known)} intervals {len(outside)} exclude 1 "
            f"(chance alone: about {expected:.1f}). The widest noise floor is "
            f"{100 * (floor - 1):.1f} %; on each problem nothing nearer to 1 than its own is "
            "claimed."
        )
        caption = (
            "Time of the control over that of the baseline, every block and the 95 % t-interval: "
            "whatever differs from 1 here is noise. The grey band reaches as far as the widest "
            "noise floor."
        )
        return together(
            says([sentence], main=True),
            self.place.figure("control", controls(known), caption),
            self._floors(known),
        )

    def drift(self) -> Shown:
        """What moved during the session."""
        if not self.measured.rows:
            return remark(self.none)
        told = drift_sentences(self.measured.drifts, self.measured.rows, self.measured.baseline)
        figure = drift(self._baseline, self.measured.baseline)
        pieces = [says([*(told or [STILL]), *self._too_few()])]
        if figure is not None:
            caption = (
                "Time of the baseline, block after block, over its own median: what moves all "
                "cases alike cancels in ratios, which are formed inside blocks."
            )
            pieces.append(self.place.figure("drift", figure, caption))
        return together(*pieces)

    def _too_few(self) -> list[str]:
        """How many problems had too few blocks for a movement to be told."""
        blocks = self._baseline.groupby(PROBLEM)["block"].nunique()
        few = int((blocks < LEAST_BLOCKS).sum())
        if not few:
            return []
        return [
            f"{few} of {len(blocks)} problems were measured in fewer than {LEAST_BLOCKS} blocks: "
            "too few to tell."
        ]

    def errors(self) -> Shown:
        """How far inside their budgets the errors are."""
        if not self.margins:
            return remark("No case was checked at its own shape here: attnbench bench does.")
        over = [m for m in self.margins if m["margin"] < 1]
        worst = self.margins[0]
        sentence = (
            f"{len(self.margins)} cases were checked against the float64 oracle at their own "
            f"shape; {len(over)} are over budget. The tightest is {worst['case']}: error "
            f"{worst['error']:.1e}, budget {worst['error_budget']:.1e} "
            f"(margin {worst['margin']:.1f}x)."
        )
        caption = "Error over budget of each case: right of 1 is wrong, and gives no headline."
        rows = [
            {
                "case": m["case"],
                "error": f"{m['error']:.1e}",
                "budget": f"{m['error_budget']:.1e}",
                "margin": f"{m['margin']:.3g}x",
                "status": m["status"],
            }
            for m in self.margins[:20]
        ]
        more = len(self.margins) - len(rows)
        return together(
            says([sentence], main=True),
            warns([f"{m['case']} is over its error budget" for m in over]),
            self.place.figure("margins", margins(self.margins), caption),
            self.place.table("margins", self.margins, rows, (0, 4)),
            remark(f"The {more} others are in the CSV." if more > 0 else ""),
        )

    def determinism(self) -> Shown:
        """Whether the same bits come again."""
        found = bits_of(self.device.records)
        if not found:
            return remark("Nothing is known of that here: attnbench verify --determinism tells.")
        return together(
            says([bits_sentence(found)], main=True),
            self.place.table("determinism", found, bits_rows(found), (0, 1, 2, 3)),
        )

    def impossible(self) -> Shown:
        """Numbers above what the device can do."""
        told = list(impossible(self.measured.rows))
        known = [r for r in self.measured.rows if not math.isnan(r.compute_share)]
        if told:
            return warns(told)
        if not known:
            return remark("The device's own ceilings were not measured in these sessions.")
        most = max(known, key=lambda r: r.compute_share)
        return says(
            [
                "No case is faster than the device can be: the most is "
                f"{100 * most.compute_share:.0f} % of the best matrix product of the same session "
                f"({most.case})."
            ]
        )

    def _floors(self, known: list[Control]) -> Shown:
        rows, flat = [], []
        for c in known:
            t, floor = c.interval, noise_floor(c.interval)
            rows.append(
                {
                    "problem": c.label,
                    "control / baseline [95 %]": str(t),
                    "noise floor": f"{100 * (floor - 1):.1f} %",
                    "blocks": str(t.count),
                }
            )
            numbers = {"control_ratio": t.ratio, "low": t.low, "high": t.high}
            flat.append({**numbers, "noise_floor_ratio": floor, "blocks": t.count, **c.problem})
        return self.place.table("floors", flat, rows)
