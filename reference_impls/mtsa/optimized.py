"""Algorithm 1, stabilised: products of matrices, no tensor over N x N x d_h.

With P_ij = exp(sigma_t(r_ij) + M_ij) and E_jl = exp(sigma_s(s_jl)) the softmax of eq. 11-12 is
a = P (v*E) / P E (appendix A.2), one product of width 2*d_h.

As printed it overflows. Here every factor is at most 1: P is sigmoid(r) (log-sigmoid needs no
maximum), or exp(r - maximum over the query's allowed keys); E is exp(s - maximum over the real
keys). Now it can underflow, because the largest E may belong to a key that the query may not
attend to. What is lost of a term p*e (a factor, or the product, that falls below the smallest
normal number 1.2e-38, even if the hardware flushes it to zero) is below 4e-38, so N terms lose
less than 4e-38 * N of the denominator. Entries whose denominator is at least `least_denominator`
(1e-30, more for N > 50) are therefore right to 2e-6 relative; all others are known by their
denominator, and their queries are computed again with the tensor of scores, for those alone.
A query without an allowed key is known from the mask's geometry and gives 0.

That second look needs a decision in Python (one wait for the device per call). In `torch.compile`
and in CUDA graph capture there can be none: such entries become NaN there, never silently wrong.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from reference_impls.checks import core_dtype, host_can_decide
from reference_impls.masks import HeadMask, allowed, distance_bias, has_key, runs
from reference_impls.mtsa.layer import PaperLayer, ReleasedLayer, TensorizedLayer
from reference_impls.mtsa.plain import tensor_softmax

CHUNK_BYTES = 64 * 2**20
"""About how much the recomputation of queries may hold at once."""


def least_denominator(dtype: torch.dtype, length: int) -> float:
    """Below this a denominator may have lost more than 2e-6 of itself to underflow."""
    return 1e-280 if dtype == torch.float64 else max(1e-30, 2e-32 * length)


def algorithm1(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    masks: tuple[HeadMask, ...],
    scale_t: str,
    mask: Tensor | None,
) -> Tensor:
    """Eq. 10-12 by Algorithm 1.

    Parameters
    ----------
    q, k : Tensor, shape [H, B, N, d_i]
        Queries, already divided by sqrt(d_i), and keys.
    v, s : Tensor, shape [H, B, N, d_h]
        Values and sigma_s of the source2token scores.
    masks : tuple of H HeadMask
    scale_t : {"log_sigmoid", "identity"}
    mask : Tensor of bool, shape [B, N], or None
        True for real tokens.

    Returns
    -------
    Tensor, shape [H, B, N, d_h]
        In the dtype of q (computed in float32 for half precision); 0 at padding and where a query
        has no allowed key.
    """
    with torch.autocast(q.device.type, enabled=False):
        q_, k_, v_, s_ = (t.to(core_dtype(t.dtype)) for t in (q, k, v, s))
        return _stabilised(q_, k_, v_, s_, masks, scale_t, mask).to(q.dtype)


def _stabilised(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    masks: tuple[HeadMask, ...],
    scale_t: str,
    mask: Tensor | None,
) -> Tensor:
    n, device = q.shape[2], q.device
    groups, size = runs(masks)  # G groups of heads with one mask each: geometry is [G, N, N]
    pairs = allowed(groups, n, device)  # [G, N, N]
    bias_dtype = torch.float64 if q.dtype == torch.float64 else torch.float32
    bias = distance_bias(groups, n, device, bias_dtype)  # [G, N, N] or None
    p = _pair_weights(q, k, pairs, bias, size, scale_t, mask)  # [G, size, B, N, N]
    e = _source_weights(s, mask).to(q.dtype)  # [H, B, N, d_h]
    both = torch.cat([v * e, e], dim=-1).unflatten(0, (-1, size))  # [G, size, B, N, 2*d_h]
    sums = (p @ both).flatten(0, 1)  # [H, B, N, 2*d_h]
    del p, e, both  # so that without gradients the tensors go before the next ones come
    numerator, denominator = sums.split(v.shape[-1], dim=-1)

    closed = ~has_key(groups, n, device, mask).repeat_interleave(size, 0)  # [H, B or 1, N]
    if mask is not None:
        closed = closed | ~mask  # [H, B, N]
    least = least_denominator(q.dtype, n)
    if not host_can_decide(q):
        lost = (denominator < least) & ~closed[..., None]  # [H, B, N, d_h]
        a = numerator / denominator.masked_fill(closed[..., None], 1)
        return a.masked_fill(lost, math.nan)
    flagged = (denominator.detach().amin(-1) < least) & ~closed  # [H, B, N]
    if not bool(flagged.any()):
        return numerator / denominator.masked_fill(closed[..., None], 1)
    # A denominator of 1 keeps 0/0 out of the entries that are replaced, and out of gradients.
    a = numerator / denominator.masked_fill((closed | flagged)[..., None], 1)
    where = flagged.flatten().nonzero().squeeze(1)  # [R]
    again = _recomputed(where, q, k, v, s, pairs, bias, size, scale_t, mask)  # [R, d_h]
    # index_copy sends no gradient to what it overwrites.
    return a.flatten(0, 2).index_copy(0, where, again.to(a.dtype)).unflatten(0, a.shape[:3])


def _pair_weights(
    q: Tensor,
    k: Tensor,
    pairs: Tensor,
    bias: Tensor | None,
    size: int,
    scale_t: str,
    mask: Tensor | None,
) -> Tensor:
    """P, [G, size, B, N, N]: at most 1, 0 at forbidden pairs. One tensor of that shape is kept."""
    q = q.unflatten(0, (-1, size))  # [G, size, B, N, d_i]
    r = q @ k.unflatten(0, (-1, size)).transpose(-1, -2)  # [G, size, B, N, N]
    forbidden = ~pairs[:, None, None]  # [G, 1, 1, N, N]
    if scale_t == "log_sigmoid":
        # E is 0 at padded keys, so P need not be. In place: nothing saves r for its gradient.
        p = r.masked_fill_(forbidden, -math.inf).sigmoid_()
        return p if bias is None else p * bias[:, None, None].exp().to(p.dtype)
    if bias is not None:
        r.add_(bias[:, None, None])
    if mask is not None:
        # The maximum must not be that of a padded key.
        forbidden = forbidden | ~mask[:, None, :]  # [G, 1, B, N, N]
    r.masked_fill_(forbidden, -math.inf)
    highest = r.detach().amax(-1, keepdim=True)  # [G, size, B, N, 1]
    highest.masked_fill_(highest == -math.inf, 0)  # -inf - -inf would be NaN
    return r.sub_(highest).exp_()


def _source_weights(s: Tensor, mask: Tensor | None) -> Tensor:
    """E, [H, B, N, d_h]: at most 1, 0 at padding."""
    if mask is None:
        return (s - s.amax(2, keepdim=True)).exp()
    padded = ~mask[:, :, None]  # [B, N, 1]
    s = s.masked_fill(padded, -math.inf)
    highest = s.amax(2, keepdim=True)  # [H, B, 1, d_h]
    return (s - highest.masked_fill(highest == -math.inf, 0)).exp()


def _recomputed(
    where: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    pairs: Tensor,
    bias: Tensor | None,
    size: int,
    scale_t: str,
    mask: Tensor | None,
) -> Tensor:
    """The attended values [R, d_h] of the queries ``where`` (flat positions in [H, B, N])."""
    _, batch, n, d_i = q.shape
    k, v, s = k.flatten(0, 1), v.flatten(0, 1), s.flatten(0, 1)  # [H*B, N, d]
    queries = q.flatten(0, 2).index_select(0, where)  # [R, d_i]
    sequence, i = where // n, where % n  # h*B + b, and the position
    group, b = sequence // (batch * size), sequence % batch

    def some(queries: Tensor, k: Tensor, v: Tensor, s: Tensor, part: slice) -> Tensor:
        here = sequence[part]
        r = torch.bmm(k.index_select(0, here), queries[:, :, None]).squeeze(2)  # [C, N]
        open_pairs = pairs[group[part], i[part]]  # [C, N]
        if mask is not None:
            open_pairs = open_pairs & mask[b[part]]
        a = tensor_softmax(
            r[:, None],  # [C, 1, N]
            s.index_select(0, here),  # [C, N, d_h]
            v.index_select(0, here),
            open_pairs[:, None],
            None if bias is None else bias[group[part], i[part]][:, None],
            scale_t,
        )
        return a.squeeze(1)  # [C, d_h]

    # Per query: the gathered k, s and v, and about six tensors of N x d_h inside the softmax.
    held = n * (d_i + 8 * v.shape[-1]) * max(v.element_size(), s.element_size())
    step = max(1, CHUNK_BYTES // held)
    keep_nothing = torch.is_grad_enabled() and any(t.requires_grad for t in (q, k, v, s))
    found = []
    for start in range(0, where.shape[0], step):
        part = slice(start, start + step)
        arguments = (queries[part], k, v, s, part)
        if keep_nothing:
            found.append(
                checkpoint(some, *arguments, use_reentrant=False, preserve_rng_state=False)
            )
        else:
            found.append(some(*arguments))
    return torch.cat(found)


class _Algorithm1(TensorizedLayer):
    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        return algorithm1(q, k, v, s, self.masks, self.scale_t, mask)


class Algorithm1MTSA(_Algorithm1, PaperLayer):
    """`PaperLayer` by stabilised Algorithm 1; memory B * H * N * N."""


class Algorithm1ReleasedMTSA(_Algorithm1, ReleasedLayer):
    """`ReleasedLayer` by stabilised Algorithm 1; memory B * H * N * N."""
