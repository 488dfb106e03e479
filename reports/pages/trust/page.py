"""What ``trust.ipynb`` calls: may the numbers of this device be believed?"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any

import pandas as pd

from harness.measure.ceilings import impossible
from harness.records.ratios import PROBLEM, block_ratios, margin_frame
from harness.stats import Interval, noise_floor, ratio_interval
from harness.stats.drift import LEAST_BLOCKS
from harness.verify.run import price, same_bits
from reports.core.costs import Costs
from reports.core.page import DevicePage, Shown, remark, says, together, warns
from reports.core.sentences import drift_sentences
from reports.pages.trust import figures
from reports.pages.trust.figures import Control, Margin

KINDS = ("time", "anchor", "margin")
STILL = "No movement of the machine is shown, and no ratio that moved."
NONE = "Nothing was measured on this device: attnbench bench measures, with an A/A control."

BITS = ("implementation", "dtype", "same bits", "deterministic mode")


def bits_of(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The records of determinism that came to an end."""
    return [r for r in records if r["kind"] == "determinism" and r["status"] == "ok"]


def bits_rows(records: Iterable[Mapping[str, Any]]) -> list[list[str]]:
    """A row of `BITS` for each record of determinism."""
    return [[r["name"], r["dtype"], same_bits(r), price(r)] for r in bits_of(records)]


def bits_sentence(records: Iterable[Mapping[str, Any]]) -> str:
    """What the records of determinism say together."""
    found = bits_of(records)
    counts = {kind: sum(r[kind] == 0 for r in found) for kind in ("again", "batch", "threads")}
    compiled = [r for r in found if r["compiled"] is not None]
    return (
        f"Of {len(found)} implementations {counts['again']} give the same bits in "
        f"{found[0]['repeats']} repeats, values and gradients; {counts['batch']} do for a sample "
        f"alone and in a batch, {counts['threads']} on one thread and on two, and of "
        f"{len(compiled)} that were compiled {sum(r['compiled'] == 0 for r in compiled)}."
    )


class Trusted(DevicePage):
    """What may be believed; every method shows one piece of the page."""

    kinds = KINDS
    none = NONE

    @cached_property
    def measured(self) -> Costs | None:
        """Costs of this device."""
        return Costs(self.device) if self.device else None

    @staticmethod
    def _baseline(measured: Costs) -> pd.DataFrame:
        """Times of the baseline and its control."""
        times = measured.times
        return times[(times["status"] == "ok") & (times["name"] == measured.baseline)]

    @cached_property
    def controls(self) -> list[Control]:
        """The A/A control of every problem: its ratio to the baseline, which should be 1."""
        if self.measured is None:
            return []
        found = []
        for values, group in self._baseline(self.measured).groupby(PROBLEM, sort=False):
            ratios = block_ratios(group[group["control"]], group[~group["control"]])
            if ratios:
                problem = dict(zip(PROBLEM, values, strict=True))
                found.append(Control(problem, ratio_interval(ratios), tuple(ratios)))
        return sorted(found, key=lambda c: c.order)

    @cached_property
    def margins(self) -> list[Margin]:
        """Error and budget of every case that was checked at its own shape, the tightest first."""
        if self.device is None:
            return []
        rows = margin_frame(self.device.records).dropna(subset=["error", "budget"])
        found = [
            Margin(str(r["case"]), float(r["error"]), float(r["budget"]), str(r["status"]))
            for _, r in rows.iterrows()
        ]
        return sorted(found, key=lambda m: m.margin)

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
            self.place.figure("control", figures.controls(known), caption),
            self._floors(known),
        )

    def drift(self) -> Shown:
        """What moved during the session."""
        if self.measured is None or not self.measured.rows:
            return remark(NONE)
        told = drift_sentences(self.measured.drifts, self.measured.rows, self.measured.baseline)
        figure = figures.drift(self.measured.times, self.measured.baseline)
        pieces = [says([*(told or [STILL]), *self._too_few(self.measured)])]
        if figure is not None:
            caption = (
                "Time of the baseline, block after block, over its own median: what moves all "
                "cases alike cancels in ratios, which are formed inside blocks."
            )
            pieces.append(self.place.figure("drift", figure, caption))
        return together(*pieces)

    def _too_few(self, measured: Costs) -> list[str]:
        """How many problems had too few blocks for a movement to be told."""
        blocks = self._baseline(measured).groupby(PROBLEM)["block"].nunique()
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
        over = [m for m in self.margins if m.margin < 1]
        worst = self.margins[0]
        sentence = (
            f"{len(self.margins)} cases were checked against the float64 oracle at their own "
            f"shape; {len(over)} are over budget. The tightest is {worst.case}: error "
            f"{worst.error:.1e}, budget {worst.budget:.1e} (margin {worst.margin:.1f}x)."
        )
        caption = "Error over budget of each case: right of 1 is wrong, and gives no headline."
        frame = pd.DataFrame(
            {
                "case": m.case,
                "status": m.status,
                "error": m.error,
                "error_budget": m.budget,
                "margin": m.margin,
            }
            for m in self.margins
        )
        rows = [
            [m.case, f"{m.error:.1e}", f"{m.budget:.1e}", f"{m.margin:.3g}x", m.status]
            for m in self.margins[:20]
        ]
        more = len(self.margins) - len(rows)
        return together(
            says([sentence], main=True),
            warns([f"{m.case} is over its error budget" for m in over]),
            self.place.figure("margins", figures.margins(self.margins), caption),
            self.place.table(
                "margins", frame, ["case", "error", "budget", "margin", "status"], rows, (0, 4)
            ),
            remark(f"The {more} others are in the CSV." if more > 0 else ""),
        )

    def determinism(self) -> Shown:
        """Whether the same bits come again."""
        records = self.device.records if self.device else ()
        found = bits_of(records)
        if not found:
            return remark("Nothing is known of that here: attnbench verify --determinism tells.")
        return together(
            says([bits_sentence(found)], main=True),
            self.place.table(
                "determinism", pd.DataFrame(found), BITS, bits_rows(found), (0, 1, 2, 3)
            ),
        )

    def impossible(self) -> Shown:
        """Numbers above what the device can do."""
        if self.measured is None:
            return says([])
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
        columns = ["problem", "control / baseline [95 %]", "noise floor", "blocks"]
        rows = [
            [
                c.label,
                str(c.interval),
                f"{100 * (noise_floor(c.interval) - 1):.1f} %",
                str(c.interval.count),
            ]
            for c in known
        ]
        frame = pd.DataFrame([_flat(c.interval) | dict(c.problem) for c in known])
        return self.place.table("floors", frame, columns, rows)


begin = Trusted.begin


def _flat(interval: Interval) -> dict[str, object]:
    return {
        "control_ratio": interval.ratio,
        "low": interval.low,
        "high": interval.high,
        "noise_floor_ratio": noise_floor(interval),
        "blocks": interval.count,
    }
