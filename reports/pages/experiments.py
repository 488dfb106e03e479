"""What ``experiments.ipynb`` calls: every comparison of every device, a row each."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from functools import cached_property
from operator import itemgetter
from typing import Any

from harness.experiments.conclusion import Comparison, Conclusion
from harness.experiments.costs import hours_of
from harness.experiments.examples import HANGS, hanging
from harness.experiments.preregistration import design_file
from harness.experiments.replicates import counts_of, further, pairs_of
from harness.experiments.tables import (
    COSTS,
    chances_named,
    chances_text,
    cost_rows,
    of_examples,
    statistics_rows,
)
from harness.experiments.warnings import DECIDED
from harness.stats import MeanDifference
from harness.train.task import family_of
from reports.contents import page_of
from reports.core.page import Shown, SourcePage, remark, says, together
from reports.core.recipes import trained_with
from reports.core.tables import Cell, under
from reports.core.trained import reads_files
from reports.pages.corpora.edges import known_beside
from reports.pages.size.accuracy import verdict_cell

WORDS = (0, 1, 2, 3)
FEW = 8
"""Comparisons of a family up to which each is told in its line, undecided ones too."""
UNSEEN = "without seen test examples"
"""Those that stand in the training set: what becomes of the verdicts without them."""
NONE = "There is no comparison here: attnbench compare mtsa multi_head makes one."


class Experiments(SourcePage):
    """All comparisons; every method shows one piece of the page."""

    def about(self) -> Shown:
        """Which records these are."""
        rows = self.rows()
        if not rows:
            return together(says([self.source.says]), says([NONE]))
        counts = Counter(one["verdict"] for one in rows if one["kind"] == "pair")
        said = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        pairs = f" Of the comparisons of two: {said}." if said else ""
        return says([f"{len(rows)} experiment{'s' * (len(rows) > 1)}.{pairs}"], main=True)

    def table(self, exploratory: bool | None = None) -> Shown:
        """A row per experiment, with a link to its page.

        Parameters
        ----------
        exploratory : bool, optional
            Only those that were declared after runs of them, or only the others.
        """
        rows, every = self.rows(exploratory), self.rows()
        if not every:
            return remark(NONE)
        several = len({one["device"] for one in every}) > 1
        shown = [
            {
                "question": Cell.of(
                    one["question"],
                    to=one["page"],
                    notes=(one["arms"], *filter(None, [one["design file"]])),
                ),
                "verdict": Cell.of(
                    one["verdict"] + one["missing"],
                    notes=tuple(
                        filter(
                            None,
                            map(one.get, ("instead", "known at once", "difference", "further")),
                        )
                    ),
                ),
                UNSEEN: one[UNSEEN],
                "trained by": Cell.of(one["trained by"], notes=(one["device"],) if several else ()),
                **{name: one[name] for name in ("replicates", "hours")},
                "warnings": Cell.of(str(len(one["warnings"])), hint="; ".join(one["warnings"])),
            }
            for one in rows
        ]
        numbers = (
            {**one, **{name: "; ".join(one[name]) for name in ("beside", "warnings")}}
            for one in rows
        )
        return self.place.table("all", numbers, shown, WORDS)

    def rows(self, exploratory: bool | None = None) -> list[dict[str, Any]]:
        """The same as texts by name, all warnings among them."""
        return [one for one in self._every if exploratory in (None, one["exploratory"])]

    @cached_property
    def _every(self) -> list[dict[str, Any]]:
        """Of every device, corpus by corpus; asked for by each piece of the page."""
        find_page, known = page_of(self.source), known_beside(self.source)
        rows = (
            _row(one, known(one))
            | {"instead": instead}
            | {"device": device.made_on(one.runs), "page": find_page("comparison", one.key)}
            for device in self.source.devices
            for one, instead in zip(device.conclusions, _instead(device.conclusions), strict=True)
        )
        return sorted(rows, key=itemgetter("task"))


def _row(conclusion: Conclusion, more: Sequence[str]) -> dict[str, Any]:
    alone = conclusion.comparisons[0] if conclusion.is_pair else None
    verdict = Cell(conclusion.sentences[0].removeprefix(f"{conclusion.title}: "))
    if alone is not None:
        verdict = verdict_cell(alone)
    plan = conclusion.record.get("plan")
    allowed = f" of {plan['hours']:g}" if plan else ""
    return {
        "kind": "pair" if conclusion.is_pair else "family",
        "question": conclusion.title,
        "design file": design_file(conclusion.record),
        "exploratory": conclusion.exploratory,
        "arms": ", ".join([*conclusion.models, conclusion.baseline]),
        "task": ", ".join(conclusion.tasks),
        "trained by": ", ".join(
            trained_with([run for one in conclusion.comparisons for run in one.runs])
        ),
        "replicates": counts_of((c.replicate, len(c.values)) for c in conclusion.comparisons),
        "hours": f"{hours_of(conclusion.runs):.3g}{allowed}",
        "difference": _differences(conclusion),
        "missing": alone.sought.short(alone.unit) if alone is not None and alone.sought else "",
        "verdict": str(verdict),
        "known at once": "; ".join(verdict.notes) if alone else _hanging(conclusion),
        "further": further(alone.design, pairs_of(alone.design, alone.runs)) if alone else "",
        UNSEEN: _without_seen(conclusion),
        "beside": _beside(conclusion),
        "warnings": (*conclusion.warnings, *more),
    }


def _instead(every: Sequence[Conclusion]) -> list[str]:
    """Of each family that another has all its comparisons, of the same runs, and is told instead.

    As its `Comparison.standing` is higher, or it was declared later; empty where none is.
    """
    ranked = [
        {
            (c.first, c.second, c.task, frozenset(r["key"] for r in c.runs)): (*c.standing, place)
            for c in family.comparisons
        }
        for place, family in enumerate(every)
    ]

    def told_in(mine: Mapping[Any, Any]) -> str:
        for family, its in zip(reversed(every), reversed(ranked), strict=True):
            if all(at in its and its[at] > rank for at, rank in mine.items()):
                return f"told elsewhere as judged in: {family.title}"
        return ""

    return [told_in(mine) for mine in ranked]


def _differences(conclusion: Conclusion) -> str:
    """Of a pair its difference; of a few comparisons each, of many what is decided: with its
    verdict, what an undecided one could have found, and why one is not counted.
    """
    every = conclusion.comparisons
    if conclusion.is_pair:
        (alone,) = every
        return alone.unit.told(alone.difference)
    several = len({c.task for c in every}) > 1
    told = every if len(every) <= FEW else [c for c in every if c.verdict in DECIDED]
    return "; ".join(
        " ".join(filter(None, [c.first, f"on {c.task}" * several, c.unit.told(c.difference)]))
        + f": {_with_reasons(c)}"
        for c in told
    )


def _with_reasons(c: Comparison) -> str:
    if c.verdict in DECIDED and c.flaws:
        return f"{c.verdict} (not counted: {', '.join(c.flaws)})"
    missing = c.sought.short(c.unit) if c.sought is not None else ""
    return c.verdict + missing + (f" ({', '.join(c.flaws)})" if c.flaws else "")


def _hanging(conclusion: Conclusion) -> str:
    """Of several verdicts which hang on this test set; empty where none does."""
    found = [c for c in conclusion.comparisons if hanging(c.examples)]
    told = ", ".join(f"{c.first} on {c.task} ({c.verdict})" for c in found)
    return f"{HANGS}: {told}" if told else ""


def _beside(conclusion: Conclusion) -> list[str]:
    """What may be believed, p of a pair, test examples, what training took; a line each."""
    by_task: dict[str, list[Comparison]] = {}
    for c in conclusion.comparisons:
        by_task.setdefault(family_of(c.task) or c.task, []).append(c)
    said = []
    for task, some in by_task.items():
        of = f"{task}: " * (len(by_task) > 1)
        said += [f"{of}{line}" for line in _of_task(some, conclusion.is_pair)]
    return said


def _of_task(some: Sequence[Comparison], alone: bool) -> list[str]:
    """Of many tasks of a family what training took, and the examples of what is decided by either
    of all or of those that were not seen: the rest has a table.
    """
    trained = [
        f"{one['model']} {one['steps']} steps, {one['examples seen']} examples, {one['training']}, "
        f"memory {one['peak memory']}"
        + f", test split {one['test split']}"
        * (one["test split"] != "unknown")
        for one in under(COSTS, cost_rows(some))
    ]
    medians = [f"trained for, medians over the runs: {'; '.join(trained)}"] if trained else []
    if len({c.task for c in some}) > 1:
        known = [(c, c.examples.verdict if c.examples else "") for c in some]
        shown = [c for c, unseen in known if {c.verdict, unseen} & {*DECIDED}]
        return [*(f"{c.task}, {c.first}: {t}" for c in shown for t in of_examples([c])), *medians]
    tests = statistics_rows(some[0])[1:] if alone else []
    told = [f"{name} {value}" for name, value, _ in tests if name[0] in "pP"]
    if not alone and (believed := [c for c in some if c.chances is not None]):
        each = ", ".join(f"{c.first} {chances_text(c)}" for c in believed)
        told.append(f"{chances_named(believed[0])}: {each}")
    return [*told, *of_examples(some), *medians]


def _bracketed(c: Comparison, d: MeanDifference | None) -> str:
    return f" ({said})" if (said := c.unit.told(d)) else ""


def _without_seen(conclusion: Conclusion) -> str:
    """What becomes of the verdicts without test examples that stand in the training set.

    Empty for data that are drawn for each seed.
    """
    asked = [c for c in conclusion.comparisons if c.examples is not None]
    known = [(c, e) for c in asked if (e := c.examples) is not None and e.verdict]
    if not known:
        read = any(map(reads_files, conclusion.tasks))
        return "not told: without predictions" if read else ""
    changed = [
        f"{'' if conclusion.is_pair else f'{c.first} on {c.task} '}{c.said}"
        f"{_bracketed(c, c.difference)} to {c.as_said(e.verdict)}{_bracketed(c, e.difference)}"
        for c, e in known
        if e.verdict != c.verdict
    ]
    said = "unchanged" if any(e.seen for _, e in known) else "none is seen"
    if changed:
        said = f"{len(changed)} of {len(known)} changed: {'; '.join(changed)}"
    return said + f"; of {len(asked) - len(known)} not told" * (len(asked) > len(known))
