"""Only the windows: time and memory grow with N times the window, not with N * N.

Heads are grouped by what is cheapest for their reach, see `tiles`. Queries of long windows are cut
in tiles of T, and a tile sees the T + 2 * half keys around it, half being the head's reach in a
sample without padding: no length is read from the device. Tiles and bands are views of the
projections; nothing is copied. Within a tile a mask holds every sample's own reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable
from torch.nn.functional import scaled_dot_product_attention

from reference_impls.merged import side_by_side
from reference_impls.msmsa.layer import Heads, MsmsaLayer, within_windows
from reference_impls.msmsa.near import Neighbours
from reference_impls.msmsa.scales import Scale
from reference_impls.msmsa.tiles import Group, Piece, pieces, plan


def windowed_mix(x: Tensor, heads: Heads, mask: Tensor | None, rows: Tensor | None) -> Tensor:
    """Eq. 6 and 9: [B, N, D] -> [B, N, d_out], touching little more than each head's window."""
    d = heads.q_w.shape[2]
    groups = plan(heads.scales, int(x.shape[1]), int(x.shape[0]))
    widths = [len(group.heads) * d for group in groups for _ in range(_parts(group))]
    parts = iter((x @ columns(heads, groups)).split(widths, dim=-1))  # [B, N, G * d_h] each
    done: list[Tensor] = []
    for group in groups:
        if group.method == "alone":
            done.append(next(parts))
            continue
        q, k, v = (next(parts).unflatten(-1, (-1, d)) for _ in range(3))  # [B, N, G, d_h]
        if group.method == "near":
            done.append(Neighbours.apply(q, k, v, group.half, _beyond(group, mask)).flatten(2))
        elif group.method == "tiles":
            done += _in_tiles(q, k, v, group, mask)
        else:
            done.append(_all_pairs(q, k, v, group, mask))
    return torch.cat(done, dim=-1) @ output_rows(heads, groups)


def _parts(group: Group) -> int:
    """A head that sees itself alone has the weight 1 whatever its score: no queries, no keys."""
    return 1 if group.method == "alone" else 3


def columns(heads: Heads, groups: Sequence[Group]) -> Tensor:
    """Projections of all groups, one after another: values alone, or q, k and v of the group."""

    def together(q_w: Tensor, k_w: Tensor, v_w: Tensor) -> Tensor:
        found = []
        for group in groups:
            if group.method != "alone":
                found += [_some(q_w, group.heads) / heads.divisor, _some(k_w, group.heads)]
            found.append(_some(v_w, group.heads))
        return side_by_side(*found)

    order = tuple((_parts(group), group.heads) for group in groups)
    weights = (heads.q_w, heads.k_w, heads.v_w)
    return heads.merged.of(together, *weights, key=("columns", heads.layer, order))


def output_rows(heads: Heads, groups: Sequence[Group]) -> Tensor:
    """W^o with its rows in the order of the groups; itself where that is the heads' own."""
    order = tuple(h for group in groups for h in group.heads)
    if order == tuple(range(len(order))):
        return heads.o_w

    def together(o_w: Tensor) -> Tensor:
        return _some(o_w.unflatten(0, (len(order), -1)), order).flatten(0, 1)

    return heads.merged.of(together, heads.o_w, key=("rows", heads.layer, order))


def _some(weight: Tensor, heads: Sequence[int]) -> Tensor:
    """Heads of a weight [H, ...]: a view where they stand in a row."""
    first, count = heads[0], len(heads)
    if tuple(heads) == tuple(range(first, first + count)):
        return weight[first : first + count]
    return weight[list(heads)]


def _beyond(group: Group, mask: Tensor | None) -> Tensor | None:
    """For each offset -half ... half: queries without a key there, [S, B, N, G]; None without mask.

    Keys that are padding, or beyond the reach of a head in a short sample. A query always sees
    itself, padded or not.
    """
    if mask is None:
        return None
    n, half = mask.shape[1], group.half
    real = torch.nn.functional.pad(mask, (half, half), value=False)  # [B, N + 2*half]
    keys = torch.stack([real[:, s : s + n] for s in range(2 * half + 1)])  # [S, B, N]
    reach = reaches(group.scales, mask)  # [B or 1, G]
    offset = torch.arange(-half, half + 1, device=mask.device)[:, None, None].abs()  # [S, 1, 1]
    open_ = keys[..., None] & (offset <= reach)[:, :, None]  # [S, B, N, G]
    return ~(open_ | (offset == 0)[..., None])


def reaches(scales: Sequence[Scale], mask: Tensor) -> Tensor:
    """How far each head sees in each sample, int64 [B, G]; shares are of the real length."""
    real = mask.sum(1)  # [B]
    return torch.stack([torch.zeros_like(real) + scale.half(real) for scale in scales], dim=1)


def _all_pairs(q: Tensor, k: Tensor, v: Tensor, group: Group, mask: Tensor | None) -> Tensor:
    """Windows about as wide as the sequence: [B, N, G, d_h] -> [B, N, G * d_h]."""
    n = q.shape[1]
    pairs = None
    if mask is not None or any(scale.half(n) < n - 1 for scale in group.scales):
        pairs = within_windows(group.scales, n, mask, q.device)  # [B or 1, G, N, N]
        if mask is not None:  # a padded query needs a key: itself, a zero
            pairs = pairs | torch.eye(n, dtype=torch.bool, device=q.device)
    q, k, v = (t.transpose(1, 2) for t in (q, k, v))
    out = scaled_dot_product_attention(q, k, v, attn_mask=pairs, scale=1.0)
    return out.transpose(1, 2).flatten(2)


def _in_tiles(q: Tensor, k: Tensor, v: Tensor, group: Group, mask: Tensor | None) -> list[Tensor]:
    """Tiles of queries, bands of keys: [B, N, G, d_h] -> [B, N, d_h] for each head."""
    cut = pieces(group.half, group.tile, q.shape[1])
    masks = [_added(_pairs(piece, group, mask, q.device), q) for piece in cut]
    lengths = [piece.tiles * piece.tile for piece in cut]
    done = []
    for queries, keys, values in zip(q.unbind(2), k.unbind(2), v.unbind(2), strict=True):
        found = [
            scaled_dot_product_attention(
                some.unflatten(1, (piece.tiles, piece.tile)), *bands, attn_mask=added, scale=1.0
            ).flatten(1, 2)
            for piece, some, added, *bands in zip(
                cut,
                queries.split(lengths, dim=1),
                masks,
                Bands.apply(keys, cut),
                Bands.apply(values, cut),
                strict=True,
            )
        ]
        done.append(torch.cat(found, dim=1))
    return done


def _pairs(piece: Piece, group: Group, mask: Tensor | None, device: torch.device) -> Tensor:
    """Pairs within the window whose key is real; a query always sees itself, padded or not.

    Returns
    -------
    Tensor of bool, shape [B, M, T, band], or [1, 1, T, band] without a mask
    """
    shift = piece.first - piece.start
    apart = torch.arange(1 - piece.tile, piece.band, device=device).add_(shift).abs_()
    # Key c is c - a + shift away from query a: every row is the one before, moved by one.
    apart = apart.unfold(0, piece.band, 1).flip(0)[None, None]  # [1, 1, T, band]
    if mask is None:
        return apart <= group.half
    reach = reaches(group.scales[:1], mask)[..., None, None]  # [B, 1, 1, 1]
    last = piece.first + (piece.tiles - 1) * piece.tile + piece.band
    real = mask[:, piece.first : last].unfold(1, piece.band, piece.tile)[:, :, None]
    return (apart <= reach) & real | (apart == 0)


def _added(pairs: Tensor, like: Tensor) -> Tensor:
    """0 where a pair is open, -inf elsewhere: torch would make it anew for every head."""
    return torch.where(pairs, like.new_zeros(()), like.new_full((), -math.inf))


class Bands(torch.autograd.Function):
    """The keys around every tile, as views: ``Bands.apply(t, pieces)``.

    t [B, N, d] -> for each piece [B, M, band, d]. Bands overlap; the backward pass adds them up,
    which that of a view with overlapping strides does slowly.
    """

    @staticmethod
    def forward(ctx: Any, t: Tensor, cut: tuple[Piece, ...]) -> tuple[Tensor, ...]:
        """Nothing is copied."""
        ctx.cut, ctx.shape = cut, t.shape
        return tuple(
            t[:, piece.first : piece.first + (piece.tiles - 1) * piece.tile + piece.band]
            .unfold(1, piece.band, piece.tile)
            .mT
            for piece in cut
        )

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Sum over the bands that a key is in, by whole tiles."""
        total = grads[0].new_zeros(ctx.shape)
        for piece, grad in zip(ctx.cut, grads, strict=True):
            for start in range(0, piece.band, piece.tile):
                width = min(piece.tile, piece.band - start)
                first = piece.first + start
                part = total[:, first : first + (piece.tiles - 1) * piece.tile + width]
                part.unfold(1, width, piece.tile).mT.add_(grad[:, :, start : start + width])
        return total, None


class WindowedMsmsa(MsmsaLayer):
    """`MsmsaLayer` in tiles."""

    mix = staticmethod(windowed_mix)
