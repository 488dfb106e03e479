"""Scales of attention heads: their windows, and how many heads of a layer get which scale.

Plain arithmetic, for records, formulas and modules alike. A scale is a number of tokens or
``"n/16"``, a share of the sample's real length n. The paper forces windows to be odd and does not
say how; ours is the largest odd number not above v + 1, v the number or the share:
``w = max(1, 2 * floor(v / 2) + 1)``.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from reference_impls.mechanism import BadOption

CANDIDATES = (1, 3, "n/16", "n/8", "n/4")
"""Candidate scales of the paper's classification tasks (Table 1)."""
READINGS = ("total", "radius")
SCALINGS = ("head_width", "model_width")
TOLERANCE = 1e-9
"""Taken off a cumulative sum before its ceiling: ten heads must not become eleven by rounding."""

GivenScale: TypeAlias = int | float | str


@dataclass(frozen=True)
class Scale:
    """The window of one head.

    Attributes
    ----------
    number : float
        v of a constant scale.
    divisor : int
        K of the scale n/K; 0 for a constant.
    radius : bool
        Eq. 7 as printed, keys j - w ... j + w; otherwise w keys in total.
    """

    number: float = 0.0
    divisor: int = 0
    radius: bool = False

    def width(self, length: Any) -> Any:
        """Odd-forced w for a real length n, an int or a tensor of int64."""
        half = length // (2 * self.divisor) if self.divisor else int(self.number // 2)
        return 2 * half + 1

    def half(self, length: Any) -> Any:
        """Largest distance to a key; an int for a constant scale, else like `length`.

        Grows with the length: that of a padded length bounds those of the samples.
        """
        return self.width(length) if self.radius else self.width(length) // 2


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def parse(scale: GivenScale, reading: str = "total") -> Scale:
    """Read one scale, a number of at least 1 or a text such as "n/16".

    Raises
    ------
    BadOption
        If it is neither.
    """
    radius = reading == "radius"
    if isinstance(scale, str):
        name, _, divisor = scale.partition("/")
        if name == "n" and divisor.isascii() and divisor.isdigit() and int(divisor) > 0:
            return Scale(divisor=int(divisor), radius=radius)
    elif _is_number(scale) and 1 <= scale < math.inf:
        return Scale(number=scale, radius=radius)
    raise BadOption(f"scale {scale!r}; expected a number of at least 1, or n/K, K an integer >= 1")


def parse_all(
    scales: Sequence[GivenScale] | None, heads: int, reading: str = "total"
) -> tuple[Scale, ...]:
    """Read one scale per head; None is `CANDIDATES`, over and over.

    Raises
    ------
    BadOption
        If a scale can't be read, or their number is not that of the heads.
    """
    if scales is None:
        scales = [CANDIDATES[h % len(CANDIDATES)] for h in range(heads)]
    if isinstance(scales, str) or not isinstance(scales, Sequence):
        raise BadOption(f"scales={scales!r}; expected a list with one scale per head")
    if len(scales) != heads:
        raise BadOption(f"{len(scales)} scales given for {heads} heads; give one per head")
    return tuple(parse(scale, reading) for scale in scales)


def heads_per_scale(candidates: int, alpha: float, heads: int, layers: int) -> list[list[int]]:
    """Distribution of a model's heads over its candidate scales (eq. 11-12).

    z^l_k = z^l_{k+1} + alpha / l, 0 at the last scale and in the last layer; heads are shared out
    as N' softmax(z^l). The paper does not say how these become integers: its one example,
    {5,2,2,1,0}, {4,2,2,1,1}, {2,2,2,2,2} for alpha = .5, N' = 10, L = 3, is not what rounding
    gives. Differences of the ceilings of cumulative sums give it: inferred from that example, ours.

    Returns
    -------
    list of lists of int
        One list per layer, from the bottom; one number per candidate, their sum is `heads`.
    """
    counts = []
    for layer in range(1, layers + 1):
        step = 0.0 if layer == layers else alpha / layer
        z = [step * (candidates - k) for k in range(1, candidates + 1)]
        shares = [math.exp(value - max(z)) for value in z]
        before, reached, row = 0, 0.0, []
        for share in shares:
            reached += heads * share / sum(shares)
            upto = math.ceil(reached - TOLERANCE)
            row.append(upto - before)
            before = upto
        counts.append(row)
    return counts


def scales_of_layers(
    candidates: Sequence[GivenScale], alpha: float, heads: int, layers: int
) -> list[list[GivenScale]]:
    """Scales of every head, layer by layer, in the order of the candidates.

    Raises
    ------
    BadOption
        If there are no candidates, or alpha is not a finite number.
    """
    if isinstance(candidates, str) or not isinstance(candidates, Sequence) or not candidates:
        raise BadOption(f"candidates={candidates!r}; expected a list of scales, small to large")
    if not (_is_number(alpha) and math.isfinite(alpha)):
        raise BadOption(f"alpha={alpha!r}; expected a finite number, .5 for classification")
    counts = heads_per_scale(len(candidates), alpha, heads, layers)
    return [
        [scale for scale, count in zip(candidates, row, strict=True) for _ in range(count)]
        for row in counts
    ]
