# ruff: noqa: E501 (CSS)
"""The HTML around what notebooks show: one style, no script, nothing from the network."""

from __future__ import annotations

import html
from collections.abc import Iterable
from typing import Any

from reports.core.dark import rules

GENERATOR = "attnbench report"
_MARK = f'<meta name="generator" content="{GENERATOR}">'

STYLE = """
:root { color-scheme: light dark; --ink: #1b1b1b; --paper: #fff; --soft: #5f5f5f; --line: #ddd; --link: #0060a0; --warn: #9a3b00; --card: #f6f6f4; }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e8e8e8; --paper: #16181c; --soft: #a5a5a5; --line: #34373d; --link: #7cc0f5; --warn: #ffb070; --card: #1f2228; } }
body { font: 16px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
  max-width: 1180px; margin: 1.5rem auto 4rem; padding: 0 1rem; overflow-wrap: break-word; }
h1 { font-size: 1.6rem; line-height: 1.25; } h2 { font-size: 1.2rem; margin-top: 2.6rem; }
h3 { font-size: 1.05rem; margin-top: 1.8rem; }
a { color: var(--link); } p, li { max-width: 48rem; } code { font-size: .9em; }
nav { display: flex; flex-wrap: wrap; gap: .3rem 1.2rem; border-bottom: 1px solid var(--line); padding-bottom: .6rem; font-size: .95rem; }
.grid { display: grid; grid-template-columns: repeat(auto-fit, minmax(min(100%, 430px), 1fr)); gap: 1rem 1.4rem; align-items: start; }
figure { margin: 1rem 0; max-width: 46rem; } .figure { border-radius: 6px; padding: 8px; overflow-x: auto; }
figure.wide { max-width: 62rem; grid-column: 1 / -1; }
.figure svg, .figure img { width: 100%; height: auto; display: block; }
figcaption { font-size: .92rem; color: var(--soft); margin-top: .35rem; max-width: 46rem; }
table strong { color: var(--ink); border-bottom: 2px solid var(--link); }
.files { font-size: .85rem; } .files a { margin-left: .4rem; } p.files { margin: .2rem 0 0; } p.files a { margin: 0; }
.say { font-size: 1.05rem; } .soft { color: var(--soft); }
.scroll { overflow-x: auto; } table { border-collapse: collapse; font-size: 13px; }
th { font-weight: 600; color: var(--soft); } th, td { text-align: right; padding: 3px 12px 3px 0; border-bottom: 1px solid var(--line); white-space: nowrap; }
th.words, td.words { text-align: left; } th.words + th.words, td.words + td.words, td + td.words { white-space: normal; min-width: 6.5rem; }
ul.warnings { border-left: 3px solid var(--warn); padding: .2rem 0 .2rem 1.6rem; margin: 1rem 0; } ul.warnings li { margin: .25rem 0; }
.failed { color: var(--warn); font-weight: 600; }
.jp-RenderedHTMLCommon, .cell { margin: 0; } a.anchor-link { display: none; }
"""


def document(title: str, body: str, links: Iterable[tuple[str, str]]) -> str:
    """A whole page.

    Parameters
    ----------
    body : str
        HTML; what came from records must be escaped in it.
    links : iterable of (file name, text)
        The navigation.
    """
    style = f"{STYLE}{rules()}"
    items = "".join(f'<a href="{html.escape(to)}">{html.escape(text)}</a>' for to, text in links)
    return f"""<!doctype html>
<html lang="en"><head><meta charset="utf-8">{_MARK}<title>{html.escape(title)}</title>
<meta name="viewport" content="width=device-width, initial-scale=1"><link rel="icon" href="data:,">
<style>{style}</style></head><body>
<nav>{items}</nav>
{body}
</body></html>
"""


def is_ours(text: str) -> bool:
    """Whether a page was written by a report: it may be replaced."""
    return _MARK in text


def render(notebook: Any) -> str:
    """Body of an executed notebook: its words and outputs, without code, prompts or scripts."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(
        template_name="basic", exclude_input=True, exclude_output_prompt=True,
        exclude_anchor_links=True,
    )  # fmt: skip
    body, _ = exporter.from_notebook_node(notebook)
    return str(body)
