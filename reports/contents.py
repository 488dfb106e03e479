"""What a report holds: one entry per notebook. A further page is a notebook and an entry here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

from reports.core.html import Link
from reports.core.source import DeviceRecords, Source
from reports.core.words import file_name
from reports.pages.attention.page import Attended, newest
from reports.pages.comparison.page import Compared
from reports.pages.corpora.page import Corpora
from reports.pages.scaling.page import Scaling
from reports.pages.tradeoff import Tradeoff
from reports.pages.trust import Trusted


@dataclass(frozen=True)
class Scope:
    """What the report is about: a journal for the notebooks to read (empty for the published
    records), and a file with the reader's sizes (empty for the profile's).
    """

    source: Source
    journal: str
    like: str = ""


@dataclass(frozen=True)
class Page:
    """One execution of a notebook: the name of its file without suffix, parameters beside ``out``
    and ``page``, and the device whose records it shows.
    """

    notebook: Notebook
    name: str
    title: str
    parameters: Mapping[str, str]
    device: DeviceRecords | None = None

    @property
    def file(self) -> str:
        """``scaling.html``."""
        return f"{self.name}.html"


Found = Callable[[DeviceRecords], list[tuple[str, str]]]
"""Keys and titles of the records of a device that have a page each."""


@dataclass(frozen=True)
class Notebook:
    """A notebook and the pages it becomes: one, or one for every device or record.

    Its title is that of its pages unless these are of records; `reader` is read after "For". A page
    needs records of one of its `kinds`, or else what is `missing` is said. It is `given` parts of
    the `Scope` as parameters, and as `record` the key of one of those that are `found`. One page
    that is `alone` is about all devices, and `front` stands on the index and has no file of its
    own. The navigation leads to the first page by `group` and `label`, or the page of another
    notebook does that it is `under`. The heavier (`weight`) are begun first.
    """

    name: str
    title: str
    reader: str
    kinds: tuple[str, ...] = ()
    given: tuple[str, ...] = ("journal",)
    record: str = ""
    found: Found | None = None
    alone: bool = False
    missing: str = ""
    group: str = ""
    label: str = ""
    under: str = ""
    front: bool = False
    weight: int = 1

    def pages(self, scope: Scope) -> list[Page]:
        """Its pages, of what is asked for."""
        parameters = {one: str(getattr(scope, one)) for one in self.given}
        devices = [d for d in scope.source.devices if d.has(*self.kinds)]
        if self.alone:
            there = devices or not self.kinds
            return [Page(self, self.name, self.title, parameters)] if there else []
        every: list[tuple[DeviceRecords, dict[str, str], str, str]] = []
        for d in devices:
            if self.found is None:
                every.append((d, {}, d.slug, self.title))
            else:
                found = self.found(d)
                every += [(d, {self.record: key}, file_name(key), title) for key, title in found]
        return [
            Page(
                self,
                self.name if len(every) == 1 else f"{self.name}-{suffix}",
                title,
                {**parameters, "device": d.key, **more},
                d,
            )
            for d, more, suffix, title in every
        ]


def page_of(source: Source) -> Callable[[str, str], str]:
    """Find the file of a page by its notebook and a device's or a record's key; empty without."""
    found: dict[tuple[str, str], str] = {}
    for notebook in NOTEBOOKS:
        for page in notebook.pages(Scope(source, "")):
            for key in (page.device.key if page.device else "", *page.parameters.values()):
                found.setdefault((notebook.name, key), page.file)
    return lambda name, key: found.get((name, key)) or found.get((name, ""), "")


def navigation(pages: Sequence[Page]) -> dict[str, list[Link]]:
    """The groups of the navigation, each with links to the pages that there are."""
    groups: dict[str, list[Link]] = {}
    for notebook in dict.fromkeys(page.notebook for page in pages):
        if notebook.group:
            first = next(page for page in pages if page.notebook == notebook)
            groups.setdefault(notebook.group, []).append(Link(first.file, notebook.label))
    return groups


def _compared(device: DeviceRecords) -> list[tuple[str, str]]:
    return [(one.key, one.title) for one in device.conclusions]


def _attended(device: DeviceRecords) -> list[tuple[str, str]]:
    looks = newest(device.records)
    return [(str(r["key"]), f"What {r['model']} attends to ({r['task']})") for r in looks]


NOTEBOOKS = (
    Notebook(
        "size",
        "Should I use it at my size?",
        "whoever wants an answer and has a minute",
        given=("journal", "like"),
        alone=True,
        front=True,
        weight=2,
    ),
    Notebook(
        "scaling",
        "Cost against length",
        "whoever wants to know what a mechanism costs at other lengths, batches and settings",
        Scaling.kinds,
        missing=Scaling.none,
        group="Cost",
        label="Time and memory",
        weight=3,
    ),
    Notebook(
        "tradeoff",
        "Memory, time and accuracy",
        "whoever must choose a mechanism under a budget of time or memory",
        Tradeoff.kinds,
        missing=Tradeoff.none,
        group="Cost",
        label="Against accuracy",
    ),
    Notebook(
        "experiments",
        "Experiments",
        "whoever wants to know what was compared, and how it ended",
        Compared.kinds,
        alone=True,
        group="Accuracy",
        label="Experiments",
        weight=2,
    ),
    Notebook(
        "comparison",
        "",
        "whoever wants to check one comparison, or several that were declared together, run by run",
        Compared.kinds,
        record="design",
        found=_compared,
        missing=Compared.none,
        under="experiments",
    ),
    Notebook(
        "corpora",
        "Over corpora",
        "whoever knows the papers' tables and wants the same of these runs",
        Corpora.kinds,
        missing=Corpora.none,
        group="Accuracy",
        label="Over corpora",
    ),
    Notebook(
        "attention",
        "",
        "whoever wants to see what a trained model looks at",
        Attended.kinds,
        record="look",
        found=_attended,
        missing=Attended.none,
        group="Accuracy",
        label="What it attends to",
    ),
    Notebook(
        "claims",
        "A verdict for every published claim",
        "whoever wants to know which of the papers' claims hold here",
        alone=True,
        group="Claims",
        label="Every claim",
        weight=2,
    ),
    Notebook(
        "audit",
        "The published numbers, re-analysed",
        "whoever wants to know what the papers' printed numbers allow to conclude",
        given=(),
        alone=True,
        group="Claims",
        label="Printed numbers",
        weight=2,
    ),
    Notebook(
        "trust",
        "Can this be trusted?",
        "whoever doubts the measuring",
        Trusted.kinds,
        missing=Trusted.none,
        group="Trust",
        label="Noise and errors",
    ),
)
