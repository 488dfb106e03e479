"""What training took, and how many words had a vector: from run records."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

LAST_STAGE = "both"
"""Of ReSAN's training, see `harness.train.staged`."""


@dataclass(frozen=True)
class Cost:
    """What training a model took, medians over its runs.

    Attributes
    ----------
    parameters, parameters_with_words : int
        Trained weights without and with word vectors.
    seconds, seconds_per_epoch : float
        Wall time, several runs at a time on this machine.
    epochs, chosen_epoch : float
    peak_bytes : float
        Beyond loaded data, libraries and weights; nan where it can't be measured.
    """

    parameters: int
    parameters_with_words: int
    seconds: float
    seconds_per_epoch: float
    epochs: float
    chosen_epoch: float
    peak_bytes: float


def costs_of(runs: Mapping[str, Iterable[Mapping[str, Any]]]) -> dict[str, Cost]:
    """`Cost` by model, of its runs; none for a model without a finished one."""
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


def run_seconds(run: Mapping[str, Any]) -> float | None:
    """Wall time of a run, all its pieces together; None where no time is known.

    Of a run that went on from a checkpoint its own clock has all, the task's only the rest; of one
    that failed there is the task's alone.
    """
    said: list[Any] = [run.get("task_seconds"), run.get("seconds")]
    times = [float(t) for t in said if type(t) in (int, float) and 0 < t < math.inf]
    return max(times) if times else None


def _cost(runs: Sequence[Mapping[str, Any]]) -> Cost:
    def middle(values: Iterable[float]) -> float:
        return float(statistics.median(values))

    peaks = [float(r["peak_bytes"]) for r in runs if r.get("peak_bytes") is not None]
    return Cost(
        parameters=runs[0]["parameters"],
        parameters_with_words=runs[0]["parameters_with_words"],
        seconds=middle(r["seconds"] for r in runs),
        seconds_per_epoch=middle(epoch_seconds(r) for r in runs),
        epochs=middle(len(r["epochs"]) for r in runs),
        chosen_epoch=middle(r["chosen_epoch"] for r in runs),
        peak_bytes=middle(peaks) if peaks else math.nan,
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
