"""The batches that an implementation must get right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from reference_impls.mechanism import Mechanism

LENGTHS = (1, 2, 63, 64, 65, 257)
"""Across the edges of the usual tiles."""
SHORT = (2, 7, 65)
D_IN, D_OUT, HEADS = 12, 16, 4
INPUT_SCALES = {"f64": (1e-3, 4.0), "f32": (1e-3, 4.0), "f16": (1e-3,), "bf16": (1e-3,)}
"""Larger inputs in half precision: scores of 50 are rounded by 0.2, for plain as for all."""
SCORE_SCALES = (10.0, 100.0)


@dataclass(frozen=True)
class Batch:
    """One batch: configuration, lengths, dtype and what is exaggerated.

    Attributes
    ----------
    label : str
        How findings name it.
    options : mapping
        Differences to the mechanism's own configuration.
    lengths : tuple of int
        Real tokens per sample; the longest is N. Empty padding means a call without a mask.
    masked : bool
        Whether a mask is given (what x holds at padding is then NaN).
    input_scale, score_scale : float
        Factors on x, and on the weights that scale the scores.
    """

    label: str
    options: Mapping[str, Any]
    lengths: tuple[int, ...]
    masked: bool = True
    input_scale: float = 1.0
    score_scale: float = 1.0


def ragged(n: int) -> tuple[int, ...]:
    """Lengths of a batch with every kind of sample: full, half, one token, none."""
    return (n, max(1, n // 2), 1, 0)


def batches(mechanism: Mechanism, dtype: str) -> Iterator[Batch]:
    """All batches that an implementation of the mechanism must get right."""
    for n in LENGTHS:
        yield Batch(f"N={n}", {}, ragged(n))
    for n in (2, 65):
        yield Batch(f"N={n} without padding", {}, (n, n), masked=False)
    for name, options in mechanism.variants.items():
        for n in SHORT:
            yield Batch(f"{name}, N={n}", options, ragged(n))
        # Without a mask many take another way: causal SDPA, say, is told so instead of shown.
        yield Batch(f"{name}, N=257 without padding", options, (257, 257), masked=False)
    for scale in INPUT_SCALES[dtype]:
        yield Batch(f"x times {scale:g}, N=65", {}, ragged(65), input_scale=scale)
    if mechanism.score_weights and dtype in ("f64", "f32"):
        for scale in SCORE_SCALES:
            yield Batch(f"scores times {scale:g}, N=65", {}, ragged(65), score_scale=scale)
