"""Cutting padded sequences into blocks, and joining them again."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from reference_impls.biblosa.rule import block_length, most_blocks


@dataclass(frozen=True)
class Layout:
    """Which token stands in which slot of M blocks of R slots.

    Attributes
    ----------
    real : Tensor of bool, shape [B, M, R]
        The slot holds a real token.
    present : Tensor of bool, shape [B, M], or None
        The sample has that block (None: all do); samples may differ in the number of theirs.
    slots : Tensor of int64, shape [B, N], or None
        Slot of each token, counted through all blocks (None: token t is in slot t).
    sources : Tensor of int64, shape [B, M * R], or None
        Token in each slot; any token, which must not matter, in a slot that is not real.
    """

    real: Tensor
    present: Tensor | None = None
    slots: Tensor | None = None
    sources: Tensor | None = None

    def cut(self, x: Tensor) -> Tensor:
        """[B, N, D] -> [B, M, R, D]."""
        blocks, length = self.real.shape[1:]
        if self.sources is None:
            x = pad(x, (0, 0, 0, blocks * length - x.shape[1]))
        else:
            x = x.gather(1, self.sources[..., None].expand(-1, -1, x.shape[2]))
        return x.unflatten(1, (blocks, length))

    def join(self, y: Tensor, n: int) -> Tensor:
        """[B, M, R, D] -> [B, n, D]; padded tokens get some finite vector."""
        y = y.flatten(1, 2)
        if self.slots is None:
            return y[:, :n]
        return y.gather(1, self.slots[..., None].expand(-1, -1, y.shape[2]))


def by_padded_length(
    shape: tuple[int, int],
    mask: Tensor | None,
    device: torch.device,
    block_len: int | None,
    extra: int,
) -> Layout:
    """Blocks of the padded sequence, padding included: cost of a reshape.

    Parameters
    ----------
    shape : tuple of int
        B and N.
    mask : Tensor of bool, shape [B, N], or None
    device : torch.device
    block_len : int or None
        None: `block_length` of N.
    extra : int
        Added to the rule, not to a given length.
    """
    batch, n = shape
    length = min(n, block_len or block_length(n, extra))  # slots behind n would never be filled
    blocks = -(-n // length)
    if mask is None:
        mask = torch.ones(shape, dtype=torch.bool, device=device)
    real = pad(mask, (0, blocks * length - n), value=False)
    return Layout(real.view(batch, blocks, length))


def by_real_length(mask: Tensor, block_len: int | None, extra: int) -> Layout:
    """Blocks of each sample's real tokens, their length from the number of these.

    M and R are what any sample of at most N tokens can need, so that no value is read on the host.

    Parameters
    ----------
    mask : Tensor of bool, shape [B, N]
    block_len, extra : as for `by_padded_length`
    """
    batch, n = mask.shape
    device = mask.device
    count = mask.sum(1, keepdim=True)  # [B, 1]
    if block_len is not None:
        lengths = torch.full_like(count, block_len)
        length, blocks = min(n, block_len), -(-n // block_len)
    else:
        # Smallest r with r^3 >= 2 count, as 1 + the number of r for which that is false.
        cubes = torch.arange(1, block_length(n) + 1, device=device) ** 3
        lengths = 1 + (cubes < 2 * count).sum(1, keepdim=True) + extra  # [B, 1]
        length, blocks = min(n, block_length(n, extra)), most_blocks(n, extra)
    rank = mask.cumsum(1) - 1  # [B, N]: number among the real tokens
    slots = rank // lengths * length + rank % lengths
    slots = slots.masked_fill(~mask, blocks * length)  # one slot more takes all padding
    tokens = torch.arange(n, device=device).expand(batch, n)
    sources = torch.full((batch, blocks * length + 1), -1, device=device).scatter(1, slots, tokens)
    sources = sources[:, :-1]
    real = (sources >= 0).view(batch, blocks, length)
    return Layout(real, real[..., 0], slots.masked_fill(~mask, 0), sources.clamp(min=0))
