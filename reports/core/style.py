"""One colour and one marker per mechanism, everywhere; readable without colour, and on dark."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import matplotlib
from matplotlib.colors import to_hex, to_rgb

from harness.experiments.model import form_of

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
    return form_of(model).partition("[")[0]


def pair(first: str, second: str) -> tuple[str, str]:
    """Two colours that differ even where both models are one mechanism."""
    a, b = colour(mechanism_of(first)), colour(mechanism_of(second))
    return (a, b if a != b else next(c for c in PALETTE if c != a))


DARK = """@media screen and (prefers-color-scheme: dark) {
svg { filter: invert(1) hue-rotate(180deg); } }"""
"""What was dark is light then, and keeps its hue; in a file, which the page's style can't reach."""


def with_dark(svg: str) -> str:
    """A whole SVG that is turned for a dark page by itself."""
    head, bracket, rest = svg.partition(">")
    return f"{head}{bracket}\n<style>{DARK}</style>{rest}"
