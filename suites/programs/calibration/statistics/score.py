"""What came out, beside what must: a row per condition."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from suites.programs.calibration.statistics.conditions import Condition
from suites.programs.calibration.statistics.run import Chunk
from suites.programs.command import markdown_table

HEADS = ("what is counted", "rate", "must be", "draws", "")
GOALS = {"equal": "", "at most": "at most ", "at least": "at least ", "near": "about "}


@dataclass(frozen=True)
class Row:
    """One condition as far as it is drawn."""

    condition: Condition
    count: int
    draws: int
    wanted: int

    @property
    def met(self) -> bool:
        """Whether all is drawn, and the rate is as it must be."""
        return self.draws == self.wanted and self.condition.met(self.count, self.draws)

    @property
    def cells(self) -> list[str]:
        """As `HEADS` has them."""
        c = self.condition
        if not self.draws:
            return [c.says, "", f"{GOALS[c.goal]}{c.expected:.2%}", "0", "not drawn"]
        low, high = c.interval(self.draws)
        ends = {"at most": f"up to {high:.2%}", "at least": f"from {low:.2%}"}
        accepted = ends.get(c.goal, f"{low:.2%} to {high:.2%}")
        said = "met" if self.met else "not met" if self.draws == self.wanted else "not finished"
        return [
            c.says,
            f"{self.count / self.draws:.2%}",
            f"{GOALS[c.goal]}{c.expected:.2%} ({accepted})",
            f"{self.draws:,}",
            said,
        ]


def score(chunks: Sequence[Chunk], records: Mapping[str, Mapping[str, Any]]) -> list[Row]:
    """Judge every condition by the records of its chunks."""
    rows = []
    for condition in dict.fromkeys(chunk.condition.says for chunk in chunks):
        mine = [chunk for chunk in chunks if chunk.condition.says == condition]
        found = [records[chunk.key] for chunk in mine if chunk.key in records]
        rows.append(
            Row(
                mine[0].condition,
                sum(int(r["count"]) for r in found),
                sum(int(r["draws"]) for r in found),
                sum(chunk.draws for chunk in mine),
            )
        )
    return rows


def markdown(rows: Iterable[Row]) -> str:
    """The table of docs/results."""
    return markdown_table(HEADS, [row.cells for row in rows])


def as_json(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Everything, for machines."""
    return [
        {
            "says": row.condition.says,
            "experiment": row.condition.experiment,
            "sizes": dict(row.condition.sizes),
            "goal": row.condition.goal,
            "expected": row.condition.expected,
            "count": row.count,
            "draws": row.draws,
            "wanted": row.wanted,
            "accepted": row.condition.interval(max(1, row.draws)),
            "met": row.met,
        }
        for row in rows
    ]
