"""Statistics: pure functions, scipy and statsmodels underneath."""

from __future__ import annotations

from harness.stats.timing import (
    CONFIDENCE,
    SAME_WITHIN,
    Interval,
    Verdict,
    noise_floor,
    ratio_interval,
    verdict,
)

__all__ = [
    "CONFIDENCE",
    "SAME_WITHIN",
    "Interval",
    "Verdict",
    "noise_floor",
    "ratio_interval",
    "verdict",
]
