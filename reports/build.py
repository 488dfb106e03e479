"""One offline folder: pages from executed notebooks, figures, tables, and an index."""

from __future__ import annotations

import html
import shutil
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from reports import site
from reports.execute import NotebookFailed, execute
from reports.pages import NOTEBOOKS, Notebook, Page
from reports.shown import MIME
from reports.source import Source

OURS = ("figures", "tables", "notebooks")


@dataclass(frozen=True)
class Built:
    """A page as far as it got.

    Attributes
    ----------
    page : Page
    marks : tuple of mapping
        Sentences and figures for the index.
    failure : str
        One line; empty if all went well.
    """

    page: Page
    marks: tuple[Mapping[str, str], ...] = ()
    failure: str = ""


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
    """
    prepare(out)
    pages: list[Page] = []
    missing = []
    owner = {}
    for notebook in NOTEBOOKS if notebooks is None else notebooks:
        found = notebook.pages(source, journal)
        owner.update({page.name: notebook.name for page in found})
        pages += found
        if not found:
            missing.append(notebook.missing)
    links = [("index.html", "Overview"), *((f"{p.name}.html", _link_text(p, pages)) for p in pages)]
    done = []
    # An index from the first moment on: the folder is known as a report although it was stopped.
    index = out / "index.html"
    index.write_text(site.document("attnbench", "<p>Being built.</p>", []), encoding="utf-8")
    for page in pages:
        done.append(_page(page, owner[page.name], out, links))
        on_page(done[-1])
    index.write_text(_index(source, done, missing, links), encoding="utf-8")
    return Report(index, tuple(done), tuple(missing))


def _link_text(page: Page, pages: list[Page]) -> str:
    alike = [p for p in pages if p.title == page.title]
    if len(alike) == 1 or page.device is None:
        return page.title
    return f"{page.title}: {page.device.title}"


def _page(page: Page, notebook: str, out: Path, links: list[tuple[str, str]]) -> Built:
    parameters = {**page.parameters, "out": str(out.resolve()), "page": page.name}
    path = out / f"{page.name}.html"
    try:
        executed = execute(notebook, parameters, out / "notebooks" / f"{page.name}.ipynb")
    except NotebookFailed as error:
        body = (
            f"<h1>{html.escape(page.title)}</h1>"
            f'<p class="failed">This page could not be made: {html.escape(str(error))}</p>'
        )
        path.write_text(site.document(page.title, body, links), encoding="utf-8")
        return Built(page, failure=str(error))
    body = site.render(executed) + (
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


def _index(
    source: Source, done: list[Built], missing: list[str], links: list[tuple[str, str]]
) -> str:
    parts = [
        "<h1>attnbench report</h1>",
        "<p>Is this self-attention mechanism what its paper says it is, and should I use it at my "
        "size? What was measured, trained and re-analysed, with intervals.</p>",
        f"<p>{html.escape(source.says)}</p>",
    ]
    failures = [b for b in done if b.failure]
    if failures:
        items = "".join(
            f'<li class="failed">{html.escape(f"{b.page.name}: {b.failure}")}</li>'
            for b in failures
        )
        parts.append(f"<h2>Could not be made</h2><ul>{items}</ul>")
    for device in source.devices:
        mine = [b for b in done if b.page.device is device]
        if mine:
            parts.append(_section(device.title, f"Records of {device.dates}.", mine))
    parts += [_section("", "", [b]) for b in done if b.page.device is None]
    if missing:
        items = "".join(f"<li>{html.escape(text)}</li>" for text in missing if text)
        parts.append(f"<h2>Not here yet</h2><ul>{items}</ul>")
    if source.warnings:
        items = "".join(f"<li>{html.escape(text)}</li>" for text in source.warnings)
        parts.append(f'<h2>Skipped while reading</h2><ul class="warnings">{items}</ul>')
    parts.append(
        '<p class="soft">Beside this page: <code>figures/</code> (SVG and PNG), '
        "<code>tables/</code> (CSV), <code>notebooks/</code> (as executed).</p>"
    )
    return site.document("attnbench report", "\n".join(parts), links)


def _section(title: str, under: str, pages: list[Built]) -> str:
    """What one device's pages, or a page without one, have to say."""
    parts = (
        [f"<h2>{html.escape(title)}</h2>", f'<p class="soft">{html.escape(under)}</p>']
        if title
        else []
    )
    level = 3 if title else 2
    for built in pages:
        to, name = html.escape(f"{built.page.name}.html"), html.escape(built.page.title)
        parts.append(f'<h{level}><a href="{to}">{name}</a></h{level}>')
        if built.failure:
            parts.append(f'<p class="failed">{html.escape(built.failure)}</p>')
        parts += [
            f'<p class="say">{html.escape(m["sentence"])}</p>'
            for m in built.marks
            if "sentence" in m
        ]
        figures = [_figure(m, to) for m in built.marks if "figure" in m]
        if figures:
            parts.append(f'<div class="grid">{"".join(figures)}</div>')
    return "\n".join(parts)


def _figure(mark: Mapping[str, str], to: str) -> str:
    caption = html.escape(mark["caption"])
    return (
        f'<figure><div class="figure"><a href="{to}"><img src="{html.escape(mark["figure"])}" '
        f'alt="{caption}"></a></div><figcaption>{caption}</figcaption></figure>'
    )
