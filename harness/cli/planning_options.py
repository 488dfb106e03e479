"""What the options of ``attnbench plan`` mean, and which go together."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.stats import LEAST_REPLICATES, replicates_needed, sd_of_differences

SUSPICIOUS = 0.1
"""Ten points of accuracy: nobody plans for a difference that shows at a glance."""


@dataclass(frozen=True)
class Plan:
    """What is asked for.

    Attributes
    ----------
    effect : float
        True difference that is to be found.
    sd : float
        Of the differences if paired, else of either model's values.
    power, alpha : float
    paired : bool
    comparisons : int
        Judged together; the first step of Holm's method is at ``alpha / comparisons``.
    """

    effect: float
    sd: float
    power: float
    alpha: float
    paired: bool
    comparisons: int

    @property
    def level(self) -> float:
        """At which a comparison is found whatever the others show."""
        return self.alpha / self.comparisons

    def needed(self, alpha: float | None = None) -> int:
        """Seeds, at least as many as are needed to conclude anything.

        Raises
        ------
        UsageError
            If there is no such number.
        """
        try:
            count = replicates_needed(
                self.effect, self.sd, self.power, self.paired, alpha or self.level
            )
        except ValueError as error:
            raise UsageError(f"plan: {error}") from None
        return max(count, LEAST_REPLICATES)


def read_effect(text: str, metric: str) -> float:
    """A difference; ``0.5%`` is 0.005.

    Raises
    ------
    UsageError
        If it is not a positive number, or not below 1 for an accuracy, or so large for one that it
        is likely to be in points.
    """
    try:
        effect = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        effect = math.nan
    if not 0 < effect < math.inf:
        raise UsageError(
            f"--effect: given {text!r}; expected a positive number, e.g. 0.005 or 0.5%"
        )
    if metric == "accuracy" and effect >= 1:
        raise UsageError(f"--effect: given {text}; one point of accuracy is 0.01 or 1%")
    if metric == "accuracy" and effect >= SUSPICIOUS and not text.endswith("%"):
        # With --sd the unit is the user's own, and 0.5 is half a point; here it would be fifty.
        raise UsageError(
            f"--effect: given {text}, which is {100 * effect:g} points of accuracy; expected "
            f"{text}% for {text} points, or {100 * effect:g}% if you mean that"
        )
    return effect


def check(values: Mapping[str, Any]) -> None:
    """Refuse what does not go together.

    Raises
    ------
    UsageError
        With what to give instead.
    """
    if not 0 < values["alpha"] < values["power"] < 1:
        raise UsageError(
            f"given --alpha {values['alpha']}, --power {values['power']}; expected numbers "
            "between 0 and 1, the power larger"
        )
    if values["comparisons"] < 1:
        raise UsageError(f"--comparisons: given {values['comparisons']}; expected 1 or more")
    if values["correlation"] is not None and not values["paired"]:
        raise UsageError("--correlation is of pairs; leave out --unpaired")
    if values["from"] is None:
        for option in ("models", "task", "recipe"):
            if values[option]:
                raise UsageError(f"--{option} is for --from DIR; give that too")
        if values["sd"] is None:
            raise UsageError("give --sd, or --from DIR --models A B --task T to estimate it")
        return
    for option in ("sd", "correlation"):
        if values[option] is not None:
            raise UsageError(f"--{option} is estimated with --from; leave one of both out")
    if values["models"] is None or values["task"] is None:
        raise UsageError("--from needs --models A B and --task T: whose runs, and on what")
    if not Path(values["from"]).is_dir():
        raise UsageError(f"--from: no folder {values['from']}; give a journal")


def check_units(values: Mapping[str, Any]) -> None:
    """Refuse a share beside a number of another unit: one of them is a hundred times the other's.

    Raises
    ------
    UsageError
        If only one of ``--effect`` and ``--sd`` has a per cent sign.
    """
    effect, sd = str(values["effect"]), str(values["sd"])
    if effect.endswith("%") != sd.endswith("%"):
        raise UsageError(
            f"given --effect {effect}, --sd {sd}; expected both with % or both without"
        )


def given_sd(values: Mapping[str, Any]) -> float:
    """The deviation of ``--sd``; of paired differences where a correlation is given.

    Raises
    ------
    UsageError
        If either can't be.
    """
    text = str(values["sd"])
    try:
        sd = float(text.removesuffix("%")) / (100 if text.endswith("%") else 1)
    except ValueError:
        sd = math.nan
    if not 0 < sd < math.inf:
        raise UsageError(f"--sd: given {text!r}; expected a positive number")
    if values["correlation"] is None:
        return sd
    if not -1 <= values["correlation"] < 1:
        raise UsageError(
            f"--correlation: given {values['correlation']}; expected -1 or more and less than 1"
        )
    return sd_of_differences(sd, values["correlation"])
