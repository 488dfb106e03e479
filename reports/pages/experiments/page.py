"""What ``experiments.ipynb`` calls: every comparison of every device, a row each."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import pandas as pd

from harness.experiments.conclusion import Comparison, comparisons
from harness.experiments.many import Many, families
from reports.contents import page_of
from reports.core.page import Output, Shown, remark, says, together
from reports.core.parameters import opens
from reports.core.source import Source, find
from reports.core.tables import Cell

COLUMNS = (
    "question",
    "arms",
    "task",
    "replicates",
    "difference [95 %]",
    "verdict",
    "warnings",
    "device",
)
WORDS = (0, 1, 2, 5, 7)
NONE = "There is no comparison here: attnbench compare mtsa multi_head makes one."


@opens
def begin(journal: str, out: str, page: str) -> Experiments:
    """Open the notebook.

    Parameters
    ----------
    journal : str
        Folder of the records; the published ones if it is empty or holds none.
    out : str
        Folder for figures and tables; empty writes none.
    page : str
        What their names begin with.
    """
    return Experiments(find(str(journal)), Output.of(out, page))


class Experiments:
    """All comparisons; every method shows one piece of the page."""

    def __init__(self, source: Source, output: Output) -> None:
        self.source, self.output = source, output

    def about(self) -> Shown:
        """Which records these are."""
        rows = list(self._rows())
        if not rows:
            return together(says([self.source.says]), says([NONE]))
        counts = pd.Series([one["verdict"] for one in rows if one["kind"] == "pair"]).value_counts()
        said = ", ".join(f"{count} {verdict}" for verdict, count in counts.items())
        pairs = f" Of the comparisons of two: {said}." if said else ""
        return says([f"{len(rows)} experiments.{pairs}"], main=True)

    def table(self) -> Shown:
        """A row per experiment, with a link to its page."""
        rows = list(self._rows())
        if not rows:
            return remark(NONE)
        shown = [
            [
                Cell.of(one["question"], to=one["page"]),
                one["arms"],
                one["task"],
                one["replicates"],
                one["difference"],
                one["verdict"],
                Cell.of(str(len(one["warnings"])), hint="; ".join(one["warnings"])),
                one["device"],
            ]
            for one in rows
        ]
        frame = pd.DataFrame(rows).assign(warnings=["; ".join(one["warnings"]) for one in rows])
        return self.output.table("all", frame, COLUMNS, shown, WORDS)

    def _rows(self) -> Iterator[dict[str, Any]]:
        find_page = page_of(self.source)
        for device in self.source.devices:
            for many in families(device.records):
                yield _family(many) | {
                    "device": device.title,
                    "page": find_page("many", many.key),
                }
            for one in comparisons(device.records):
                yield _pair(one) | {
                    "device": device.title,
                    "page": find_page("comparison", one.key),
                }


def _pair(c: Comparison) -> dict[str, Any]:
    d = c.difference
    difference = ""
    if d is not None:
        difference = c.unit.difference(d.difference) + (
            ""
            if math.isnan(d.low)
            else f" [{c.unit.difference(d.low)}, {c.unit.difference(d.high)}]"
        )
        difference += c.unit.of_differences
    return {
        "kind": "pair",
        "question": c.title,
        "arms": f"{c.first}, {c.second}",
        "task": c.task,
        "replicates": f"{len(c.values)} {c.replicate}s",
        "difference": difference,
        "verdict": c.verdict,
        "warnings": c.warnings,
    }


def _family(m: Many) -> dict[str, Any]:
    counts = sorted({len(c.values) for c in m.comparisons})
    return {
        "kind": "family",
        "question": m.title,
        "arms": ", ".join([*m.models, m.baseline]),
        "task": ", ".join(m.tasks),
        "replicates": f"{' or '.join(map(str, counts))} {m.comparisons[0].replicate}s",
        "difference": "",
        "verdict": m.sentences[0].removeprefix(f"{m.title}: "),
        "warnings": m.warnings,
    }
