"""Some sequences of a call of `tiled`: their queries, keys and weights, and products over pairs.

S sequences are h heads of one geometry times b samples. One head is a view of the projections
without a copy; several are copied side by side, which pays where they are small.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from reference_impls.checks import core_dtype
from reference_impls.kernels import sizes
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.tiled import cutting

WIDEST_KEPT = 4
"""Times as wide as its cut an edge may be whose bias is kept for other cuts."""


def into(out: Tensor, operation: Callable[..., Tensor], *operands: Tensor) -> None:
    """Write the result of an elementwise operation to a view, in one pass where torch can."""
    if torch.compiler.is_compiling():
        out.copy_(operation(*operands))  # it takes no view for an output
    else:
        operation(*operands, out=out)


class Inputs:
    """A call in the dtype of its sums, at once, where rows of all heads lie side by side."""

    def __init__(self, call: KernelCall) -> None:
        self.geometry, self.mask, self.scale_t, self.dropout = call[4:]
        self.dtype = core_dtype(call.q.dtype)
        self.q, self.k, self.v = (t.to(self.dtype) for t in call[:3])
        self.s = None if call.s is None else call.s.to(self.dtype)
        self.biases: dict[tuple[int, ...], Tensor] = {}
        heads, batch, n, _ = self.v.shape
        device = self.v.device
        self.columns = 1 if self.s is None else self.s.shape[-1]
        self.padding = None
        if self.mask is not None:
            zeros = torch.zeros(self.mask.shape, dtype=self.dtype, device=device)
            self.padding = zeros.masked_fill_(~self.mask, -math.inf)  # [B, N]
        self.hashes = None
        if self.dropout is not None:
            self.hashes = self.dropout.row_hashes(heads, batch, n, device)  # [H, B, N]

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
    """Queries and keys [S, N, d_i] and weights ``w = [v*E | 0 | E | 0]`` [S, N, wide].

    E starts at column `at`. Zeros are there where products of whole vectors are faster.
    """

    def __init__(self, c: Inputs, group: cutting.Group, heads: slice, samples: slice) -> None:
        self.c, self.group, self.heads, self.samples = c, group, heads, samples
        self.count = (heads.stop - heads.start, samples.stop - samples.start)
        self.q, self.k = (t[heads, samples].flatten(0, 1) for t in (c.q, c.k))
        self.length, self.width = c.v.shape[2:]
        # A single column of E stands beside the values.
        self.at = sizes.fast_width(self.width) if c.columns > 1 else self.width
        self.wide = sizes.fast_width(self.at + c.columns)
        self.w = self._weights()

    def apart(self, t: Tensor) -> Tensor:
        """[S, ...] -> [h, b, ...]."""
        return t.unflatten(0, self.count)

    def _weights(self) -> Tensor:
        c = self.c
        w = self._room(self.length)  # [h, b, N, wide]
        e = self.of_e(w)
        padding = None if c.padding is None else c.padding[self.samples, :, None]  # [b, N, 1]
        if c.s is None:
            e.fill_(1) if padding is None else e.copy_(padding.exp())
        else:
            s = c.s[self.heads, self.samples]  # [h, b, N, columns]
            if padding is not None:
                s = s + padding
            highest = s.amax(2, keepdim=True)  # [h, b, 1, columns]
            if padding is not None:
                highest.masked_fill_(highest == -math.inf, 0)  # -inf - -inf would be NaN
            into(e, torch.sub, s, highest)
            e.exp_()
        into(self.of_v(w), torch.mul, c.v[self.heads, self.samples], e)
        return w.flatten(0, 1)

    def _room(self, rows: int) -> Tensor:
        """Uninitialised [h, b, rows, wide], but for the zeros."""
        c = self.c
        room = torch.empty((*self.count, rows, self.wide), dtype=c.dtype, device=c.v.device)
        if self.at > self.width:
            room[..., self.width : self.at] = 0
        if self.wide > self.at + c.columns:
            room[..., self.at + c.columns :] = 0
        return room

    def of_v(self, t: Tensor) -> Tensor:
        """The columns of v*E: [..., d_v]."""
        return t[..., : self.width]

    def of_e(self, t: Tensor) -> Tensor:
        """The columns of E: [..., columns]."""
        return t[..., self.at : self.at + self.c.columns]

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
        if c.dropout is not None and c.hashes is not None:
            hashes = c.hashes[self.heads, self.samples, rows].flatten(0, 1)  # [S, R]
            kept = c.dropout.kept(hashes, keys.start, keys.stop)
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
        # A wide edge (a slope's is every key) kept for each cut would be a matrix of N x N.
        wide = edge.stop - edge.start > WIDEST_KEPT * (rows.stop - rows.start)
        if torch.compiler.is_compiling() or self.group.sloped or wide:
            return self._made_bias(rows, edge)
        # It depends on i - j: the same for cuts equally far from the diagonal.
        head = self.heads.start if not self.group.alike else self.group.heads.start
        sample = self.samples.start if self.c.geometry.lo.shape[1] > 1 else 0
        offset = rows.start - edge.start
        key = (head, sample, rows.stop - rows.start, edge.stop - edge.start, offset)
        if key not in self.c.biases:
            self.c.biases[key] = self._made_bias(rows, edge)
        return self.c.biases[key]

    def _made_bias(self, rows: slice, edge: slice) -> Tensor:
        c = self.c
        added = cutting.bias(c.geometry, self.group, self.heads, self.samples, rows, edge, c.dtype)
        return added.exp_() if c.scale_t == "log_sigmoid" else added

    def sums(self, pairs: Pairs) -> tuple[Tensor, Tensor]:
        """Numerator [h, b, R, d_v], on which dropout acts, and denominator [h, b, R, columns]."""
        w = self.w[:, pairs.keys]
        if pairs.kept is None:
            both = self.apart(torch.bmm(pairs.p, w))
            return self.of_v(both), self.of_e(both)
        numerator = torch.bmm(pairs.p * pairs.kept, self.of_v(w))
        denominator = torch.bmm(pairs.p, self.of_e(w))
        return self.apart(numerator), self.apart(denominator)

    def of_quotient(self, g: Tensor, a: Tensor, divisor: Tensor) -> Tensor:
        """Gradients of numerator and denominator, in the columns of w: [S, R, wide].

        All given are [h, b, R, d_v], the divisor perhaps [h, b, R, 1].
        """
        both = self._room(g.shape[2])
        numerator, denominator = self.of_v(both), self.of_e(both)
        into(numerator, torch.div, g, divisor)
        if self.c.columns == self.width:
            into(denominator, torch.mul, numerator, a)
        else:
            denominator.copy_((numerator * a).sum(-1, keepdim=True))
        denominator.neg_()
        return both.flatten(0, 1)

    def of_scores(self, pairs: Pairs, d: Tensor) -> Tensor:
        """The gradient of r, [S, R, C], from those of numerator and denominator."""
        w = self.w[:, pairs.keys]  # [S, C, wide]
        if pairs.kept is None:
            dp = torch.bmm(d, w.transpose(1, 2))
        else:
            dp = torch.bmm(self.of_v(d), self.of_v(w).transpose(1, 2)).mul_(pairs.kept)
            dp.baddbmm_(self.of_e(d), self.of_e(w).transpose(1, 2))
        if self.c.scale_t == "identity":
            return dp.mul_(pairs.p)
        if self.group.sloped:
            return dp.mul_(pairs.p).mul_(1 - pairs.sigma)
        return torch.ops.aten.sigmoid_backward(dp, pairs.p)

    def add_products(self, total: Tensor | None, pairs: Pairs, d: Tensor) -> Tensor:
        """Add the gradient of w from these queries to `total` [S, N, wide]."""
        p = pairs.p.transpose(1, 2)
        if pairs.kept is None:
            return added(total, self.length, pairs.keys, p, d)
        dropped = (pairs.p * pairs.kept).transpose(1, 2)
        if total is None:
            total = torch.zeros_like(self.w)
        some = total[:, pairs.keys]
        self.of_v(some).baddbmm_(dropped, self.of_v(d))
        self.of_e(some).baddbmm_(p, self.of_e(d))
        return total


def added(total: Tensor | None, length: int, keys: slice, x: Tensor, y: Tensor) -> Tensor:
    """Add x y [S, C, w] to the rows `keys` of a total [S, N, w]; None is 0."""
    if total is None:
        if keys.stop - keys.start == length:
            return torch.bmm(x, y)
        total = y.new_zeros((y.shape[0], length, y.shape[2]))
    total[:, keys].baddbmm_(x, y)
    return total
