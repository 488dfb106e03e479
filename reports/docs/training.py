"""What ``docs/results/training.md`` shows: trained models, from published records."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure

from harness.experiments.replicates import EXPLORATORY
from harness.profile import load_profile
from reports.core import sizes
from reports.core.forest import Panel, forests
from reports.core.page import Shown, footed, table
from reports.core.source import Source
from reports.docs.declared import families
from reports.docs.plain import PlainOutput, text_of
from reports.pages.corpora import printed
from reports.pages.corpora.figures import line_of
from reports.pages.corpora.page import Corpora, beside, printed_on
from reports.pages.size.accuracy import accuracy_table, differences

TIES = "What can't be told apart over corpora"
"""Needs no table to be told."""


def sections(source: Source) -> list[tuple[str, str]]:
    """Title and body of what the page of corpora says.

    What papers print stands beside everything that was trained, wherever; all else device by
    device. A section without a table is left out: it says what would have to be trained.
    """
    pages = _pages(source)
    found = {"Printed accuracies beside measured ones": [text_of(beside(pages, PlainOutput()))]}
    for page in pages:
        elsewhere = page.device.of_others("run")
        for title, piece in _pieces(page).items():
            body = text_of(piece)
            if body and ("|" in body or title == TIES):
                said = filter(None, [f"### {page.device.title}", elsewhere, body])
                found.setdefault(title, []).append("\n\n".join(said))
    bodies = {title: "\n\n".join(each) for title, each in found.items()}
    return [(title, body) for title, body in bodies.items() if "|" in body or title == TIES]


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
        "Recipes that were tried for the common one": page.tried(),
    }


def figures(source: Source) -> dict[str, tuple[Figure, str]]:
    """A panel per corpus, a row per mechanism: figure and what it says, by name."""
    pages, found = _pages(source), {}
    first = next((page for page in pages if page.differences), None)
    if first is not None:
        found["accuracy"] = _differences(first)
    if rows := printed_on(pages):
        where = "; ".join(page.device.footer("run") for page in pages if page.printed)
        found["printed"] = (footed(printed.figure(rows), where), printed.CAPTION)
    return found


def _differences(page: Corpora) -> tuple[Figure, str]:
    panels = []
    for task in page.corpora:
        mine = [d for d in page.differences if d.model.task == task.name]
        if mine:
            unit = mine[0].model.unit.of_differences.strip()
            xlabel = f"{mine[0].model.metric}, {unit}" if unit else mine[0].model.metric
            lines = {
                d.model.mechanism: replace(line_of(d), label=f"{task.name}: {d.model.mechanism}")
                for d in mine
            }
            panels.append(Panel(task.name, xlabel, lines))
    exploratory = not any(one.early for one in page.differences)
    figure = forests(
        panels,
        f"less {page.baseline}'s; right of zero: better; bars: 95 % t-intervals; grey: not shown "
        f"after Holm{printed.LEGEND}{f'; {EXPLORATORY}' * exploratory}",
    )
    said = (
        f"What models reach on the test sets less what {page.baseline} reaches, every seed or fold "
        f"and 95 % t-intervals{f'; all of it is {EXPLORATORY}' * exploratory}"
    )
    return footed(figure, page.device.footer("run")), said
