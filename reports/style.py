"""One colour and one marker per mechanism, everywhere; readable without colour."""

from __future__ import annotations

import hashlib

PALETTE = (
    "#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#7F7F7F", "#000000",
)  # fmt: skip
"""Okabe and Ito's colours, distinguishable to colour-blind readers."""
MARKERS = ("o", "s", "^", "D", "v", "P", "X", "*")

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
