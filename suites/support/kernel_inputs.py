"""Inputs and the dense definition that the kernels' backends are held against, in float64."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

from reference_impls.checks import masked_softmax
from reference_impls.kernels.dropout import PairDropout
from reference_impls.kernels.geometry import Geometry

Arguments: TypeAlias = tuple[
    Tensor, Tensor, Tensor, Tensor | None, Geometry, Tensor | None, str, PairDropout | None
]


@dataclass
class Problem:
    """One call of a backend.

    Attributes
    ----------
    q, k, v, s, geometry, mask, scale_t, dropout
        As `reference_impls.kernels.tiled.attend` takes them.
    """

    q: Tensor
    k: Tensor
    v: Tensor
    s: Tensor | None
    geometry: Geometry
    mask: Tensor | None
    scale_t: str = "log_sigmoid"
    dropout: PairDropout | None = None

    @property
    def tensors(self) -> list[Tensor]:
        """Those that have gradients."""
        return [t for t in (self.q, self.k, self.v, self.s) if t is not None]

    def arguments(self) -> Arguments:
        """In the order of `attend`."""
        return (
            self.q,
            self.k,
            self.v,
            self.s,
            self.geometry,
            self.mask,
            self.scale_t,
            self.dropout,
        )

    def to(self, dtype: torch.dtype) -> Problem:
        """The same in another dtype; every tensor is a new leaf of the same layout."""
        q, k, v, s = (
            None if t is None else t.detach().to(dtype).requires_grad_()
            for t in (self.q, self.k, self.v, self.s)
        )
        assert q is not None
        assert k is not None
        assert v is not None
        return Problem(q, k, v, s, self.geometry, self.mask, self.scale_t, self.dropout)


def token_first(heads: int, batch: int, length: int, width: int) -> Tensor:
    """Random [H, B, N, d], a strided part of a wider [B, N, H, d + 3], a leaf."""
    part = torch.randn(batch, length, heads, width + 3, dtype=torch.float64)[..., 2 : 2 + width]
    return part.permute(2, 0, 1, 3).requires_grad_()


def problem(
    heads: int,
    batch: int,
    length: int,
    d_i: int = 5,
    d_v: int = 7,
    columns: int | None = 7,
    geometry: Geometry | None = None,
    lengths: tuple[int, ...] | None = None,
    scale_t: str = "log_sigmoid",
    dropout: float = 0.0,
    seed: int = 0,
    scale: float = 1.0,
) -> Problem:
    """Random inputs; ``lengths`` are the real tokens, None is no mask."""
    torch.manual_seed(seed)
    q, k = (token_first(heads, batch, length, d_i) for _ in range(2))
    v = token_first(heads, batch, length, d_v)
    s = None
    if columns is not None:
        s = (scale * torch.randn(heads, batch, length, columns).double()).requires_grad_()
    if geometry is None:
        geometry = random_geometry(heads, 1, length)
    mask = None
    if lengths is not None:
        mask = torch.arange(length) < torch.tensor(lengths)[:, None]
    drawn = PairDropout(seed + 11, 1 - dropout) if dropout else None
    with torch.no_grad():
        q *= scale
    return Problem(q, k, v, s, geometry, mask, scale_t, drawn)


def random_geometry(heads: int, batch: int, length: int, sloped: bool = False) -> Geometry:
    """Ranges that may be empty, lie to one side, or hold everything."""
    ends = torch.randint(-length, length + 1, (2, heads, batch), dtype=torch.int32)
    lo, hi = ends.amin(0), ends.amax(0)
    slope = torch.rand(heads, dtype=torch.float64) * (torch.arange(heads) % 2 * sloped)
    return Geometry(lo, hi, torch.arange(heads) % 3 == 0, slope)


def open_pairs(p: Problem) -> Tensor:
    """Whether a query sees a key, [H, B, N, N]; a padded query sees nothing."""
    heads, batch, n, _ = p.v.shape
    apart = torch.arange(n)[:, None] - torch.arange(n)
    lo, hi = (t.long()[..., None, None] for t in (p.geometry.lo, p.geometry.hi))
    found = (apart >= lo) & (apart <= hi)  # [H, B or 1, N, N]
    found = found & ~(p.geometry.without_self[:, None, None, None] & (apart == 0))
    if p.mask is not None:
        found = found & p.mask[:, None, :] & p.mask[:, :, None]
    return found.expand(heads, batch, n, n)


def dense(p: Problem) -> Tensor:
    """Eq. 10-12 with the whole tensor of scores, [H, B, N, d_v]."""
    heads, batch, n, _ = p.v.shape
    r = p.q @ p.k.transpose(-1, -2)
    scores = logsigmoid(r) if p.scale_t == "log_sigmoid" else r
    apart = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    scores = scores - p.geometry.slope[:, None, None, None].to(r.dtype) * apart
    scores = scores[..., None]  # [H, B, N, N, 1]
    if p.s is not None:
        scores = scores + p.s[:, :, None]
    weights = masked_softmax(scores, open_pairs(p)[..., None], dim=3)
    if p.dropout is not None:
        weights = weights * p.dropout.pairs(heads, batch, n, r.device)[..., None]
    return (weights * p.v[:, :, None]).sum(3)


def gradients(out: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """Gradients of a fixed linear function of an output."""
    generator = torch.Generator().manual_seed(2)
    cotangent = torch.randn(out.shape, generator=generator, dtype=torch.float64)
    return list(torch.autograd.grad(out, tensors, cotangent.to(out.dtype)))
