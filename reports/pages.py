"""The pages of a report: one entry per notebook. A further page is a notebook and an entry here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.experiments.conclusion import comparisons
from harness.records.schema import digest
from reports import comparison, scaling
from reports.source import Device, Source


@dataclass(frozen=True)
class Page:
    """One execution of a notebook.

    Attributes
    ----------
    name : str
        Of its file, without suffix.
    title : str
    parameters : mapping
        For the notebook, beside ``out`` and ``page``.
    device : Device or None
        Whose records it shows.
    """

    name: str
    title: str
    parameters: Mapping[str, str]
    device: Device | None = None


@dataclass(frozen=True)
class Notebook:
    """A notebook and the pages it becomes.

    Attributes
    ----------
    name : str
        Of ``notebooks/<name>.ipynb``.
    pages : callable
        `Page` list of a `Source`.
    missing : str
        What the index says when there are none.
    """

    name: str
    pages: Callable[[Source, str], list[Page]]
    missing: str = ""


def _scaling(source: Source, journal: str) -> list[Page]:
    devices = [d for d in source.devices if d.has(*scaling.KINDS)]
    return [
        Page(
            "scaling" if len(devices) == 1 else f"scaling-{d.slug}",
            "Cost against length",
            {"journal": journal, "device": d.key},
            d,
        )
        for d in devices
    ]


def file_name(key: str) -> str:
    """A key as part of a file name: keys come from records, which may hold slashes."""
    plain = re.sub(r"[^0-9A-Za-z]", "", key)[:8]
    return plain if plain and plain == key[:8] else digest(key)[:8]


def _comparison(source: Source, journal: str) -> list[Page]:
    found = [(d, c) for d in source.devices for c in comparisons(d.records)]
    return [
        Page(
            "comparison" if len(found) == 1 else f"comparison-{file_name(c.key)}",
            c.title,
            {"journal": journal, "device": d.key, "design": c.key},
            d,
        )
        for d, c in found
    ]


def _audit(source: Source, journal: str) -> list[Page]:
    return [Page("audit", "The published numbers, re-analysed", {})]


def _claims(source: Source, journal: str) -> list[Page]:
    return [Page("claims", "A verdict for every published claim", {"journal": journal})]


NOTEBOOKS = (
    Notebook("scaling", _scaling, scaling.NONE),
    Notebook("comparison", _comparison, comparison.NONE),
    Notebook("claims", _claims),
    Notebook("audit", _audit),
)
