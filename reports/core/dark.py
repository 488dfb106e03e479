"""Figures on a dark page: the colours that an SVG takes where the reader's system prefers dark."""

from __future__ import annotations

from functools import cache

from matplotlib.colors import to_hex, to_rgb

from reports.core.style import (
    BROWN,
    CONTRAST,
    LOOKS,
    NOT_SHOWN,
    PALETTE,
    SOFT,
    luminance,
    text_colour,
)

PAPER, INK = "#16181c", "#e8e8e8"
"""Of the page."""
GREYS = ("0.35", "0.4", SOFT, "0.5", "0.6", "0.7", "0.8", "0.85", "#262626", NOT_SHOWN)
"""Of guides, axes and remarks in the figures."""


def on_dark(colour: str) -> str:
    """The colour, lightened until it can be read as text on the dark page; black becomes ink."""
    red, green, blue = to_rgb(colour)
    if max(red, green, blue) < 0.2:
        return INK
    light = 0.0
    while _contrast(to_hex((red, green, blue))) < CONTRAST:
        light += 0.05
        red, green, blue = (part + (1 - part) * light for part in to_rgb(colour))
    return to_hex((red, green, blue))


def _contrast(colour: str) -> float:
    return (luminance(colour) + 0.05) / (luminance(PAPER) + 0.05)


def grey_on_dark(grey: str) -> str:
    """A grey as far from dark paper as it was from white."""
    level = to_rgb(grey)[0]
    dark = to_rgb(PAPER)[0]
    value = dark + (1 - level) * (to_rgb(INK)[0] - dark)
    return to_hex((value, value, value))


@cache
def changes() -> dict[str, str]:
    """Dark colour by light one, as matplotlib writes them."""
    inks = dict.fromkeys([*PALETTE, BROWN, *(one.colour for one in LOOKS.values())])
    found = {"#ffffff": PAPER, "#000000": INK}
    for ink in inks:
        for one in (to_hex(ink), text_colour(ink)):
            found[one] = on_dark(one)
    return found | {to_hex(grey): grey_on_dark(grey) for grey in GREYS}


@cache
def rules() -> str:
    """CSS under a media query: what an SVG of ours changes on a dark page.

    No rule says what an element stands in: a marker is a ``use``, whose copy of the path stands in
    a tree of its own, which no selector reaches from outside.
    """
    # What matplotlib fills with black has no fill at all: SVG's own is black.
    lines = [
        f"{one}:not([style*='fill']) {{ fill: {INK}; }}" for one in ("text", "use", "g > path")
    ]
    for light, dark in changes().items():
        for what in ("fill", "stroke"):
            lines.append(f"[style*='{what}: {light}'] {{ {what}: {dark} !important; }}")
    return "@media (prefers-color-scheme: dark) {\n" + "\n".join(lines) + "\n}"


def with_dark(svg: str) -> str:
    """A whole SVG that brings its dark colours: for a file, which the page's style can't reach."""
    head, bracket, rest = svg.partition(">")
    return f"{head}{bracket}\n<style>{rules()}</style>{rest}"
