"""The batches that an implementation must get right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from reference_impls.mechanism import Implementation, Mechanism

LENGTHS = (1, 2, 63, 64, 65, 257)
"""Across the edges of the usual tiles."""
SHORT = (2, 7, 65)
PAPERS_WIDTHS = (75, 300)
LARGE_WIDTHS, LARGE_LENGTHS = (64, 75, 128), (64, 65, 1000, 4097)
"""Of `large`: setting A's heads between powers of two; a tile, one token more, many, and as many as
begin a tile of their own at every size of tiles."""
LARGE_HEADS = 2
"""One of them looks back and one ahead."""
RAGGED_UP_TO = 1000
"""With padding, the four samples of the longest would wait for the oracle for minutes."""
D_IN, D_OUT, HEADS = 12, 16, 4
INPUT_SCALES = {"f64": (1e-3, 4.0), "f32": (1e-3, 4.0), "f16": (1e-3,), "bf16": (1e-3,)}
"""Larger inputs in half precision: scores of 50 are rounded by 0.2, for plain as for all."""
SCORE_SCALES = (10.0, 100.0)


@dataclass(frozen=True)
class Batch:
    """One batch: configuration, lengths, dtype and what is exaggerated."""

    label: str  # how findings name it
    options: Mapping[str, Any]  # differences to the mechanism's own configuration
    # Real tokens per sample; the longest is N. Empty padding means a call without a mask.
    lengths: tuple[int, ...]
    masked: bool = True  # whether a mask is given (what x holds at padding is then NaN)
    input_scale: float = 1.0
    score_scale: float = 1.0  # on the weights that scale the scores
    drawn: bool = False  # whether the module draws at random, and is judged by what it drew
    evaluated: bool = False  # whether it is also asked in evaluation, with other weights before
    # Whether some query rows stand for all: where the oracle would take seconds for all of them.
    sampled: bool = False
    forced: Mapping[str, Any] = field(default_factory=dict)  # see `Implementation.forced`
    head_width: int = 0  # features of a head; 0 for those of `D_OUT` and `HEADS`

    @property
    def rows(self) -> list[int] | None:
        """The query rows that are compared, those around the edges of tiles; None is all."""
        n = max(self.lengths)
        return sorted({0, n - 1, *range(63, n, 64), *range(64, n, 64)}) if self.sampled else None


def ragged(n: int) -> tuple[int, ...]:
    """Lengths of a batch with every kind of sample: full, half, one token, none."""
    return (n, max(1, n // 2), 1, 0)


def batches(mechanism: Mechanism, implementation: Implementation, dtype: str) -> Iterator[Batch]:
    """All batches that an implementation of the mechanism must get right."""
    for n in LENGTHS:
        yield Batch(f"N={n}", {}, ragged(n), evaluated=n == 65)
    for n in (2, 65):
        yield Batch(f"N={n} without padding", {}, (n, n), masked=False)
    if (n := implementation.long) and mechanism.output == "tokens":
        yield Batch(f"N={n}, rows at edges", {}, (n,), masked=False, sampled=True)
        # The papers' heads, which a GPU's kernels cut in two: a sanitizer sees no larger ones.
        if mechanism.takes_heads and implementation.devices == ("cuda",):
            for width in PAPERS_WIDTHS:
                label, two = f"N=65, heads of {width}", {"heads": LARGE_HEADS}
                yield Batch(label, two, ragged(65), head_width=width)
    for name, options in mechanism.variants.items():
        for n in SHORT:
            yield Batch(f"{name}, N={n}", options, ragged(n), evaluated=n == 7)
        # Without a mask many take another way: causal SDPA, say, is told so instead of shown.
        for whole in ((7, 7), (257,)):
            label = f"{name}, N={whole[0]} without padding"
            yield Batch(label, options, whole, masked=False)
    for scale in INPUT_SCALES[dtype]:
        yield Batch(f"x times {scale:g}, N=65", {}, ragged(65), input_scale=scale)
    scales = SCORE_SCALES if mechanism.score_weights and dtype in ("f64", "f32") else ()
    steep = mechanism.score_options
    for scale in scales:
        yield Batch(f"scores times {scale:g}, N=65", steep, ragged(65), score_scale=scale)
    for name, options in mechanism.random.items():
        still = not mechanism.always_random
        # There a token is a coin: it takes some hundred of them to tell one chance from another.
        lengths = ragged(65) if still else (65, 65, 65, *ragged(65))
        for scale in (1.0, *scales[1:]):
            yield Batch(
                f"{name}, scores times {scale:g}, N=65",
                {**steep, **options},
                lengths,
                score_scale=scale,
                drawn=True,
                evaluated=still,
            )
    for name, forced in implementation.forced.items():
        for scale in (1.0, *scales[1:]):
            label = f"{name}, scores times {scale:g}, N=65"
            yield Batch(label, steep, ragged(65), score_scale=scale, forced=forced)


def telling(mechanism: Mechanism, implementation: Implementation, device: str) -> bool:
    """Whether `large` shapes say something of an implementation on a device.

    On a CPU of those that work in tiles; on a GPU of all kernels, torch's too, which goals and
    ratios are formed to. The yardstick would be held against itself, and has no room for N x N x D.
    """
    if not (mechanism.takes_heads and mechanism.output == "tokens"):
        return False
    if device not in implementation.devices or implementation.factory == mechanism.plain:
        return False
    return device == "cuda" or bool(implementation.long)


def large() -> Iterator[Batch]:
    """Batches with heads as wide, and sequences as long, as kernels are written for.

    All rows and all gradients are compared: for whoever has a GPU, or some minutes for each.
    """
    for width in LARGE_WIDTHS:
        for n in LARGE_LENGTHS:
            label, options = f"heads of {width}, N={n}", {"heads": LARGE_HEADS}
            yield Batch(label, options, (n,), masked=False, head_width=width)
            if n <= RAGGED_UP_TO:
                yield Batch(f"{label}, padded", options, ragged(n), head_width=width)
