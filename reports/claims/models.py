"""Claims about models: trained, looked at while they attend, or checked exactly."""

from __future__ import annotations

import itertools
import math
import shlex
import statistics
from collections.abc import Iterable, Sequence
from typing import Any

from harness.experiments.costs import epoch_seconds
from harness.experiments.estimate import sought
from harness.experiments.replicates import EXPLORATORY, Replicate, unit_of
from harness.experiments.training import training_flaws
from harness.experiments.warnings import selecting_everything
from harness.stats import ALPHA, compare_means, judged_p, ratio_interval, t_interval
from harness.train.task import by_common_recipe
from reports.claims.declared import (
    beside_printed,
    by_common,
    by_design,
    declared_for,
    keys_of,
    recipes_told,
    sides_of,
)
from reports.claims.device import (
    DeviceFrames,
    Record,
    alternatives,
    first_fitting,
    fitting_pairs,
    not_measured,
)
from reports.claims.record import Claim
from reports.claims.verdict import Answer, Evidence, Precedence, of_difference
from reports.core.against import against
from reports.core.recipes import recipe_of
from reports.core.trained import ModelRuns, reads_files, replicate_of

LEAST_SEEDS = 5
"""With fewer nothing is concluded."""


def _newest(runs: Iterable[Record]) -> dict[tuple[str, Replicate], Record]:
    """By recipe and replicate, the newest run of each."""
    ordered = sorted(runs, key=lambda r: str(r.get("at")))
    return {(recipe_of(r), replicate_of(r)): r for r in ordered}


def _rank(runs: Sequence[Record]) -> tuple[int, bool, str]:
    """Of runs by one recipe: how many, whether it is the task's common one, when the last was."""
    return len(runs), by_common_recipe(runs[0]), max(str(r.get("at")) for r in runs)


def pairs_of(claim: Claim, device: DeviceFrames) -> list[tuple[Record, Record]]:
    """Runs of two models that differ in the model alone, replicate by replicate.

    Of the preferred pair of models with enough replicates in common, or the one with most.
    """
    task = claim.parameters["task"]
    runs = [r for r in device.runs if r.get("task") == task and claim.metric in r["test"]]
    best: list[tuple[Record, Record]] = []
    for names in fitting_pairs(claim, (str(r["model"]) for r in runs)):
        mine, theirs = (_newest(r for r in runs if r["model"] == name) for name in names)
        common: dict[str, list[tuple[Record, Record]]] = {}
        both = (at for at in mine if at in theirs)
        for at in sorted(both, key=lambda at: (at[1].seed, at[1].fold or 0)):
            common.setdefault(at[0], []).append((mine[at], theirs[at]))
        some = max(common.values(), key=lambda pairs: _rank([run for run, _ in pairs]), default=[])
        best = max(best, some, key=len)
        # Claims that are judged together are to be about one model.
        if len(best) >= LEAST_SEEDS:
            return best
    return best


def none_paired(claim: Claim) -> Evidence:
    """That no runs of both are there, and what makes some."""
    p = claim.parameters
    first, second = (alternatives(p[side])[0] for side in ("first", "second"))
    # What the papers' presets need goes into the recipe of the command that trains both.
    words = [shlex.quote(first), shlex.quote(second), "--task", p["task"]]
    words += [f"--recipe {value}" for value in p.get("recipe", ())]
    words += ["--data DIR"] * reads_files(p["task"])
    what = f"no {first} beside {second} on {p['task']}"
    return not_measured(what, f"attnbench compare {' '.join(words)}")


def accuracy_difference(claim: Claim, device: DeviceFrames) -> Evidence:
    """Test metric of the first minus the second, paired by seed (or fold); positive: first better.

    Parameters: ``first``, ``second`` (names, the preferred first), ``task``, ``metric``; ``recipe``
    is what the command that trains them adds.
    """
    if declared := declared_for(claim, device):
        return by_design(claim, declared, device.everywhere)
    p = claim.parameters
    task, metric = p["task"], claim.metric
    pairs = pairs_of(claim, device)
    if not pairs:
        return none_paired(claim)
    keys = keys_of(itertools.chain(*pairs))
    first, second = (
        ModelRuns(str(runs[0]["model"]), task, metric, runs) for runs in zip(*pairs, strict=True)
    )
    found = against(first, second)
    if found is None:
        return Evidence(reason=f"no finished pair on {task}.", keys=keys, answer="undecided")
    d, unit = found.difference, unit_of(metric)
    names, sides = (first.model, second.model), (first.runs, second.runs)
    flaws = training_flaws(names, sides, metric, first.higher_is_better)
    void = [*selecting_everything(zip(names, sides, strict=True)), *(one.said for one in flaws)]
    means = (
        f"{first.model} {unit.value(d.mean_first)}, {second.model} {unit.value(d.mean_second)} "
        f"on {task} ({metric}), {found.counted}"
    )
    said = "; ".join([means, *void])
    few = d.count_first < LEAST_SEEDS
    if few:
        said += f": fewer than {LEAST_SEEDS}, nothing is concluded"
    answer: Answer | None = "undecided" if void or few else None
    p_value = math.nan
    if answer is None and "positive" in claim.tolerance:  # of an equality the interval decides
        p_value = judged_p(d)
        # Without spread the interval is a point, and says nothing.
        answer = "undecided" if d.low == d.high and not p_value < ALPHA else None
    how = recipes_told(dict(zip(names, sides, strict=True)))
    # Where nothing is shown, what could have been.
    shown = d.low == d.high or not d.low <= 0 <= d.high
    open_ = "" if shown else sought(d, None, 1, bool(flaws)).short(unit)
    here = beside_printed(task, metric, {first.model: d.mean_first, second.model: d.mean_second})
    p_text = "" if few else f"; p = {judged_p(d):.2g}{open_}"
    told = "; ".join([f"{said}{p_text}", *here, how])
    said = f"{EXPLORATORY}: {told}; declared in no family."
    scale = unit.scale if first.higher_is_better else -unit.scale
    places = next(places for _, places in sides_of(claim, *names))
    runs = [*first.runs, *second.runs]
    precedence = Precedence(
        enough=not few,
        alike=not flaws,
        near=-sum(places),
        common=all(map(by_common, runs)),
        together=1,
        at=max(str(r.get("at")) for r in runs),
    )
    return of_difference(d, scale, said, keys, answer, p_value, precedence)


def epoch_ratio(claim: Claim, device: DeviceFrames) -> Evidence:
    """Seconds per training epoch of the first over the second, paired by seed.

    Nothing is concluded where several runs were trained at a time, which slow each other, or where
    a policy selects everything. Parameters as of `accuracy_difference`.
    """
    pairs = pairs_of(claim, device)
    if not pairs:
        return none_paired(claim)
    keys = keys_of(itertools.chain(*pairs))
    first, second = pairs[0]
    t = ratio_interval([epoch_seconds(a) / epoch_seconds(b) for a, b in pairs])
    said = (
        f"{first['model']} over {second['model']}: {t} in seconds per epoch on "
        f"{claim.parameters['task']}"
    )
    sides = [list(side) for side in zip(*pairs, strict=True)]
    crowded = sum(any(int(r.get("workers") or 1) > 1 for r in pair) for pair in pairs)
    void = [f"fewer than {LEAST_SEEDS} seeds"] * (t.count < LEAST_SEEDS)
    if crowded:
        void.append(f"{crowded} of {t.count} pairs were trained beside other runs")
    void += selecting_everything((str(side[0]["model"]), side) for side in sides)
    said = "; ".join([said, *void])
    return Evidence(t.ratio, t.low, t.high, f"{said}.", keys, answer="undecided" if void else None)


def selected_shares(claim: Claim, device: DeviceFrames) -> Evidence:
    """Share of tokens selected as dependents minus that selected as heads, in points, over seeds.

    Parameters: ``first`` (names), ``task``.
    """
    p = claim.parameters
    selecting = [
        r
        for r in device.runs
        if r.get("task") == p["task"]
        and {"heads", "dependents"} <= (r.get("selected") or {}).keys()
    ]
    models = first_fitting(p["first"], [str(r["model"]) for r in selecting])
    if not models:
        name = alternatives(p["first"])[0]
        return not_measured(
            f"no trained {name} on {p['task']}", f"attnbench train {name} --task {p['task']}"
        )
    by_recipe: dict[str, list[Record]] = {}
    for (recipe, _), run in _newest(r for r in selecting if r["model"] == models[0]).items():
        by_recipe.setdefault(recipe, []).append(run)
    runs = max(by_recipe.values(), key=_rank)
    dependents, heads = (
        [float(r["selected"][side]) for r in runs] for side in ("dependents", "heads")
    )
    d, unit = compare_means(dependents, heads, paired=True), unit_of("accuracy")
    few = d.count_first < LEAST_SEEDS
    open_ = sought(d, None, 1).short(unit) if d.low < 0 < d.high else ""
    said = (
        f"{EXPLORATORY}: {models[0]} on {p['task']} selects {100 * d.mean_first:.1f} % of the "
        f"tokens as dependents, {100 * d.mean_second:.1f} % as heads, {d.count_first} seeds"
        f"{': too few to conclude' if few else open_}; declared nowhere."
    )
    answer: Answer | None = "undecided" if few else None
    return of_difference(d, unit.scale, said, keys_of(runs), answer)


def content_over_stop_words(claim: Claim, device: DeviceFrames) -> Evidence:
    """A number per token, nouns and verbs less stop words, over the sentences that have both.

    The interval is over seeds; of fewer than `LEAST_SEEDS` nothing is concluded.

    Parameters: ``first`` (names), ``number`` (a kind of `harness.attention.reduce.importance`).
    """
    return _over_sentences(claim, device, "contrast", 1.0)


def share_of_stop_words(claim: Claim, device: DeviceFrames) -> Evidence:
    """The share of stop words that are selected so, in percent, over the sentences that have some.

    Interval and parameters as of `content_over_stop_words`.
    """
    return _over_sentences(claim, device, "stop_words", 100.0)


def _over_sentences(claim: Claim, device: DeviceFrames, field: str, scale: float) -> Evidence:
    """What the newest looks at a model of the preferred name found, one for each seed."""
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
    mine = sorted((r for r in looked if r["model"] == models[0]), key=lambda r: str(r.get("at")))
    newest = mine[-1]
    alike = [r for r in mine if r["task"] == newest["task"] and recipe_of(r) == recipe_of(newest)]
    by_seed = {int(r["seed"]): r for r in alike}
    runs = [by_seed[seed] for seed in sorted(by_seed)]
    found = [r[field][p["number"]] for r in runs]
    means = [scale * float(one["mean"]) for one in found]
    mean = statistics.fmean(means)
    sentences = min(int(one["sentences"]) for one in found)
    said = (
        f"{newest['model']} on {newest['task']}, {len(runs)} seed{'s' * (len(runs) != 1)}, "
        f"{sentences} sentences"
    )
    others = _also_looked_at(field, p["number"], scale, [r for r in mine if r not in alike])
    keys = keys_of(runs)
    if len(runs) < LEAST_SEEDS:
        few = f"{said}: fewer than {LEAST_SEEDS} seeds, nothing is concluded{others}."
        return Evidence(mean, mean, mean, few, keys, answer="undecided")
    _, low, high = t_interval(mean, statistics.stdev(means), len(means))
    whole = selecting_everything([(newest["model"], runs)])
    answer: Answer | None = "undecided" if whole else None
    told = f"{EXPLORATORY}: {'; '.join([said, *whole])}; declared nowhere{others}."
    return Evidence(mean, low, high, told, keys, answer=answer)


def _also_looked_at(field: str, number: str, scale: float, looked: Sequence[Record]) -> str:
    """What looks at the same model found on other tasks, or by other recipes; empty without any."""
    found: dict[str, dict[int, float]] = {}
    for r in looked:
        found.setdefault(str(r["task"]), {})[int(r["seed"])] = scale * float(
            r[field][number]["mean"]
        )
    said = [
        f"{statistics.fmean(by_seed.values()):+.3g} on {task} ({len(by_seed)} "
        f"seed{'s' * (len(by_seed) != 1)})"
        for task, by_seed in sorted(found.items())
    ]
    return f"; also looked at: {', '.join(said)}" if said else ""


COMMAND = "attnbench verify --exact"


def exact(claim: Claim, device: DeviceFrames) -> Evidence:
    """What a recorded check says. Parameters: ``check``, and ``part`` for one part of it."""
    p = claim.parameters
    record = device.exact.get(p["check"])
    if record is None:
        return not_measured(f"no record of the check {p['check']!r}", COMMAND)
    part: Any = (record.get("parts") or {}).get(p["part"]) if "part" in p else record
    if part is None:
        return not_measured(f"no part {p['part']!r} of the check {p['check']!r}", COMMAND)
    answers: dict[Any, Answer] = {"ok": "reproduced", "wrong": "not reproduced"}
    verdict, value = part.get("verdict"), part.get("value")
    size = float(value) if isinstance(value, int | float) else math.nan
    said = f"{part.get('detail') or record.get('detail') or verdict}"
    keys = (str(record["key"]),)
    return Evidence(size, size, size, said, keys, answer=answers.get(verdict, "undecided"))
