"""One colour and one marker per mechanism, everywhere; readable without colour."""

from __future__ import annotations

import hashlib

import matplotlib

matplotlib.rcParams["svg.fonttype"] = "none"
matplotlib.rcParams["svg.hashsalt"] = "attnbench"
# Names come from records: a dollar sign in one is no formula.
matplotlib.rcParams["text.parse_math"] = False

PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000",
)  # fmt: skip
"""Okabe and Ito's colours, distinguishable to colour-blind readers."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")
SOFT = "0.45"
"""Grey of what is not data: guides, zero lines, remarks."""
NOT_SHOWN = "#7F7F7F"
"""Of a difference whose interval includes zero."""

_FIXED = {
    "mtsa": 1, "multi_head": 0, "disa": 3, "bi_lstm": 2, "multi_cnn": 4, "source2token": 5,
    "mtsa_released": 6, "multi_head_released": 7,
}  # fmt: skip


def slot(mechanism: str) -> int:
    """Index of a mechanism's colour and marker; a foreign one gets its own by its name."""
    if mechanism in _FIXED:
        return _FIXED[mechanism]
    return int(hashlib.sha256(mechanism.encode()).hexdigest(), 16) % len(PALETTE)


def colour(mechanism: str) -> str:
    """Colour of a mechanism."""
    return PALETTE[slot(mechanism)]


def marker(mechanism: str) -> str:
    """Marker of a mechanism."""
    return MARKERS[slot(mechanism)]


def mechanism_of(model: str) -> str:
    """``mtsa`` of ``mtsa.algorithm1[scale_t=identity]``."""
    return model.partition("[")[0].rpartition(".")[0] or model


def pair(first: str, second: str) -> tuple[str, str]:
    """Two colours that differ even where both models are one mechanism."""
    a, b = colour(mechanism_of(first)), colour(mechanism_of(second))
    return (a, b if a != b else next(c for c in PALETTE if c != a))
