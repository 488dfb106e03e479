"""What a report holds: one entry per notebook. A further page is a notebook and an entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass

from harness.experiments.conclusion import conclusions
from reports.core.html import Link
from reports.core.source import DeviceRecords, Source
from reports.core.words import file_name
from reports.pages.attention import page as attention
from reports.pages.comparison import page as comparison
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

    @property
    def file(self) -> str:
        """``scaling.html``."""
        return f"{self.name}.html"


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
    reader : str
        For whom the pages are, to be read after "For".
    missing : str
        What the index says when there are none.
    group, label : str
        Where and as what the navigation leads to the first of them; empty where `under` does.
    under : str
        Name of the notebook whose page leads to these.
    """

    name: str
    pages: Callable[[Asked], list[Page]]
    reader: str
    missing: str = ""
    group: str = ""
    label: str = ""
    under: str = ""


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


def by_record(
    name: str, parameter: str, found: Callable[[DeviceRecords], list[tuple[str, str]]]
) -> Callable[[Asked], list[Page]]:
    """A page for every key and title that is found in a device's records."""

    def pages(asked: Asked) -> list[Page]:
        every = [(d, key, title) for d in asked.source.devices for key, title in found(d)]
        return [
            Page(
                name,
                name if len(every) == 1 else f"{name}-{file_name(key)}",
                title,
                {"journal": asked.journal, "device": d.key, parameter: key},
                d,
            )
            for d, key, title in every
        ]

    return pages


def once(name: str, title: str, *given: str, front: bool = False) -> Callable[[Asked], list[Page]]:
    """One page of all devices, whose notebook is given the journal, say."""

    def pages(asked: Asked) -> list[Page]:
        parameters = {one: str(getattr(asked, one)) for one in given}
        return [Page(name, name, title, parameters, front=front, weight=2)]

    return pages


def _experiments(asked: Asked) -> list[Page]:
    if not any(d.has("design", "family") for d in asked.source.devices):
        return []
    return once("experiments", "Experiments", "journal")(asked)


def page_of(source: Source) -> Callable[[str, str], str]:
    """Find the file of a page by its notebook and a device's or a record's key; empty without."""
    found: dict[tuple[str, str], str] = {}
    for notebook in NOTEBOOKS:
        for page in notebook.pages(Asked(source, "")):
            for key in (page.device.key if page.device else "", *page.parameters.values()):
                found.setdefault((page.notebook, key), page.file)
    return lambda name, key: found.get((name, key)) or found.get((name, ""), "")


def navigation(pages: list[Page]) -> tuple[tuple[str, tuple[Link, ...]], ...]:
    """The groups of the navigation, each with links to the pages that there are."""
    first = {p.notebook: p.file for p in reversed(pages)}
    groups = dict.fromkeys(one.group for one in NOTEBOOKS if one.group and one.name in first)
    return tuple(
        (
            group,
            tuple(
                Link(first[one.name], one.label)
                for one in NOTEBOOKS
                if one.group == group and one.name in first
            ),
        )
        for group in groups
    )


NOTEBOOKS = (
    Notebook(
        "size",
        once("size", "Should I use it at my size?", "journal", "like", front=True),
        "whoever wants an answer and has a minute",
    ),
    Notebook(
        "scaling",
        by_device("scaling", "Cost against length", (*scaling.KINDS, *scaling.MORE), 3),
        "whoever wants to know what a mechanism costs at other lengths, batches and settings",
        scaling.NONE,
        "Cost",
        "Time and memory",
    ),
    Notebook(
        "tradeoff",
        by_device("tradeoff", "Memory, time and accuracy", tradeoff.KINDS),
        "whoever must choose a mechanism under a budget of time or memory",
        tradeoff.NONE,
        "Cost",
        "Against accuracy",
    ),
    Notebook(
        "experiments",
        _experiments,
        "whoever wants to know what was compared, and how it ended",
        group="Accuracy",
        label="Experiments",
    ),
    Notebook(
        "comparison",
        by_record(
            "comparison", "design", lambda d: [(c.key, c.title) for c in conclusions(d.records)]
        ),
        "whoever wants to check one comparison, or several that were declared together, run by run",
        comparison.NONE,
        under="experiments",
    ),
    Notebook(
        "corpora",
        by_device("corpora", "Over corpora", corpora.KINDS),
        "whoever knows the papers' tables and wants the same of these runs",
        corpora.NONE,
        "Accuracy",
        "Over corpora",
    ),
    Notebook(
        "attention",
        by_record(
            "attention",
            "look",
            lambda d: [
                (str(r["key"]), f"What {r['model']} attends to ({r['task']})")
                for r in attention.newest(d.records)
            ],
        ),
        "whoever wants to see what a trained model looks at",
        attention.NONE,
        "Accuracy",
        "What it attends to",
    ),
    Notebook(
        "claims",
        once("claims", "A verdict for every published claim", "journal"),
        "whoever wants to know which of the papers' claims hold here",
        group="Claims",
        label="Every claim",
    ),
    Notebook(
        "audit",
        once("audit", "The published numbers, re-analysed"),
        "whoever wants to know what the papers' printed numbers allow to conclude",
        group="Claims",
        label="Printed numbers",
    ),
    Notebook(
        "trust",
        by_device("trust", "Can this be trusted?", trust.KINDS),
        "whoever doubts the measuring",
        trust.NONE,
        "Trust",
        "Noise and errors",
    ),
)
NOTEBOOK = {one.name: one for one in NOTEBOOKS}
