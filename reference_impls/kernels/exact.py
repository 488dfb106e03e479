"""Single queries with the whole softmax: for those whose denominators underflow in a fast path."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid
from torch.utils.checkpoint import checkpoint

from reference_impls.checks import core_dtype, masked_softmax
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.keeping import Keep

CHUNK_BYTES = 64 * 2**20
"""About how much may be held at once."""


def recomputed(
    where: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    geometry: Geometry,
    mask: Tensor | None,
    scale_t: str,
    keep: Keep | None = None,
) -> Tensor:
    """The attended values of some queries, the maximum over their own open keys subtracted.

    Parameters
    ----------
    where : Tensor of int64, shape [R]
        Flat positions in [H, B, N] of queries that have an open key.
    q, k, v, s, geometry, mask, scale_t, keep
        As `reference_impls.kernels.tiled.attend` takes them.

    Returns
    -------
    Tensor, shape [R, d_v]
        In float32 for half precision. A few queries at a time, computed again for their gradients:
        memory is R * d_v, beside `CHUNK_BYTES` (or what one query takes, N * d_v several times)
        and, for the gradients, tensors like q, k, v and s. Nothing is over R x N.
    """
    heads, batch, n, _ = v.shape
    dtype = core_dtype(q.dtype)
    (head, sample), query = places(where, batch, n)
    hashes = None
    if keep is not None:
        hashes = keep.rows(heads, batch, n, v.device).flatten()[where]  # [R]

    def some(q: Tensor, k: Tensor, v: Tensor, s: Tensor | None, part: slice) -> Tensor:
        here = head[part], sample[part]
        own = SequencesOfQueries(here, batch)
        queries = q[(*here, query[part])].to(dtype)  # [C, d_i]
        r = torch.bmm(own.of(k).to(dtype), queries[:, :, None]).squeeze(2)  # [C, N]
        source = None if s is None else own.of(s).to(dtype)
        found, open_pairs = scores(r, here, query[part], source, geometry, mask, scale_t, batch)
        p = masked_softmax(found, open_pairs[..., None], dim=1)
        if keep is not None and hashes is not None:
            p = p * keep.of(hashes[part], 0, n)[..., None]
        return (p * own.of(v).to(dtype)).sum(1)  # [C, d_v]

    step = chunk(k, v, dtype)
    training = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (q, k, v, s)
    )
    found = []
    for start in range(0, where.shape[0], step):
        arguments = (q, k, v, s, slice(start, start + step))
        if training:
            found.append(
                checkpoint(some, *arguments, use_reentrant=False, preserve_rng_state=False)
            )
        else:
            found.append(some(*arguments))
    return torch.cat(found)


def chunk(k: Tensor, v: Tensor, dtype: torch.dtype) -> int:
    """How many queries at a time.

    Per query: k, s and v, at worst gathered twice, and about six tensors of N x d_v inside the
    softmax.
    """
    n = v.shape[2]
    return max(1, CHUNK_BYTES // (n * (2 * k.shape[-1] + 10 * v.shape[-1]) * dtype.itemsize))


class SequencesOfQueries:
    """The sequences [N, d] that C queries belong to; many queries share one.

    Every sequence is read, and added to, in one place: where several threads added the gradients of
    its queries to it, their order, and so the last bits, would change from call to call.

    Parameters
    ----------
    here : pair of Tensor, shape [C]
        Heads and samples, those of a sequence side by side.
    batch : int
    """

    def __init__(self, here: tuple[Tensor, Tensor], batch: int) -> None:
        head, sample = here
        found, self.which = torch.unique_consecutive(head * batch + sample, return_inverse=True)
        self.place = found // batch, found % batch

    def of(self, values: Tensor) -> Tensor:
        """Those of each query, [H, B, N, d] -> [C, N, d]; its gradient has one order of sums.

        On CUDA index_select's gradient adds atomically, and that of an index sorts; on a CPU
        it is the other way round: there the gradient of an index may be shared by threads.
        """
        read = values[self.place]
        return read[self.which] if read.is_cuda else read.index_select(0, self.which)

    def add(self, sums: Tensor, values: Tensor) -> None:
        """Add the values [C, N, d] of the queries to [H, B, N, d], in one order."""
        total = sums.new_zeros((self.place[0].shape[0], *sums.shape[2:]))
        if total.is_cuda:  # as in `of`
            total.index_put_((self.which,), values, accumulate=True)
        else:
            total.index_add_(0, self.which, values)
        sums[self.place] += total


def places(where: Tensor, batch: int, n: int) -> tuple[tuple[Tensor, Tensor], Tensor]:
    """Head and sample, and query, of flat positions in [H, B, N]."""
    sequence = where // n
    return (sequence // batch, sequence % batch), where % n


def scores(
    r: Tensor,
    here: tuple[Tensor, Tensor],
    query: Tensor,
    s: Tensor | None,
    geometry: Geometry,
    mask: Tensor | None,
    scale_t: str,
    batch: int,
) -> tuple[Tensor, Tensor]:
    """What the softmax of C queries is taken of, [C, N, d_v or 1], and their open keys [C, N].

    Parameters
    ----------
    r : Tensor, shape [C, N]
        Products of the queries with all keys.
    here : pair of Tensor, shape [C]
        Heads and samples.
    query : Tensor, shape [C]
        Positions.
    s : Tensor, shape [C, N, d_v or 1], or None
        Source scores of their sequences.
    """
    (head, sample), dtype = here, r.dtype
    lo, hi = (t.expand(-1, batch)[head, sample, None] for t in (geometry.lo, geometry.hi))
    hole, slope = geometry.hole[head, None], geometry.slope[head, None].to(dtype)
    apart = query[:, None] - torch.arange(r.shape[1], device=r.device)  # [C, N]
    open_pairs = (apart >= lo) & (apart <= hi) & ~(hole & (apart == 0))
    if mask is not None:
        open_pairs = open_pairs & mask[sample]
    found = logsigmoid(r) if scale_t == "log_sigmoid" else r
    found = (found - slope * apart.abs())[..., None]  # [C, N, 1]
    if s is not None:
        found = found + s
    return found, open_pairs
