"""By what a run was trained, and which runs may stand beside each other."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from harness.experiments.replicates import BEST_ON_TEST
from harness.records.schema import digest
from harness.train.data.vectors import AMONG, NO_VECTORS
from harness.train.recipe import CEILINGS, changes, identity
from harness.train.task import by_common_recipe, known_tasks
from reports.core.style import mechanism_of

NO_WORDS = "no vectors"


def named(run: Mapping[str, Any]) -> list[str] | None:
    """The nearest named recipe of a run's task, its mechanism's row of it, and what it changes.

    None of a task that this attnbench does not know.
    """
    known = next(iter(known_tasks(run.get("task"))), None)
    if known is None:
        return None
    mechanism, staged = mechanism_of(run["model"]), any("stage" in e for e in run["epochs"])
    recipes = {name: one.recipe_for(mechanism) for name, one in known.recipes.items()}
    found = {
        name: [
            text
            for text in changes(run.get("recipe") or {}, recipe)
            # Of a model without a policy its fields say nothing.
            if staged or not text.startswith("policy_")
        ]
        for name, recipe in {"common": known.recipe, **recipes}.items()
    }
    nearest = min(found, key=lambda name: len(found[name]))
    return [nearest, *found[nearest]]


def recipe_text(runs: Iterable[Mapping[str, Any]]) -> str:
    """``common``, ``paper``, ``released``, or the nearest of them with what it changes.

    Ceilings of epochs are no part of the name: how long it was trained is told in steps.
    """
    run = next((r for r in runs if not by_common_recipe(r)), None)
    if run is None:
        return "common"
    found = named(run) or ["unknown"]
    return ", ".join(t for t in found if t.partition("=")[0] not in CEILINGS)


def trained_with(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """``common``, ``top10k_100d_int8``: recipe and word vectors, or that there are several.

    Then, where the test set chose the epoch, what such a number is called.
    """
    known = [run for run in runs if run.get("epochs")]
    recipes = dict.fromkeys(recipe_text([run]) for run in known)
    vectors = dict.fromkeys(str(run["vectors"]) for run in known if run.get("vectors"))
    said = [
        one if len(found) == 1 else f"several {what}"
        for what, found in (("recipes", recipes), ("vectors", vectors))
        for one in [*found][:1]
    ]
    by_test = any((run.get("recipe") or {}).get("choose") == "best-on-test" for run in known)
    return [NO_WORDS if text == NO_VECTORS else text for text in said] + [BEST_ON_TEST] * by_test


def unlike_common(runs: Sequence[Mapping[str, Any]]) -> list[str]:
    """The same of runs of one task without what all of its models have by themselves.

    That is the common recipe and the task's own vectors: what is left belongs above their numbers.
    """
    own = [one.vectors for run in runs[:1] for one in known_tasks(run.get("task"))]
    usual = {"common", *(NO_WORDS if name == NO_VECTORS else name for name in own)}
    return [text for text in trained_with(runs) if text not in usual]


def recipe_of(run: Mapping[str, Any]) -> str:
    """Digest of what a run was trained by and on: recipe, word vectors, data if it is told.

    Rows of one recipe of a paper are one: it is what the paper compares.
    """
    recipe = identity(run.get("recipe") or {})
    by = named(run) if run.get("recipe") and run.get("epochs") else None
    rows = by is not None and by[0] != "common"
    return digest([by if rows else recipe, run.get("vectors"), *filter(None, [run.get("data")])])


def whole_words(run: Mapping[str, Any]) -> bool:
    """Whether its table of word vectors was not cut to the words of another one."""
    return AMONG not in str(run.get("vectors"))


def trained_alike(runs: Sequence[Mapping[str, Any]]) -> list[list[Mapping[str, Any]]]:
    """Runs of a task by one recipe; and those of one design that gives its models recipes each.

    Such models were tuned each by itself, and are what the design compares.
    """
    trained = [(r, recipe_of(r), str(r.get("plan") or "")) for r in runs]
    recipes: dict[str, set[str]] = {}
    for _, recipe, plan in trained:
        recipes.setdefault(plan, set()).add(recipe)
    groups: dict[str, list[Mapping[str, Any]]] = {}
    for r, recipe, plan in trained:
        groups.setdefault(plan if plan and len(recipes[plan]) > 1 else recipe, []).append(r)
    return list(groups.values())
