"""What training took, and what further runs will take: from run records."""

from __future__ import annotations

import heapq
import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import accumulate
from typing import Any

from harness.experiments.design import Run
from harness.records import schema
from harness.train.recipe import EVALUATION_BATCH, identity
from harness.train.task import LAST_STAGE

POLICY_STAGE = "policy"
"""Of ReSAN's training, see `harness.train.reinforce`."""
DONE = ("ok", "diverged")
"""Statuses of runs whose time says something of others'."""

_Kind = tuple[str, str, str, str]


@dataclass(frozen=True)
class TrainingCost:
    """What training a model took, medians over its runs."""

    # parameters, parameters_with_words: trained weights without and with word vectors.
    parameters: int
    parameters_with_words: int
    seconds: float  # seconds, seconds_per_epoch: wall time, several runs at a time on this machine
    seconds_per_epoch: float
    epochs: float
    chosen_epoch: float
    # steps, examples: of the optimiser, and training examples in them, each as often as it was
    # seen; nan where the records don't tell.
    steps: float
    examples: float
    peak_bytes: float  # beyond loaded data, libraries and weights; nan where it can't be measured
    test_seconds: float  # a pass over the test split; nan where the records don't tell


def costs_of(runs: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, TrainingCost]:
    """`TrainingCost` by model, of its runs; none for a model without a finished one."""
    good = {model: [r for r in mine if r["status"] == "ok"] for model, mine in runs.items()}
    return {model: _cost(finished) for model, finished in good.items() if finished}


def epoch_seconds(run: Mapping[str, Any]) -> float:
    """Median seconds of a run's epochs; nan without one.

    Of a run in stages (a model with policies) the epochs of its last stage, in which all of it is
    trained: before that nothing is sampled, and the policies' own stage is no epoch of the data.
    """
    epochs = [e for e in run.get("epochs") or () if "seconds" in e]
    if any("stage" in e for e in epochs):
        epochs = [e for e in epochs if e.get("stage") == LAST_STAGE]
    return float(statistics.median(e["seconds"] for e in epochs)) if epochs else math.nan


def batch_seconds(run: Mapping[str, Any]) -> float:
    """Seconds of `EVALUATION_BATCH` test examples; nan where the record does not tell."""
    seconds, examples = run.get("test_seconds"), (run.get("examples") or {}).get("test")
    if not seconds or type(examples) is not int or examples < 1:
        return math.nan
    return float(EVALUATION_BATCH * seconds / examples)


def epoch_steps(run: Mapping[str, Any]) -> list[int] | None:
    """Steps of the optimiser in each epoch of a run; None where the record does not tell.

    A policy's own stage is no epoch of the data, and has as many steps as the recipe says.
    """
    recipe, count = run.get("recipe") or {}, (run.get("examples") or {}).get("train")
    if not count or not recipe.get("batch"):
        return None
    each = math.ceil(count / recipe["batch"])  # older records have no steps
    own = recipe.get("policy_steps", 0)
    return [
        own if e.get("stage") == POLICY_STAGE else int(e.get("steps", each)) for e in run["epochs"]
    ]


def steps_of(run: Mapping[str, Any]) -> tuple[int, int] | None:
    """Steps of the optimiser in all epochs of a run, and the examples in them; None: not told."""
    steps = epoch_steps(run)
    if steps is None:
        return None
    policy = [
        s for s, e in zip(steps, run["epochs"], strict=True) if e.get("stage") == POLICY_STAGE
    ]
    of_data = (len(steps) - len(policy)) * run["examples"]["train"]
    return sum(steps), of_data + sum(policy) * run["recipe"]["batch"]


def at_ceiling(run: Mapping[str, Any]) -> bool:
    """Whether a run was ended by the number of epochs that its recipe allows, not by patience.

    False where its record does not tell.
    """
    recipe, epochs = run.get("recipe") or {}, run["epochs"]
    stage = epochs[-1].get("stage") if epochs else None
    allowed = recipe.get("policy_epochs" if stage == LAST_STAGE else "epochs")
    patience = recipe.get("patience")
    if not epochs or allowed is None or patience is None:
        return False
    count = sum(epoch.get("stage") == stage for epoch in epochs)
    return bool(count >= allowed and len(epochs) - run["chosen_epoch"] < patience)


def at_the_end(run: Mapping[str, Any]) -> int:
    """How many epochs are the end of a run: as many as patience has, a quarter where it ends none.

    By a paper's steps patience is as long as all epochs.
    """
    patience, epochs = int(run["recipe"]["patience"]), len(run["epochs"])
    return patience if patience < epochs else max(1, epochs // 4)


def still_gains(run: Mapping[str, Any], higher_is_better: bool) -> float:
    """How much better the metric is at last than it was `at_the_end` epochs before, each the best.

    Of the split by which epochs are chosen; 0 for a run that was ended by patience, nan where no
    such epoch is told.
    """
    if not at_ceiling(run):
        return 0.0
    sign = 1 if higher_is_better else -1
    told = [sign * value for value in _chosen_by(run, next(iter(run["test"])))]
    before = told[: max(1, len(told) - at_the_end(run))]
    return max(told) - max(before)


def best_within(run: Mapping[str, Any], metric: str, higher_is_better: bool, steps: float) -> float:
    """The best that an epoch of a run's first so many steps had, of what epochs are chosen by.

    nan where its first epoch is over later, or where its record does not tell.
    """
    ends = accumulate(epoch_steps(run) or ())
    told = [
        value for value, end in zip(_chosen_by(run, metric), ends, strict=False) if end <= steps
    ]
    known = [value for value in told if not math.isnan(value)]
    return (max if higher_is_better else min)(known, default=math.nan)


def at_dev_epoch(run: Mapping[str, Any], metric: str, higher_is_better: bool) -> float:
    """A run's test metric after the epoch that dev would have chosen.

    nan unless it kept both metrics of every epoch.
    """
    both = list(zip(*(_by_epoch(run, split, metric) for split in ("dev", "test")), strict=True))
    if not both or any(math.isnan(dev + test) for dev, test in both):
        return math.nan
    sign = 1 if higher_is_better else -1
    return max(both, key=lambda one: sign * one[0])[1]


def _chosen_by(run: Mapping[str, Any], metric: str) -> list[float]:
    """By epoch the metric of the split by which epochs are chosen; nan where it is not told."""
    choose = (run.get("recipe") or {}).get("choose")
    split = "test" if choose == "best-on-test" else "dev"
    return _by_epoch(run, split, metric)


def _by_epoch(run: Mapping[str, Any], split: str, metric: str) -> list[float]:
    """A metric of a split after each epoch; nan where it is not told."""
    return [float((e.get(split) or {}).get(metric, math.nan)) for e in run.get("epochs") or ()]


def run_seconds(run: Mapping[str, Any]) -> float | None:
    """Wall time of a run, all its pieces together; None where no time is known.

    Of a run that went on from a checkpoint its own clock has all, the task's only the rest; of one
    that failed there is the task's alone.
    """
    said: list[Any] = [run.get("task_seconds"), run.get("seconds")]
    times = [float(t) for t in said if type(t) in (int, float) and 0 < t < math.inf]
    return max(times) if times else None


def hours_of(runs: Iterable[Mapping[str, Any]]) -> float:
    """Wall time of some runs, one after the other; those whose time is not known count nothing."""
    return sum(run_seconds(run) or 0.0 for run in runs) / 3600


def over_budget(plan: Mapping[str, Any] | None, runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """A warning where runs took longer than the file that declares them allows."""
    spent = hours_of(runs)
    if plan is None or spent <= plan["hours"]:
        return []
    return [f"all runs together took {spent:.3g} h; {plan['file']} allows {plan['hours']:g} h"]


def _cost(runs: Sequence[Mapping[str, Any]]) -> TrainingCost:
    def middle(values: Iterable[float | None]) -> float:
        known = [value for value in values if value is not None]
        return float(statistics.median(known)) if known else math.nan

    steps = [steps_of(r) or (None, None) for r in runs]
    return TrainingCost(
        parameters=runs[0]["parameters"],
        parameters_with_words=runs[0]["parameters_with_words"],
        seconds=middle(r["seconds"] for r in runs),
        seconds_per_epoch=middle(epoch_seconds(r) for r in runs),
        epochs=middle(len(r["epochs"]) for r in runs),
        chosen_epoch=middle(r["chosen_epoch"] for r in runs),
        steps=middle(s for s, _ in steps),
        examples=middle(e for _, e in steps),
        peak_bytes=middle(r.get("peak_bytes") for r in runs),
        test_seconds=middle(r.get("test_seconds") for r in runs),
    )


def coverage(runs: Sequence[Mapping[str, Any]]) -> str:
    """The share of the words that have a vector, alike for all runs; empty without words."""
    known = [r["coverage"] for r in runs if r.get("coverage")]
    if not known:
        return ""
    c = known[0]
    running = 100 * c["covered_running"] / max(c["running_words"], 1)
    return (
        f"vectors {c['vectors']} cover {100 * c['covered'] / max(c['vocabulary'], 1):.1f} % of "
        f"{c['vocabulary']:,} words, {running:.1f} % of "
        f"{c['running_words']:,} running words"
    )


def workload(runs: Iterable[Mapping[str, Any]]) -> str:
    """Padding of the batches, and what of training are its passes; empty where no run tells.

    Medians over the runs of all models: batches are alike for them, where the recipe is.
    """
    said, runs = [], list({r["key"]: r for r in runs}.values())
    if padded := [r["padding"] for r in runs if r.get("padding") is not None]:
        said.append(f"{statistics.median(padded):.1%} of the positions in batches are padding")
    epochs = [
        e for r in runs for e in r.get("epochs") or () if e.get("passes") and e.get("seconds")
    ]
    if epochs:
        passes, judging = (
            statistics.median(e.get(name, 0.0) / e["seconds"] for e in epochs)
            for name in ("passes", "judging")
        )
        said.append(
            f"of an epoch {passes:.0%} are forward and backward passes, {judging:.0%} judging it; "
            "the rest is batches and the optimiser"
        )
    return "; ".join(said)


class Durations:
    """Times of finished runs, by model, task, recipe and vectors.

    Parameters
    ----------
    fingerprint : mapping
        Only times on this device count.
    workers : int
        Times with as many runs at a time count more than others: neighbours slow each other down.
    records : iterable of mapping
        Of a journal, of any kind.
    """

    def __init__(
        self,
        fingerprint: Mapping[str, Any],
        workers: int,
        records: Iterable[Mapping[str, Any]] = (),
    ) -> None:
        self._fingerprint = schema.digest(dict(fingerprint))
        self.workers = workers
        self._known: dict[_Kind, list[tuple[Any, float]]] = {}
        for record in records:
            self.add(record)

    def add(self, record: Mapping[str, Any]) -> None:
        """Note a run; what is none, or of another device, is passed over."""
        if record["kind"] != "run" or record["status"] not in DONE:
            return
        seconds = run_seconds(record)
        if record.get("fingerprint") != self._fingerprint or seconds is None:
            return
        task, recipe = record.get("task"), record.get("recipe") or {}
        kind = _kind(record["model"], task, recipe, record.get("vectors"))
        self._known.setdefault(kind, []).append((record.get("workers"), seconds))

    def of(self, run: Run) -> float | None:
        """Seconds that such a run takes; None while none is known."""
        kind = _kind(run.model, run.task, run.recipe.as_dict(), run.arguments["vectors"])
        return self._mean(self._known.get(kind, []))

    def guess(self, run: Run) -> float | None:
        """The same; where none is known, what runs of its task take, or any."""
        found = self.of(run)
        if found is not None:
            return found
        like = [t for kind, times in self._known.items() if kind[1] == run.task for t in times]
        return self._mean(like or [t for times in self._known.values() for t in times])

    def _mean(self, times: list[tuple[Any, float]]) -> float | None:
        alike = [seconds for workers, seconds in times if workers == self.workers]
        chosen = alike or [seconds for _, seconds in times]
        return statistics.fmean(chosen) if chosen else None


def _kind(model: Any, task: Any, recipe: Mapping[str, Any], vectors: Any) -> _Kind:
    return str(model), str(task), schema.digest(identity(recipe)), str(vectors)


def wall_seconds(durations: Iterable[float], workers: int) -> float:
    """When the last of these runs ends, if each begins in its turn as soon as a worker is free."""
    free_at = [0.0] * workers
    for seconds in durations:
        heapq.heapreplace(free_at, free_at[0] + seconds)
    return max(free_at)
