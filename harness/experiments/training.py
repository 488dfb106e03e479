"""How two models of a comparison were trained: for unlike steps, or not to their end."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass

from harness.experiments.costs import at_ceiling, at_the_end, best_within, steps_of, still_gains
from harness.experiments.replicates import (
    Pair,
    Record,
    by_test,
    is_ok,
    judged_by,
    sides_of,
    unit_of,
)
from harness.stats import ratio_text

UNEQUAL_STEPS = 1.25
"""Of two models, the medians of whose steps are further apart, one was trained more."""


LUCK = 0.02
"""Chance of so clear an order of epochs and results; from there on it is not told."""


@dataclass(frozen=True)
class Flaw:
    """Why the training of two models can't be compared."""

    short: str  # in the verdict's line: ``2,679 and 1,128 steps``
    said: str  # the warning


def training_flaws(
    models: Sequence[str],
    sides: Sequence[Sequence[Record]],
    metric: str,
    higher_is_better: bool,
    margin: float | None = None,
) -> list[Flaw]:
    """What keeps a verdict from being counted: one model was trained more, or not to its end.

    Parameters
    ----------
    sides : sequence of sequence of mapping
        The run records of each model.
    margin : float, optional
        A metric that gains more than that in a run's last epochs has not come to its end.
    """
    runs = [[run for run in side if is_ok(run)] for side in sides]
    if not all(runs):
        return []
    flaws = []  # the one of steps is the first
    if steps := _unequal_steps(runs):
        counts = f"{steps[0]:,.0f} and {steps[1]:,.0f} steps"
        ratio = ratio_text(max(steps) / max(1, min(steps)))
        of = f"{counts} of {models[0]} and {models[1]}, {ratio} (medians)"
        flaws.append(Flaw(counts, f"unequal training: {of}"))
    for model, some in zip(models, runs, strict=True):
        flaws += _unfinished(model, some, metric, higher_is_better, margin)
    return flaws


def _finished(pairs: Sequence[Pair]) -> list[list[Record]]:
    """The runs of each model that have a result."""
    return [[run for run in side if is_ok(run)] for side in sides_of(pairs)]


def _unequal_steps(sides: Sequence[Sequence[Record]]) -> tuple[float, float] | None:
    """The medians of both models' steps, where one was trained more; of finished runs."""
    steps = [[found[0] for r in side if (found := steps_of(r)) is not None] for side in sides]
    if not all(steps):
        return None
    first, second = (statistics.median(some) for some in steps)
    unequal = max(first, second) > UNEQUAL_STEPS * max(1, min(first, second))
    return (first, second) if unequal else None


def at_equal_steps(design: Record, pairs: Sequence[Pair]) -> str:
    """What the first steps of both show, as many as the model had that was trained for fewer."""
    steps = _unequal_steps(_finished(pairs))
    if steps is None:
        return ""
    metric, higher, least = design["metric"], design["higher_is_better"], int(min(steps))

    def best(within: float) -> str:
        found = judged_by(design, [*pairs], lambda run: best_within(run, metric, higher, within))
        return unit_of(metric).told(found.difference) if found.difference is not None else ""

    (first, second), size = design["models"], best(least)
    split = "the test set" if by_test(design) else "dev, not test,"
    return size and (
        f"; on {split} {first} less {second} is {best(math.inf)} by the best of all epochs, {size} "
        f"by that of those within {least:,} steps"
    )


def _unfinished(
    model: str, runs: Sequence[Record], metric: str, higher: bool, margin: float | None
) -> list[Flaw]:
    flaws, unit = [], unit_of(metric)
    if ended := [r for r in runs if at_ceiling(r) and r["chosen_epoch"] == len(r["epochs"])]:
        count = f"{len(ended)} of {len(runs)} runs"
        said = (
            f"unfinished training: in {count} of {model} the epoch that counts is the last that "
            f"the recipe allows ({max(len(r['epochs']) for r in ended)} epochs)"
        )
        flaws.append(Flaw(f"{model} best at its last epoch in {count}", said))
    if margin is not None:
        gain = statistics.median(still_gains(r, higher) for r in runs)
        if gain > margin:
            last = at_the_end(runs[0])
            said = (
                f"unfinished training: {model} gained {unit.size(gain)} in its last "
                f"{'epoch' if last == 1 else f'{last} epochs'} (median), more than the margin of "
                f"{unit.size(margin)}"
            )
            flaws.append(Flaw(f"{model} still gaining", said))
    return flaws


def ended_early(design: Record, pairs: Sequence[Pair]) -> list[str]:
    """Models that patience ended while they still learned: the longer their runs, the better."""
    from scipy.stats import kendalltau

    if design.get("folds"):  # whose test sets differ
        return []
    metric, out = design["metric"], []
    better, sign = ("higher", 1) if design["higher_is_better"] else ("lower", -1)
    for model, side in zip(design["models"], _finished(pairs), strict=True):
        runs = sorted(side, key=lambda r: len(r["epochs"]))
        epochs, values = [len(r["epochs"]) for r in runs], [r["test"][metric] for r in runs]
        if len(set(epochs)) < 2 or any(at_ceiling(r) for r in runs):
            continue
        tau, p = kendalltau(epochs, [sign * value for value in values], alternative="greater")
        if p < LUCK:
            unit = unit_of(metric)
            out.append(
                f"unfinished training: the longer a run of {model}, the {better} its {metric} "
                f"(Kendall's tau {tau:.2f}, p = {p:.3f}; {unit.value(values[0])} after "
                f"{epochs[0]} epochs, {unit.value(values[-1])} after {epochs[-1]}): patience may "
                "have ended it, not the model"
            )
    return out


def ended_by_ceiling(design: Record, pairs: Sequence[Pair]) -> list[str]:
    """Where the recipe's number of epochs ended runs, though not by being best at its last.

    Recipes without patience mean to train so many; whether a metric still gains is asked by the
    margin.
    """
    out, sides = [], _finished(pairs)
    for model, runs in zip(design["models"], sides, strict=True):
        ended = [
            run
            for run in runs
            if at_ceiling(run) and run["chosen_epoch"] < len(run["epochs"])
            if run["recipe"]["patience"] < run["recipe"]["epochs"]
        ]
        if ended:
            most = max(len(run["epochs"]) for run in ended)
            out.append(
                f"{len(ended)} of {len(runs)} runs of {model} were ended by the {most} epochs that "
                "the recipe allows, before patience was over"
            )
    if design["margin"] is None and any(at_ceiling(run) for side in sides for run in side):
        out.append(
            "no margin is declared: whether a model still gained when its epochs were over is not "
            "judged"
        )
    return out
