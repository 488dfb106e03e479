"""What is simulated, and what must come out: read from ``conditions.toml``."""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

from scipy.stats import binom

from harness.records import schema
from harness.stats import ALPHA, power_of, replicates_needed

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


def _planned(says: str, experiment: str, sizes: Mapping[str, Any], **more: Any) -> Condition:
    """The power of as many replicates as are planned for it."""
    paired, alpha = experiment == "paired_power", sizes.get("alpha", ALPHA)
    sd = math.sqrt(2 * (1 - sizes["correlation"])) if paired else 1.0
    count = replicates_needed(sizes["effect"], sd, paired=paired, alpha=alpha)
    own = {**sizes, "count": count} | ({} if paired else {"other": count})
    power = power_of(sizes["effect"], sd, count, paired=paired, alpha=alpha)
    return Condition(says.format_map(own), experiment, own, power, **more)


@cache
def conditions() -> tuple[Condition, ...]:
    """All of them, in the order of the file."""
    entries = tomllib.loads(FILE.read_text(encoding="utf-8"))["condition"]
    return tuple((Condition if "expected" in e else _planned)(**e) for e in entries)
