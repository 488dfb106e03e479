"""What ``docs/results/training.md`` and ``training-all.md`` show: trained models, from records."""

from __future__ import annotations

import math
from pathlib import Path

from matplotlib.figure import Figure

from harness.experiments.conclusion import Comparison
from harness.experiments.examples import HANGS, hanging
from harness.experiments.model import form_of
from harness.experiments.preregistration import design_file
from harness.profile import load_profile
from harness.train.task import tasks
from reports.core import sizes
from reports.core.forest import Line, Panel, forests
from reports.core.page import Shown, footed, table
from reports.core.source import Source
from reports.core.style import mechanism_of
from reports.docs.declared import families
from reports.docs.plain import PlainOutput, text_of
from reports.pages.corpora import printed
from reports.pages.corpora.page import Corpora, beside, printed_on
from reports.pages.corpora.tables import APART
from reports.pages.experiments import FEW
from reports.pages.size.accuracy import accuracy_table, differences

DECLARED = (
    "What models reach on the test sets less what their baselines do: everything that was declared "
    f"before it was run in families of at most {FEW}, every seed or fold and 95 % t-intervals; "
    "behind each model its design file"
)
MARK = "*"
"""Behind a model whose verdict hangs on its test set."""
TIES = "What can't be told apart over corpora"
"""Needs no table to be told."""


PRINTED = "Printed accuracies beside measured ones"
TRIED = "Recipes that were tried for the common one"
TOLD = (
    "width",
    "heads",
    "dropout",
    "rate",
    "weight_decay",
    "clip",
    "batch",
    "warmup",
    "epochs",
    "patience",
)
"""Of a recipe; of the common one all values stand in ``attnbench list --json``."""
FIRST = (PRINTED, TRIED)
"""Beside what was declared; all else has a page of its own."""


def sections(source: Source) -> list[tuple[str, str]]:
    """Title and body of what the page of corpora says.

    What papers print stands beside everything that was trained, wherever; all else device by
    device. A section without a table is left out: it says what would have to be trained.
    """
    pages = _pages(source)
    found: dict[str, list[str]] = {}
    if "|" in (body := text_of(beside(pages, PlainOutput()))):
        found[PRINTED] = [body]
    for page in pages:
        elsewhere = page.device.of_others("run")
        for title, piece in _pieces(page).items():
            body = text_of(piece)
            if "|" in body or (body and title == TIES):
                said = filter(None, [f"### {page.device.title}", elsewhere, body])
                found.setdefault(title, []).append("\n\n".join(said))
    return [(title, "\n\n".join(each)) for title, each in found.items()]


def recipes() -> str:
    """The recipes of every task by their names, a row each."""
    rows = []
    for name, task in tasks().items():
        known = {"common": task.recipe, **{of: one.usual for of, one in task.recipes.items()}}
        for called, recipe in known.items():
            values = {key: f"{getattr(recipe, key):g}" for key in TOLD}
            rows.append({"task": name, "recipe": called, **values})
    return text_of(table(rows, (0, 1)))


def _pages(source: Source) -> list[Corpora]:
    return [Corpora(source, d, PlainOutput()) for d in source.devices if d.has("run")]


def _pieces(page: Corpora) -> dict[str, Shown]:
    device = page.device
    size = sizes.of_profile(load_profile("quick", device.kind))
    found = differences(device.conclusions, size)
    rows = accuracy_table(found, size, "model")
    shown = [c for c in found if "[" not in c.first]
    declared = table(rows, range(len(rows[0]) if rows else 0))
    return {
        "Every model beside the baseline, judged as declared": declared,
        "Other families, every comparison judged as declared": families(device.conclusions, shown),
        "Means of every model on the test sets": page.table(),
        "Differences to the baseline, with their tests": page.differences_to_baseline(),
        TIES: page.ties() if page.tied[1] is not None else Shown(""),
        "Variants of a mechanism beside its own configuration": page.ablations(),
        "Heads of one scale beside heads of several": (
            page.scales() if page.scaled else Shown("", "")
        ),
        TRIED: page.tried(),
    }


def figures(source: Source) -> dict[str, tuple[Figure, str]]:
    """A panel per corpus, a row per mechanism: figure and what it says, by name."""
    pages, found = _pages(source), {}
    where = "; ".join(page.device.footer("run") for page in pages)
    if panels := _declared(source):
        figure = forests(
            panels,
            "bars: 95 % t-intervals; grey: undecided, practically equal, or not counted; "
            f"{MARK}: {HANGS}",
            names=2.4,
        )
        found["declared"] = (footed(figure, where), DECLARED)
    if rows := printed_on(pages):
        where = "; ".join(page.device.footer("run") for page in pages if page.printed)
        found["printed"] = (footed(printed.figure(rows), where), printed.CAPTION)
    return found


def _declared(source: Source) -> list[Panel]:
    """By task and baseline every comparison of small families that was declared before its runs."""
    lines: dict[tuple[str, str], dict[str, Line]] = {}
    of: dict[tuple[str, str], Comparison] = {}
    every = [one for one in source.conclusions if not one.exploratory and design_file(one.record)]
    for one in every:
        for c in one.comparisons if len(one.comparisons) <= FEW else ():
            d = c.difference
            if d is None or math.isnan(d.low):
                continue
            at = (c.task, form_of(c.second))
            of.setdefault(at, c)
            name = f"{form_of(c.first)}, {Path(design_file(one.record)).stem}"
            look, decided = mechanism_of(c.first), c.said in APART
            name += MARK * bool(decided and hanging(c.examples))
            lines.setdefault(at, {})[name] = Line.of(name, look, d, c.unit.scale, decided=decided)
    panels = []
    for (task, baseline), some in sorted(lines.items()):
        c = of[task, baseline]
        unit = c.unit.of_differences.strip() or ("" if c.higher_is_better else "lower is better")
        xlabel = f"{c.metric}{f', {unit}' * bool(unit)}\nless {baseline}'s"
        panels.append(Panel(task, xlabel, some))
    return panels
