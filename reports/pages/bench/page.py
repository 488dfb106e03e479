"""``results/index.html``: what a bench leaves behind to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.ratios import Row
from harness.records import journal
from reports.core.curves import cost
from reports.core.source import facts
from reports.pages.bench.html import build


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
    title = f"attnbench: cost on {known.get('model')}"
    return build(folder / "index.html", title, sentences, figure, rows, verified, known)
