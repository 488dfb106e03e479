"""Which cells of a head's scores a mask allows, from its text alone.

Written again, in numpy, and not taken from the modules that it is to check.
"""

from __future__ import annotations

import numpy as np

RULES = {
    "none": lambda offset: np.ones_like(offset, dtype=bool),
    "diagonal": lambda offset: offset != 0,
    "forward": lambda offset: offset > 0,
    "backward": lambda offset: offset < 0,
    "forward_inclusive": lambda offset: offset >= 0,
    "backward_inclusive": lambda offset: offset <= 0,
}


def allowed(mask: str, length: int) -> np.ndarray:
    """Whether query i may attend to key j, [n, n].

    Parameters
    ----------
    mask : str
        ``none``, ``diagonal``, ``forward`` (j < i), ``backward`` (j > i), the ``..._inclusive``
        ones, ``window:W`` (|i - j| <= W) or ``distance:A`` (all).

    Raises
    ------
    ValueError
        For another text.
    """
    places = np.arange(length)
    offset = places[:, None] - places[None, :]  # i - j
    name, _, value = mask.partition(":")
    if name == "window" and value.isdigit():
        return np.abs(offset) <= int(value)
    if name == "distance" and value:
        return np.ones_like(offset, dtype=bool)
    if mask not in RULES:
        raise ValueError(f"given mask {mask!r}; expected {', '.join(RULES)}, window:W, distance:A")
    return np.asarray(RULES[mask](offset))
