"""Only the windows: time and memory grow with N times the window, not with N * N.

Heads are grouped by scale. In a group queries are cut in tiles of T, and a tile sees the
T + 2 * half keys around it, half being the group's reach in a sample without padding: no length is
read from the device. Within a tile a mask holds every sample's own reach. Keys and values are
copied 1 + 2 * half / T times, not once per key of a window.
"""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import pad, scaled_dot_product_attention

from reference_impls.msmsa.layer import Heads, MsmsaLayer, within_windows
from reference_impls.msmsa.tiles import Group, count, plan


def windowed_mix(x: Tensor, heads: Heads, mask: Tensor | None, rows: Tensor | None) -> Tensor:
    """Eq. 6 and 9: [B, N, D] -> [B, N, d_out], touching no more than each head's window."""
    total, _, d = heads.q_w.shape
    groups = plan(heads.scales, int(x.shape[1]))
    order = [h for group in groups for h in group.heads]
    q_w, k_w, v_w = (_reordered(w, order) for w in (heads.q_w, heads.k_w, heads.v_w))
    o_w = _reordered(heads.o_w.unflatten(0, (total, d)), order).flatten(0, 1)
    # A head that sees itself alone has the weight 1 whatever its score: no queries, no keys.
    alone = sum(len(group.heads) for group in groups if group.positionwise)
    wide = total - alone
    weights = torch.cat([q_w[alone:], k_w[alone:], v_w]).transpose(0, 1).flatten(1)
    projected = (x @ weights).unflatten(-1, (2 * wide + total, d)).permute(2, 0, 1, 3)
    q, k, v = projected.split([wide, wide, total])  # [H, B, N, d_h]
    q = q / heads.divisor
    done, start = [v[:alone]], 0
    for group in groups:
        if not group.positionwise:
            stop = start + len(group.heads)
            some = slice(start, stop)
            attend = _in_tiles if group.tile else _at_once
            done.append(attend(q[some], k[some], v[alone + start : alone + stop], group, mask))
            start = stop
    return torch.cat(done).permute(1, 2, 0, 3).flatten(2) @ o_w


def _reordered(weight: Tensor, order: list[int]) -> Tensor:
    """A weight's heads [H, ...] in another order; itself where that is the old one."""
    if order == list(range(len(order))):
        return weight
    return weight[torch.tensor(order, device=weight.device)]


def _at_once(q: Tensor, k: Tensor, v: Tensor, group: Group, mask: Tensor | None) -> Tensor:
    """Windows about as wide as the sequence: all pairs; [G, B, N, d_h] -> the same."""
    n = q.shape[2]
    pairs = None
    if mask is not None or group.half < n - 1:
        pairs = within_windows((group.scale,), n, mask, q.device)[:, 0]  # [B or 1, N, N]
        # A padded query needs a key: itself, a zero.
        pairs = pairs | torch.eye(n, dtype=torch.bool, device=q.device)
    return scaled_dot_product_attention(q, k, v, attn_mask=pairs, scale=1.0)


def _in_tiles(q: Tensor, k: Tensor, v: Tensor, group: Group, mask: Tensor | None) -> Tensor:
    """Tiles of queries, bands of keys: [G, B, N, d_h] -> the same."""
    n, tile = q.shape[2], group.tile
    tiles = count(n, tile)
    queries = pad(q, (0, 0, 0, tiles * tile - n)).unflatten(2, (tiles, tile))
    keys, values = _bands(k, group), _bands(v, group)  # [G, B, M, T + 2*half, d_h]
    pairs = _pairs_in_tiles(group, n, mask, q.device)  # [B or 1, M, T, T + 2*half]
    # The fused kernel takes four axes. Heads (and samples, without a mask) share one mask: they
    # are the first axis, over which it is broadcast.
    first = 0 if mask is None else 1
    out = scaled_dot_product_attention(
        queries.flatten(first, first + 1),
        keys.flatten(first, first + 1),
        values.flatten(first, first + 1),
        attn_mask=pairs if mask is None else pairs.flatten(0, 1)[None],
        scale=1.0,
    )
    return out.reshape(queries.shape).flatten(2, 3)[:, :, :n]


def _bands(t: Tensor, group: Group) -> Tensor:
    """The keys of every tile, zeros beyond the ends: [G, B, N, d] -> [G, B, M, T + 2*half, d].

    Put together from whole tiles and one part of a tile: fewer and faster copies, both ways, than
    those of overlapping strides.
    """
    n, tile, half = t.shape[2], group.tile, group.half
    tiles, whole = count(n, tile), count(2 * half, tile)
    padded = pad(t, (0, 0, half, (tiles + whole) * tile - n - half))
    cut = padded.unflatten(2, (tiles + whole, tile))
    parts = [cut[:, :, s : s + tiles] for s in range(whole)]
    parts.append(cut[:, :, whole:, : 2 * half - (whole - 1) * tile])
    return torch.cat(parts, dim=3)


def _pairs_in_tiles(group: Group, n: int, mask: Tensor | None, device: torch.device) -> Tensor:
    """Pairs within the window whose key is real; a query always sees itself, padded or not.

    Returns
    -------
    Tensor of bool, shape [B, M, T, T + 2*half], or [1, M, T, T + 2*half] without a mask
    """
    tile, half = group.tile, group.half
    tiles, band = count(n, tile), tile + 2 * half
    query = torch.arange(tile, device=device)[:, None]
    offset = torch.arange(band, device=device) - half - query  # [T, T + 2*half], j - i
    if mask is None:
        real = torch.ones(1, n, dtype=torch.bool, device=device)
        reach = half
    else:
        real = mask
        reach = group.scale.half(mask.sum(1)[:, None, None, None])  # [B, 1, 1, 1] or an int
    keys = pad(real, (half, tiles * tile - n + half), value=False).unfold(1, band, tile)
    return (offset.abs() <= reach) & keys[:, :, None] | (offset == 0)


class WindowedMsmsa(MsmsaLayer):
    """`MsmsaLayer` in tiles."""

    mix = staticmethod(windowed_mix)
