"""What two models of a comparison don't have alike: parameters, recipes, trials of recipes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from harness.experiments.model import form_of
from harness.experiments.replicates import Pair, Record, sides_of
from harness.stats import ratio_text
from harness.train.recipe import HOW_FOUND, without_ceilings
from harness.train.recipes import TUNED, TUNED_ON
from harness.train.task import known_tasks

UNEQUAL = 1.01
"""Parameter counts further apart than this are unequal."""


def unequal_parameters(design: Record, pairs: Sequence[Pair]) -> list[str]:
    """How many both have, where they are further apart than `UNEQUAL`."""
    counts = []
    for runs in sides_of(pairs):
        found = [r["parameters"] for r in runs if r.get("parameters") is not None]
        if not found:
            return []
        counts.append(int(found[0]))
    ratio = max(counts) / max(1, min(counts))
    if ratio <= UNEQUAL:
        return []
    hint = (
        "as near as a width divisible by the heads allows"
        if design["match"] == "parameters"
        else "--match parameters narrows the larger model"
    )
    return [
        f"unequal parameters: {design['models'][0]} has {counts[0]:,}, {design['models'][1]} "
        f"{counts[1]:,} ({ratio_text(ratio)}), word vectors not counted; {hint}"
    ]


def unequal_recipes(design: Record) -> list[str]:
    """In how many trials they were found, and in what they differ."""
    first, second = design["recipes"]
    out = []
    tried, others = (_tried(design, side) for side in (0, 1))
    if tried != others:
        of = next(iter(known_tasks(design["task"])), None)
        elsewhere = of is not None and of.tuned is TUNED and of.name != TUNED_ON
        where = f" on {TUNED_ON}" if elsewhere else ""
        were = "recipe was" if tried == 1 else "recipes were"
        mine, theirs = (
            f"{model}{f' ({told} as declared)' * (told != counted)}"
            for model, told, counted in (
                (design["models"][0], first["tuning_trials"], tried),
                (design["models"][1], second["tuning_trials"], others),
            )
        )
        out.append(
            f"unequal tuning budgets: {tried} {were} tried{where} for {mine}, {others} for {theirs}"
        )
    ignored = {*HOW_FOUND} | ({"width"} if design["match"] == "parameters" else set())
    unequal = [
        f"{name} {first.get(name)} and {second.get(name)}"
        for name in {**first, **second}
        if name not in ignored and first.get(name) != second.get(name)
    ]
    if unequal:
        out.append(f"the recipes differ: {', '.join(unequal)}")
    return [*out, *(design.get("one_sided") or ())]


def _tried(design: Record, side: int) -> int:
    """Recipes tried for a model: as was told, or, of a common recipe, is known since.

    Patience and a ceiling of epochs were never tuned: with others it is the common recipe still.
    What was tried against a former one led to today's.
    """
    recipe, told = design["recipes"][side], design["recipes"][side]["tuning_trials"]
    form = form_of(design["models"][side])
    known = [
        (one.tuned.get(form, 0), one.tuned.get(form.partition("[")[0], 0))
        for one in known_tasks(design["task"])
        if as_tuned(recipe) in [as_tuned(c.as_dict()) for c in (one.recipe, *one.former)]
    ]
    # Of another form records told what its mechanism was tried with, which is one more since
    # (plans/tuning-edges.toml): that was never tried with the form.
    if "[" in form and any(told in (whole, whole - 1) for _, whole in known):
        told = 0
    return max(told, *(own for own, _ in known), 0)


def as_tuned(recipe: Record) -> dict[str, Any]:
    """A recipe as it stands in a record, without what was never tuned: patience and ceilings."""
    return {n: value for n, value in without_ceilings(recipe).items() if n != "patience"}
