"""Made-up records of trained models and of what was declared of them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.experiments.conclusion import Comparison, conclude

RECIPE = {"width": 8, "heads": 2, "choose": "dev", "tuning_trials": 0, "rate": 0.001}
A, B = "mtsa.algorithm1", "multi_head.sdpa"
"""The model and the baseline of `design`."""
METRICS = {"mse": ("mse", False), "sick": ("pearson", True)}
"""By task, where it is not accuracy."""
LOW = [0.80, 0.81, 0.79, 0.80, 0.82]
HIGH = [0.90, 0.92, 0.89, 0.91, 0.90]


def run(model: str, seed: int, value: float, task: str = "trec", **more: Any) -> dict[str, Any]:
    """A finished run; its key is made of model, task and seed."""
    return {
        "kind": "run",
        "key": f"{model} {task} {seed}",
        "model": model,
        "task": task,
        "seed": seed,
        "status": "ok",
        "test": dict.fromkeys(("accuracy", "pearson", "mse"), value),
        "parameters": 100,
        "parameters_with_words": 150,
        "seconds": 10.0 + seed,
        "peak_bytes": 1000 * (seed + 1),
        "epochs": [{"epoch": 1, "seconds": 2.0}, {"epoch": 2, "seconds": 4.0}],
        "chosen_epoch": 2,
        "coverage": None,
        "at": "2026-01-02",
        "session": "s",
        **more,
    }


def runs(model: str, values: Iterable[float], task: str = "trec", **more: Any) -> list[dict]:
    """A run per seed."""
    return [run(model, seed, float(v), task, **more) for seed, v in enumerate(values)]


def design(count: int = 5, model: str = A, task: str = "trec", **more: Any) -> dict[str, Any]:
    """A declared comparison of a model with `B`."""
    metric, higher = METRICS.get(task, ("accuracy", True))
    return {
        "kind": "design",
        "key": f"{model} {task}",
        "question": f"{model} {task}",
        "models": [model, B],
        "task": task,
        "metric": metric,
        "metrics": [metric],
        "higher_is_better": higher,
        "split": "s",
        "one_test_set": False,
        "recipes": [dict(RECIPE), dict(RECIPE)],
        "seeds": list(range(count)),
        "folds": 0,
        "units": "seeds",
        "paired": True,
        "margin": None,
        "match": "none",
        "runs": [[f"{m} {task} {i}" for m in (model, B)] for i in range(count)],
        "at": "2026-01-01",
        "session": "s",
        "status": "ok",
        **more,
    }


def family(
    models: Sequence[str], tasks: Sequence[str], count: int = 6, key: str = "f", **more: Any
) -> dict[str, Any]:
    """Comparisons that were declared together; further fields are of every design."""
    return {
        "kind": "family",
        "key": key,
        "question": f"q{key}",
        "baseline": B,
        "models": list(models),
        "tasks": list(tasks),
        "correction": "holm",
        "designs": [design(count, model, task, **more) for task in tasks for model in models],
        "status": "ok",
        "session": "s",
        "at": "2026-01-01",
    }


def judged(declared: Mapping[str, Any], records: Sequence[Mapping[str, Any]]) -> Comparison:
    """The comparison of a design that was declared by itself."""
    return conclude(declared, records).comparisons[0]


def compared(first: Sequence[float], second: Sequence[float], **more: Any) -> Comparison:
    """Two models by their test metrics; further fields are of the design."""
    declared = design(max(len(first), len(second)), **more)
    return judged(declared, [*runs(A, first), *runs(B, second)])


def warned(text: str, comparison: Comparison) -> bool:
    """Whether one of the warnings says so."""
    return any(text in warning for warning in comparison.warnings)
