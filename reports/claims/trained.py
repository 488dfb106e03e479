"""Claims about trained models: accuracy, time per epoch, shares of what is selected."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from harness.experiments.conclusion import Comparison, conclude
from harness.experiments.costs import epoch_seconds
from harness.experiments.selection import selecting_everything
from harness.experiments.wording import unit_of
from harness.records.schema import digest
from harness.stats import MeanDifference, compare_means, ratio_interval
from harness.train.task import by_common_recipe
from reports.claims.measured import Measured, Record, not_measured
from reports.claims.names import alternatives, first_fitting, same_form
from reports.claims.record import Claim
from reports.claims.verdict import Answer, Finding
from reports.trained import recipe_of

LEAST_SEEDS = 5
"""With fewer nothing is concluded."""
LOWER_IS_BETTER = ("mse", "relative_mse")

Draw = tuple[int, int | None]
"""Seed, and fold where there are folds."""


@dataclass(frozen=True)
class Pairs:
    """Runs of two models that differ in the model alone, by seed and fold.

    Attributes
    ----------
    first, second : str
        Models as recorded.
    runs : mapping
        Pairs of runs by draw.
    """

    first: str
    second: str
    runs: Mapping[Draw, tuple[Record, Record]]

    @property
    def keys(self) -> tuple[str, ...]:
        """Of all runs."""
        return tuple(str(r["key"]) for pair in self.runs.values() for r in pair)


def _newest(runs: Sequence[Record]) -> dict[tuple[str, Draw], Record]:
    """By recipe and draw, the newest run of each."""
    ordered = sorted(runs, key=lambda r: str(r.get("at")))
    return {(recipe_of(r), (int(r["seed"]), r.get("fold"))): r for r in ordered}


def _rank(runs: Sequence[Record]) -> tuple[int, bool, str]:
    """Of runs by one recipe: how many, whether it is the task's common one, when the last was."""
    return len(runs), by_common_recipe(runs[0]), max(str(r.get("at")) for r in runs)


def pairs_of(claim: Claim, device: Measured) -> Pairs | None:
    """The preferred pair of models with enough draws in common, or the one with most."""
    task, metric = claim.parameters["task"], _metric(claim)
    runs = [r for r in device.runs if r.get("task") == task and metric in r["test"]]
    best: Pairs | None = None
    for first, second in _models(claim, runs):
        sides = [_newest([r for r in runs if r["model"] == m]) for m in (first, second)]
        common: dict[str, dict[Draw, tuple[Record, Record]]] = {}
        for (recipe, draw), run in sides[0].items():
            if (recipe, draw) in sides[1]:
                common.setdefault(recipe, {})[draw] = (run, sides[1][recipe, draw])
        some = max(common.values(), key=lambda p: _rank([run for run, _ in p.values()]), default={})
        if some and (best is None or len(some) > len(best.runs)):
            ordered = sorted(some, key=lambda d: (d[0], -1 if d[1] is None else d[1]))
            best = Pairs(first, second, {draw: some[draw] for draw in ordered})
        # Claims that are judged together are to be about one model.
        if best is not None and len(best.runs) >= LEAST_SEEDS:
            return best
    return best


def _compare(names: Sequence[str], task: str, recipe: Sequence[str] = ()) -> str:
    """The command that trains both; what the papers' presets need goes into the recipe."""
    words = [*map(shlex.quote, names), "--task", task]
    return " ".join(["attnbench compare", *words, *(f"--recipe {value}" for value in recipe)])


def _metric(claim: Claim) -> str:
    return str(claim.parameters.get("metric", "accuracy"))


def _models(claim: Claim, runs: Sequence[Record]) -> Iterator[tuple[str, str]]:
    recorded = [str(r["model"]) for r in runs]
    p = claim.parameters
    seconds = first_fitting(p["second"], recorded)
    for first in first_fitting(p["first"], recorded):
        for second in seconds:
            if first != second and same_form(first, second, p["first"]):
                yield first, second


def concluded(pairs: Pairs, task: str, metric: str, records: Sequence[Record]) -> Comparison:
    """What `harness.experiments` says of these pairs, as if they were one declared comparison."""
    some = next(iter(pairs.runs.values()))
    design = {
        "kind": "design", "key": digest(["claim", *pairs.keys]), "question": "", "at": "",
        "models": [pairs.first, pairs.second], "task": task, "metric": metric,
        "higher_is_better": metric not in LOWER_IS_BETTER, "one_test_set": False,
        "recipes": [{"choose": "dev", "tuning_trials": 0, **dict(r.get("recipe") or {})}
                    for r in some],
        "seeds": [seed for seed, _ in pairs.runs],
        "folds": len({fold for _, fold in pairs.runs if fold is not None}),
        "margin": None, "match": "none",
        "runs": [[a["key"], b["key"]] for a, b in pairs.runs.values()],
    }  # fmt: skip
    return conclude(design, records)


def accuracy_difference(claim: Claim, device: Measured) -> Finding:
    """Test metric of the first minus the second, paired by seed (or fold); positive: first better.

    Parameters: ``first``, ``second`` (names, the preferred first), ``task``, ``metric``; ``recipe``
    is what the command that trains them adds.
    """
    p = claim.parameters
    task, metric = p["task"], _metric(claim)
    pairs = pairs_of(claim, device)
    if pairs is None:
        names = [alternatives(p[side])[0] for side in ("first", "second")]
        what = f"no {names[0]} beside {names[1]} on {task}"
        return not_measured(what, _compare(names, task, p.get("recipe", ())))
    comparison = concluded(pairs, task, metric, device.records)
    d = comparison.difference
    if d is None:
        return Finding(reason=f"no finished pair on {task}.", keys=pairs.keys, answer="undecided")
    unit = unit_of(metric)
    sign = -1 if metric in LOWER_IS_BETTER else 1
    ends = sorted((sign * unit.scale * d.low, sign * unit.scale * d.high))
    said = (
        f"{pairs.first} {unit.value(d.mean_first)}, {pairs.second} {unit.value(d.mean_second)} "
        f"on {task} ({metric}), {d.count_first} {_what(pairs)}"
    )
    answer: Answer | None = None
    sides = zip(*pairs.runs.values(), strict=True)
    for whole in selecting_everything(zip((pairs.first, pairs.second), sides, strict=True)):
        said += f"; {whole}"
        answer = "undecided"
    if d.count_first < LEAST_SEEDS:
        said += f": fewer than {LEAST_SEEDS}, nothing is concluded"
        answer = "undecided"
    return Finding(
        sign * unit.scale * d.difference, ends[0], ends[1], f"{said}; p = {d.p:.2g}.", pairs.keys,
        answer=answer,
        # An equality is not concluded from this test.
        p=d.p if answer is None and "positive" in claim.tolerance else math.nan,
    )  # fmt: skip


def _what(pairs: Pairs) -> str:
    return "paired folds" if any(fold is not None for _, fold in pairs.runs) else "paired seeds"


def epoch_ratio(claim: Claim, device: Measured) -> Finding:
    """Seconds per training epoch of the first over the second, paired by seed.

    Parameters as of `accuracy_difference`.
    """
    p = claim.parameters
    pairs = pairs_of(claim, device)
    if pairs is None:
        names = [alternatives(p[side])[0] for side in ("first", "second")]
        what = f"no {names[0]} beside {names[1]} on {p['task']}"
        return not_measured(what, _compare(names, p["task"]))
    ratios = [epoch_seconds(a) / epoch_seconds(b) for a, b in pairs.runs.values()]
    interval = ratio_interval(ratios)
    said = f"{pairs.first} over {pairs.second}: {interval} in seconds per epoch on {p['task']}"
    if interval.count < LEAST_SEEDS:
        return Finding(
            interval.ratio, interval.low, interval.high,
            f"{said}; fewer than {LEAST_SEEDS} seeds.", pairs.keys, answer="undecided",
        )  # fmt: skip
    return Finding(interval.ratio, interval.low, interval.high, f"{said}.", pairs.keys)


def selected_shares(claim: Claim, device: Measured) -> Finding:
    """Share of tokens selected as dependents minus that selected as heads, in points, over seeds.

    Parameters: ``first`` (names), ``task``.
    """
    p = claim.parameters
    models = first_fitting(p["first"], [str(r["model"]) for r in device.runs])
    for model in models:
        runs = [
            r
            for r in device.runs
            if r["model"] == model and r.get("task") == p["task"] and _shares(r) is not None
        ]
        if runs:
            by_recipe: dict[str, list[Record]] = {}
            for (recipe, _), run in _newest(runs).items():
                by_recipe.setdefault(recipe, []).append(run)
            return _more_dependents(model, p["task"], max(by_recipe.values(), key=_rank))
    name = alternatives(p["first"])[0]
    return not_measured(
        f"no trained {name} on {p['task']}", f"attnbench train {name} --task {p['task']}"
    )


def _shares(run: Record) -> tuple[float, float] | None:
    found = run.get("selected")
    if not isinstance(found, Mapping) or not {"heads", "dependents"} <= found.keys():
        return None
    return float(found["dependents"]), float(found["heads"])


def _more_dependents(model: str, task: str, runs: Sequence[Record]) -> Finding:
    shares = [found for r in runs if (found := _shares(r)) is not None]
    dependents, heads = [100 * d for d, _ in shares], [100 * h for _, h in shares]
    d: MeanDifference = compare_means(dependents, heads, paired=True)
    said = (
        f"{model} on {task} selects {d.mean_first:.1f} % of the tokens as dependents, "
        f"{d.mean_second:.1f} % as heads, {d.count_first} seeds"
    )
    few = d.count_first < LEAST_SEEDS
    return Finding(
        d.difference, d.low, d.high, f"{said}{': too few to conclude' if few else ''}.",
        tuple(str(r["key"]) for r in runs), answer="undecided" if few else None,
    )  # fmt: skip
