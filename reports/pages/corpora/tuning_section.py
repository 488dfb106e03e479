"""The recipes that were tried, as a section of ``corpora.ipynb``."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from harness.records import journal
from harness.stats import LEAST_REPLICATES
from reports.core.forest import Line, forest
from reports.core.page import Output, Shown, remark, says, together, warns
from reports.core.source import DeviceRecords, Source
from reports.core.words import file_name
from reports.pages.corpora.tuning import (
    BETTER,
    COMMON,
    FOLDER,
    Judged,
    Tried,
    judged,
    sentence,
    tried,
)

NONE = (
    "No recipes were tried for the common one on this device: attnbench sweep plans/tuning.toml "
    f"--journal DIR/{FOLDER} tries them, DIR being the journal of this report."
)


def section(source: Source, device: DeviceRecords | None, place: Output) -> Shown:
    """What the folder ``tuning`` of the report's journals holds of a device."""
    records: list[Mapping[str, Any]] = []
    warnings: list[str] = []
    for folder in source.folders:
        read = journal.read(folder / FOLDER)
        warnings += [f"{folder / FOLDER}: {warning}" for warning in read.warnings]
        records += [r for r in read.records if device and r.get("fingerprint") == device.key]
    found, left = tried(records)
    pieces = [_task(one, place) for one in found] or [remark(NONE)]
    return together(warns([*warnings, *left]), *pieces)


def _task(one: Tried, place: Output) -> Shown:
    verdicts = judged(one)
    said = sentence(one, verdicts)
    name = f"tuning-{file_name(one.task)}"
    pieces = []
    if verdicts:
        points, base = one.unit.of_differences.strip(), "former" if one.former else "common"
        figure = forest(
            lines(one, verdicts),
            f"{one.task}: recipes less the {base} one",
            "bars: 95 % t-intervals over mechanisms; grey: not shown after Holm",
            f"{one.metric} on the dev split, less the {one.common}'s{points and f' ({points})'}",
        )
        pieces.append(place.figure(name, figure, said))
    else:
        pieces.append(says([said]))
    columns, rows = cells(one, verdicts)
    scores = pd.DataFrame(
        {
            "task": t.task,
            "metric": one.metric,
            "recipe": t.recipe,
            "mechanism": t.mechanism,
            "seed": t.seed,
            "status": t.status,
            "dev": t.dev,
        }
        for t in one.trials
    )
    return together(*pieces, place.table(name, scores, columns, rows))


def cells(one: Tried, found: Sequence[Judged]) -> tuple[list[str], list[list[str]]]:
    """Columns and rows: what the common recipe gave, then every other's difference to it."""
    unit = one.unit
    points = unit.of_differences.strip()
    columns = [
        f"{one.task}: less the {one.common}{f', {points}' if points else ''}",
        "mean [95 %]",
        "p (Holm), verdict",
        *one.mechanisms,
    ]
    common = one.scores(COMMON)
    row = [
        unit.number(statistics.fmean(common[m].values())) if m in common else ""
        for m in one.mechanisms
    ]
    rows = [[f"{one.common}: {unit.named(one.metric)}", "", "", *row]]
    for j in found:
        d = j.difference
        mean = (
            f"{unit.difference(d.difference)} [{unit.difference(d.low)}, {unit.difference(d.high)}]"
        )
        counted = len(j.singles) >= LEAST_REPLICATES
        verdict = f"{j.adjusted_p:.2g}, {j.verdict}" if counted else j.verdict
        singles = [unit.difference(j.singles[m]) if m in j.singles else "" for m in one.mechanisms]
        rows.append([j.recipe, mean, verdict, *singles])
    return columns, rows


def lines(one: Tried, found: Sequence[Judged]) -> list[Line]:
    """Rows of a forest plot: the mean over the mechanisms, and each of them."""
    scale = one.unit.scale
    return [
        Line(
            j.recipe,
            "",
            scale * j.difference.difference,
            scale * j.difference.low,
            scale * j.difference.high,
            j.verdict in (BETTER, "worse"),
            tuple(scale * d for d in j.singles.values()),
        )
        for j in found
    ]
