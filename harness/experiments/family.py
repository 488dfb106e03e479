"""Several comparisons declared together: models against a baseline, on one task or more."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from harness.errors import UsageError
from harness.experiments.design import Design, Run
from harness.records import schema

CORRECTION = "holm"
OVERALL = (
    "over tasks, of their means: Friedman's test of all models (ranks inside tasks, so that "
    "metrics may differ, of means over the replicates that every model finished); each "
    "model against the baseline by a paired t-test where tasks share a metric, and by "
    "the exact sign test of wins and losses; Holm over the models"
)
"""Declared beforehand, whatever it will show."""


@dataclass(frozen=True)
class Family:
    """What is judged together, as it is declared before there are results.

    Attributes
    ----------
    baseline : str
        The model that all others are judged against.
    models : tuple of str
        The others.
    designs : tuple of Design
        One per model and task, the baseline second; by task, in the order of the models.
    """

    baseline: str
    models: tuple[str, ...]
    designs: tuple[Design, ...]

    @property
    def tasks(self) -> tuple[str, ...]:
        """Names of the tasks."""
        return tuple(dict.fromkeys(design.task.name for design in self.designs))

    def runs(self) -> Iterator[Run]:
        """Every run once, all models of a replicate in turn: a stop leaves few pairs open."""
        seen = set()
        for task in self.tasks:
            of_task = [d for d in self.designs if d.task.name == task]
            for pairs in zip(*(d.runs for d in of_task), strict=True):
                for run in [pairs[0][1], *(pair[0] for pair in pairs)]:
                    if run.key not in seen:
                        seen.add(run.key)
                        yield run

    def record(self, fingerprint: Mapping[str, Any]) -> dict[str, Any]:
        """As it stands in the journal, before any run of it is started."""
        designs = [design.record(fingerprint) for design in self.designs]
        return {
            "kind": "family",
            "key": schema.digest(["family", *sorted(d["key"] for d in designs)]),
            "question": schema.digest(["family", *sorted(d["question"] for d in designs)]),
            "baseline": self.baseline,
            "models": list(self.models),
            "tasks": list(self.tasks),
            "correction": CORRECTION,
            "overall": OVERALL if len(self.tasks) > 1 else "",
            "designs": designs,
            "fingerprint": schema.digest(dict(fingerprint)),
            "status": "ok",
        }


def make_family(designs: tuple[Design, ...]) -> Family:
    """Declare comparisons as one family.

    Raises
    ------
    UsageError
        If they have different baselines, or one stands there twice.
    """
    baselines = {str(d.models[1]) for d in designs}
    if len(baselines) != 1:
        raise UsageError(f"given baselines {', '.join(sorted(baselines))}; expected one")
    pairs = [(str(d.models[0]), d.task.name) for d in designs]
    for model, task in pairs:
        if pairs.count((model, task)) > 1:
            raise UsageError(f"given {model} on {task} twice; expected each once")
    models = tuple(dict.fromkeys(model for model, _ in pairs))
    return Family(baselines.pop(), models, designs)
