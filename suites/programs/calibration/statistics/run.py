"""Draw what is missing, chunk by chunk, and hold what came out against what must."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from harness.records import journal, schema
from harness.registry import harness_hash
from suites.programs.calibration.statistics import experiments
from suites.programs.calibration.statistics.conditions import Condition

KIND = "simulation"
CHUNK = 2000
"""Draws of one record: seconds of work that a stop can lose."""
HEADS = ("what is counted", "rate", "must be", "draws", "")
GOALS = {"equal": "", "at most": "at most ", "at least": "at least ", "near": "about "}


@dataclass(frozen=True)
class Chunk:
    """A part of a condition's draws, with a stream of its own.

    Attributes
    ----------
    number, draws : int
    key : str
        Of its record: of the same draws, judged by the same code.
    """

    condition: Condition
    number: int
    draws: int
    key: str


def chunks(conditions: Iterable[Condition], draws: int) -> list[Chunk]:
    """All chunks: `draws` for each condition, times its weight."""
    own = schema.digest([harness_hash("stats"), Path(experiments.__file__).read_text()])
    out = []
    for condition in conditions:
        left = max(1, round(draws * condition.weight))
        for number in range(-(-left // CHUNK)):
            size = min(CHUNK, left - number * CHUNK)
            key = schema.digest([KIND, condition.id, number, size, own])
            out.append(Chunk(condition, number, size, key))
    return out


def count(condition: Condition, number: int, draws: int) -> int:
    """Hits of one chunk: the same numbers every time."""
    generator = np.random.default_rng([int(condition.id, 16), number])
    once = experiments.EXPERIMENTS[condition.experiment]
    return sum(once(generator, **condition.sizes) for _ in range(draws))


def done(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Records of finished chunks by key."""
    return {r["key"]: r for r in journal.read(folder).records if r["kind"] == KIND}


def run(todo: Iterable[Chunk], folder: Path) -> Iterator[Mapping[str, Any]]:
    """Draw, yielding each record as it is written."""
    with journal.Writer(folder, {"purpose": KIND}) as writer:
        for chunk in todo:
            hits = count(chunk.condition, chunk.number, chunk.draws)
            yield writer.append(
                {
                    "kind": KIND,
                    "key": chunk.key,
                    "condition": chunk.condition.id,
                    "says": chunk.condition.says,
                    "chunk": chunk.number,
                    "draws": chunk.draws,
                    "count": hits,
                    "status": "ok",
                }
            )


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
    for says in dict.fromkeys(chunk.condition.says for chunk in chunks):
        mine = [chunk for chunk in chunks if chunk.condition.says == says]
        found = [records[chunk.key] for chunk in mine if chunk.key in records]
        hits, draws = (sum(int(r[name]) for r in found) for name in ("count", "draws"))
        rows.append(Row(mine[0].condition, hits, draws, sum(chunk.draws for chunk in mine)))
    return rows
