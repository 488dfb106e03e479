"""Only the windows: time and memory grow with N times the window, not with N * N.

A head that sees itself alone gives its values. On a CPU a short sequence is met by all its pairs.
All others go to the kernels for ranges of keys: the range is `half` to either side of the query, in
every sample by its own real length, which is not read from the device; there are no source scores,
and the pairs' weights are exp(score - maximum), plain softmax.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

import torch
from torch import Tensor

from reference_impls.checks import one_of, refuse_rows
from reference_impls.kernels.caching import TensorCache
from reference_impls.kernels.geometry import LENGTHS_CACHED, Geometry
from reference_impls.merged import MergingModule, itself, side_by_side
from reference_impls.msmsa.modules import Heads, Mix, MsmsaLayer, all_pairs, open_pairs
from reference_impls.msmsa.scales import Scale

BACKENDS = ("auto", "native", "tiled", "triton", "flex")
Method = Literal["alone", "all", "ranges"]
SHORT = 16
"""Tokens of a sequence up to which torch is the faster with all pairs, on a CPU: roughly."""


@dataclass(frozen=True)
class Group:
    """Heads that are computed together, in a batch of padded length N.

    Attributes
    ----------
    method : {"alone", "all", "ranges"}
        alone: the only key is the query itself, whose value is the result; all: N x N pairs and a
        mask; ranges: a kernel.
    heads : tuple of int
    scales : tuple of Scale
        One per head.
    """

    method: Method
    heads: tuple[int, ...]
    scales: tuple[Scale, ...]

    @property
    def parts(self) -> int:
        """How many projections it reads: queries, keys and values, or values alone.

        A head that sees itself alone has the weight 1 whatever its score: no queries, no keys.
        """
        return 1 if self.method == "alone" else 3


def plan(scales: Sequence[Scale], length: int, others: Method) -> list[Group]:
    """Group heads: those that see themselves alone, if any, and the others."""
    found: dict[Method, list[int]] = {"alone": [], others: []}
    for h, scale in enumerate(scales):
        found[others if int(scale.half(length)) else "alone"].append(h)
    return [
        Group(method, tuple(heads), tuple(scales[h] for h in heads))
        for method, heads in found.items()
        if heads
    ]


def cheapest(x: Tensor) -> Method:
    """How heads that see others are computed in x [B, N, D].

    On a GPU a kernel takes the fewest calls.
    """
    return "all" if x.device.type == "cpu" and x.shape[1] <= SHORT else "ranges"


def windows(
    scales: Sequence[Scale], length: int, mask: Tensor | None, device: torch.device
) -> Geometry:
    """The range of every head: of every sample where there is padding, without a wait for it."""
    if mask is None:
        # Filled on the device: a copy from the host can't be captured in a CUDA graph.
        halves = [min(length, int(scale.half(length))) for scale in scales]
        made = [torch.full((1,), half, dtype=torch.int32, device=device) for half in halves]
        half = torch.stack(made)  # [H, 1]
    else:
        half = reaches(scales, mask).clamp(max=length).T.to(torch.int32).contiguous()  # [H, B]
    count = len(scales)
    return Geometry(
        -half,
        half,
        torch.zeros(count, dtype=torch.bool, device=device),
        torch.zeros(count, device=device),
    )


_cache: TensorCache[Geometry] = TensorCache(LENGTHS_CACHED)
_pairs: TensorCache[Tensor] = TensorCache(LENGTHS_CACHED)


def cached_windows(scales: tuple[Scale, ...], length: int, like: Tensor) -> Geometry:
    """`windows` without padding, one object for all calls."""

    def make() -> Geometry:
        return windows(scales, length, None, like.device)

    return _cache.of((scales, length, like.device), like.device, make)


def _mask(scales: tuple[Scale, ...], mask: Tensor | None, like: Tensor) -> Tensor:
    """What is added to all scores of such heads, in the dtype of `like` [B, N, ...]."""
    n = like.shape[1]

    def make() -> Tensor:
        closed = ~open_pairs(scales, n, mask, like.device)
        return like.new_zeros(closed.shape).masked_fill_(closed, -math.inf)

    if mask is not None:
        return make()
    return _pairs.of((scales, n, like.dtype, like.device), like.device, make)


def windowed_mix(
    x: Tensor,
    heads: Heads,
    mask: Tensor | None,
    rows: Tensor | None,
    backend: str | None = None,
) -> Tensor:
    """Eq. 6 and 9: [B, N, D] -> [B, N, d_out], in memory N * d_out.

    With a backend for all heads that see others, or what is `cheapest`.
    """
    refuse_rows(rows)
    from reference_impls.kernels import core  # what it loads is for those who compute

    d, n = heads.q_w.shape[2], int(x.shape[1])
    groups = plan(heads.scales, n, "ranges" if backend else cheapest(x))
    backend = backend or "auto"
    if backend != "auto" and all(group.method == "alone" for group in groups):
        core.require(backend)  # at other lengths it would be needed: no answer by chance
    projected = project_groups(x, heads, groups)  # [B, N, W]
    widths = [group.parts * len(group.heads) * d for group in groups]
    done: list[Tensor] = []  # of each group [B, N, G * d_h]
    for group, columns in zip(groups, projected.split(widths, dim=-1), strict=True):
        if group.method == "alone":
            done.append(columns)
            continue
        q, k, v = columns.unflatten(-1, (3, len(group.heads), d)).unbind(2)  # [B, N, G, d_h]
        if group.method == "all":
            added = _mask(group.scales, mask, q)
            q, k, v = (t.transpose(1, 2) for t in (q, k, v))  # [B, G, N, d_h]
            done.append(all_pairs(q, k, v, added))
            continue
        if mask is None:
            geometry = cached_windows(group.scales, n, x)
        else:
            geometry = windows(group.scales, n, mask, x.device)
        q, k, v = (t.permute(2, 0, 1, 3) for t in (q, k, v))  # [G, B, N, d_h]
        attended = core.attend(q, k, v, None, geometry, mask, "identity", None, backend)
        done.append(attended.permute(1, 2, 0, 3).flatten(2))  # a view
    stay = int(groups[0].method == "alone")  # they begin the projections
    return output_product(_joined(done, projected, stay), heads, groups)


def _joined(done: list[Tensor], projected: Tensor, stay: int) -> Tensor:
    """Side by side, [B, N, sum of w].

    Where no gradient is wanted, in the memory of the projections, which are not read again: the
    first so many stand there already.
    """
    if len(done) == 1:
        return done[0]
    if torch.is_grad_enabled() and any(part.requires_grad for part in done):
        return torch.cat(done, dim=-1)
    widths = [part.shape[-1] for part in done]
    out = projected[..., : sum(widths)]
    for columns, part in zip(out.split(widths, dim=-1)[stay:], done[stay:], strict=True):
        columns.copy_(part)
    return out


def project_groups(x: Tensor, heads: Heads, groups: Sequence[Group]) -> Tensor:
    """Projections of all groups, one after another: values alone, or q, k and v of the group.

    [B, N, D] -> [B, N, W], perhaps a view.
    """

    def columns(q_w: Tensor, k_w: Tensor, v_w: Tensor) -> Tensor:
        found: list[Tensor] = []
        for group in groups:
            if group.method != "alone":
                found += [part / heads.divisor for part in _runs(q_w, group.heads)]
                found += _runs(k_w, group.heads)
            found += _runs(v_w, group.heads)
        # No columns of what none reads: its gradient is zeros then, not None, whatever it holds.
        return side_by_side(*found, q_w[:0], k_w[:0])

    order = tuple((group.parts, group.heads) for group in groups)
    weights = (heads.q_w, heads.k_w, heads.v_w)
    return heads.merged.product(x, columns, *weights, key=order)


def output_product(joined: Tensor, heads: Heads, groups: Sequence[Group]) -> Tensor:
    """Eq. 9 with the heads in the order of the groups: [B, N, H * d_h] -> [B, N, d_out]."""
    order = tuple(h for group in groups for h in group.heads)
    if order == tuple(range(len(order))):
        return heads.merged.dense(joined, itself, heads.o_w)

    def rows(o_w: Tensor) -> Tensor:
        return torch.cat(_runs(o_w.unflatten(0, (len(order), -1)), order)).flatten(0, 1)

    return heads.merged.dense(joined, rows, heads.o_w, key=order)


def _runs(weight: Tensor, heads: Sequence[int]) -> list[Tensor]:
    """Heads of a weight [H, ...], as views of those that stand in a row."""
    starts = [i for i, h in enumerate(heads) if i == 0 or h != heads[i - 1] + 1]
    stops = [*starts[1:], len(heads)]
    return [weight[heads[a] : heads[b - 1] + 1] for a, b in zip(starts, stops, strict=True)]


def reaches(scales: Sequence[Scale], mask: Tensor) -> Tensor:
    """How far each head sees in each sample, int64 [B, G]; shares are of the real length."""
    real = mask.sum(1)  # [B]
    return torch.stack([torch.zeros_like(real) + scale.half(real) for scale in scales], dim=1)


class Fused(MergingModule):
    """Every head that sees others by one backend; stands before the layer that asks for a `mix`.

    Parameters
    ----------
    backend : {"auto", "native", "tiled", "triton", "flex"}
        auto is chosen by shape, device and pass, see `reference_impls.kernels.core`.
    """

    mix: Mix

    def __init__(self, *arguments: Any, backend: str = "auto", **options: Any) -> None:
        super().__init__(*arguments, **options)
        self.backend = one_of("backend", backend, BACKENDS)
        self.mix = partial(windowed_mix, backend=backend)


class FusedMsmsa(Fused, MsmsaLayer):
    """`MsmsaLayer` by the kernels for ranges of keys."""


class WindowedMsmsa(MsmsaLayer):
    """`MsmsaLayer` by all pairs or the kernels for ranges of keys: what is cheapest."""

    mix = staticmethod(windowed_mix)
