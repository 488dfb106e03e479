"""Claims about models: trained, looked at while they attend, or checked exactly."""

from __future__ import annotations

import math
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.experiments.costs import epoch_seconds
from harness.experiments.warnings import selecting_everything
from harness.experiments.wording import unit_of
from harness.stats import compare_means, ratio_interval, t_interval
from harness.train.task import by_common_recipe
from reports.claims.device import (
    DeviceFrames,
    Record,
    alternatives,
    first_fitting,
    not_measured,
    same_form,
)
from reports.claims.record import Claim
from reports.claims.verdict import Answer, Evidence
from reports.core.trained import Against, ModelRuns, against, recipe_of

LEAST_SEEDS = 5
"""With fewer nothing is concluded."""

Draw = tuple[int, int | None]
"""Seed, and fold where there are folds."""


@dataclass(frozen=True)
class PairedRuns:
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


def pairs_of(claim: Claim, device: DeviceFrames) -> PairedRuns | None:
    """The preferred pair of models with enough draws in common, or the one with most."""
    task, metric = claim.parameters["task"], _metric(claim)
    runs = [r for r in device.runs if r.get("task") == task and metric in r["test"]]
    best: PairedRuns | None = None
    for first, second in _models(claim, runs):
        sides = [_newest([r for r in runs if r["model"] == m]) for m in (first, second)]
        common: dict[str, dict[Draw, tuple[Record, Record]]] = {}
        for (recipe, draw), run in sides[0].items():
            if (recipe, draw) in sides[1]:
                common.setdefault(recipe, {})[draw] = (run, sides[1][recipe, draw])
        some = max(common.values(), key=lambda p: _rank([run for run, _ in p.values()]), default={})
        if some and (best is None or len(some) > len(best.runs)):
            ordered = sorted(some, key=lambda d: (d[0], -1 if d[1] is None else d[1]))
            best = PairedRuns(first, second, {draw: some[draw] for draw in ordered})
        # Claims that are judged together are to be about one model.
        if best is not None and len(best.runs) >= LEAST_SEEDS:
            return best
    return best


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


def _difference(pairs: PairedRuns, task: str, metric: str) -> Against | None:
    """The one model against the other over these pairs; None where nothing can be said."""
    first, second = (
        ModelRuns(model, task, metric, tuple(pair[side] for pair in pairs.runs.values()))
        for side, model in enumerate((pairs.first, pairs.second))
    )
    return against(first, second)


def _none_paired(claim: Claim, recipe: Sequence[str] = ()) -> Evidence:
    p = claim.parameters
    first, second = (alternatives(p[side])[0] for side in ("first", "second"))
    # What the papers' presets need goes into the recipe of the command that trains both.
    words = [shlex.quote(first), shlex.quote(second), "--task", p["task"]]
    words += [f"--recipe {value}" for value in recipe]
    what = f"no {first} beside {second} on {p['task']}"
    return not_measured(what, f"attnbench compare {' '.join(words)}")


def accuracy_difference(claim: Claim, device: DeviceFrames) -> Evidence:
    """Test metric of the first minus the second, paired by seed (or fold); positive: first better.

    Parameters: ``first``, ``second`` (names, the preferred first), ``task``, ``metric``; ``recipe``
    is what the command that trains them adds.
    """
    p = claim.parameters
    task, metric = p["task"], _metric(claim)
    pairs = pairs_of(claim, device)
    if pairs is None:
        return _none_paired(claim, p.get("recipe", ()))
    found = _difference(pairs, task, metric)
    if found is None:
        return Evidence(reason=f"no finished pair on {task}.", keys=pairs.keys, answer="undecided")
    d, unit = found.difference, unit_of(metric)
    scale = unit.scale if found.model.higher_is_better else -unit.scale
    low, high = sorted((scale * d.low, scale * d.high))
    folds = any(fold is not None for _, fold in pairs.runs)
    said = (
        f"{pairs.first} {unit.value(d.mean_first)}, {pairs.second} {unit.value(d.mean_second)} "
        f"on {task} ({metric}), {d.count_first} paired {'folds' if folds else 'seeds'}"
    )
    answer: Answer | None = None
    for whole in selecting_everything((m.model, m.runs) for m in (found.model, found.other)):
        said += f"; {whole}"
        answer = "undecided"
    if d.count_first < LEAST_SEEDS:
        said += f": fewer than {LEAST_SEEDS}, nothing is concluded"
        answer = "undecided"
    # An equality is not concluded from this test.
    p_value = d.p if answer is None and "positive" in claim.tolerance else math.nan
    said = f"{said}; p = {d.p:.2g}."
    return Evidence(scale * d.difference, low, high, said, pairs.keys, answer=answer, p=p_value)


def epoch_ratio(claim: Claim, device: DeviceFrames) -> Evidence:
    """Seconds per training epoch of the first over the second, paired by seed.

    Parameters as of `accuracy_difference`.
    """
    pairs = pairs_of(claim, device)
    if pairs is None:
        return _none_paired(claim)
    interval = ratio_interval([epoch_seconds(a) / epoch_seconds(b) for a, b in pairs.runs.values()])
    said = (
        f"{pairs.first} over {pairs.second}: {interval} in seconds per epoch on "
        f"{claim.parameters['task']}"
    )
    few = interval.count < LEAST_SEEDS
    return Evidence(
        interval.ratio,
        interval.low,
        interval.high,
        f"{said}; fewer than {LEAST_SEEDS} seeds." if few else f"{said}.",
        pairs.keys,
        answer="undecided" if few else None,
    )


def selected_shares(claim: Claim, device: DeviceFrames) -> Evidence:
    """Share of tokens selected as dependents minus that selected as heads, in points, over seeds.

    Parameters: ``first`` (names), ``task``.
    """
    p = claim.parameters
    for model in first_fitting(p["first"], [str(r["model"]) for r in device.runs]):
        runs = [
            r
            for r in device.runs
            if r["model"] == model
            and r.get("task") == p["task"]
            and {"heads", "dependents"} <= (r.get("selected") or {}).keys()
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


def _more_dependents(model: str, task: str, runs: Sequence[Record]) -> Evidence:
    dependents, heads = (
        [100 * float(r["selected"][side]) for r in runs] for side in ("dependents", "heads")
    )
    d = compare_means(dependents, heads, paired=True)
    said = (
        f"{model} on {task} selects {d.mean_first:.1f} % of the tokens as dependents, "
        f"{d.mean_second:.1f} % as heads, {d.count_first} seeds"
    )
    few = d.count_first < LEAST_SEEDS
    return Evidence(
        d.difference,
        d.low,
        d.high,
        f"{said}{': too few to conclude' if few else ''}.",
        tuple(str(r["key"]) for r in runs),
        answer="undecided" if few else None,
    )


def content_over_stop_words(claim: Claim, device: DeviceFrames) -> Evidence:
    """A number per token, nouns and verbs less stop words, over the sentences that have both.

    The interval is over sentences, of one trained model: other seeds are not in it.

    Parameters: ``first`` (names), ``number`` (a kind of `harness.attention.reduce.importance`).
    """
    return _of_newest(claim, device, "contrast", 1.0)


def share_of_stop_words(claim: Claim, device: DeviceFrames) -> Evidence:
    """The share of stop words that are selected so, in percent, over the sentences that have some.

    Interval and parameters as of `content_over_stop_words`.
    """
    return _of_newest(claim, device, "stop_words", 100.0)


def _of_newest(claim: Claim, device: DeviceFrames, field: str, scale: float) -> Evidence:
    p = claim.parameters
    looked = [
        r
        for r in device.records
        if r["kind"] == "attention" and r["status"] == "ok" and p["number"] in (r.get(field) or {})
    ]
    models = first_fitting(p["first"], [str(r["model"]) for r in looked])
    if not models:
        name = alternatives(p["first"])[0]
        return not_measured(
            f"no trained {name} was looked at on sentences with parts of speech",
            f"attnbench train {name} --task {p.get('task', 'trec')} --look",
        )
    mine = [r for r in looked if r["model"] == models[0]]
    newest = max(mine, key=lambda r: str(r.get("at")))
    return _spread(newest, newest[field][p["number"]], scale)


def _spread(record: Record, found: Mapping[str, Any], scale: float) -> Evidence:
    mean, count = scale * float(found["mean"]), int(found["sentences"])
    key = (str(record["key"]),)
    said = f"{record['model']} on {record['task']}, seed {record['seed']}, {count} sentences"
    if count < 2:
        return Evidence(mean, reason=f"{said}: too few to conclude.", keys=key, answer="undecided")
    _, low, high = t_interval(mean, scale * float(found["sd"]), count)
    reason = f"{said}; the interval is over sentences, of this one model."
    return Evidence(mean, low, high, reason, key)


COMMAND = "attnbench verify --exact"


def exact(claim: Claim, device: DeviceFrames) -> Evidence:
    """What a recorded check says. Parameters: ``check``, and ``part`` for one part of it."""
    p = claim.parameters
    record = device.exact.get(p["check"])
    if record is None:
        return not_measured(f"no record of the check {p['check']!r}", COMMAND)
    part: Mapping[str, Any] = record
    if "part" in p:
        parts = record.get("parts")
        found = parts.get(p["part"]) if isinstance(parts, Mapping) else None
        if not isinstance(found, Mapping):
            return not_measured(f"no part {p['part']!r} of the check {p['check']!r}", COMMAND)
        part = found
    answers: dict[Any, Answer] = {"ok": "reproduced", "wrong": "not reproduced"}
    verdict = part.get("verdict")
    value = part.get("value")
    size = float(value) if isinstance(value, int | float) else math.nan
    return Evidence(
        size,
        size,
        size,
        f"{part.get('detail') or record.get('detail') or verdict}",
        (str(record["key"]),),
        answer=answers.get(verdict, "undecided"),
    )
