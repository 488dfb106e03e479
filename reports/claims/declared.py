"""Claims that a declared comparison answers: which one does, and what it says of them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from operator import itemgetter

from harness.experiments.allowed import without_keys
from harness.experiments.conclusion import Comparison, Conclusion
from harness.experiments.model import form_of
from harness.experiments.preregistration import design_file
from harness.experiments.replicates import unit_of
from harness.experiments.warnings import selecting_everything, without_order
from harness.train.recipe import CEILINGS
from harness.train.task import by_common_recipe
from reports.claims.device import DeviceFrames, Record, place_of, same_form
from reports.claims.record import Claim
from reports.claims.verdict import EQUAL, Answer, Evidence, Precedence, of_difference
from reports.core.against import TURNED, better_forms, outdone
from reports.core.printed_values import printed_accuracy
from reports.core.recipes import recipe_text, whole_words
from reports.core.style import mechanism_of

UNDECIDABLE = ("descriptive only", "unfinished")
"""Verdicts on too little to conclude anything."""
UNTUNED = ("patience", *CEILINGS)
"""Of a recipe: when its training ends."""

Declared = tuple[Conclusion, Comparison, int, Precedence]
"""A comparison, the family it is judged in, 1 or, where its sides are the claim's turned, -1; and
why it comes before others."""


def declared_for(claim: Claim, device: DeviceFrames) -> list[Declared]:
    """The declared comparison that answers a claim, and behind it those of its other names.

    Of each pair of names that the claim's sides stand for (the released program's form, and the
    text's) there is one: one question has one family. First is that of the highest `Precedence`;
    last are those of the same names that say otherwise (`says_otherwise`).
    What was trained by cut word vectors is left out: it asks for a cause (`whole_words`). Empty if
    none has a pair of finished runs; one of which runs failed or are to come is the answer too, an
    undecided one.
    """
    p = claim.parameters
    found: dict[tuple[int, int], list[Declared]] = {}
    for family in device.conclusions:
        for c in family.comparisons:
            if c.task != p["task"] or c.metric != claim.metric or not all(map(whole_words, c.runs)):
                continue
            for sign, names in sides_of(claim, c.first, c.second) if c.difference else ():
                one = (family, c, sign, precedence_of(family, c, sum(names)))
                found.setdefault(names, []).append(one)
    best = {names: max(some, key=itemgetter(-1)) for names, some in found.items()}
    return sorted(best.values(), key=itemgetter(-1), reverse=True) + [
        (family, c, sign, rank)
        for names, some in found.items()
        for family, c, sign, rank in some
        if says_otherwise(rank, c, best[names][1])
    ]


def says_otherwise(rank: Precedence, c: Comparison, decides: Comparison) -> bool:
    """Whether a comparison is counted, was declared by a design file before its runs, and has
    another verdict than the one that decides, of the same two models either way round.
    """
    turned = form_of(c.first) != form_of(decides.first)
    verdict = TURNED.get(c.verdict, c.verdict) if turned else c.verdict
    return counted(rank) and verdict != decides.verdict


def precedence_of(family: Conclusion, c: Comparison, behind: int) -> Precedence:
    """Of the comparisons of one question the one with the largest decides.

    Parameters
    ----------
    behind : int
        How far its models' names stand behind those that are preferred.
    """
    early, planned, *_ = c.standing
    return Precedence(
        c.verdict not in UNDECIDABLE,
        not c.flaws,
        early,
        planned,
        -behind,
        all(map(by_common, _finished(c.runs))),
        c.together,
        str(family.record.get("at")),
    )


def by_common(run: Record) -> bool:
    """Whether by its task's common recipe, with whatever patience and ceilings, never tuned."""
    own = run.get("recipe") or {}
    tuned = {name: value for name, value in own.items() if name not in UNTUNED}
    return by_common_recipe({**run, "recipe": tuned})


def sides_of(claim: Claim, first: str, second: str) -> Iterator[tuple[int, tuple[int, int]]]:
    """1, or -1 where they are the claim's turned, and which of its sides' names they are.

    The preferred name of a side is 0.
    """
    p = claim.parameters
    for sign, (one, other) in ((1, (first, second)), (-1, (second, first))):
        mine, theirs = place_of(p["first"], one), place_of(p["second"], other)
        if mine is not None and theirs is not None and same_form(one, other, p["first"]):
            yield sign, (mine, theirs)


def by_design(
    claim: Claim, declared: Sequence[Declared], every: Sequence[Conclusion] = ()
) -> Evidence:
    """What a declared comparison says, with the verdict it has wherever it is shown.

    Parameters
    ----------
    declared : sequence of Declared
        That one, and those of other forms, which are told beside it.
    every : sequence of Conclusion
        Of which some may tell that its baseline is a weak one.
    """
    (family, c, sign, precedence), *others = declared
    d, unit = c.difference, c.unit
    assert d is not None
    scale = sign * (unit.scale if c.higher_is_better else -unit.scale)
    whole = selecting_everything(zip((c.first, c.second), c.sides, strict=True))
    beside = (*c.examples.lines, *c.examples.warnings) if c.examples else ()
    means = {c.first: d.mean_first, c.second: d.mean_second}
    weak = outdone(replace(family, comparisons=(c,)), every)
    weak += against_better(c, every)
    beside = (*beside_printed(c.task, c.metric, means), *weak, *beside)
    said = ["; ".join([_said(family, c), *whole, *beside])]
    for whose, other, *_ in others:
        alike = {*map(form_of, (other.first, other.second))} == {*map(form_of, (c.first, c.second))}
        head = "Declared too" if alike else "In another form"
        said.append(f"{head}: {_said(whose, other)}")
    void = bool(c.flaws or whole or c.verdict in UNDECIDABLE)
    answer: Answer | None = "undecided" if void or not decided(claim, c.verdict) else None
    told = f"{'. '.join(said)}."
    found = of_difference(d, scale, told, keys_of(c.runs), answer, precedence=precedence)
    equal, own = c.verdict == EQUAL and not void, c.examples
    hangs, stuck = (own.hangs, own.stuck) if own else (False, False)
    return replace(found, equal=equal, weak=bool(weak), hangs=hangs, stuck=stuck)


def against_better(c: Comparison, every: Sequence[Conclusion]) -> list[str]:
    """What the same model is against better forms of its baseline, where a design file asked and
    it is counted: ``declared against multi_head_relu.sdpa +0.0110 [...]: better (sick-relu.toml)``.
    """
    forms = {form_of(form.first) for _, form in better_forms(c.second, [c.task], every)}
    said = [
        f"declared against {one.second} {one.unit.told(one.difference)}: {one.said} "
        f"({design_file(one.design)})"
        for family in every
        for one in family.of_task(c.task)
        if form_of(one.first) == form_of(c.first) and form_of(one.second) in forms
        if one.metric == c.metric and counted(precedence_of(family, one, 0))
    ]
    return list(dict.fromkeys(said))


def counted(rank: Precedence) -> bool:
    """Whether a comparison is counted, and was declared by a design file before its runs."""
    return rank.enough and rank.alike and rank.early and rank.planned


def decided(claim: Claim, verdict: str) -> bool:
    """Whether a verdict over a family answers a claim; of an equality its own margin does."""
    return verdict in ("better", "worse") or "positive" not in claim.tolerance


def _said(family: Conclusion, c: Comparison) -> str:
    sides = dict(zip((c.first, c.second), c.sides, strict=True))
    missing = [c.sought.said(c.unit)] if c.sought is not None else []
    limits = [*without_keys(sides.items()), *without_order(c.task, c.sides)]
    return "; ".join([c.sentence, *missing, *limits, recipes_told(sides), judged_in(family)])


def beside_printed(task: str, metric: str, means: Mapping[str, float]) -> list[str]:
    """How far models in their own configuration are from what papers print for them, by name."""
    said = []
    for model, mean in means.items():
        there = printed_accuracy(task, metric, mechanism_of(model)) if "[" not in model else None
        if there is not None:
            said.append(f"{model} {there.gap(mean, unit_of(metric)):+.{there.digits}f}")
    return [f"here less printed: {', '.join(said)}"] if said else []


def judged_in(family: Conclusion) -> str:
    """Names the design file, or without one what was declared."""
    return f"judged in {design_file(family.record) or family.title}"


def recipes_told(sides: Mapping[str, Sequence[Record]]) -> str:
    """By which recipe the runs of models were trained, in words; of each where they differ.

    And by what their epoch was chosen.
    """
    runs = {model: _finished(some) for model, some in sides.items()}
    every = [r.get("recipe") or {} for some in runs.values() for r in some]
    if not all(every):
        return "recipe not recorded"
    recipes = {model: recipe_text(some) for model, some in runs.items()}
    said = f"recipe: {next(iter(recipes.values()))}"
    if len(set(recipes.values())) > 1:
        said = "; ".join(f"recipe of {model}: {recipe}" for model, recipe in recipes.items())
    by_test = any(recipe.get("choose") == "best-on-test" for recipe in every)
    return f"{said}; epoch by {'the test set' if by_test else 'dev'}"


def keys_of(runs: Iterable[Record]) -> tuple[str, ...]:
    """Keys of records, each once."""
    return tuple(dict.fromkeys(str(r["key"]) for r in runs))


def _finished(runs: Iterable[Record]) -> list[Record]:
    return [r for r in runs if r["status"] == "ok"]
