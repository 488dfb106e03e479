"""Draw what ``conditions.toml`` declares, chunk by chunk; hold what came out against what must."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
from scipy.stats import binom

from harness.records import journal, schema
from harness.registry import harness_hash
from harness.stats import ALPHA, power_of, replicates_needed
from reports.core.words import days
from suites.programs.calibration.statistics import experiments

KIND = "simulation"
CHUNK = 2000
"""Draws of one record: seconds of work that a stop can lose."""
HEADS = ("what is counted", "rate", "must be", "draws", "")
Goal = Literal["equal", "at most", "at least", "near"]
FILE = Path(__file__).with_name("conditions.toml")
NEAR = 0.01
"""An approximation may miss what it aims at by so much."""
CHANCE = 1e-3
"""Probability that a condition fails although its rate is as it must be."""


@dataclass(frozen=True)
class Condition:
    """An experiment, how often something must be said in it; fields as in the file."""

    says: str
    experiment: str
    sizes: Mapping[str, Any]
    expected: float
    goal: Goal = "equal"
    weight: float = 1.0

    @property
    def id(self) -> str:
        """Short hash of experiment and sizes: conditions of one id draw the same."""
        return schema.digest([self.experiment, dict(self.sizes)])

    def interval(self, draws: int) -> tuple[float, float]:
        """The rates that are accepted after so many draws, with probability 1 - `CHANCE`."""
        slack = NEAR if self.goal == "near" else 0.0
        low, high = max(0.0, self.expected - slack), min(1.0, self.expected + slack)
        lowest = float(binom.ppf(CHANCE / 2, draws, low)) / draws
        highest = float(binom.ppf(1 - CHANCE / 2, draws, high)) / draws
        return (
            0.0 if self.goal == "at most" else lowest,
            1.0 if self.goal == "at least" else highest,
        )

    def met(self, count: int, draws: int) -> bool:
        """Whether so many of so many draws are as they must be."""
        low, high = self.interval(draws)
        return low <= count / draws <= high


def _each(
    sizes: Any, counted: Sequence[Mapping[str, Any]] = ({},), **entry: Any
) -> Iterator[dict[str, Any]]:
    """What is counted at each of the sizes of an entry, as an entry of its own."""
    for table in sizes if isinstance(sizes, list) else [sizes]:
        lists = (value if isinstance(value, list) else [value] for value in table.values())
        for values in product(*lists):
            here = dict(zip(table, values, strict=True))
            for own in counted:
                yield {**entry, **own, "sizes": here | own.get("sizes", {})}


def _planned(experiment: str, sizes: Mapping[str, Any]) -> tuple[dict[str, Any], float]:
    """Sizes with as many replicates as are planned for them, and their power."""
    paired, alpha = experiment == "paired_power", sizes.get("alpha", ALPHA)
    sd = math.sqrt(2 * (1 - sizes["correlation"])) if paired else 1.0
    count = replicates_needed(sizes["effect"], sd, paired=paired, alpha=alpha)
    own = {**sizes, "count": count} | ({} if paired else {"other": count})
    return own, power_of(sizes["effect"], sd, count, paired=paired, alpha=alpha)


@cache
def conditions() -> tuple[Condition, ...]:
    """All of them, in the order of the file."""
    found = []
    for entry in tomllib.loads(FILE.read_text(encoding="utf-8"))["condition"]:
        for one in _each(**entry):
            if "expected" not in one:
                one["sizes"], one["expected"] = _planned(one["experiment"], one["sizes"])
            found.append(Condition(**one | {"says": one["says"].format_map(one["sizes"])}))
    return tuple(found)


@dataclass(frozen=True)
class Chunk:
    """A part of a condition's draws, with a stream of its own.

    ``key`` is that of its record: of the same draws, judged by the same code.
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
    once = getattr(experiments, condition.experiment)
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
        word = {"equal": "", "near": "about "}.get(c.goal, f"{c.goal} ")
        if not self.draws:
            return [c.says, "", f"{word}{c.expected:.2%}", "0", "not drawn"]
        low, high = c.interval(self.draws)
        ends = {"at most": f"up to {high:.2%}", "at least": f"from {low:.2%}"}
        accepted = ends.get(c.goal, f"{low:.2%} to {high:.2%}")
        said = "met" if self.met else "not met" if self.draws == self.wanted else "not finished"
        return [
            c.says,
            f"{self.count / self.draws:.2%}",
            f"{word}{c.expected:.2%} ({accepted})",
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


def drawn(records: Iterable[Mapping[str, Any]]) -> str:
    """When: what statistics said later was not asked of these draws."""
    return f"Drawn {days(records)}, each by the code of its day."
