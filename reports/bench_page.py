"""``results/index.html``: what a bench leaves behind to look at."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.ratios import Row
from harness.records import journal
from reports.figures import cost
from reports.page import build


def facts(folder: Path, fingerprint: Mapping[str, Any]) -> dict[str, str]:
    """What a reader must know of the machine, from fingerprint and newest session."""
    shown = {str(k): str(v) for k, v in fingerprint.items() if v is not None}
    sessions = sorted(journal.read(folder).sessions.values(), key=lambda s: str(s.get("at")))
    matching = [s for s in sessions if s.get("fingerprint") == dict(fingerprint)]
    if matching:
        environment = matching[-1].get("environment") or {}
        commit = str(environment.get("commit") or "not a git checkout")
        shown["commit"] = commit + (" (with local changes)" if environment.get("dirty") else "")
        shown["platform"] = str(environment.get("platform"))
        packages = environment.get("packages") or {}
        shown["packages"] = ", ".join(f"{k} {v}" for k, v in packages.items())
        shown["sessions"] = f"{len(matching)}, the last at {matching[-1].get('at')}"
    return shown


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
    known = facts(folder, fingerprint)
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
