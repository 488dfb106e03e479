"""Some sequences of a call of `tiled`: their queries, keys and weights, and products over pairs.

S sequences are h heads of one geometry times b samples. One head is a view of the projections
without a copy; several are copied side by side, which pays where they are small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import torch
from torch import Tensor

from reference_impls.checks import core_dtype
from reference_impls.kernels import cutting
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.keeping import Keep


def into(out: Tensor, operation: Callable[..., Tensor], *operands: Tensor) -> None:
    """Write the result of an elementwise operation to a view, in one pass where torch can."""
    if torch.compiler.is_compiling():
        out.copy_(operation(*operands))  # it takes no view for an output
    else:
        operation(*operands, out=out)


@dataclass
class Inputs:
    """What `reference_impls.kernels.tiled.attend` is given."""

    q: Tensor
    k: Tensor
    v: Tensor
    s: Tensor | None
    geometry: Geometry
    mask: Tensor | None
    scale_t: str
    keep: Keep | None
    biases: dict[tuple[int, ...], Tensor] = field(default_factory=dict)

    def __post_init__(self) -> None:
        heads, batch, n, _ = self.v.shape
        device = self.v.device
        self.dtype = core_dtype(self.q.dtype)
        self.columns = 1 if self.s is None else self.s.shape[-1]
        self.padding = None
        if self.mask is not None:
            zeros = torch.zeros(self.mask.shape, dtype=self.dtype, device=device)
            self.padding = zeros.masked_fill_(~self.mask, -math.inf)  # [B, N]
        self.hashes = None
        if self.keep is not None:
            self.hashes = self.keep.rows(heads, batch, n, device)  # [H, B, N]

    def closed(self) -> Tensor:
        """Queries that no result is wanted of, [H, B, N]: without an open key, or padding."""
        heads, batch, n, _ = self.v.shape
        closed = self.geometry.open_keys(n, self.mask) == 0  # [H, B or 1, N]
        if self.mask is not None:
            closed = closed | ~self.mask
        return closed.expand(heads, batch, n)

    def parts(self) -> list[tuple[cutting.Group, slice, slice, int]]:
        """Group, heads and samples that are computed together, and queries at once."""
        _, batch, n, width = self.v.shape
        width = max(width, self.q.shape[-1])
        found = []
        for group in cutting.groups(self.geometry, n):
            heads, samples, rows = cutting.steps(
                group, batch, n, width, self.v.device.type, self.dtype.itemsize
            )
            for some in cutting.cuts(group.heads.start, group.heads.stop, heads):
                for whose in cutting.cuts(0, batch, samples):
                    found.append((group, some, whose, rows))
        return found


@dataclass
class Pairs:
    """P of some queries and keys.

    Attributes
    ----------
    p : Tensor, shape [S, R, C]
        0 at closed pairs; with scale_t identity at padded keys too.
    sigma : Tensor, shape [S, R, C]
        With log-sigmoid: sigmoid(r), which is p where that is not 0 and no distance is added.
    kept : Tensor of bool, shape [S, R, C], or None
    keys : slice
    """

    p: Tensor
    sigma: Tensor
    kept: Tensor | None
    keys: slice


class Sequences:
    """Queries and keys [S, N, d_i] and weights ``w = [v*E | E]`` [S, N, d_v + columns]."""

    def __init__(self, c: Inputs, group: cutting.Group, heads: slice, samples: slice) -> None:
        self.c, self.group, self.heads, self.samples = c, group, heads, samples
        self.count = (heads.stop - heads.start, samples.stop - samples.start)
        self.q, self.k = (t[heads, samples].flatten(0, 1).to(c.dtype) for t in (c.q, c.k))
        self.length, self.width = c.v.shape[2:]
        self.w = self._weights()

    def apart(self, t: Tensor) -> Tensor:
        """[S, ...] -> [h, b, ...]."""
        return t.unflatten(0, self.count)

    def _weights(self) -> Tensor:
        c, width = self.c, self.width
        w = torch.empty(
            (*self.count, self.length, width + c.columns), dtype=c.dtype, device=c.v.device
        )
        e = w[..., width:]
        padding = None if c.padding is None else c.padding[self.samples, :, None]  # [b, N, 1]
        if c.s is None:
            e.fill_(1) if padding is None else e.copy_(padding.exp())
        else:
            s = c.s[self.heads, self.samples]  # [h, b, N, columns]
            if padding is not None:
                s = s + padding
            highest = s.amax(2, keepdim=True).to(c.dtype)  # [h, b, 1, columns]
            if padding is not None:
                highest.masked_fill_(highest == -math.inf, 0)  # -inf - -inf would be NaN
            into(e, torch.sub, s, highest)
            e.exp_()
        into(w[..., :width], torch.mul, c.v[self.heads, self.samples], e)
        return w.flatten(0, 1)

    def pairs(self, rows: slice) -> Pairs | None:
        """P of these queries with all keys that they may attend to; None if there are none."""
        c = self.c
        keys = self.group.keys(rows, self.length)
        if keys.stop <= keys.start:
            return None
        r = torch.bmm(self.q[:, rows], self.k[:, keys].transpose(1, 2))  # [S, R, C]
        edge = self.group.edge(rows, keys)
        some = slice(edge.start - keys.start, edge.stop - keys.start)
        bias = self._bias(rows, edge)  # [h or 1, b or 1, R, C'], or None
        kept = None
        if c.keep is not None and c.hashes is not None:
            hashes = c.hashes[self.heads, self.samples, rows].flatten(0, 1)  # [S, R]
            kept = c.keep.of(hashes, keys.start, keys.stop)
        if c.scale_t == "log_sigmoid":
            sigma = r.sigmoid_()  # E is 0 at padded keys, so P need not be
            if bias is None:
                return Pairs(sigma, sigma, kept, keys)
            p = sigma.clone() if self.group.sloped else sigma
            self.apart(p)[..., some].mul_(bias)
            return Pairs(p, sigma, kept, keys)
        apart = self.apart(r)
        if bias is not None:
            apart[..., some].add_(bias)
        if c.padding is not None:
            # The maximum must not be that of a padded key.
            apart.add_(c.padding[self.samples, None, keys])
        highest = r.amax(-1, keepdim=True)  # [S, R, 1]
        highest.masked_fill_(highest == -math.inf, 0)
        p = r.sub_(highest).exp_()
        return Pairs(p, p, kept, keys)

    def _bias(self, rows: slice, edge: slice) -> Tensor | None:
        """What is added to the scores at the edge, with log-sigmoid its exponential; None: 0."""
        if edge.stop <= edge.start:
            return None
        # It depends on i - j: the same for tiles equally far from the diagonal.
        key = (
            self.heads.start if not self.group.alike else self.group.heads.start,
            self.samples.start if self.c.geometry.lo.shape[1] > 1 else 0,
            rows.stop - rows.start, edge.stop - edge.start, rows.start - edge.start,
        )  # fmt: skip
        found = self.c.biases.get(key)
        if found is None:
            found = cutting.bias(
                self.c.geometry, self.group, self.heads, self.samples, rows, edge, self.c.dtype
            )
            if self.c.scale_t == "log_sigmoid":
                found = found.exp_()
            self.c.biases[key] = found
        return found

    def sums(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Numerator [h, b, R, d_v] and denominator [h, b, R, columns]; dropout acts on the first."""
        w = self.w[:, pairs.keys]
        if pairs.kept is None:
            both = self.apart(torch.bmm(pairs.p, w))
            return both[..., : self.width], both[..., self.width :]
        numerator = torch.bmm(pairs.p * pairs.kept, w[..., : self.width])
        denominator = torch.bmm(pairs.p, w[..., self.width :])
        return self.apart(numerator), self.apart(denominator)

    def of_quotient(self, g: Tensor, a: Tensor, divisor: Tensor) -> Tensor:
        """Gradients of numerator and denominator side by side, [S, R, d_v + columns].

        All given are [h, b, R, d_v], the divisor perhaps [h, b, R, 1].
        """
        dtype = self.c.dtype
        both = torch.empty(
            (*self.count, g.shape[2], self.width + self.c.columns), dtype=dtype, device=g.device
        )
        numerator, denominator = both[..., : self.width], both[..., self.width :]
        into(numerator, torch.div, g.to(dtype), divisor.to(dtype))
        if self.c.columns == self.width:
            into(denominator, torch.mul, numerator, a.to(dtype))
        else:
            denominator.copy_((numerator * a).sum(-1, keepdim=True))
        denominator.neg_()
        return both.flatten(0, 1)

    def of_scores(self, pairs: Pairs, d: Tensor) -> Tensor:
        """The gradient of r, [S, R, C], from those of numerator and denominator."""
        w = self.w[:, pairs.keys].transpose(1, 2)  # [S, d_v + columns, C]
        if pairs.kept is None:
            dp = torch.bmm(d, w)
        else:
            width = self.width
            dp = torch.bmm(d[..., :width], w[:, :width]).mul_(pairs.kept)
            dp.baddbmm_(d[..., width:], w[:, width:])
        if self.c.scale_t == "identity":
            return dp.mul_(pairs.p)
        if self.group.sloped:
            return dp.mul_(pairs.p).mul_(1 - pairs.sigma)
        return torch.ops.aten.sigmoid_backward(dp, pairs.p)

    def add_products(self, total: Tensor | None, pairs: Pairs, d: Tensor) -> Tensor:
        """Add the gradient of w from these queries to `total` [S, N, d_v + columns]."""
        p = pairs.p.transpose(1, 2)
        if pairs.kept is None:
            return added(total, self.length, pairs.keys, p, d)
        width = self.width
        dropped = (pairs.p * pairs.kept).transpose(1, 2)
        if total is None:
            total = torch.zeros_like(self.w)
        some = total[:, pairs.keys]
        some[..., :width].baddbmm_(dropped, d[..., :width])
        some[..., width:].baddbmm_(p, d[..., width:])
        return total


def added(total: Tensor | None, length: int, keys: slice, x: Tensor, y: Tensor) -> Tensor:
    """Add x y [S, C, w] to the rows `keys` of a total [S, N, w]; None is 0."""
    if total is None:
        if keys.stop - keys.start == length:
            return torch.bmm(x, y)
        total = y.new_zeros((y.shape[0], length, y.shape[2]))
    total[:, keys].baddbmm_(x, y)
    return total
