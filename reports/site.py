"""One offline folder: pages from executed notebooks, figures, tables, and an index."""

from __future__ import annotations

import html
import os
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from reports.contents import NOTEBOOKS, Asked, Notebook, Page
from reports.core import html as site
from reports.core.page import MIME
from reports.core.source import Source
from reports.execute import Kernel, NotebookFailed, in_parallel
from reports.index import Built, overview

OURS = ("figures", "tables", "notebooks")


@dataclass(frozen=True)
class Report:
    """What was built.

    Attributes
    ----------
    index : Path
    pages : tuple of Built
    missing : tuple of str
        What there is nothing to show of.
    """

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
    try:
        if out.exists() and any(out.iterdir()):
            index = out / "index.html"
            if not (
                index.is_file()
                and site.is_ours(index.read_text(encoding="utf-8", errors="replace"))
            ):
                raise UsageError(f"{out} holds other files than a report; give another --out")
            for page in out.glob("*.html"):
                if site.is_ours(page.read_text(encoding="utf-8", errors="replace")):
                    page.unlink()
            for name in OURS:
                shutil.rmtree(out / name, ignore_errors=True)
        (out / "notebooks").mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UsageError(f"can't write the report in {out}: {error.strerror}") from None


def build(
    source: Source,
    journal: str,
    out: Path,
    on_page: Callable[[Built], None] = lambda built: None,
    notebooks: Iterable[Notebook] | None = None,
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
    notebooks : iterable of Notebook, optional
        All without any.
    like : str
        File with the reader's sizes; empty for the profile's.
    workers : int, optional
        Notebooks at a time; two, or as many as there are cores, at most four.
    """
    prepare(out)
    pages: list[Page] = []
    missing = []
    for notebook in NOTEBOOKS if notebooks is None else notebooks:
        found = notebook.pages(Asked(source, journal, like))
        pages += found
        if not found:
            missing.append(notebook.missing)
    own = [p for p in pages if not p.front]
    links = [("index.html", "Overview"), *((f"{p.name}.html", _link_text(p, own)) for p in own)]
    # An index from the first moment on: the folder is known as a report although it was stopped.
    index = out / "index.html"
    index.write_text(site.document("attnbench", "<p>Being built.</p>", []), encoding="utf-8")

    def task(page: Page) -> Callable[[Kernel], Built]:
        return lambda kernel: _page(kernel, page, out, links)

    # The longest first: nothing is left to wait for at the end.
    order = sorted(range(len(pages)), key=lambda i: -pages[i].weight)
    done = in_parallel(
        [task(pages[i]) for i in order], workers or cores(), lambda _, built: on_page(built)
    )
    built = [one for _, one in sorted(zip(order, done, strict=True), key=lambda pair: pair[0])]
    index.write_text(overview(source, built, missing, links), encoding="utf-8")
    return Report(index, tuple(built), tuple(missing))


def cores() -> int:
    """Notebooks at a time: one per core, at most four (each holds some 300 MiB)."""
    known = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    return min(4, known or 1)


def _link_text(page: Page, pages: list[Page]) -> str:
    alike = [p for p in pages if p.title == page.title]
    if len(alike) == 1 or page.device is None:
        return page.title
    return f"{page.title}: {page.device.title}"


def _page(kernel: Kernel, page: Page, out: Path, links: list[tuple[str, str]]) -> Built:
    parameters = {**page.parameters, "out": str(out.resolve()), "page": page.name}
    path = out / f"{page.name}.html"
    try:
        executed = kernel.execute(
            page.notebook, parameters, out / "notebooks" / f"{page.name}.ipynb"
        )
    except NotebookFailed as error:
        body = (
            f"<h1>{html.escape(page.title)}</h1>"
            f'<p class="failed">This page could not be made: {html.escape(str(error))}</p>'
        )
        if not page.front:
            path.write_text(site.document(page.title, body, links), encoding="utf-8")
        return Built(page, failure=str(error))
    body = site.render(executed)
    if page.front:
        return Built(page, tuple(_marks(executed)), body=body)
    body += (
        f'<p class="soft">Made by the notebook <a href="notebooks/{html.escape(page.name)}.ipynb">'
        f"{html.escape(page.name)}.ipynb</a>.</p>"
    )
    path.write_text(site.document(page.title, body, links), encoding="utf-8")
    return Built(page, tuple(_marks(executed)))


def _marks(executed: Any) -> list[Mapping[str, str]]:
    return [
        mark
        for cell in executed.cells
        for output in cell.get("outputs", ())
        for mark in output.get("data", {}).get(MIME, ())
    ]
