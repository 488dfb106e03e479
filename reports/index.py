"""``index.html``: the first page, the ledger's score, and what every other page says in short."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from reports.contents import Page
from reports.core import html as site
from reports.core.source import Source


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
    body : str
        HTML, of the front page alone: it stands on the index.
    """

    page: Page
    marks: tuple[Mapping[str, str], ...] = ()
    failure: str = ""
    body: str = ""


def overview(
    source: Source, done: Sequence[Built], missing: Iterable[str], links: list[tuple[str, str]]
) -> str:
    """The whole page."""
    fronts = [b.body for b in done if b.body] or ["<h1>attnbench report</h1>"]
    parts = [f'<p class="soft">{html.escape(source.says)}</p>', *_failures(done), *fronts]
    own = [b for b in done if not b.page.front]
    for device in source.devices:
        mine = [b for b in own if b.page.device is device]
        if mine:
            parts.append(_section(device.title, f"Records of {device.dates}.", mine))
    parts += [_section("", "", [b]) for b in own if b.page.device is None]
    parts += _listed("Not here yet", [text for text in missing if text])
    parts += _listed("Skipped while reading", source.warnings, ' class="warnings"')
    parts.append(
        '<p class="soft">Beside this page: <code>figures/</code> (SVG, PNG, and their data as '
        "CSV), <code>tables/</code> (CSV, Markdown, LaTeX), <code>notebooks/</code> (as executed)."
        "</p>"
    )
    return site.document("attnbench report", "\n".join(parts), links)


def _failures(done: Sequence[Built]) -> list[str]:
    lines = [f"{b.page.name}: {b.failure}" for b in done if b.failure]
    items = "".join(f'<li class="failed">{html.escape(line)}</li>' for line in lines)
    return [f"<h2>Could not be made</h2><ul>{items}</ul>"] if lines else []


def _listed(title: str, lines: Sequence[str], form: str = "") -> list[str]:
    items = "".join(f"<li>{html.escape(text)}</li>" for text in lines)
    return [f"<h2>{title}</h2><ul{form}>{items}</ul>"] if lines else []


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
    caption, source = html.escape(mark["caption"]), html.escape(mark["figure"])
    form = ' class="wide"' if mark.get("wide") else ""
    return (
        f'<figure{form}><div class="figure" style="max-width: {int(mark.get("pixels", 600))}px">'
        f'<a href="{to}"><img src="{source}" '
        f'alt="{caption}"></a></div><figcaption>{caption}</figcaption></figure>'
    )
