"""Made-up comparisons that are told apart by how they were trained, and when they were declared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.train.task import task
from suites.support.comparisons import HIGH, LOW, A, B, design, run

COMMON = task("trec").recipe.as_dict()
PAPER = {
    model: task("trec").recipes["paper"].recipe_for(model.partition(".")[0]).as_dict()
    for model in (A, B)
}
"""The row of each model."""
TABLE = task("trec").vectors
"""TREC's own word vectors."""


def compared(
    name: str,
    recipe: dict[str, Any] = COMMON,
    first: Sequence[float] = HIGH,
    second: Sequence[float] = LOW,
    vectors: str = TABLE,
    late: bool = False,
    steps: int = 10,
    **more: Any,
) -> list[dict[str, Any]]:
    """A design on TREC and its runs, whose keys begin with its name.

    Parameters
    ----------
    recipe : dict
        Of both, or by model.
    late : bool
        It is declared after its runs.
    steps : int
        Of the first model; the second takes 10.
    more
        Fields of the design.
    """
    count, which = max(len(first), len(second)), more.get("models", [A, B])
    keys = [[f"{name} {model} {seed}" for model in which] for seed in range(count)]
    recipes = [recipe.get(model, recipe) for model in which]
    told = {"key": name, "question": name, "recipes": recipes, "runs": keys}
    declared = design(count, **{**told, **more})
    plan = (more.get("plan") or {}).get("sha256")
    done = [
        run(
            model,
            seed,
            value,
            key=f"{name} {model} {seed}",
            recipe=own,
            vectors=vectors,
            epochs=[{"epoch": 1, "seconds": 3600.0}],
            seconds=3600.0,
            examples={"train": trained * own["batch"]},
            plan=plan,
        )
        for model, own, values, trained in zip(
            which, recipes, (first, second), (steps, 10), strict=True
        )
        for seed, value in enumerate(values)
    ]
    return [*done, declared] if late else [declared, *done]


def planned(name: str) -> dict[str, Any]:
    """What a record tells of a design file."""
    texts = dict.fromkeys(("question", "family", "stopping"), "text")
    return {"file": name, "sha256": name, "committed": "c", "hours": 20, "void": [], **texts}
