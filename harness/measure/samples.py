"""What no duration can be: readings of a clock are checked before a number is made of them."""

from __future__ import annotations

import itertools
import math

from harness.isolate import Wrong


def refuse_backwards(*readings: float) -> None:
    """Raise if a clock, read in this order, ever went back.

    Raises
    ------
    Wrong
    """
    for earlier, later in itertools.pairwise(readings):
        if not later >= earlier:
            raise Wrong(f"the clock went back by {earlier - later:.3g} s")


def checked(samples: list[float]) -> list[float]:
    """The samples, in seconds, if each of them can be a duration.

    Raises
    ------
    Wrong
        If one is not finite and positive.
    """
    for sample in samples:
        if not (sample > 0 and math.isfinite(sample)):
            raise Wrong(f"a sample of {sample:.3g} s: the clock can't be trusted")
    return samples
