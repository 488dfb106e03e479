"""Draw what is missing, chunk by chunk, each with a stream of its own; every chunk is a record."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
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


@dataclass(frozen=True)
class Chunk:
    """A part of a condition's draws.

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


def code() -> str:
    """Hash of what draws and of what judges."""
    return schema.digest([harness_hash("stats"), Path(experiments.__file__).read_text()])


def chunks(conditions: Iterable[Condition], draws: int) -> list[Chunk]:
    """All chunks: `draws` for each condition, times its weight."""
    own = code()
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
    return experiments.EXPERIMENTS[condition.experiment](generator, draws, **condition.sizes)


def done(folder: Path) -> dict[str, Mapping[str, Any]]:
    """Records of finished chunks by key."""
    return {r["key"]: r for r in journal.read(folder).records if r["kind"] == KIND}


def run(todo: Iterable[Chunk], folder: Path) -> Iterator[Mapping[str, Any]]:
    """Draw, yielding each record as it is written."""
    writer = journal.Writer(folder, {"purpose": KIND})
    try:
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
    finally:
        writer.close()
