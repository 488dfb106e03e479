"""What ``scaling.ipynb`` calls: time and memory against length, on one device."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Any

import pandas as pd

from harness.ceilings import impossible, with_shares
from harness.drift import machine_drift
from harness.profile import load_profile
from harness.ratios import Row, summarise
from harness.records import table
from harness.registry import builtins
from reports import scaling_figures as figures
from reports import scaling_tables as tables
from reports.drifts import drift_sentences
from reports.parameters import opens
from reports.scaling_tables import Fit
from reports.sentences import closing
from reports.shown import Place, Shown, remark, says, together
from reports.slopes import fit_slope, longest
from reports.source import Device, Source, facts, find
from reports.sweeps import Sweep, label_of, length_of, sweeps

KINDS = ("time", "anchor")
NONE = "There is no bench in this journal: attnbench bench measures one."
PHASES = ("forward", "training")


@opens
def begin(journal: str, device: str, out: str, page: str) -> Scaling:
    """Open the notebook.

    Parameters
    ----------
    journal : str
        Folder of the records; the published ones if it is empty or holds none.
    device : str
        Key of a fingerprint; the newest that was benched if empty.
    out : str
        Folder for figures and tables; empty writes none.
    page : str
        What their names begin with.
    """
    source = find(str(journal))
    place = Place(Path(str(out)) if out else None, str(page))
    return Scaling(source, source.device(str(device), *KINDS), place)


class Scaling:
    """Costs against length; every method shows one piece of the page."""

    def __init__(self, source: Source, device: Device | None, place: Place) -> None:
        self.source, self.device, self.place = source, device, place

    @cached_property
    def rows(self) -> list[Row]:
        """Every case against its baseline, sorted by problem."""
        if self.device is None or not self.device.has(*KINDS):
            return []
        records = self.device.records
        rows = summarise(
            table.times(records), table.memory(records), table.margins(records),
            self._profile.baseline, self._profile.reference["heads"],
        )  # fmt: skip
        return sorted(with_shares(rows, records, builtins()), key=tables.problem_order)

    @cached_property
    def _profile(self) -> Any:
        """Baseline, subject and reference size are the same in all profiles."""
        return load_profile("quick", self.device.kind if self.device else "cpu")

    @cached_property
    def sweeps(self) -> list[Sweep]:
        """Sweeps over length, the longest first."""
        return sweeps(self.rows)

    @property
    def _where(self) -> str:
        assert self.device is not None
        return f"{self.device.fingerprint.get('model')} ({self.device.kind})"

    def about(self) -> Shown:
        """Which records these are."""
        if not self.rows or self.device is None:
            return together(says([self.source.says]), says([NONE]))
        others = [d.title for d in self.source.devices if d is not self.device and d.has(*KINDS)]
        beside = (
            [remark(f"Measured too, and never mixed with this: {'; '.join(others)}.")]
            if others
            else []
        )
        return together(
            says([f"{self.source.says} Measured {self.device.dates} on {self.device.title}."]),
            *beside,
        )

    def sentences(self) -> Shown:
        """Cost, crossover, memory and correctness of the subject."""
        names = list(dict.fromkeys(str(r.columns["name"]) for r in self.rows))
        others = [name for name in names if name != self._profile.baseline]
        if not others:
            return says([])
        subject = self._profile.subject if self._profile.subject in others else others[0]
        size = {**self._profile.reference, "settings": self._profile.setting}
        return says(closing(self.rows, subject, self._profile.baseline, size), main=True)

    def time(self) -> Shown:
        """Time against length, both passes."""
        return self._both("time", figures.time, self._says_time)

    def memory(self) -> Shown:
        """Peak memory against length, both passes."""
        return self._both("memory", figures.memory, self._says_memory)

    def ratio(self) -> Shown:
        """Ratio to the baseline against length, both passes."""
        if not self.sweeps:
            return self._no_sweep()
        return together(
            *(self._ratio(self.sweeps[0], phase, main=phase == "training") for phase in PHASES
              if self.sweeps[0].lines(phase)), grid=True,
        )  # fmt: skip

    def slopes(self) -> Shown:
        """Fitted slopes of time and memory: figures and a table."""
        if not self.sweeps:
            return self._no_sweep()
        pieces, rows = [], []
        for phase in PHASES:
            for cost in ("time", "memory"):
                fits = self._fits(phase, cost)
                rows += [(cost, phase, fit) for fit in fits]
                if fits:
                    title = f"Growth of {cost}, {figures.PASSES[phase]}"
                    under = "hollow: all lengths; filled: the longest, within a factor of 4"
                    figure = figures.slopes(fits, title, under)
                    name = f"slopes-{cost}-{phase}"
                    pieces.append(self.place.figure(name, figure, _says_slopes(fits, cost, phase)))
        return together(together(*pieces, grid=True), self._slope_table(rows))

    def other_sweeps(self) -> Shown:
        """Time ratios of sweeps at another batch, dtype or setting."""
        pieces = [
            self._ratio(sweep, phase)
            for sweep in self.sweeps[1:]
            for phase in PHASES
            if sweep.lines(phase)
        ]
        if not pieces:
            return remark("No other batch, dtype or setting was measured at several lengths.")
        return together(*pieces, grid=True)

    def cases(self) -> Shown:
        """Every case with its numbers."""
        columns = [
            "case",
            "time",
            "ratio [95 %]",
            "verdict",
            "peak memory",
            "ratio",
            "error margin",
        ]
        frame = pd.DataFrame([tables.numbers(r) for r in self.rows])
        groups: dict[str, list[Row]] = {}
        for r in self.rows:
            c = r.columns
            size = f"batch {c['batch']}, N = {c['length']}"
            problem = f"{c['phase']}, {size}, {c['dtype']}, {c['settings']}"
            groups.setdefault(problem, []).append(r)
        shown = [
            [f"{problem}: {label_of(r)}", *tables.cells(r)]
            for problem, rows in groups.items()
            for r in rows
        ]
        return self.place.table("cases", frame, columns, shown)

    def machine(self) -> Shown:
        """Where this was measured, what moved meanwhile, and what can't be right."""
        if self.device is None:
            return says([])
        known = facts(self.device.fingerprint, self.device.sessions_of("time", "memory", "margin"))
        frame = pd.DataFrame(known.items(), columns=["what", "value"])
        shown = self.place.table(
            "machine", frame, ["", ""], [[k, v] for k, v in known.items()], (0, 1)
        )
        baseline, heads = self._profile.baseline, self._profile.reference["heads"]
        moved = machine_drift(table.times(self.device.records), baseline, heads)
        told = [*impossible(self.rows), *drift_sentences(moved, self.rows, baseline)]
        return together(shown, says(told))

    def _no_sweep(self) -> Shown:
        return (
            remark("No implementation was measured at two lengths or more.")
            if self.rows
            else says([])
        )

    def _both(
        self, name: str, draw: Callable[[Sweep, str, str], Any], caption: Callable[[str], str]
    ) -> Shown:
        if not self.sweeps:
            return self._no_sweep()
        return together(
            *(
                self.place.figure(
                    f"{name}-{phase}", draw(self.sweeps[0], phase, self._where), caption(phase),
                    main=phase == "training",
                )
                for phase in PHASES
                if self.sweeps[0].lines(phase)
            ),
            grid=True,
        )  # fmt: skip

    def _ratio(self, sweep: Sweep, phase: str, main: bool = False) -> Shown:
        base = self._profile.baseline
        lines = sweep.lines(phase)
        ends = [
            (label, last)
            for label, line in lines.items()
            if (last := next((r for r in reversed(line) if r.time is not None), None)) is not None
        ]
        parts = [
            f"{label} {r.time} at N = {length_of(r):,} ({r.verdict})" for label, r in ends if r.time
        ]
        caption = f"Time over that of {base}, {figures.PASSES[phase]}: {'; '.join(parts)}."
        name = f"ratio-{phase}" if sweep is self.sweeps[0] else f"ratio-{phase}-{sweep.slug}"
        figure = figures.ratio(sweep, phase, base, self._where)
        return self.place.figure(name, figure, caption, main)

    def _says_time(self, phase: str) -> str:
        return self._says_extremes(
            phase,
            lambda r: r.seconds,
            tables.time_text,
            "takes",
            "sorted by the median",
            self._unproven,
        )

    def _says_memory(self, phase: str) -> str:
        return self._says_extremes(
            phase,
            lambda r: r.peak_bytes,
            tables.bytes_text,
            "needs",
            "from the smallest on",
            lambda _: "",
        )

    def _says_extremes(
        self, phase: str, value: Callable[[Row], float], text: Callable[[float], str], verb: str,
        order: str, caution: Callable[[Sequence[Row]], str],
    ) -> str:  # fmt: skip
        """Subject, baseline and the least at the longest common length; then what failed."""
        lines = self.sweeps[0].lines(phase)
        rows = [r for line in lines.values() for r in line]
        good = [r for r in rows if r.status == "ok" and not math.isnan(value(r))]
        failed = [
            f"{label_of(r)} at N = {length_of(r):,}: {r.status}"
            for r in rows
            if r.status not in ("ok", "unsupported")
        ]
        if not good:
            return (
                f"Nothing was measured ({'; '.join(failed)})." if failed else "Not measured here."
            )
        top = max(map(length_of, good))
        at = sorted((r for r in good if length_of(r) == top), key=value)
        parts = [f"{label_of(r)} {text(value(r))}" for r in at]
        end = f" Not finished: {'; '.join(failed)}." if failed else ""
        return (
            f"At N = {top:,} one {figures.PASSES[phase]} {verb}, {order}: "
            f"{', '.join(parts)}{caution(at)}.{end}"
        )

    def _unproven(self, rows: Sequence[Row]) -> str:
        """Whose time is not shown to differ from the baseline's, however the medians lie."""
        near = [label_of(r) for r in rows if r.verdict in ("same", "undecided")]
        base = self._profile.baseline
        return f"; no difference from {base} is shown for {', '.join(near)}" if near else ""

    def _fits(self, phase: str, cost: str) -> list[Fit]:
        """Slopes by implementation, steepest last."""
        assert self.device is not None
        frame = table.times(self.device.records)
        value = "seconds"
        if cost == "memory":
            memory = table.memory(self.device.records)
            frame = frame.drop_duplicates("case").drop(columns=["block", "status"])
            frame, value = frame.merge(memory, on="case"), "peak_bytes"
        frame = frame[(frame["status"] == "ok") & ~frame["control"].astype(bool)]
        found = []
        for label, line in self.sweeps[0].lines(phase).items():
            own = frame[frame["case"].isin([r.case for r in line])]
            blocks: list[Mapping[int, float]] = [
                {int(str(n)): float(v) for n, v in block.groupby("length")[value].median().items()}
                for _, block in own.groupby("block")
            ]
            whole = fit_slope(blocks)
            if whole is not None:
                end = fit_slope(longest(blocks))
                found.append((label, whole, end if end and end.lengths != whole.lengths else None))
        return sorted(found, key=lambda fit: (fit[2] or fit[1]).slope)

    def _slope_table(self, rows: Sequence[tuple[str, str, Fit]]) -> Shown:
        frame, shown = tables.slopes(rows)
        columns = ["", "slope, all lengths", "N", "slope, the longest", "N"]
        return self.place.table("slopes", frame, columns, shown)


def _says_slopes(fits: Sequence[Fit], cost: str, phase: str) -> str:
    parts = [f"{label} N^{(end or whole).slope:.1f}" for label, whole, end in fits]
    return (
        f"Over the longest lengths measured, {cost} of one {figures.PASSES[phase]} grows as "
        f"{', '.join(parts)}."
    )
