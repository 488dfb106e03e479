"""One offline folder: pages from executed notebooks, figures, tables, and an index."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from markupsafe import Markup

from harness.errors import UsageError
from reports.contents import NOTEBOOKS, Page, Scope, navigation
from reports.core import html
from reports.core.html import Frame, Link
from reports.core.page import MIME
from reports.core.source import Source
from reports.execute import Kernel, NotebookFailed, in_parallel

Groups = Mapping[str, Sequence[Link]]
"""Of the navigation."""
OURS = ("figures", "tables", "notebooks")


@dataclass(frozen=True)
class Built:
    """A page as far as it got: sentences for the index, a failure in one line (empty if all went
    well), and the body of the front page alone, which stands on the index.
    """

    page: Page
    sentences: tuple[str, ...] = ()
    failure: str = ""
    body: str = ""


@dataclass(frozen=True)
class Report:
    """What was built, and what there is nothing to show of."""

    index: Path
    pages: tuple[Built, ...]
    missing: tuple[str, ...]

    @property
    def failures(self) -> list[str]:
        """One line for each notebook that failed."""
        return [f"{b.page.name}: {b.failure}" for b in self.pages if b.failure]


def prepare(out: Path) -> None:
    """Make the folder, or empty it of an earlier report.

    Raises
    ------
    UsageError
        If it holds anything else.
    """

    def ours(page: Path) -> bool:
        return html.is_ours(page.read_text(encoding="utf-8", errors="replace"))

    try:
        if out.exists() and any(out.iterdir()):
            index = out / "index.html"
            if not (index.is_file() and ours(index)):
                raise UsageError(f"{out} holds other files than a report; give another --out")
            for page in out.glob("*.html"):
                if ours(page):
                    page.unlink()
            for name in OURS:
                shutil.rmtree(out / name, ignore_errors=True)
        (out / "notebooks").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(
            f"can't write the report in {out}: {error.strerror}; give another --out"
        ) from None


def build(
    source: Source,
    journal: str,
    out: Path,
    on_page: Callable[[Built], None] = lambda built: None,
    like: str = "",
    workers: int | None = None,
) -> Report:
    """Execute every notebook for every device and comparison, then write the index.

    Parameters
    ----------
    journal : str
        Folder for the notebooks to read; empty for the published records.
    on_page : callable
        Called after each page.
    like : str
        File with the reader's sizes; empty for the profile's.
    workers : int, optional
        Notebooks at a time; as many as there are cores, at most four.
    """
    prepare(out)
    scope = Scope(source, journal, like)
    found = {notebook: notebook.pages(scope) for notebook in NOTEBOOKS}
    pages = [page for some in found.values() for page in some]
    missing = tuple(one.missing for one, some in found.items() if one.missing and not some)
    groups = navigation(pages)
    # An index from the first moment on: the folder is known as a report although it was stopped.
    index = out / "index.html"
    index.write_text(html.document("attnbench", "<p>Being built.</p>"), encoding="utf-8")

    def task(page: Page) -> Callable[[Kernel], Built]:
        return lambda kernel: _page(kernel, page, out, _frame(page, pages, groups))

    # The longest first: nothing is left to wait for at the end.
    heaviest = sorted(pages, key=lambda page: -page.notebook.weight)
    done = in_parallel([task(page) for page in heaviest], workers or cores(), on_page)
    built = {one.page.name: one for one in done}
    report = Report(index, tuple(built[page.name] for page in pages), missing)
    index.write_text(overview(source, report, groups), encoding="utf-8")
    return report


def cores() -> int:
    """Notebooks at a time: one per core, at most four (each holds some 300 MiB)."""
    known = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(4, known or 1)


def _frame(page: Page, pages: Sequence[Page], groups: Groups) -> Frame:
    """What stands around a page: navigation, reader, and the same of other devices or models."""
    notebook = page.notebook
    entry = notebook.under or notebook.name
    alike = [] if notebook.under else [p for p in pages if p.notebook == notebook]
    return Frame(
        groups,
        next((p.file for p in pages if p.notebook.name == entry), page.file),
        notebook.reader,
        [Link(p.file, _of(p, alike)) for p in alike] if len(alike) > 1 else [],
        page.file,
        f"notebooks/{page.name}.ipynb",
    )


def _of(page: Page, alike: Sequence[Page]) -> str:
    """What tells a page from the others of its notebook: its device, unless its title does."""
    same = sum(p.title == page.title for p in alike) > 1
    return page.device.title if same and page.device else page.title


def _page(kernel: Kernel, page: Page, out: Path, frame: Frame) -> Built:
    parameters = {**page.parameters, "out": str(out.resolve()), "page": page.name}
    try:
        executed = kernel.execute(page.notebook.name, parameters, out / frame.notebook)
    except NotebookFailed as error:
        built = Built(page, failure=str(error))
        text = html.fill("failed.html.jinja", page.title, frame, failure=str(error))
    else:
        body = html.body_of(executed)
        built = Built(page, tuple(_sentences(executed)), body=body if page.notebook.front else "")
        text = html.document(page.title, body, frame)
    if not page.notebook.front:
        (out / page.file).write_text(text, encoding="utf-8")
    return built


def _sentences(executed: Any) -> list[str]:
    return [
        one
        for cell in executed.cells
        for output in cell.get("outputs", ())
        for one in output.get("data", {}).get(MIME, ())
    ]


def overview(source: Source, report: Report, groups: Groups) -> str:
    """``index.html``: the first page, and what every other page says in short."""
    by_file = {built.page.file: built for built in report.pages}
    return html.fill(
        "index.html.jinja",
        "attnbench report",
        Frame(groups, file="index.html"),
        says=source.says,
        fronts=[Markup(built.body) for built in report.pages if built.body],
        cards=[
            (group, link, one.page.notebook.reader, one.sentences[:1])
            for group, links in groups.items()
            for link in links
            for one in (by_file[link.file],)
        ],
        failures=report.failures,
        missing=report.missing,
        warnings=source.warnings,
    )
