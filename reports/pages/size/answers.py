"""One mechanism against the baseline at one size: cost, memory, accuracy, crossover, frontier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.experiments.conclusion import Comparison
from harness.records.ratios import WITHHELD, Row
from harness.stats import Interval, ratio_text
from reports.core import sizes
from reports.core.costs import Costs
from reports.core.crossovers import short_crossover
from reports.core.frontiers import NONE as NO_FRONTIER
from reports.core.frontiers import Reach, reaches
from reports.core.sizes import Problem, Size, padded
from reports.core.source import DeviceRecords
from reports.core.style import mechanism_of
from reports.core.sweeps import label_of, to_width
from reports.core.tables import Cell
from reports.core.words import memory_text
from reports.pages.size.accuracy import difference_text, differences, is_own

NOT_TRAINED = (
    "No accuracies of {mechanism} and {baseline} were compared on this device: attnbench compare "
    "{mechanism} {baseline} --task trec"
)


@dataclass(frozen=True)
class Answer:
    """One row of the first page: the row of each pass, and texts.

    Peak memory is that of a training step (of a forward pass, if only that was measured), over the
    baseline's.
    """

    label: str
    mechanism: str
    rows: Mapping[str, Row]
    memory: Interval | None
    accuracy: str
    crossover: str
    frontier: str

    def text(self, phase: str) -> str:
        """``1.20x [1.10, 1.30] slower``, or why there is no number."""
        row = self.rows.get(phase)
        if row is None:
            return ""
        if row.time is None or row.status != "ok":
            return f"{row.status}: {row.detail}" if row.status != "ok" else row.verdict
        if row.verdict == WITHHELD:
            return f"withheld: {row.detail}"
        checked = "" if row.verified else f", {row.unverified.partition(':')[0]}"
        return f"{row.time} {row.verdict}{checked}"

    @property
    def memory_text(self) -> str:
        """``1.31x [1.31, 1.32]``, an interval over processes; or why there is none."""
        m, row = self.memory, self.rows.get("training") or next(iter(self.rows.values()))
        if m is None:
            return memory_text(row) if row.below_floor else ""
        return str(m) if m.known else f"{ratio_text(m.ratio)}, one reading"

    @property
    def cells(self) -> tuple[str, str, str, str, str, str]:
        """Name, times of both passes, memory, crossover and longest sequence, as texts."""
        times = (self.text("training"), self.text("forward"))
        return (self.label, *times, self.memory_text, self.crossover, self.frontier)

    @property
    def numbers(self) -> dict[str, Any]:
        """All of it, for the CSV."""
        out: dict[str, Any] = {"implementation": self.label}
        for phase, row in self.rows.items():
            out |= _spread(f"{phase}_time_ratio", row.time)
            out |= {
                f"{phase}_noise_floor_ratio": None if math.isinf(row.floor) else row.floor,
                f"{phase}_verdict": row.verdict or row.status,
                f"{phase}_verified": row.verified,
            }
        texts = ("accuracy", "crossover", "frontier")
        return out | _spread("memory_ratio", self.memory) | {t: getattr(self, t) for t in texts}


def _spread(name: str, t: Interval | None) -> dict[str, float | None]:
    values = (t.ratio, t.low, t.high) if t else (None, None, None)
    return dict(zip((name, f"{name}_low", f"{name}_high"), values, strict=True))


@dataclass(frozen=True)
class Found:
    """What the records of one device say about a size that was asked about.

    `problem` is the nearest that was measured (None if no cost was), `here` all that was measured
    at it, `answers` a row per implementation, `trained` are accuracies against the baseline.
    """

    measured: Costs
    size: Size
    problem: Problem | None
    here: list[Row]
    answers: list[Answer]
    trained: list[Comparison]

    @property
    def device(self) -> DeviceRecords:
        """Whose records they are."""
        return self.measured.device

    @property
    def where(self) -> str:
        """``batch 64, N = 64, input 300 wide, f32, 1-thread``; empty if no cost was measured."""
        if self.problem is None:
            return ""
        batch, length, width, dtype, setting = self.problem
        return f"batch {batch}, N = {length:,}, input {width} wide, {dtype}, {setting}"

    @property
    def asked(self) -> Answer | None:
        """The implementation asked about, else another of its mechanism."""
        name, with_heads = self.size.mechanism, f"{self.size.mechanism} {self.size.heads}h"

        def far(a: Answer) -> tuple[bool, bool]:
            return a.label not in (name, with_heads), a.label.partition(" ")[0] != name

        own = (a for a in self.answers if a.mechanism == mechanism_of(name))
        return min(own, key=far, default=None)


def found_at(device: DeviceRecords, given: dict[str, Any]) -> Found:
    """What a device's records say about the profile's size, or about what is given of another."""
    measured = Costs(device, str(given.get("baseline", "")))
    size = sizes.size_for(measured.profile, given)
    problem = sizes.nearest(measured.rows, size)
    here = [r for r in measured.rows if problem and sizes.problem_of(r) == problem]
    trained = differences(device.conclusions, size)
    return Found(measured, size, problem, here, answers(here, measured, size, trained), trained)


def answers(
    here: Sequence[Row], measured: Costs, size: Size, trained: Sequence[Comparison] = ()
) -> list[Answer]:
    """Every implementation measured at one problem, the one asked about first.

    Configurations with options of their own (ablations, say) are left to the page of all cases,
    unless one is asked about.
    """
    by: dict[str, dict[str, Row]] = {}
    width = to_width(here)
    for row in here:
        name = str(row.columns["name"])
        if row.verdict != "baseline" and ("[" not in name or name == size.mechanism):
            by.setdefault(label_of(row) + width(row), {})[str(row.columns["phase"])] = row
    reach = {r.label: r.span for r in longest(measured.device.records, size)}
    found = []
    for label, rows in by.items():
        mechanism = str(next(iter(rows.values())).columns["mechanism"])
        training = rows.get("training")
        found.append(
            Answer(
                label,
                mechanism,
                rows,
                None if training is None else measured.memory_ratio(training),
                "; ".join(difference_text(c) for c in trained if is_own(c.first, mechanism)),
                "" if training is None else short_crossover(measured.rows, training),
                reach.get(label, ""),
            )
        )
    wanted = f"{size.mechanism} {size.heads}h"
    own = size.mechanism.partition(".")[0]
    return sorted(found, key=lambda a: (a.label != wanted, a.mechanism != own, a.label))


def headline(found: Found) -> dict[str, Cell]:
    """The mechanism asked about against the baseline, in a few lines, each with its name."""
    size, mine = found.size, found.asked
    names = {"mechanism": mechanism_of(size.mechanism), "baseline": mechanism_of(size.baseline)}
    lines = dict.fromkeys(HEADLINE, Cell(""))
    if mine is None:
        lines["measured"] = Cell(f"Not measured here: {size.command}")
    else:
        lines["measured"] = Cell(f"{mine.label}, {found.where}")
        lines["right?"] = Cell(_right(mine))
        costs = (mine.text("training"), mine.text("forward"), mine.memory_text)
        for name, text in zip(HEADLINE[2:5], costs, strict=True):
            lines[name] = Cell.of(text, strong=True)
        lines["faster in training"] = Cell(mine.crossover or "measured at one length only")
    trained = [c for c in found.trained if is_own(c.first, names["mechanism"])]
    lines["longest sequence"] = Cell(frontier_sentence(found.device.records, size))
    lines["accuracy, 95 % t-intervals"] = (
        Cell.of("", notes=tuple(map(difference_text, trained)))
        if trained
        else Cell(NOT_TRAINED.format_map(names))
    )
    return lines


def tells(found: Found) -> bool:
    """Whether `headline` says more of a device than what was not measured there."""
    mechanism = mechanism_of(found.size.mechanism)
    return (
        found.asked is not None
        or any(is_own(c.first, mechanism) for c in found.trained)
        or bool(longest(found.device.records, found.size))
    )


HEADLINE = (
    "measured",
    "right?",
    "time of a training step",
    "time of a forward pass",
    "peak memory",
    "faster in training",
)


def _right(mine: Answer) -> str:
    """Whether it was right at this shape, by the float64 oracle."""
    checked = [r for r in mine.rows.values() if not math.isnan(r.error)]
    if not checked:
        return "not checked at this shape, so its ratios are no headline"
    worst = min(checked, key=lambda r: r.margin)
    says = "WRONG" if worst.error > worst.budget else "yes"
    against = (
        "its own float64 (no oracle vouches for it)" if worst.by_itself else "the float64 oracle"
    )
    return (
        f"{says}: error {worst.error:.1e} against {against}, budget {worst.budget:.1e} "
        f"(margin {worst.margin:.1f}x)"
    )


def longest(records: Sequence[Mapping[str, Any]], size: Size) -> list[Reach]:
    """Frontiers of training steps that are most like a size: its batch and dtype if there are."""

    def distance(r: Reach) -> tuple[Any, ...]:
        return (
            r.dtype != size.dtype,
            padded(r.settings) != padded(size.setting),
            abs(math.log2(r.batch / size.batch)),
            abs(math.log2(r.d_in / size.width[0])),
            r.settings != size.setting,
        )

    found = [r for r in reaches(records) if r.phase == "training"]
    best = min(found, key=distance).problem if found else None
    return [r for r in found if r.problem == best]


def frontier_sentence(records: Sequence[Mapping[str, Any]], size: Size) -> str:
    """How long a sequence mechanism and baseline can be trained on."""
    found = longest(records, size)
    if not found:
        return NO_FRONTIER
    asked = [r for r in found if r.name in (size.mechanism, size.baseline)]
    said = "; ".join(f"{r.label} {r.span}" for r in asked or found)
    r = found[0]
    setting = "" if r.settings == "eager" else f", {r.settings}"
    return (
        f"Longest sequence for a training step within {r.memory_limit_bytes / 2**30:.3g} GiB and "
        f"{r.seconds_limit:g} s (batch {r.batch}, {r.d_in} to {r.d_out}, {r.dtype}{setting}): "
        f"{said}. An end lies between the two lengths."
    )
