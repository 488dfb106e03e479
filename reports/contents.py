"""The pages of a report: one entry per notebook. A further page is a notebook and an entry here."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.experiments.conclusion import comparisons
from harness.experiments.many import families
from harness.records.schema import digest
from reports import comparison, comparison_many
from reports.core.source import DeviceRecords, Source
from reports.pages.attention import page as attention
from reports.pages.corpora import page as corpora
from reports.pages.scaling import page as scaling
from reports.pages.tradeoff import page as tradeoff
from reports.pages.trust import page as trust


@dataclass(frozen=True)
class Page:
    """One execution of a notebook.

    Attributes
    ----------
    notebook : str
        Of ``notebooks/<notebook>.ipynb``.
    name : str
        Of its file, without suffix.
    title : str
    parameters : mapping
        For the notebook, beside ``out`` and ``page``.
    device : DeviceRecords or None
        Whose records it shows.
    front : bool
        Whether it stands on the index, and has no file of its own.
    weight : int
        The heavier are begun first.
    """

    notebook: str
    name: str
    title: str
    parameters: Mapping[str, str]
    device: DeviceRecords | None = None
    front: bool = False
    weight: int = 1


@dataclass(frozen=True)
class Asked:
    """What the report is about.

    Attributes
    ----------
    source : Source
    journal : str
        Folder for the notebooks to read; empty for the published records.
    like : str
        File with the reader's sizes; empty for the profile's.
    """

    source: Source
    journal: str
    like: str = ""


@dataclass(frozen=True)
class Notebook:
    """A notebook and the pages it becomes.

    Attributes
    ----------
    name : str
        Of ``notebooks/<name>.ipynb``.
    pages : callable
        `Page` list of what is `Asked`.
    missing : str
        What the index says when there are none.
    """

    name: str
    pages: Callable[[Asked], list[Page]]
    missing: str = ""


def by_device(
    name: str, title: str, kinds: tuple[str, ...], weight: int = 1
) -> Callable[[Asked], list[Page]]:
    """A page for every device that has records of one of these kinds."""

    def pages(asked: Asked) -> list[Page]:
        devices = [d for d in asked.source.devices if d.has(*kinds)]
        return [
            Page(
                name,
                name if len(devices) == 1 else f"{name}-{d.slug}",
                title,
                {"journal": asked.journal, "device": d.key},
                d,
                weight=weight,
            )
            for d in devices
        ]

    return pages


def file_name(key: str) -> str:
    """A key as part of a file name: keys come from records, which may hold slashes."""
    plain = re.sub(r"[^0-9A-Za-z]", "", key)[:8]
    return plain if plain and plain == key[:8] else digest(key)[:8]


def _size(asked: Asked) -> list[Page]:
    parameters = {"journal": asked.journal, "like": asked.like}
    return [Page("size", "size", "Should I use it at my size?", parameters, front=True, weight=2)]


def _comparison(asked: Asked) -> list[Page]:
    found = [(d, c) for d in asked.source.devices for c in comparisons(d.records)]
    return [
        Page(
            "comparison",
            "comparison" if len(found) == 1 else f"comparison-{file_name(c.key)}",
            c.title,
            {"journal": asked.journal, "device": d.key, "design": c.key},
            d,
        )
        for d, c in found
    ]


def _many(asked: Asked) -> list[Page]:
    found = [(d, m) for d in asked.source.devices for m in families(d.records)]
    return [
        Page(
            "many",
            "many" if len(found) == 1 else f"many-{file_name(m.key)}",
            m.title,
            {"journal": asked.journal, "device": d.key, "family": m.key},
            d,
        )
        for d, m in found
    ]


def _attention(asked: Asked) -> list[Page]:
    found = [(d, r) for d in asked.source.devices for r in attention.newest(d.records)]
    return [
        Page(
            "attention",
            "attention" if len(found) == 1 else f"attention-{file_name(str(r['key']))}",
            f"What {r['model']} attends to ({r['task']})",
            {"journal": asked.journal, "device": d.key, "look": str(r["key"])},
            d,
        )
        for d, r in found
    ]


def _audit(asked: Asked) -> list[Page]:
    return [Page("audit", "audit", "The published numbers, re-analysed", {})]


def _claims(asked: Asked) -> list[Page]:
    title = "A verdict for every published claim"
    return [Page("claims", "claims", title, {"journal": asked.journal}, weight=2)]


def pages_of(source: Source) -> Callable[[str, str], str]:
    """Find the file of a page by its notebook and a device's key; empty where there is none."""
    found: dict[tuple[str, str], str] = {}
    for notebook in NOTEBOOKS:
        for page in notebook.pages(Asked(source, "")):
            key = page.device.key if page.device else ""
            found.setdefault((page.notebook, key), f"{page.name}.html")
    return lambda name, device: found.get((name, device)) or found.get((name, ""), "")


NOTEBOOKS = (
    Notebook("size", _size),
    Notebook(
        "scaling",
        by_device("scaling", "Cost against length", (*scaling.KINDS, *scaling.MORE), 3),
        scaling.NONE,
    ),
    Notebook(
        "tradeoff",
        by_device("tradeoff", "Memory, time and accuracy", tradeoff.KINDS),
        tradeoff.NONE,
    ),
    Notebook("comparison", _comparison, comparison.NONE),
    Notebook("many", _many, comparison_many.NONE),
    Notebook("corpora", by_device("corpora", "Over corpora", corpora.KINDS), corpora.NONE),
    Notebook("attention", _attention, attention.NONE),
    Notebook("trust", by_device("trust", "Can this be trusted?", trust.KINDS), trust.NONE),
    Notebook("claims", _claims),
    Notebook("audit", _audit),
)
