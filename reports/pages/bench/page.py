"""``results/index.html``: what a bench leaves behind to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from markupsafe import Markup

from harness.records import journal
from harness.records.ratios import Row
from reports.core.html import fill
from reports.core.page import svg
from reports.core.source import facts
from reports.pages.bench.figures import cost
from reports.pages.bench.tables import cases
from reports.pages.bench.tables import verified as checked


def write_page(
    folder: Path,
    fingerprint: Mapping[str, Any],
    baseline: str,
    sentences: Sequence[str],
    rows: Sequence[Row],
    verified: Sequence[Mapping[str, Any]],
) -> Path:
    """Draw the first figure and write the page into the journal folder.

    Returns
    -------
    Path
        Of ``index.html``; ``cost.svg`` and ``cost.png`` lie beside it.
    """
    sessions = journal.read(folder).sessions.values()
    matching = [s for s in sessions if s.get("fingerprint") == dict(fingerprint)]
    known = facts(fingerprint, matching)
    commit = known.get("commit", "")[:10]
    footer = (
        f"{known.get('model')} ({known.get('device')}), torch {known.get('torch')}, "
        f"{known.get('threads')} CPU threads, commit {commit}"
    )
    figure = cost(rows, baseline, footer)
    figure.savefig(folder / "cost.svg", bbox_inches="tight", metadata={"Date": None})
    figure.savefig(folder / "cost.png", bbox_inches="tight", dpi=130)
    path = folder / "index.html"
    page = fill(
        "bench.html.jinja",
        f"attnbench: cost on {known.get('model')}",
        sentences=sentences,
        figure=Markup(svg(figure)),
        cases=list(cases(rows)),
        verified=checked(verified),
        facts=known,
    )
    path.write_text(page, encoding="utf-8")
    return path
