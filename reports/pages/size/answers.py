"""One mechanism against the baseline at one size: cost, memory, accuracy, crossover, frontier."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.experiments.comparison import Comparison
from harness.experiments.conclusion import conclusions
from harness.records.ratios import WITHHELD, Row
from harness.stats import Interval
from reports.core.costs import Costs
from reports.core.crossovers import short_crossover
from reports.core.frontiers import NONE as NO_FRONTIER
from reports.core.frontiers import Reach, reaches
from reports.core.sizes import Problem, Size, padded
from reports.core.style import mechanism_of
from reports.core.sweeps import label_of
from reports.core.tables import Cell

NOT_TRAINED = (
    "No accuracies of {mechanism} and {baseline} were compared on this device: attnbench compare "
    "{mechanism} {baseline} --task trec"
)


@dataclass(frozen=True)
class Answer:
    """One row of the first page.

    Attributes
    ----------
    label : str
        ``mtsa.algorithm1 8h``.
    mechanism : str
    rows : mapping
        The row of each pass.
    memory : Interval or None
        Peak memory of a training step (of a forward pass, if only that was measured), over the
        baseline's.
    accuracy, crossover, frontier : str
        As texts.
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
        checked = "" if row.verified else ", error not known"
        return f"{row.time} {row.verdict}{checked}"

    @property
    def memory_text(self) -> str:
        """``1.31x [1.31, 1.32]``, an interval over processes; or that there was one reading."""
        m = self.memory
        if m is None:
            return ""
        return str(m) if m.known else f"{m.ratio:.2f}x, one reading"

    @property
    def numbers(self) -> dict[str, Any]:
        """All of it, for the CSV."""
        out: dict[str, Any] = {"implementation": self.label}
        for phase, row in self.rows.items():
            t = row.time
            out |= {
                f"{phase}_time_ratio": t.ratio if t else None,
                f"{phase}_time_ratio_low": t.low if t else None,
                f"{phase}_time_ratio_high": t.high if t else None,
                f"{phase}_noise_floor_ratio": None if math.isinf(row.floor) else row.floor,
                f"{phase}_verdict": row.verdict or row.status,
                f"{phase}_verified": row.verified,
            }
        m = self.memory
        return out | {
            "memory_ratio": m.ratio if m else None,
            "memory_ratio_low": m.low if m else None,
            "memory_ratio_high": m.high if m else None,
            "accuracy": self.accuracy,
            "crossover": self.crossover,
            "frontier": self.frontier,
        }


def answers(here: Sequence[Row], measured: Costs, size: Size) -> list[Answer]:
    """Every implementation measured at one problem, the one asked about first.

    Configurations with options of their own (ablations, say) are left to the page of all cases,
    unless one is asked about.
    """
    by: dict[str, dict[str, Row]] = {}
    for row in here:
        name = str(row.columns["name"])
        if row.verdict != "baseline" and ("[" not in name or name == size.mechanism):
            by.setdefault(label_of(row), {})[str(row.columns["phase"])] = row
    reach = longest(measured.device.records, size)
    trained = differences(measured.device.records, size)
    found = []
    for label, rows in by.items():
        row = rows.get("training") or next(iter(rows.values()))
        name, mechanism = str(row.columns["name"]), str(row.columns["mechanism"])
        line = next(
            (r for r in reach if r.name == name and r.heads == int(str(row.columns["heads"]))), None
        )
        found.append(
            Answer(
                label,
                mechanism,
                rows,
                measured.memory_ratio(row),
                _accuracy([c for c in trained if _is(c.first, mechanism)], size),
                short_crossover(measured.rows, rows["training"]) if "training" in rows else "",
                line.span if line else "",
            )
        )
    wanted = f"{size.mechanism} {size.heads}h"
    own = size.mechanism.partition(".")[0]
    return sorted(found, key=lambda a: (a.label != wanted, a.mechanism != own, a.label))


def _is(model: str, mechanism: str) -> bool:
    """Whether a trained model is a mechanism in its own configuration."""
    return mechanism_of(model) == mechanism and "[" not in model


def differences(records: Sequence[Mapping[str, Any]], size: Size) -> list[Comparison]:
    """The comparison of each model with the baseline's mechanism, by task.

    Those declared together stand before single ones: they share the baseline's runs. Then one of
    many seeds stands before one of few, then the newer one; whatever computes a mechanism.
    """
    baseline = mechanism_of(size.baseline)
    kept: dict[tuple[str, str], Comparison] = {}
    for c in (c for family in conclusions(records) for c in family.comparisons):
        fits = _is(c.second, baseline) and (not size.task or c.task == size.task)
        if not fits or c.difference is None:
            continue
        model = c.first if "[" in c.first else mechanism_of(c.first)
        before = kept.get((model, c.task))
        if before is None or _weight(c) >= _weight(before):
            kept[model, c.task] = c
    return list(kept.values())


def _weight(c: Comparison) -> tuple[bool, int]:
    return c.together > 1, len(c.values)


def _accuracy(found: Sequence[Comparison], size: Size) -> str:
    """``trec −0.64 [−1.33, +0.05] points, undecided``; several tasks behind each other."""
    return "; ".join(difference_text(c) for c in found)


def difference_text(c: Comparison) -> str:
    """One comparison in short."""
    of = c.unit.of_differences or f" {c.metric}"
    return f"{c.task} {_interval_text(c)}{of}, {_verdict_text(c)}"


def _verdict_text(c: Comparison) -> str:
    return c.verdict if c.paired else f"{c.verdict} (unpaired)"


def _interval_text(c: Comparison) -> str:
    d, unit = c.difference, c.unit
    assert d is not None
    if math.isnan(d.low):
        return unit.difference(d.difference)
    return f"{unit.difference(d.difference)} [{unit.difference(d.low)}, {unit.difference(d.high)}]"


def accuracy_table(found: Sequence[Comparison], size: Size) -> tuple[list[str], list[list[str]]]:
    """Tasks with their unit, and a row per model with its difference to the baseline's.

    The mechanism asked about is the first row; variants (ablations, say) are left to the page of
    corpora, unless one is asked about.
    """
    by = {(_short(c.first), c.task): c for c in found if _is_own(c.first, size)}
    tasks = {
        c.task: f"{_unit_text(c)}; {_counted([o for o in by.values() if o.task == c.task])}"
        for c in by.values()
    }
    mine = _short(size.mechanism)
    models = sorted({model for model, _ in by}, key=lambda name: (name != mine, name))
    rows = [[model, *(_cell(by.get((model, task))) for task in sorted(tasks))] for model in models]
    return [f"{task} ({tasks[task]})" for task in sorted(tasks)], rows


def _counted(found: Sequence[Comparison]) -> str:
    """``5 seeds``, ``5 or 10 seeds``."""
    counts = sorted({len(c.values) for c in found})
    return f"{' or '.join(map(str, counts))} {found[0].replicate}s"


def _is_own(model: str, size: Size) -> bool:
    return "[" not in model or model == size.mechanism


def _short(model: str) -> str:
    """A mechanism for its own configuration: whatever computes it has its accuracy."""
    return model if "[" in model else mechanism_of(model)


def accuracy_note(found: Sequence[Comparison]) -> str:
    """How the table must be read."""
    counted = sorted({c.together for c in found if c.together > 1})
    said = " and ".join(map(str, counted))
    holm = f"; verdicts allow for {said} comparisons (Holm), intervals do not" if counted else ""
    return f"Differences with 95 % t-intervals over seeds or folds{holm}."


def _unit_text(c: Comparison) -> str:
    unit, better = c.unit.of_differences.strip(), "" if c.higher_is_better else "lower is better"
    return ", ".join(part for part in (c.metric, unit, better) if part)


def _cell(c: Comparison | None) -> str:
    return "" if c is None else f"{_interval_text(c)}, {_verdict_text(c)}"


def accuracy_numbers(found: Sequence[Comparison]) -> list[dict[str, Any]]:
    """All of them, for the CSV."""
    rows = []
    for c in found:
        d = c.difference
        assert d is not None
        rows.append(
            {
                "task": c.task,
                "metric": c.metric,
                "model": c.first,
                "baseline": c.second,
                "difference": d.difference,
                "low": d.low,
                "high": d.high,
                "replicates": len(c.values),
                "verdict": c.verdict,
            }
        )
    return rows


def headline(
    measured: Costs,
    size: Size,
    problem: Problem | None,
    found: Sequence[Answer],
    trained: Sequence[Comparison],
) -> dict[str, Cell]:
    """The mechanism asked about against the baseline, in a few lines, each with its name."""
    mine = _asked_about(found, size)
    accuracies = [c for c in trained if _is(c.first, mechanism_of(size.mechanism))]
    names = {"mechanism": mechanism_of(size.mechanism), "baseline": mechanism_of(size.baseline)}
    if problem is None or mine is None:
        nothing = f"Not measured here: {size.command}"
        lines = {"measured": Cell(nothing)}
    else:
        batch, length, width, dtype, setting = problem
        where = f"batch {batch}, N = {length:,}, {width} wide, {dtype}, {setting}"
        lines = {
            "measured": Cell.of(f"{mine.label}, {where}"),
            "right?": Cell.of(_right(mine)),
            "time of a training step": Cell.of(mine.text("training"), strong=True),
            "time of a forward pass": Cell.of(mine.text("forward"), strong=True),
            "peak memory": Cell.of(mine.memory_text, strong=True),
            "faster in training": Cell(mine.crossover or "measured at one length only"),
        }
    empty = {name: Cell("") for name in HEADLINE}
    return (
        empty
        | lines
        | {
            "longest sequence": Cell(frontier_sentence(measured.device.records, size)),
            "accuracy, 95 % t-intervals": Cell.of("", notes=tuple(map(difference_text, accuracies)))
            if accuracies
            else Cell(NOT_TRAINED.format(**names)),
        }
    )


HEADLINE = (
    "measured",
    "right?",
    "time of a training step",
    "time of a forward pass",
    "peak memory",
    "faster in training",
)


def _asked_about(found: Sequence[Answer], size: Size) -> Answer | None:
    """The implementation asked about, else another of its mechanism."""
    own = size.mechanism.partition(".")[0]
    known = (f"{size.mechanism} {size.heads}h", size.mechanism)
    for fits in (
        lambda a: a.label in known,
        lambda a: a.label.partition(" ")[0] == size.mechanism,
        lambda a: a.mechanism == own,
    ):
        if mine := next((a for a in found if fits(a)), None):
            return mine
    return None


def _right(mine: Answer) -> str:
    """Whether it was right at this shape, by the float64 oracle."""
    checked = [r for r in mine.rows.values() if not math.isnan(r.error)]
    if not checked:
        return "not checked at this shape, so its ratios are no headline"
    worst = min(checked, key=lambda r: r.margin)
    says = "WRONG" if worst.error > worst.budget else "yes"
    return (
        f"{says}: error {worst.error:.1e} against the float64 oracle, budget {worst.budget:.1e} "
        f"(margin {worst.margin:.1f}x)"
    )


def trained_as(records: Sequence[Mapping[str, Any]], found: Sequence[Comparison]) -> str:
    """How the compared models were made, which is not how costs were measured; or empty."""
    models = {name for c in found for name in (c.first, c.second)}
    recipes = [
        r.get("recipe") or {} for r in records if r["kind"] == "run" and r["model"] in models
    ]
    sizes = {(r["width"], r["heads"]) for r in recipes if "heads" in r and "width" in r}
    said = " or ".join(f"{width} wide with {heads} heads" for width, heads in sorted(sizes))
    return f"Accuracies are of the mechanism, trained {said}." if said else ""


def longest(records: Sequence[Mapping[str, Any]], size: Size) -> list[Reach]:
    """Frontiers of training steps that are most like a size: its batch and dtype if there are."""
    found = [r for r in reaches(records) if r.phase == "training"]
    if not found:
        return []

    def distance(r: Reach) -> tuple[Any, ...]:
        return (
            r.dtype != size.dtype,
            padded(r.settings) != padded(size.setting),
            abs(math.log2(r.batch / size.batch)),
            abs(math.log2(r.d_in / size.width[0])),
            r.settings != size.setting,
        )

    best = min(found, key=distance).problem
    return [r for r in found if r.problem == best]


def frontier_sentence(records: Sequence[Mapping[str, Any]], size: Size) -> str:
    """How long a sequence mechanism and baseline can be trained on."""
    found = longest(records, size)
    if not found:
        return NO_FRONTIER
    names = (size.mechanism, size.baseline)
    said = [f"{r.label} {r.span}" for r in found if r.name in names] or [
        f"{r.label} {r.span}" for r in found
    ]
    r = found[0]
    setting = "" if r.settings == "eager" else f", {r.settings}"
    return (
        f"Longest sequence for a training step within {r.memory_limit_bytes / 2**30:.3g} GiB and "
        f"{r.seconds_limit:g} s (batch {r.batch}, {r.d_in} to {r.d_out}, {r.dtype}{setting}): "
        f"{'; '.join(said)}. An end lies between the two lengths."
    )
