"""What ``docs/results/training.md`` shows: trained models, from published records."""

from __future__ import annotations

from dataclasses import replace

from matplotlib.figure import Figure

from harness.profile import load_profile
from reports.core import sizes
from reports.core.forest import Panel, forests
from reports.core.page import Shown, footed, table
from reports.core.source import DeviceRecords, Source
from reports.docs.declared import families
from reports.docs.plain import PlainOutput, text_of
from reports.pages.corpora import printed
from reports.pages.corpora.page import Corpora, line_of
from reports.pages.size.accuracy import accuracy_table, differences


def sections(source: Source) -> list[tuple[str, str]]:
    """Title and body of what the page of corpora says, device by device.

    A section without a table is left out: it says what would have to be trained.
    """
    found = []
    for device in source.devices:
        if not device.has("run"):
            continue
        size = sizes.of_profile(load_profile("quick", device.kind))
        found_here = differences(device.conclusions, size)
        rows = accuracy_table(found_here, size, "model")
        shown = [c for c in found_here if "[" not in c.first]
        declared = table(rows, range(len(rows[0]) if rows else 0))
        page, nothing = Corpora(source, device, PlainOutput()), Shown("", "")
        pieces: tuple[tuple[str, Shown], ...] = (
            ("Every model beside the baseline, judged as declared", declared),
            (
                "Other families, every comparison judged as declared",
                families(device.conclusions, shown),
            ),
            ("Means of every model on the test sets", page.table()),
            ("Differences to the baseline, judged together", page.differences_to_baseline()),
            ("What can't be told apart over corpora", page.ties()),
            ("Variants of a mechanism beside its own configuration", page.ablations()),
            (
                "Heads of one scale beside heads of several",
                page.scales() if page.scaled else nothing,
            ),
            ("Printed accuracies beside measured ones", page.beside()),
            ("Recipes that were tried for the common one", page.tried()),
        )
        bodies = [(title, text_of(piece)) for title, piece in pieces]
        found += [(f"{title} ({device.title})", body) for title, body in bodies if "|" in body]
    return found


def figures(source: Source) -> dict[str, tuple[Figure, str]]:
    """A panel per corpus, a row per mechanism: figure and what it says, by name."""
    for device in source.devices:
        page = Corpora(source, device, PlainOutput())
        if page.differences:
            found = {"accuracy": _differences(page, device)}
            if page.printed:
                figure = footed(printed.figure(page.printed), device.footer("run"))
                found["printed"] = (figure, printed.CAPTION)
            return found
    return {}


def _differences(page: Corpora, device: DeviceRecords) -> tuple[Figure, str]:
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
    figure = forests(
        panels,
        f"less {page.baseline}'s; right of zero: better; bars: 95 % t-intervals; grey: not shown "
        f"after Holm{printed.LEGEND}",
    )
    said = (
        f"What models reach on the test sets less what {page.baseline} reaches, every seed or fold "
        "and 95 % t-intervals"
    )
    return footed(figure, device.footer("run")), said
