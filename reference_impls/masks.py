"""Positional masks: which keys a query may attend to, from a short text per head.

i is the position that attends, j the position attended to:

======================  =======================================
``none``                every j
``diagonal``            j != i
``forward``             j < i
``backward``            j > i
``forward_inclusive``   j <= i
``backward_inclusive``  j >= i
``window:W``            abs(i - j) <= W
``distance:A``          every j, with -A abs(i - j) added to the score
======================  =======================================

The papers name forward and backward (MTSA eq. 6) and diagonal (DiSA); MTSA only mentions windows
and distance-aware masks, so their formulas are ours.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_impls.mechanism import BadOption

KNOWN = (
    "none, diagonal, forward, backward, forward_inclusive, backward_inclusive, window:W or "
    "distance:A"
)


@dataclass(frozen=True)
class HeadMask:
    """Geometry of one head's mask: j is allowed if ``lo <= i - j <= hi``.

    Attributes
    ----------
    text : str
        As it was written.
    lo, hi : int or None
        Bounds of i - j; None is no bound.
    without_self : bool
        Whether j = i is forbidden although it lies within the bounds.
    slope : float
        ``-slope * |i - j|`` is added to the score.
    """

    text: str
    lo: int | None = None
    hi: int | None = None
    without_self: bool = False
    slope: float = 0.0


_FIXED = {
    mask.text: mask
    for mask in (
        HeadMask("none"),
        HeadMask("diagonal", without_self=True),
        HeadMask("forward", lo=1),
        HeadMask("backward", hi=-1),
        HeadMask("forward_inclusive", lo=0),
        HeadMask("backward_inclusive", hi=0),
    )
}


def parse(text: str) -> HeadMask:
    """Read one mask.

    Raises
    ------
    BadOption
        If it is not one of those above.
    """
    if not isinstance(text, str):
        raise BadOption(f"mask {text!r} is a {type(text).__name__}; expected the text {KNOWN}")
    if text in _FIXED:
        return _FIXED[text]
    name, _, value = text.partition(":")
    if name == "window":
        if not (value.isascii() and value.isdigit()):
            raise BadOption(f"mask {text!r} has no width; expected window:W, W an integer >= 0")
        return HeadMask(text, lo=-int(value), hi=int(value))
    if name == "distance":
        try:
            slope = float(value)
        except ValueError:
            slope = math.nan
        if not (math.isfinite(slope) and slope >= 0):
            raise BadOption(f"mask {text!r} has no slope; expected distance:A, A a number >= 0")
        return HeadMask(text, slope=slope)
    raise BadOption(f"unknown mask {text!r}; expected {KNOWN}")


def parse_all(masks: Sequence[str] | None, heads: int) -> tuple[HeadMask, ...]:
    """Read one mask per head; None is ``forward`` for the first half, ``backward`` for the rest.

    Raises
    ------
    BadOption
        If a mask is unknown, their number is not that of the heads, or the heads can't be halved.
    """
    if masks is None:
        if heads % 2:
            raise BadOption(
                f"{heads} heads can't be halved into forward and backward ones; "
                "give an even number of heads, or masks=[one text per head]"
            )
        masks = ["forward"] * (heads // 2) + ["backward"] * (heads // 2)
    if isinstance(masks, str) or not isinstance(masks, Sequence):
        raise BadOption(f"masks={masks!r}; expected a list with one text per head")
    if len(masks) != heads:
        raise BadOption(f"{len(masks)} masks given for {heads} heads; expected one per head")
    return tuple(parse(mask) for mask in masks)


def runs(masks: Sequence[HeadMask]) -> tuple[tuple[HeadMask, ...], int]:
    """Split the heads into consecutive groups of one size with one mask each.

    Returns
    -------
    masks : tuple of HeadMask
        One per group.
    size : int
        Heads per group; 1 where heads with the same mask do not form groups of one size.

    Examples
    --------
    >>> groups, size = runs(parse_all(None, 8))
    >>> [group.text for group in groups], size
    (['forward', 'backward'], 4)
    """
    starts = [h for h in range(len(masks)) if h == 0 or masks[h] != masks[h - 1]]
    size = len(masks) // len(starts)
    if starts == list(range(0, len(masks), size)):
        return tuple(masks[h] for h in starts), size
    return tuple(masks), 1


def _offsets(length: int, device: torch.device, rows: Tensor | None) -> Tensor:
    keys = torch.arange(length, device=device)
    queries = keys if rows is None else rows
    return queries[:, None] - keys[None, :]  # [R, N]: i - j


def allowed(
    masks: Sequence[HeadMask], length: int, device: torch.device, rows: Tensor | None = None
) -> Tensor:
    """Whether query i may attend to key j, for each mask.

    Parameters
    ----------
    masks : sequence of H HeadMask
    length : int
        N.
    device : torch.device
    rows : Tensor of int64, shape [R], optional
        Query positions; None is all N.

    Returns
    -------
    Tensor of bool, shape [H, R, N]
    """
    offset = _offsets(length, device, rows)
    found = []
    for mask in masks:
        inside = torch.ones_like(offset, dtype=torch.bool)
        if mask.lo is not None:
            inside = inside & (offset >= mask.lo)
        if mask.hi is not None:
            inside = inside & (offset <= mask.hi)
        if mask.without_self:
            inside = inside & (offset != 0)
        found.append(inside)
    return torch.stack(found)


def distance_bias(
    masks: Sequence[HeadMask],
    length: int,
    device: torch.device,
    dtype: torch.dtype,
    rows: Tensor | None = None,
) -> Tensor | None:
    """The additive ``-slope * |i - j|`` of each mask, shape [H, R, N]; None if all slopes are 0."""
    if not any(mask.slope for mask in masks):
        return None
    distance = _offsets(length, device, rows).abs().to(dtype)
    return torch.stack([distance * -mask.slope for mask in masks])


def additive(
    masks: Sequence[HeadMask],
    length: int,
    device: torch.device,
    dtype: torch.dtype,
    rows: Tensor | None = None,
) -> Tensor:
    """The papers' M: 0 or ``-slope * |i - j|`` where allowed, -inf elsewhere; shape [H, R, N]."""
    forbidden = ~allowed(masks, length, device, rows)
    bias = distance_bias(masks, length, device, dtype, rows)
    if bias is None:
        bias = torch.zeros(forbidden.shape, device=device, dtype=dtype)
    return bias.masked_fill(forbidden, -math.inf)
