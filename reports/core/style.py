"""One colour and one marker per mechanism, everywhere; readable without colour, and on dark."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import matplotlib
from matplotlib.colors import to_hex, to_rgb

matplotlib.rcParams["svg.fonttype"] = "none"
matplotlib.rcParams["svg.hashsalt"] = "attnbench"
# Names come from records: a dollar sign in one is no formula.
matplotlib.rcParams["text.parse_math"] = False

BLUE, VERMILION, GREEN, PURPLE = "#0072B2", "#D55E00", "#009E73", "#CC79A7"
ORANGE, SKY, BLACK = "#E69F00", "#56B4E9", "#000000"
WINE, BROWN = "#882255", "#8C6D31"
PALETTE = (BLUE, VERMILION, GREEN, PURPLE, ORANGE, SKY, BLACK, WINE)
"""Okabe and Ito's colours, distinguishable to colour-blind readers, and Tol's wine."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*", "p", "h", "<", ">", "d", "8")
LINES = ("-", "--", "-.", ":")
"""Of a mechanism's first, second ... implementation in one figure."""
SOFT = "0.45"
"""Grey of what is not data: guides, zero lines, remarks."""
NOT_SHOWN = "#7F7F7F"
"""Of a difference whose interval includes zero."""
CONTRAST = 4.5
"""Least contrast of text on white (WCAG 2, level AA)."""


@dataclass(frozen=True)
class Look:
    """How a mechanism is drawn."""

    colour: str
    marker: str


LOOKS: Mapping[str, Look] = {
    "multi_head": Look(BLUE, "o"),
    "multi_head_released": Look(BLUE, "d"),
    "multi_head_relu": Look(BLUE, "8"),
    "transformer": Look(BLUE, "^"),
    "mtsa": Look(VERMILION, "s"),
    "mtsa_released": Look(VERMILION, "X"),
    "mtsa_nmt": Look(VERMILION, "P"),
    "mtsa_stack": Look(VERMILION, "*"),
    "disa": Look(PURPLE, "D"),
    "disan": Look(PURPLE, "d"),
    "additive": Look(PURPLE, "h"),
    "bi_lstm": Look(GREEN, "^"),
    "bi_gru": Look(GREEN, "<"),
    "bi_gru_released": Look(GREEN, ">"),
    "multi_cnn": Look(ORANGE, "v"),
    "hrchy_cnn": Look(ORANGE, "p"),
    "hrchy_cnn_released": Look(ORANGE, "d"),
    "kim_cnn": Look(ORANGE, "h"),
    "kim_cnn_released": Look(ORANGE, "8"),
    "source2token": Look(SKY, "P"),
    "biblosa": Look(SKY, "X"),
    "biblosa_released": Look(SKY, "d"),
    "msmsa": Look(BLACK, "X"),
    "msmsa_layer": Look(BLACK, "p"),
    "multi_scale_transformer": Look(BLACK, "*"),
    "resa": Look(WINE, "o"),
    "resan": Look(WINE, "D"),
    "resan_no_fusion": Look(WINE, "v"),
    "none": Look(BROWN, "8"),
}
"""Families share a colour; no two share both. A mechanism without an entry has one by its name."""


def look(mechanism: str) -> Look:
    """How a mechanism is drawn; a foreign one as its name decides, alike in every figure."""
    if mechanism in LOOKS:
        return LOOKS[mechanism]
    number = int(hashlib.sha256(mechanism.encode()).hexdigest(), 16)
    taken = set(LOOKS.values())
    free = [one for c in PALETTE for m in MARKERS if (one := Look(c, m)) not in taken]
    return free[number % len(free)]


def colour(mechanism: str) -> str:
    """Colour of a mechanism."""
    return look(mechanism).colour


def marker(mechanism: str) -> str:
    """Marker of a mechanism."""
    return look(mechanism).marker


def luminance(colour: str) -> float:
    """Relative luminance (WCAG 2), 0 for black to 1 for white: what is left without colour."""
    parts = [c / 12.92 if c <= 0.04045 else ((c + 0.055) / 1.055) ** 2.4 for c in to_rgb(colour)]
    return 0.2126 * parts[0] + 0.7152 * parts[1] + 0.0722 * parts[2]


def text_colour(colour: str) -> str:
    """The colour, darkened until it can be read as text on white."""
    red, green, blue = to_rgb(colour)
    shade = 1.0
    while 1.05 / (luminance(to_hex((red, green, blue))) + 0.05) < CONTRAST:
        shade *= 0.95
        red, green, blue = (shade * part for part in to_rgb(colour))
    return to_hex((red, green, blue))


def mechanism_of(model: str) -> str:
    """``mtsa`` of ``mtsa.algorithm1[scale_t=identity]``."""
    return model.partition("[")[0].rpartition(".")[0] or model


def pair(first: str, second: str) -> tuple[str, str]:
    """Two colours that differ even where both models are one mechanism."""
    a, b = colour(mechanism_of(first)), colour(mechanism_of(second))
    return (a, b if a != b else next(c for c in PALETTE if c != a))


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
    while _contrast_on_dark(to_hex((red, green, blue))) < CONTRAST:
        light += 0.05
        red, green, blue = (part + (1 - part) * light for part in to_rgb(colour))
    return to_hex((red, green, blue))


def _contrast_on_dark(colour: str) -> float:
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
def dark_rules() -> str:
    """CSS under a media query: what an SVG of ours changes on a dark page.

    No rule says what an element stands in: a marker is a ``use``, whose copy of the path stands in
    a tree of its own, which no selector reaches from outside.
    """
    # What matplotlib fills with black has no fill at all (but an opacity): SVG's own is black.
    lines = [
        f"{one}:not([style*='fill:']) {{ fill: {INK}; }}" for one in ("text", "use", "g > path")
    ]
    for light, dark in changes().items():
        for what in ("fill", "stroke"):
            lines.append(f"[style*='{what}: {light}'] {{ {what}: {dark} !important; }}")
    return "@media screen and (prefers-color-scheme: dark) {\n" + "\n".join(lines) + "\n}"


def with_dark(svg: str) -> str:
    """A whole SVG that brings its dark colours: for a file, which the page's style can't reach."""
    head, bracket, rest = svg.partition(">")
    return f"{head}{bracket}\n<style>{dark_rules()}</style>{rest}"
