"""What ``experiments.ipynb`` calls: every comparison of every device, a row each."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator
from typing import Any

from harness.experiments.conclusion import Conclusion
from reports.contents import page_of
from reports.core.page import Shown, SourcePage, remark, says, together
from reports.core.recipes import recipe_text
from reports.core.tables import Cell

WORDS = (0, 1, 2, 5)
NONE = "There is no comparison here: attnbench compare mtsa multi_head makes one."


class Experiments(SourcePage):
    """All comparisons; every method shows one piece of the page."""

    def about(self) -> Shown:
        """Which records these are."""
        rows = list(self._rows())
        if not rows:
            return together(says([self.source.says]), says([NONE]))
        counts = Counter(one["verdict"] for one in rows if one["kind"] == "pair")
        said = ", ".join(f"{count} {verdict}" for verdict, count in counts.most_common())
        pairs = f" Of the comparisons of two: {said}." if said else ""
        return says([f"{len(rows)} experiment{'s' * (len(rows) > 1)}.{pairs}"], main=True)

    def table(self) -> Shown:
        """A row per experiment, with a link to its page."""
        rows = list(self._rows())
        if not rows:
            return remark(NONE)
        several = len({one["device"] for one in rows}) > 1
        shown = [
            {
                "question": Cell.of(one["question"], to=one["page"], notes=(one["arms"],)),
                "verdict": Cell.of(
                    one["verdict"] + one["missing"], notes=tuple(filter(None, [one["difference"]]))
                ),
                **{name: one[name] for name in ("trained by", "replicates")},
                "warnings": Cell.of(str(len(one["warnings"])), hint="; ".join(one["warnings"])),
                **({"device": one["device"]} if several else {}),
            }
            for one in rows
        ]
        numbers = ({**one, "warnings": "; ".join(one["warnings"])} for one in rows)
        return self.place.table("all", numbers, shown, WORDS)

    def _rows(self) -> Iterator[dict[str, Any]]:
        find_page = page_of(self.source)
        for device in self.source.devices:
            for one in device.conclusions:
                page = find_page("comparison", one.key)
                yield _row(one) | {"device": device.title, "page": page}


begin = Experiments.begin


def _row(conclusion: Conclusion) -> dict[str, Any]:
    alone = conclusion.comparisons[0] if conclusion.is_pair else None
    difference = ""
    if alone is not None and (d := alone.difference) is not None:
        ends = "" if math.isnan(d.low) else f" {alone.unit.bounds(d)}"
        difference = f"{alone.unit.difference(d.difference)}{ends}{alone.unit.of_differences}"
    counts = sorted({len(c.values) for c in conclusion.comparisons})
    return {
        "kind": "pair" if conclusion.is_pair else "family",
        "question": conclusion.title,
        "arms": ", ".join([*conclusion.models, conclusion.baseline]),
        "task": ", ".join(conclusion.tasks),
        "trained by": _trained_by(conclusion),
        "replicates": f"{' or '.join(map(str, counts))} {conclusion.comparisons[0].replicate}"
        + "s" * (counts != [1]),
        "difference": difference,
        "missing": alone.sought.short(alone.unit) if alone is not None and alone.sought else "",
        "verdict": alone.said
        if alone is not None
        else conclusion.sentences[0].removeprefix(f"{conclusion.title}: "),
        "warnings": conclusion.warnings,
    }


def _trained_by(conclusion: Conclusion) -> str:
    """The recipe and the word vectors, or that models or tasks have several."""
    runs = [run for one in conclusion.comparisons for run in one.runs if run.get("epochs")]
    recipes = dict.fromkeys(recipe_text([run]) for run in runs)
    vectors = {str(run["vectors"]) for run in runs if run.get("vectors") not in (None, "", "none")}
    with_vectors = [*vectors] if len(vectors) == 1 else ["several vectors"] * bool(vectors)
    recipe = [*recipes] if len(recipes) == 1 else ["several recipes"] * bool(recipes)
    return ", ".join([*recipe, *with_vectors])
