"""Made-up records of models on all tasks of a family: MTL-16."""

from __future__ import annotations

from typing import Any

import numpy as np

from harness.train.task import tasks_named
from suites.support.comparisons import B, family, run

TASKS = [one.name for one in tasks_named("mtl16")]
SEEDS = 5
TOKENS = {name: 20.0 + 10 * i for i, name in enumerate(TASKS)}
SECONDS = {B: 2.0, "multi_scale_transformer.windowed": 1.0, "bi_lstm.packed": 4.0}
"""Of 400 test reviews of 20 tokens; it grows with their length, of the second with its root."""
GAINS = {B: 0.0, "multi_scale_transformer.windowed": 0.02, "bi_lstm.packed": 0.0}


def value(model: str, number: int, seed: int) -> float:
    """A test accuracy: of a domain, with a gain of the model, and a little of every seed."""
    drawn = np.random.default_rng([number, seed, list(GAINS).index(model)])
    return float(0.8 + 0.005 * number + GAINS[model] + 0.001 * seed + drawn.normal(0, 0.004))


def averages(model: str) -> list[float]:
    """Of a model over the domains, by seed."""
    return [float(np.mean([value(model, i, s) for i in range(16)])) for s in range(SEEDS)]


def reviewed(models: tuple[str, ...] = tuple(GAINS)) -> list[dict[str, Any]]:
    """A declared family against `B`, and its runs; what it keeps are no predictions."""
    declared = family([m for m in models if m != B], TASKS, SEEDS)
    found: list[dict[str, Any]] = [declared]
    for number, task in enumerate(TASKS):
        for model in models:
            power = 1.0 if model != "multi_scale_transformer.windowed" else 0.5
            seconds = SECONDS[model] * (TOKENS[task] / 20) ** power
            found += [
                run(
                    model,
                    seed,
                    0.0,
                    task,
                    test={"accuracy": value(model, number, seed)},
                    test_seconds=seconds * (1 + 0.02 * seed),
                    test_tokens=TOKENS[task],
                    examples={"train": 1400, "dev": 200, "test": 400},
                )
                for seed in range(SEEDS)
            ]
    return found
