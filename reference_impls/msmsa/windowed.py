"""Only the windows: time and memory grow with N times the window, not with N * N.

Heads are grouped by what is cheapest for their reach, see `tiles`. Queries of long windows are cut
in tiles of T, and a tile sees the T + 2 * half keys around it, half being the head's reach in a
sample without padding: no length is read from the device. Tiles and bands are views of the
projections; nothing is copied. Within a tile a mask holds every sample's own reach.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from reference_impls.checks import core_dtype, refuse_rows
from reference_impls.kernels.caching import TensorCache
from reference_impls.merged import itself, side_by_side
from reference_impls.msmsa.modules import Heads, MsmsaLayer
from reference_impls.msmsa.scales import Scale
from reference_impls.msmsa.tiles import Group, Piece, pieces, plan
from reference_impls.sdpa import attention

_cache: TensorCache[Tensor] = TensorCache(16)
MOST_HELD = 2**18
"""Numbers of a mask that the next call of its length finds; larger ones cost little beside what
they mask."""


def _meetings(half: int, length: int) -> list[tuple[slice, slice]]:
    """For each offset -half ... half: queries i, and their keys i + offset, within the sequence."""
    found = []
    for offset in range(-half, half + 1):
        first, last = max(0, -offset), max(0, min(length, length - offset))
        last = max(first, last)
        found.append((slice(first, last), slice(first + offset, last + offset)))
    return found


class Neighbours(torch.autograd.Function):
    """Attention to the keys at most `half` positions away, every query and key met once.

    ``Neighbours.apply(q, k, v, half, closed)``: q (divided as scores are to be), k, v
    [B, N, G, d]; closed, bool [2 * half + 1, B, N, G or 1] or None, says for each offset which
    queries have no key there, and is false for the offset 0. Result [B, N, G, d].
    """

    @staticmethod
    def forward(
        ctx: Any, q: Tensor, k: Tensor, v: Tensor, half: int, closed: Tensor | None
    ) -> Tensor:
        """A softmax over 2 * half + 1 scores, in float32 at least."""
        dtype = core_dtype(q.dtype)
        ctx.half = half
        q_, k_, v_ = (t.to(dtype) for t in (q, k, v))
        meetings = _meetings(half, q.shape[1])
        scores = q_.new_full((len(meetings), *q.shape[:3]), -math.inf)  # [S, B, N, G]
        for score, (i, j) in zip(scores, meetings, strict=True):
            score[:, i] = (q_[:, i] * k_[:, j]).sum(-1)
        if closed is not None:
            scores.masked_fill_(closed, -math.inf)
        p = scores.softmax(0)
        ctx.save_for_backward(q, k, v, p)
        out = p[half, ..., None] * v_
        for s, (i, j) in enumerate(meetings):
            if s != half:
                out[:, i].addcmul_(p[s, :, i, :, None], v_[:, j])
        return out.to(q.dtype)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Tensor, Tensor, Tensor, None, None]:
        """Each sum of the forward pass, the other way round."""
        half = ctx.half
        *inputs, p = ctx.saved_tensors  # read once: checkpointing hands them out once
        q, k, v = (t.to(p.dtype) for t in inputs)
        g = g.to(p.dtype)
        meetings = _meetings(half, q.shape[1])
        g_p, g_v = torch.zeros_like(p), torch.zeros_like(g)
        for s, (i, j) in enumerate(meetings):
            g_p[s][:, i] = (g[:, i] * v[:, j]).sum(-1)
            g_v[:, j].addcmul_(p[s, :, i, :, None], g[:, i])
        g_scores = p * (g_p - (p * g_p).sum(0))
        g_q, g_k = torch.zeros_like(g_v), torch.zeros_like(g_v)
        for s, (i, j) in enumerate(meetings):
            g_score = g_scores[s, :, i, :, None]
            g_q[:, i].addcmul_(g_score, k[:, j])
            g_k[:, j].addcmul_(g_score, q[:, i])
        dtypes = [t.dtype for t in inputs]
        return g_q.to(dtypes[0]), g_k.to(dtypes[1]), g_v.to(dtypes[2]), None, None


def windowed_mix(x: Tensor, heads: Heads, mask: Tensor | None, rows: Tensor | None) -> Tensor:
    """Eq. 6 and 9: [B, N, D] -> [B, N, d_out], touching little more than each head's window."""
    refuse_rows(rows)
    d = heads.q_w.shape[2]
    groups = plan(heads.scales, int(x.shape[1]), int(x.shape[0]))
    widths = [len(group.heads) * d * parts for group in groups for parts in _parts(group)]
    projected = project_groups(x, heads, groups)
    parts = iter(projected.split(widths, dim=-1))  # [B, N, G * d_h] each
    # For each group or head [B, M, T, w], M * T rows after M * T rows.
    done: list[list[Tensor]] = []
    for group in groups:
        if group.method == "alone":
            done.append([next(parts).unsqueeze(2)])
            continue
        q, kv = (next(parts).unflatten(-1, (-1, d)) for _ in range(2))  # [B, N, G or 2 * G, d_h]
        if group.method == "near":
            near = Neighbours.apply(q, *kv.chunk(2, 2), group.half, _beyond(group, mask))
            done.append([near.flatten(2).unsqueeze(2)])
        elif group.method == "tiles":
            done += _in_tiles(q, kv, group, mask)
        else:
            done.append([_all_pairs(q, kv, group, mask).unsqueeze(2)])
    stay = int(groups[0].method == "alone")  # they begin the projections
    return output_product(_joined(done, projected, stay), heads, groups)


def _joined(done: list[list[Tensor]], projected: Tensor, stay: int) -> Tensor:
    """Rows below one another, and these side by side: [B, N, sum of w]; one copy of each.

    Where no gradient is wanted, in the memory of the projections, which are not read again: the
    first so many stand there already.
    """
    if torch.is_grad_enabled() and any(part.requires_grad for rows in done for part in rows):
        flat = [[part.flatten(1, 2) for part in rows] for rows in done]
        return torch.cat([rows[0] if len(rows) == 1 else torch.cat(rows, 1) for rows in flat], -1)
    widths = [rows[0].shape[3] for rows in done]
    out = projected[..., : sum(widths)]
    for columns, parts in zip(out.split(widths, -1)[stay:], done[stay:], strict=True):
        lengths = [part.shape[1] * part.shape[2] for part in parts]
        for place, part in zip(columns.split(lengths, dim=1), parts, strict=True):
            place.unflatten(1, part.shape[1:3]).copy_(part)
    return out


def _parts(group: Group) -> tuple[int, ...]:
    """How many projections stand together: values alone, or q, and k with v.

    A head that sees itself alone has the weight 1 whatever its score: no queries, no keys.
    """
    return (1,) if group.method == "alone" else (1, 2)


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

    order = tuple((sum(_parts(group)), group.heads) for group in groups)
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


def _in_tiles(q: Tensor, kv: Tensor, group: Group, mask: Tensor | None) -> list[list[Tensor]]:
    """Tiles of queries, bands of keys: [B, M, T, d_h] of each head and piece.

    q [B, N, G, d_h], kv [B, N, 2 * G, d_h]: the keys of all heads, then the values.
    """
    cut = pieces(group.half, group.tile, q.shape[1])
    masks = _masks(cut, group.scales[:1], mask, q)
    lengths = [piece.tiles * piece.tile for piece in cut]
    bands = Bands.apply(kv, cut)
    done: list[list[Tensor]] = []
    for head, queries in enumerate(q.unbind(2)):
        keys, values = bands[head :: kv.shape[2]], bands[head + q.shape[2] :: kv.shape[2]]
        found = []
        for piece, some, added, near_keys, near_values in zip(
            cut, queries.split(lengths, dim=1), masks, keys, values, strict=True
        ):
            tiles = some.unflatten(1, (piece.tiles, piece.tile))  # [B, M, T, d_h]
            found.append(attention(tiles, near_keys, near_values, added, 1.0))
        done.append(found)
    return done


def _all_pairs(q: Tensor, kv: Tensor, group: Group, mask: Tensor | None) -> Tensor:
    """Windows about as wide as the sequence: q [B, N, G, d_h], kv as above -> [B, N, G * d_h]."""
    n, added = q.shape[1], None
    if mask is not None or any(scale.half(n) < n - 1 for scale in group.scales):
        (added,) = _masks([Piece(0, 1, n, 0, n)], group.scales, mask, q)  # [B or 1, G, N, N]
    q, k, v = (t.transpose(1, 2) for t in (q, *kv.chunk(2, 2)))
    out = attention(q, k, v, added, 1.0)
    return out.transpose(1, 2).flatten(2)


def _masks(
    cut: Sequence[Piece], scales: Sequence[Scale], mask: Tensor | None, like: Tensor
) -> list[Tensor]:
    """0 at pairs within the window whose key is real, -inf elsewhere; a query always sees itself.

    Of one scale, or in one tile of that of each head.

    Returns
    -------
    list of Tensor, shape [B, M or G, T, band], or [1, 1 or G, T, band] without a mask
        One per piece, in the dtype and on the device of `like` [B, N, ...].
    """
    # Key c is c - a + shift away from query a, in every tile: one square holds those of all pieces.
    shifts = [piece.first - piece.start for piece in cut]
    least, rows = min(shifts), max(piece.tile for piece in cut)
    columns = max(shift + piece.band for shift, piece in zip(shifts, cut, strict=True)) - least

    def of(square: Tensor) -> list[Tensor]:
        return [
            square[..., : piece.tile, shift - least : shift - least + piece.band]
            for shift, piece in zip(shifts, cut, strict=True)
        ]

    if mask is None:
        halves = tuple(scale.half(like.shape[1]) for scale in scales)

        def make() -> Tensor:
            full = like.new_full((rows, columns), -math.inf)
            near = {h: full.triu(h + 1 - least).add_(full.tril(-h - 1 - least)) for h in {*halves}}
            return torch.stack([near[h] for h in halves])[None]

        if len(halves) * rows * columns > MOST_HELD:
            return of(make())
        return of(
            _cache.of((halves, rows, columns, least, like.dtype, like.device), like.device, make)
        )
    zero, closed = like.new_zeros(()), like.new_full((), -math.inf)
    positions = torch.arange(max(rows, columns), device=like.device)
    away = (positions[:columns] + least - positions[:rows, None]).abs_()  # [R, C]
    reach = reaches(scales, mask)[..., None, None]  # [B, 1 or G, 1, 1]
    found = []
    for piece, square in zip(cut, of(away), strict=True):
        last = piece.first + (piece.tiles - 1) * piece.tile + piece.band
        real = mask[:, piece.first : last].unfold(1, piece.band, piece.tile)[:, :, None]
        found.append(torch.where((square <= reach) & real | (square == 0), zero, closed))
    return found


class Bands(torch.autograd.Function):
    """The keys around every tile, as views: ``Bands.apply(t, pieces)``.

    t [B, N, G, d] -> for each piece, for each g, [B, M, band, d]. Bands overlap; the backward pass
    adds them up, which that of a view with overlapping strides does slowly.
    """

    @staticmethod
    def forward(ctx: Any, t: Tensor, cut: tuple[Piece, ...]) -> tuple[Tensor, ...]:
        """Nothing is copied."""
        ctx.cut, ctx.shape = cut, t.shape
        bands = (
            t[:, piece.first : piece.first + (piece.tiles - 1) * piece.tile + piece.band]
            .unfold(1, piece.band, piece.tile)  # [B, M, G, d, band]
            .mT.unbind(2)
            for piece in cut
        )
        return tuple(band for of_piece in bands for band in of_piece)

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, *grads: Tensor) -> tuple[Tensor, None]:
        """Sum over the bands that a key is in, by whole tiles."""
        total = grads[0].new_zeros(ctx.shape)
        bands = product(ctx.cut, total.unbind(2))
        for (piece, t), grad in zip(bands, grads, strict=True):
            for start in range(0, piece.band, piece.tile):
                width = min(piece.tile, piece.band - start)
                first = piece.first + start
                part = t[:, first : first + (piece.tiles - 1) * piece.tile + width]
                part.unfold(1, width, piece.tile).mT.add_(grad[:, :, start : start + width])
        return total, None


class WindowedMsmsa(MsmsaLayer):
    """`MsmsaLayer` in tiles."""

    mix = staticmethod(windowed_mix)
