"""Algorithm 1, stabilised: products of matrices, no tensor over N x N x d_h.

With P_ij = exp(sigma_t(r_ij) + M_ij) and E_jl = exp(sigma_s(s_jl)) the softmax of eq. 11-12 is
a = P (v*E) / P E (appendix A.2), one product of width 2*d_h. Without token2token scores P is the
mask alone, one for all samples; without source2token scores E is 1, and P E has width 1.

As printed it overflows. Here every factor is at most 1: P is sigmoid(r) (log-sigmoid needs no
maximum), or exp(r - maximum over the query's allowed keys); E is exp(s - maximum over the real
keys). Now it can underflow, because the largest E may belong to a key that the query may not
attend to. What is lost of a term p*e (a factor, or the product, that falls below the smallest
normal number 1.2e-38, even if the hardware flushes it to zero) is below 4e-38, so N terms lose
less than 4e-38 * N of the denominator. Entries whose denominator is at least `least_denominator`
(1e-30, more for N > 50) are therefore right to 2e-6 relative; all others are known by their
denominator, and their queries are computed again with the tensor of scores, for those alone.
A query without an allowed key is known from the mask's geometry and gives 0.

Who decides that there are such queries, and what computes them again, is for
`reference_impls.kernels.core.exact`.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from reference_impls.checks import core_dtype, least_denominator, refuse_rows
from reference_impls.kernels import core
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.dropout import PairDropout
from reference_impls.kernels.geometry import GeometryByLength
from reference_impls.masks import HeadMask, additive, runs
from reference_impls.mtsa.layer import PaperLayer, TensorizedLayer
from reference_impls.mtsa.released import ReleasedLayer


def algorithm1(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    geometries: GeometryByLength,
    scale_t: str,
    mask: Tensor | None,
    keep: PairDropout | None = None,
) -> Tensor:
    """Eq. 10-12 by Algorithm 1.

    Parameters
    ----------
    q, k : Tensor, shape [H, B, N, d_i]
        Queries, already divided by sqrt(d_i), and keys; d_i = 0 where there are no such scores.
    v : Tensor, shape [H, B, N, d_h]
        Values.
    s : Tensor, shape [H, B, N, d_h], or [H, B, N, 1] for all features alike
        sigma_s of the source2token scores.
    geometries : GeometryByLength
        Of the masks of the H heads.
    scale_t : {"log_sigmoid", "identity"}
    mask : Tensor of bool, shape [B, N], or None
        True for real tokens.
    keep : PairDropout, optional
        Pairs that dropout keeps of the numerator; None is all.

    Returns
    -------
    Tensor, shape [H, B, N, d_h]
        In the dtype of q (computed in float32 for half precision); 0 where a query has no allowed
        key, something finite at padding.
    """
    with torch.autocast(q.device.type, enabled=False):
        q_, k_, v_, s_ = (t.to(core_dtype(t.dtype)) for t in (q, k, v, s))
        return _stabilised(q_, k_, v_, s_, geometries, scale_t, mask, keep).to(q.dtype)


def _stabilised(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor,
    geometries: GeometryByLength,
    scale_t: str,
    mask: Tensor | None,
    keep: PairDropout | None,
) -> Tensor:
    n, device = q.shape[2], q.device
    # G groups of heads with one mask each: geometry is [G, N, N].
    groups, size = runs(geometries.masks)
    padding = None
    if mask is not None:
        padding = torch.zeros_like(mask, dtype=q.dtype).masked_fill(~mask, -math.inf)  # [B, N]
    p = _pair_weights(q, k, groups, size, scale_t, padding)  # [G, size, B, N, N]
    e = _source_weights(s, padding).to(q.dtype)  # [H, B, N, d_h]
    numerator, denominator = _sums(p, e, v, size, keep)  # [H, B, N, d_h] each
    del p, e  # without gradients these go before the next ones come

    geometry = geometries.of(n, device)
    closed = geometry.open_keys(n, mask) == 0  # [H, B or 1, N]
    if mask is not None:
        closed = closed | ~mask  # [H, B, N]
    least = least_denominator(q.dtype, n)
    flagged = (denominator.detach().amin(-1) < least) & ~closed  # [H, B, N]
    a = _quotient(numerator, denominator, closed | flagged)
    call = KernelCall(q, k, v, s, geometry, mask, scale_t, keep)
    return core.exact(a, flagged, call)


def _sums(
    p: Tensor, e: Tensor, v: Tensor, size: int, keep: PairDropout | None
) -> tuple[Tensor, Tensor]:
    """P (v*E) [H, B, N, d_h] and P E [H, B, N, d_h or 1]; dropout acts on the first alone."""
    if keep is None:
        both = _product(p, torch.cat([v * e, e], dim=-1), size)  # [H, B, N, 2*d_h or d_h+1]
        numerator, denominator = both.split([v.shape[-1], e.shape[-1]], dim=-1)
        return numerator, denominator
    pairs = keep.pairs(v).unflatten(0, (-1, size))  # [G, size, B, N, N]
    return _product(p * pairs, v * e, size), _product(p, e, size)


def _product(p: Tensor, values: Tensor, size: int) -> Tensor:
    """P [G, size, B, N, N] or [G, 1, 1, N, N], by values [H, B, N, w] -> [H, B, N, w]."""
    values = values.unflatten(0, (-1, size))  # [G, size, B, N, w]
    if p.shape[1:3] == values.shape[1:3]:
        return (p @ values).flatten(0, 1)
    # A product would repeat P for every sample; this makes all samples columns of one product.
    return torch.einsum("gij,gsbjl->gsbil", p[:, 0, 0], values).flatten(0, 1)


def _quotient(numerator: Tensor, denominator: Tensor, closed: Tensor) -> Tensor:
    """The quotient [H, B, N, d_h], with 1 added to the denominators of closed rows [H, B or 1, N].

    Those rows hold 0/0 or are of no use: so they are finite, and their gradients too. Adding 0 to
    the others changes nothing and is faster than a masked fill.
    """
    return numerator / (denominator + closed[..., None].to(denominator.dtype))


def _pair_weights(
    q: Tensor,
    k: Tensor,
    groups: tuple[HeadMask, ...],
    size: int,
    scale_t: str,
    padding: Tensor | None,
) -> Tensor:
    """P, [G, size, B, N, N]: at most 1, 0 at forbidden pairs; [G, 1, 1, N, N] from the mask alone.

    Done in place, and with sums in place of masked fills: one tensor of that shape is kept for the
    gradient (two with distance masks and log-sigmoid).
    """
    bias = additive(groups, q.shape[2], q.device, q.dtype)[:, None, None]  # [G, 1, 1, N, N]
    if not q.shape[-1]:
        return bias.exp()  # its maximum is 0, and E is 0 at padded keys
    q = q.unflatten(0, (-1, size))  # [G, size, B, N, d_i]
    r = q @ k.unflatten(0, (-1, size)).transpose(-1, -2)  # [G, size, B, N, N]
    if scale_t == "log_sigmoid":
        # E is 0 at padded keys, so P need not be.
        if any(group.slope for group in groups):
            return r.sigmoid_() * bias.exp()
        return r.add_(bias).sigmoid_()
    r.add_(bias)
    if padding is not None:
        r.add_(padding[:, None, :])  # the maximum must not be that of a padded key
    highest = r.detach().amax(-1, keepdim=True)  # [G, size, B, N, 1]
    highest.masked_fill_(highest == -math.inf, 0)  # -inf - -inf would be NaN
    return r.sub_(highest).exp_()


def _source_weights(s: Tensor, padding: Tensor | None) -> Tensor:
    """E, in the shape of s: at most 1, 0 at padding.

    The result does not depend on the maximum, so its gradient is rounding error and nothing else:
    just what the sum of the gradients of s is too much. Letting it flow takes that error out again
    (a bias of s then has the gradient 0 that it should have).
    """
    if padding is not None:
        s = s + padding[..., None]
    highest = s.amax(2, keepdim=True)  # [H, B, 1, d_h]
    if padding is not None:
        highest = highest.masked_fill(highest == -math.inf, 0)  # -inf - -inf would be NaN
    return (s - highest).exp()


class Algorithm1Attention(TensorizedLayer):
    """Any of the layers by stabilised Algorithm 1."""

    def __init__(self, d_in: int, d_out: int, **options: Any) -> None:
        super().__init__(d_in, d_out, **options)
        self._geometries = GeometryByLength(self.masks)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 10-12, see `TensorizedLayer.attend`."""
        refuse_rows(rows)
        v, keep = self.dropped(v)
        return algorithm1(q, k, v, s, self._geometries, self.scale_t, mask, keep)


class Algorithm1MTSA(Algorithm1Attention, PaperLayer):
    """`PaperLayer` by stabilised Algorithm 1; memory B * H * N * N."""


class Algorithm1ReleasedMTSA(Algorithm1Attention, ReleasedLayer):
    """`ReleasedLayer` by stabilised Algorithm 1; memory B * H * N * N."""
