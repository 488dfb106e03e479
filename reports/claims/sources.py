"""Which records the ledger goes by."""

from __future__ import annotations

from pathlib import Path

from reports.core.source import SHOWN, Source, find

KINDS = (*SHOWN, "exact")


def devices_of(journal: str, published: Path | None = None) -> Source:
    """The journal's devices; those of the published records if it holds none."""
    return find(journal, published, KINDS)
