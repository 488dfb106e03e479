"""The spread over seeds that recorded runs of two models show: what a plan starts from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.records import schema
from harness.stats import PairedSpread, paired_spread
from harness.train.recipe import HOW_FOUND

LEAST_PAIRS = 3
"""Two pairs leave a factor of thirty between the ends of the deviation's interval."""
ALIKE = ("task", "vectors", "data", "fingerprint")
"""Fields in which two runs must agree to be paired."""
OWN = (*HOW_FOUND, "width")
"""Fields of a recipe that may differ between the two models of a pair."""


@dataclass(frozen=True)
class Recorded:
    """Paired runs of two models.

    Attributes
    ----------
    metric : str
    seeds : tuple of int
    spread : PairedSpread
    others : int
        Pairs of other settings (recipe, vectors, machine) that are not used.
    """

    metric: str
    seeds: tuple[int, ...]
    spread: PairedSpread
    others: int


def recorded_spread(
    records: Sequence[Mapping[str, Any]], models: tuple[str, str], task: str, metric: str
) -> Recorded:
    """Estimate from the setting under which both models were trained with most seeds.

    Parameters
    ----------
    records : sequence of mapping
        A journal.
    models : pair of str
        As in its records: ``mtsa.algorithm1``.

    Raises
    ------
    UsageError
        If they are too few, or folds of a cross-validation.
    """
    runs = [
        r for r in records
        if r["kind"] == "run" and r["status"] == "ok" and r.get("task") == task
        and r["model"] in models and metric in (r.get("test") or {})
    ]  # fmt: skip
    if any(r.get("fold") is not None for r in runs):
        raise UsageError(
            f"{task} is cross-validated: its folds are given, and more seeds add no test examples; "
            "a plan counts seeds"
        )
    # Runs of older code are another subject; files of one second are in no order.
    in_time = sorted(runs, key=lambda r: str(r.get("at")))
    newest = {r["model"]: r.get("code") for r in in_time}
    runs = [r for r in runs if r.get("code") == newest[r["model"]]]
    pairs = _pairs(runs, models, metric) or {"": {}}
    best = max(pairs, key=lambda setting: (len(pairs[setting]), setting))
    found = dict(sorted(pairs[best].items()))
    if len(found) < LEAST_PAIRS:
        raise UsageError(
            f"{len(found)} seeds were trained with both {models[0]} and {models[1]} on {task} "
            f"under one recipe; expected {LEAST_PAIRS} or more, or give --sd"
        )
    first, second = ([values[side] for values in found.values()] for side in (0, 1))
    spread = paired_spread(first, second)
    if not spread.sd.value > 0:
        raise UsageError(
            f"all differences of {models[0]} and {models[1]} on {task} are the same: they tell no "
            "spread; give --sd"
        )
    others = sum(len(some) for setting, some in pairs.items() if setting != best)
    return Recorded(metric, tuple(found), spread, others)


def _pairs(
    runs: Sequence[Mapping[str, Any]], models: tuple[str, str], metric: str
) -> dict[str, dict[int, tuple[float, float]]]:
    """Both values by seed, by setting."""
    values: dict[tuple[str, str], dict[int, float]] = {}
    for run in runs:
        recipe = {k: v for k, v in (run.get("recipe") or {}).items() if k not in OWN}
        setting = schema.digest([recipe, *(run.get(name) for name in ALIKE)])
        values.setdefault((setting, run["model"]), {})[run["seed"]] = float(run["test"][metric])
    out = {}
    for setting in {setting for setting, _ in values}:
        first, second = (values.get((setting, model), {}) for model in models)
        both = sorted(first.keys() & second.keys())
        if both:
            out[setting] = {seed: (first[seed], second[seed]) for seed in both}
    return out
