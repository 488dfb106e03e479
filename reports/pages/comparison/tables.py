"""Numbers of a comparison's page, as its CSV files have them."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from harness.experiments.conclusion import Comparison
from harness.experiments.costs import TrainingCost
from harness.experiments.replicates import Record, is_ok, pairs_of
from harness.stats import Interval, ratio_interval


def cost_numbers(costs: Mapping[str, TrainingCost]) -> list[dict[str, Any]]:
    """What training each model took."""
    return [
        {
            "model": model,
            "parameters": k.parameters,
            "parameters_with_words": k.parameters_with_words,
            "training_seconds": k.seconds,
            "epoch_seconds": k.seconds_per_epoch,
            "epochs": k.epochs,
            "chosen_epoch": k.chosen_epoch,
            "steps": k.steps,
            "examples_seen": k.examples,
            "peak_memory_bytes": k.peak_bytes,
            "test_seconds": k.test_seconds,
        }
        for model, k in costs.items()
    ]


def over_baseline(c: Comparison, *values: Callable[[Record], float]) -> list[str]:
    """Numbers of a run over those of the baseline's: by pairs, with 95 % intervals."""
    pairs = [(a, b) for a, b in pairs_of(c.design, c.runs) if is_ok(a) and is_ok(b)]
    return [str(ratio_by_pairs(pairs, value) or "unknown") for value in values]


def ratio_by_pairs(
    pairs: Iterable[tuple[Record, Record]], value: Callable[[Record], float]
) -> Interval | None:
    """Of a number of two runs that belong together; None where none is told of both."""
    both = [(value(a), value(b)) for a, b in pairs]
    ratios = [first / second for first, second in both if second > 0]
    known = [one for one in ratios if math.isfinite(one)]
    return ratio_interval(known) if known else None


def peak_bytes(run: Record) -> float:
    """Peak memory of a run, in bytes; nan where it is not told."""
    known = run.get("peak_bytes")
    return math.nan if known is None else float(known)


def run_numbers(comparisons: Sequence[Comparison]) -> list[dict[str, Any]]:
    """Every run of a task once, those that failed too."""
    metric = comparisons[0].metric
    return [
        {
            "model": r.get("model"),
            "seed": r.get("seed"),
            "fold": r.get("fold"),
            "status": r.get("status"),
            "detail": r.get("detail"),
            f"test_{metric}": (r.get("test") or {}).get(metric),
            "chosen_epoch": r.get("chosen_epoch"),
            "epochs": len(r.get("epochs") or ()),
            "training_seconds": r.get("seconds"),
            "key": r.get("key"),
        }
        for r in {run["key"]: run for c in comparisons for run in c.runs}.values()
    ]


def numbers(c: Comparison) -> dict[str, Any]:
    """All of a comparison, for the CSV."""
    found: dict[str, Any] = {
        "task": c.task,
        "metric": c.metric,
        "first": c.first,
        "second": c.second,
        "verdict": c.verdict,
        "not_counted": "; ".join(c.flaws),
        "test_examples": "; ".join(c.examples.lines) if c.examples else "",
        "margin": c.margin,
        **{f"p_{name}": p for name, p in (asdict(c.chances) if c.chances else {}).items()},
        "equivalence_p": c.equivalence_p,
        "together": c.together,
        "p_holm": c.adjusted_p,
        "equivalence_p_holm": c.adjusted_equivalence_p,
    }
    if c.difference is None:
        return found
    difference = asdict(c.difference)
    del difference["differences"]
    found |= difference | {"detectable_together": c.difference.detectable_among(c.together)}
    if c.sought is not None:
        found |= {"seeds_needed": c.sought.needed, "seeds_needed_for": c.sought.effect}
    return found


def run_cells(c: Comparison, row: Mapping[str, Any]) -> dict[str, str]:
    """One of `run_numbers` in texts."""
    value, seconds = row[f"test_{c.metric}"], row["training_seconds"]
    fold = "" if row["fold"] is None else f" fold {row['fold']}"
    return {
        "run": f"{row['model']} seed {row['seed']}{fold}",
        "status": f"{row['status']}: {row['detail']}" if row["detail"] else str(row["status"]),
        f"test {c.metric}": c.unit.value(value) if isinstance(value, int | float) else "",
        "tested epoch": str(row["chosen_epoch"] or ""),
        "epochs": str(row["epochs"]),
        "training": f"{seconds:.1f} s" if isinstance(seconds, int | float) else "",
    }
