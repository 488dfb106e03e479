"""What ``scaling.ipynb`` calls: time, memory and reach against length, on one device."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cached_property
from typing import Any

from harness.measure.ceilings import impossible
from harness.records.ratios import Row
from reports.core import frontiers, predicted
from reports.core.costs import Costs
from reports.core.page import DevicePage, Shown, remark, says, together
from reports.core.printed_values import printed_costs
from reports.core.sentences import closing, drift_sentences, problem_text
from reports.core.source import TIMED
from reports.core.sweeps import LengthSweep, by_block, fit_slope, label_of, longest, to_width
from reports.core.words import bytes_text, error_text, file_name, known, time_text
from reports.pages.scaling import figures, tables
from reports.pages.scaling import stress as numerics
from reports.pages.scaling.figures import Fit
from reports.pages.scaling.growth import Grown, grown

PHASES = ("forward", "training")


class Scaling(DevicePage):
    """Costs against length; every method shows one piece of the page.

    Frontiers and stress have sections of their own, with a bench or without.
    """

    kinds = (*TIMED, "frontier", "stress")
    footed = (*kinds, "memory")
    none = "There is no bench in this journal: attnbench bench measures one."

    @cached_property
    def measured(self) -> Costs:
        """Costs of this device."""
        return Costs(self.device)

    @property
    def rows(self) -> list[Row]:
        """Every case against its baseline, sorted by problem."""
        return self.measured.rows

    def about(self) -> Shown:
        """Which records these are, and of what else there are some."""
        others = [d.title for d in self.source.devices if d is not self.device and d.has(*TIMED)]
        also = f"Measured too, and never mixed with this: {'; '.join(others)}." if others else ""
        return together(super().about(), *([] if self.rows else [says([self.none])]), remark(also))

    def sentences(self) -> Shown:
        """Cost, crossover, memory and correctness of the subject."""
        m = self.measured
        if not m.subject:
            return says([])
        size: Mapping[str, Any] = {**m.profile.reference, "settings": m.profile.setting}
        said = closing(m.rows, m.subject, m.baseline, size, m.memory_ratio)
        return says(said, main=True)

    def time(self) -> Shown:
        """Time against length, both passes."""
        return self._curves("time")

    def memory(self) -> Shown:
        """Peak memory against length, both passes, and its ratio to the baseline's."""
        if not self.measured.sweeps:
            return self._no_sweep()
        return together(self._curves("memory"), self._curves("memory-ratio"))

    def ratio(self) -> Shown:
        """Ratio to the baseline against length, both passes."""
        return self._curves("ratio")

    def _curves(self, what: str) -> Shown:
        if not self.measured.sweeps:
            return self._no_sweep()
        sweep = self.measured.sweeps[0]
        shown = [self._curve(what, sweep, phase) for phase in PHASES if sweep.lines(phase)]
        return together(*shown, grid=True)

    def _curve(self, what: str, sweep: LengthSweep, phase: str, name: str = "") -> Shown:
        figure = figures.curve(what, sweep, phase, self.measured.baseline, self.device.name)
        caption = figures.curve_caption(what, sweep, phase, self.measured.baseline)
        return self.place.figure(f"{what}-{phase}{name}", figure, caption)

    def other_sweeps(self) -> Shown:
        """Time ratios of sweeps at another batch, dtype or setting."""
        pieces = [
            self._curve("ratio", sweep, phase, f"-{sweep.slug}")
            for sweep in self.measured.sweeps[1:]
            for phase in PHASES
            if sweep.ratios(phase) > 1
        ]
        if not pieces:
            return remark("No other batch, dtype or setting was measured at several lengths.")
        return together(*pieces, grid=True)

    def beside(self) -> Shown:
        """What papers print and what was predicted of this GPU, beside what was measured."""
        return together(self._printed(), *self._predicted())

    def _predicted(self) -> list[Shown]:
        """Times of the core that compiled code predicts, of the GPU's board alone."""
        board = predicted.board_of(str(self.device.fingerprint.get("model")))
        if board is None:
            return []
        found = predicted.beside([self.device], [board])
        said = (
            f"{predicted.heading(found)}: MTSA's core in bfloat16, batch {predicted.BATCH}, "
            f"{predicted.HEADS} heads, from the compiled Triton kernels at the rates of the data "
            "sheets. In brackets over FlashAttention 2, then 3, at their papers' best rates, and "
            "what takes longest."
        )
        rows = predicted.rows(found)
        table = self.place.table("predicted", predicted.numbers(found), rows, (0, 1))
        return [remark(said), table]

    def _printed(self) -> Shown:
        """What MTSA's Table 1 prints, beside what was measured at its size; never mixed."""
        found = printed_costs(self.rows)
        if not found:
            return remark(
                "Nothing of MTSA's Table 1 (batch 64, N = 64) was measured here: attnbench bench "
                "--profile paper."
            )
        rows = [
            {
                "": f"{f.what}: {f.label}",
                "printed, GTX 1080 Ti": f.printed_text,
                "here": f.measured_text,
            }
            for f in found
        ]
        return together(
            remark(
                "Ratios to multi-head attention. The paper's are of whole SNLI models in "
                "TensorFlow 1.7 on a GTX 1080 Ti, here it is the context fusion alone: device, "
                "framework and what surrounds the mechanism differ."
            ),
            self.place.table("printed", (f.numbers for f in found), rows),
        )

    def slopes(self) -> Shown:
        """Fitted slopes of time and memory: figures and a table."""
        if not self.measured.sweeps:
            return self._no_sweep()
        pieces, rows = [], []
        for phase in PHASES:
            for cost in ("time", "memory"):
                fits = self._fits(phase, cost)
                rows += [(cost, phase, fit) for fit in fits]
                if fits:
                    figure = figures.slopes(fits, cost, phase)
                    caption = figures.slopes_caption(fits, cost, phase)
                    pieces.append(self.place.figure(f"slopes-{cost}-{phase}", figure, caption))
        table = self.place.table("slopes", *tables.slopes(rows))
        return together(together(*pieces, grid=True), table)

    def frontier(self) -> Shown:
        """The longest sequences that fit into memory and time."""
        found = frontiers.reaches(self.device.records)
        if not found:
            return remark(frontiers.NONE)
        pieces = []
        for number, group in enumerate(frontiers.groups(found)):
            said = "; ".join(f"{r.label} {r.span}" for r in group)
            caption = (
                "Longest sequence within the limits, by bisection; an end lies between the two "
                f"lengths: {said}."
            )
            pieces.append(self.place.figure(f"frontier{number}", figures.frontier(group), caption))
        rows = [
            {
                "": f"{r.phase}, batch {r.batch}, {r.dtype}, {r.settings}, "
                f"{r.memory_limit_bytes / 2**30:.3g} GiB: {r.label}",
                "longest N": "none" if r.longest is None else f"{r.longest:,}",
                "does not fit": "" if r.first_miss is None else f"{r.first_miss:,}",
                "why": r.why or "longest tried",
                "peak there": known(r.peak_bytes, bytes_text),
                "a pass there": known(r.pass_seconds, time_text),
            }
            for r in found
        ]
        return together(
            together(*pieces, grid=True),
            self.place.table("frontier", found, rows, (0, 3)),
        )

    def numerics(self) -> Shown:
        """Error over the magnitude of inputs and scores, by dtype; where it breaks."""
        found = numerics.stresses(self.device.records)
        if not found:
            return remark(numerics.NONE)
        dtypes = list(dict.fromkeys(s.dtype for s in found))
        pieces = []
        for kind in dict.fromkeys(s.kind for s in found):
            mine = [s for s in found if s.kind == kind]
            broken = [f"{s.name} in {s.dtype} at {s.breaks}" for s in mine if s.breaks]
            caption = (
                f"Error of the output against the float64 oracle, {kind} magnified. Over budget "
                f"(twice the error of the plain softmax, with a floor): {'; '.join(broken)}."
                if broken
                else f"Error of the output, {kind} magnified: within budget at every scale."
            )
            pieces.append(
                self.place.figure(
                    f"numerics-{file_name(kind)}", numerics.figure(mine, dtypes, kind), caption
                )
            )
        flat = (
            {"implementation": s.name, "dtype": s.dtype, "magnified": s.kind, **p}
            for s in found
            for p in s.points
        )
        rows = [
            {
                "": f"{s.name}, {s.dtype}",
                "magnified": s.kind,
                "output over budget at": s.breaks or "none",
                "a gradient over budget at": s.gradients_break or "none",
                "worst error": error_text(s.worst["error"]),
                "its budget": error_text(s.worst["budget"]),
            }
            for s in found
        ]
        return together(*pieces, self.place.table("numerics", flat, rows, (0, 1, 2, 3)))

    def threads(self) -> Shown:
        """Time of the same cases on more CPU threads."""
        return self._growth("threads", "threads")

    def batches(self) -> Shown:
        """Time of one sequence of the same cases in larger batches."""
        return self._growth("batch", "batches")

    def _growth(self, what: str, several: str) -> Shown:
        found = grown(self.rows, self.measured.times, what)
        if not found:
            return remark(
                f"Nothing was measured with several {several}: attnbench bench --profile {what}."
            )
        panels: dict[tuple[str, str, int], list[Grown]] = {}
        for g in found:
            panels.setdefault((g.problem, g.phase, g.least), []).append(g)
        pieces = [
            self.place.figure(
                f"{what}{number}",
                figures.growth(group, what, self.device.name),
                figures.growth_caption(group, what),
            )
            for number, group in enumerate(panels.values())
        ]
        table = self.place.table(what, *tables.growth(found, what, self.measured.baseline))
        return together(together(*pieces, grid=True), table)

    def cases(self) -> Shown:
        """Every case with its numbers."""
        if not self.rows:
            return remark(self.none)
        groups: dict[str, list[Row]] = {}
        for r in self.rows:
            groups.setdefault(problem_text(r.columns), []).append(r)
        shown = [
            {"case": f"{problem}: {label_of(r)}{width(r)}", **tables.cells(r)}
            for problem, rows in groups.items()
            for width in [to_width(rows)]
            for r in rows
        ]
        return self.place.table("cases", map(tables.numbers, self.rows), shown, (0, 7))

    def machine(self) -> Shown:
        """Where this was measured, what moved meanwhile, and what can't be right."""
        shown = super().machine()
        if not self.rows:
            return shown
        moved = drift_sentences(self.measured.drifts, self.rows, self.measured.baseline)
        return together(shown, says([*impossible(self.rows), *moved]))

    def _no_sweep(self) -> Shown:
        if not self.rows:
            return remark(self.none)
        return remark("No implementation was measured at two lengths or more.")

    def _fits(self, phase: str, cost: str) -> list[Fit]:
        """Slopes by implementation, steepest last."""
        frame, value = self.measured.times, "seconds"
        if cost == "memory":
            frame = frame.drop_duplicates("case").drop(columns=["block", "status"])
            frame, value = frame.merge(self.measured.memory, on="case"), "peak_bytes"
        frame = frame[(frame["status"] == "ok") & ~frame["control"].astype(bool)]
        found = []
        for label, line in self.measured.sweeps[0].lines(phase).items():
            own = frame[frame["case"].isin([r.case for r in line])]
            blocks = by_block(own, value, cost == "time")
            whole = fit_slope(blocks)
            if whole is not None:
                end = fit_slope(longest(blocks))
                found.append((label, whole, end if end and end.lengths != whole.lengths else None))
        return sorted(found, key=lambda fit: (fit[2] or fit[1]).slope)
