"""What is simulated, and what must come out: declared before anything is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from typing import Any, Literal

from harness.records import schema
from harness.stats import ALPHA, power_of, replicates_needed

Goal = Literal["equal", "at most", "at least", "near"]
NEAR = 0.01
"""An approximation may miss what it aims at by so much."""
CHANCE = 1e-3
"""Probability that a condition fails although its rate is as it must be."""


@dataclass(frozen=True)
class Condition:
    """An experiment, how often something must be said in it.

    Attributes
    ----------
    says : str
        What is counted, in words.
    experiment : str
        One of `experiments.EXPERIMENTS`.
    sizes : mapping
        For it.
    expected : float
        The rate.
    goal : {"equal", "at most", "at least", "near"}
        The rate must be that; be no higher (a conservative test), or no lower (the mistake, which
        must be seen as one); or be within `NEAR` of it (an approximation).
    weight : float
        Share of the draws that it gets: some take long.
    """

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
        from scipy.stats import binom

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


def _paired() -> list[Condition]:
    out = []
    for correlation in (0.0, 0.7):
        for count in (3, 5, 10):
            of = f"n = {count}, correlation {correlation:g}"
            sizes = {"count": count, "correlation": correlation}
            out.append(
                Condition(f"false positives, paired t, {of}", "paired_statistic", sizes, ALPHA)
            )
            if count > 3:
                out.append(
                    Condition(f"false verdicts, paired, {of}", "paired_verdict", sizes, ALPHA)
                )
            out.append(
                Condition(
                    f"coverage of the interval, paired, {of}",
                    "paired_coverage",
                    {**sizes, "effect": 0.6},
                    0.95,
                )
            )
    flips = {6: 2 / 64, 10: 50 / 1024}  # the largest share of sign patterns below 5 %
    for count, rate in flips.items():
        out.append(
            Condition(
                f"false positives, exact sign-flip, n = {count}",
                "sign_flips",
                {"count": count, "correlation": 0.7},
                rate,
            )
        )
    out.append(
        Condition(
            "false verdicts, accuracies on 500 test examples, n = 5",
            "accuracies",
            {"count": 5, "examples": 500, "accuracy": 0.9},
            ALPHA,
            "near",
        )
    )
    return out


def _unpaired() -> list[Condition]:
    out = []
    for count, other, ratio in ((5, 5, 1.0), (10, 10, 1.0), (10, 10, 3.0), (5, 10, 3.0)):
        of = f"Welch, n = {count} and {other}, deviations 1 and {ratio:g}"
        sizes = {"count": count, "other": other, "ratio": ratio}
        near: Goal = "near"
        out += [
            Condition(f"false positives, {of}", "unpaired", {**sizes, "effect": 0.0}, ALPHA, near),
            Condition(f"coverage of the interval, {of}", "unpaired_coverage", sizes, 0.95, near),
        ]
    return out


def _power() -> list[Condition]:
    out = []
    for correlation, alpha in ((0.0, ALPHA), (0.7, ALPHA), (0.7, ALPHA / 7)):
        sd = (2 * (1 - correlation)) ** 0.5
        effect = 0.5 / 0.8 * sd
        count = replicates_needed(effect, sd, alpha=alpha)
        out.append(
            Condition(
                f"power of {count} planned pairs, alpha {alpha:.3g}, correlation {correlation:g}",
                "paired_power",
                {"count": count, "correlation": correlation, "effect": effect, "alpha": alpha},
                power_of(effect, sd, count, alpha=alpha),
            )
        )
    count = replicates_needed(1.5, 1.0, paired=False)
    out.append(
        Condition(
            f"power of {count} planned seeds each, unpaired",
            "unpaired",
            {"count": count, "other": count, "ratio": 1.0, "effect": 1.5},
            power_of(1.5, 1.0, count, paired=False),
            "near",
        )
    )
    for count in (5, 10):
        sizes = {"count": count, "correlation": 0.7}
        out += [
            Condition(f"coverage, estimated deviation, {count} pairs", "sd_coverage", sizes, 0.95),
            Condition(
                f"coverage, estimated correlation, {count} pairs",
                "correlation_coverage",
                sizes,
                0.95,
                "near",
            ),
        ]
    return out


def _several() -> list[Condition]:
    equal = {"count": 10, "correlation": 0.7}
    return [
        Condition(
            "called equal, true difference = margin (3 deviations)",
            "equal_within",
            {**equal, "margin": 3.0},
            ALPHA,
        ),
        Condition(
            "called equal, true difference = margin (0.5 deviations)",
            "equal_within",
            {**equal, "margin": 0.5},
            ALPHA,
            "at most",
        ),
        Condition(
            "any false verdict among 7 equal models, Holm, n = 5",
            "family",
            {"count": 5, "models": 7, "different": 0, "effect": 0.0},
            ALPHA,
            "at most",
            0.2,
        ),
        Condition(
            "any false verdict among 4 equal of 7 models, Holm, n = 5",
            "family",
            {"count": 5, "models": 7, "different": 3, "effect": 9.0},
            ALPHA,
            "at most",
            0.2,
        ),
        Condition(
            "false positives, Friedman, 5 models, 6 tasks",
            "any_model",
            {"models": 5, "tasks": 6},
            ALPHA,
            "at most",
        ),
    ]


def _folds() -> list[Condition]:
    ten = {"folds": 10, "noise": 0.0}
    wrong: dict[str, Any] = {"as_seeds": True}
    right: dict[str, Any] = {"as_seeds": False}
    repeated = {"folds": 10, "seeds": 5}
    return [
        Condition(
            "false positives, 10 folds, corrected resampled t",
            "normal_folds",
            {**ten, "seeds": 1, **right},
            ALPHA,
        ),
        Condition(
            "false positives, 10 folds taken for seeds (wrong)",
            "normal_folds",
            {**ten, "seeds": 1, **wrong},
            0.10,
            "at least",
        ),
        Condition(
            "false positives, 10 folds x 5 seeds, corrected resampled t",
            "normal_folds",
            {**repeated, "noise": 1.0, **right},
            ALPHA,
            "at most",
            0.5,
        ),
        Condition(
            "false positives, 10 folds x 5 seeds, every run taken for a seed (wrong)",
            "normal_folds",
            {**repeated, "noise": 1.0, **wrong},
            0.20,
            "at least",
            0.5,
        ),
        Condition(
            "false positives, two equal learners, 10 folds",
            "learner_folds",
            {"folds": 10, "seeds": 1, "examples": 200, **right},
            ALPHA,
            "at most",
            0.2,
        ),
        Condition(
            "false positives, two equal learners, 10 folds x 5 seeds",
            "learner_folds",
            {**repeated, "examples": 200, **right},
            ALPHA,
            "at most",
            0.2,
        ),
        Condition(
            "false positives, two equal learners, every run taken for a seed (wrong)",
            "learner_folds",
            {**repeated, "examples": 200, **wrong},
            0.10,
            "at least",
            0.2,
        ),
    ]


@cache
def conditions() -> tuple[Condition, ...]:
    """All of them."""
    return (*_paired(), *_unpaired(), *_power(), *_several(), *_folds())
