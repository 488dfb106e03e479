"""The recipes that were tried, as a section of ``corpora.ipynb``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pandas as pd

from harness.records import journal
from reports.core.forest import forest
from reports.core.page import Output, Shown, remark, says, together, warns
from reports.core.source import DeviceRecords, Source
from reports.core.words import file_name
from reports.pages.corpora.tuning import FOLDER, Tried, cells, judged, lines, sentence, tried

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
