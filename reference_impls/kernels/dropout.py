"""Dropout of pairs without a tensor of pairs: whether (i, j) is kept is computed where needed.

A hash of seed, head, sample, query and key decides, so that the backward pass meets the same
decisions and memory stays linear. ``mix`` is the finaliser of MurmurHash3 (32 bits, public domain):

    row  = mix(seed ^ mix((h * B + b) * 0x9E3779B1 + 1))
    i    = mix(row + i * 0x85EBCA77)
    kept = mix(i ^ (j * 0xC2B2AE3D)) < floor(probability * 2**32)

all modulo 2**32. Kernels in other languages compute the same.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

ROW, QUERY, KEY = 0x9E3779B1, 0x85EBCA77, 0xC2B2AE3D
_LOW = 0xFFFFFFFF


def mix(x: Tensor) -> Tensor:
    """MurmurHash3's 32-bit finaliser, on int64 that hold 32-bit numbers."""
    # Products may wrap beyond 64 bits; their low 32 are right all the same.
    x = ((x ^ (x >> 16)) * 0x85EBCA6B) & _LOW
    x = ((x ^ (x >> 13)) * 0xC2B2AE35) & _LOW
    return x ^ (x >> 16)


@dataclass(frozen=True)
class PairDropout:
    """Which factors of pairs dropout keeps.

    Attributes
    ----------
    seed : int
        32 bits.
    probability : float
        Of keeping a pair.
    """

    seed: int
    probability: float

    @classmethod
    def draw(cls, probability: float) -> PairDropout:
        """Draw a seed from torch's generator of the CPU: no wait for a device."""
        return cls(int(torch.randint(0, 2**32, (), dtype=torch.int64)), probability)

    @property
    def threshold(self) -> int:
        """A hash below it is kept."""
        return min(int(self.probability * 2**32), _LOW)

    def row_hashes(self, heads: int, batch: int, length: int, device: torch.device) -> Tensor:
        """Hash of every query, int64 [H, B, N]."""
        sequence = torch.arange(heads * batch, device=device)
        row = mix(self.seed ^ mix((sequence * ROW + 1) & _LOW))  # [H*B]
        i = torch.arange(length, device=device)
        return mix((row[:, None] + i * QUERY) & _LOW).unflatten(0, (heads, batch))

    def pairs(self, v: Tensor, rows: Tensor | None = None) -> Tensor:
        """Whether a pair is kept, bool [H, B, R, N], for values [H, B, N, d] and queries [R].

        One head at a time: a hash takes eight bytes, several times.
        """
        heads, batch, length, _ = v.shape
        hashes = self.row_hashes(heads, batch, length, v.device)
        if rows is not None:
            hashes = hashes[:, :, rows]
        return torch.stack([self.kept(head, 0, length) for head in hashes])

    def kept(self, rows: Tensor, start: int, stop: int) -> Tensor:
        """Whether the keys from start to stop are kept: rows [...] to [..., stop - start]."""
        j = torch.arange(start, stop, device=rows.device)
        return mix(rows[..., None] ^ ((j * KEY) & _LOW)) < self.threshold
