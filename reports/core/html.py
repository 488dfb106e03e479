"""HTML from the templates of ``reports/templates``, which escape whatever they are given."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

TEMPLATES = Path(__file__).resolve().parents[1] / "templates"
GENERATOR = "attnbench report"


@dataclass(frozen=True)
class Link:
    """One entry of a navigation: a file of the folder, and what it is called."""

    file: str
    text: str


@dataclass(frozen=True)
class Frame:
    """What stands around a page.

    Links of the navigation by group (none for a page that stands alone), the file of the entry that
    it belongs to, for whom it is, the same page of other devices or models, its own file, and the
    path of the executed notebook that made it.
    """

    groups: Mapping[str, Sequence[Link]] = field(default_factory=dict)
    current: str = ""
    reader: str = ""
    others: Sequence[Link] = ()
    file: str = ""
    notebook: str = ""


@cache
def environment(folder: Path = TEMPLATES, escape: bool = True) -> Environment:
    """The templates of a folder; a name that is not given is an error."""
    return Environment(
        loader=FileSystemLoader(folder),
        autoescape=escape,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )


@cache
def pieces() -> Any:
    """The macros of ``pieces.html.jinja``, as functions that return HTML."""
    return environment().get_template("pieces.html.jinja").module


def fill(template: str, title: str, frame: Frame | None = None, **values: Any) -> str:
    """A whole page from a template that extends ``document.html.jinja``."""
    return (
        environment()
        .get_template(template)
        .render(
            title=title,
            frame=frame or Frame(),
            generator=GENERATOR,
            # Our own files, no text of anyone's.
            style=Markup((TEMPLATES / "report.css").read_text("utf-8")),
            script=Markup((TEMPLATES / "tables.js").read_text("utf-8")),
            **values,
        )
    )


def document(title: str, body: str, frame: Frame | None = None) -> str:
    """A whole page around what is HTML already.

    Parameters
    ----------
    body : str
        HTML; what came from records must be escaped in it.
    """
    return fill("document.html.jinja", title, frame, body=Markup(body))


def is_ours(text: str) -> bool:
    """Whether a page was written by a report: it may be replaced."""
    return f'<meta name="generator" content="{GENERATOR}">' in text


def body_of(notebook: Any) -> str:
    """Body of an executed notebook: its words and outputs, without code, prompts or scripts."""
    from nbconvert import HTMLExporter

    exporter = HTMLExporter(
        template_name="basic",
        exclude_input=True,
        exclude_output_prompt=True,
        exclude_anchor_links=True,
    )
    body, _ = exporter.from_notebook_node(notebook)
    return str(body)
