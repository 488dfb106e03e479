"""The exact fallback as an operator: in a compiled call the host may still look at values here.

`core` repairs eagerly by `exact.recomputed`, whose gradients autograd finds. Inside an operator
there is no autograd, so that the gradients here are written by hand: a second derivation of them.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op, register_autograd, register_fake

from reference_impls.checks import core_dtype, masked_softmax
from reference_impls.kernels import exact
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.keeping import Keep

_INPUTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? s, Tensor lo, Tensor hi, Tensor hole, Tensor slope, "
    "Tensor? mask, str scale_t, SymInt seed, float probability"
)


def replaced(a: Tensor, where: Tensor, values: Tensor) -> Tensor:
    """`a` [H, B, N, d] with the rows `where` (flat in [H, B, N]) replaced; its layout is kept."""
    heads, batch, n, _ = a.shape
    head, sample, query = where // (batch * n), where // n % batch, where % n
    rows = a.permute(1, 2, 0, 3).flatten(0, 2)  # [B*N*H, d]
    # index_copy sends no gradient to what it overwrites.
    rows = rows.index_copy(0, (sample * n + query) * heads + head, values.to(a.dtype))
    return rows.unflatten(0, (batch, n, heads)).permute(2, 0, 1, 3)


def _keep(seed: int, probability: float) -> Keep | None:
    return None if probability < 0 else Keep(seed, probability)


@custom_op(
    "attnbench::repaired",
    mutates_args=(),
    schema=f"(Tensor a, Tensor flagged, {_INPUTS}) -> Tensor",
)
def repaired(
    a: Tensor, flagged: Tensor, q: Tensor, k: Tensor, v: Tensor, s: Tensor | None, lo: Tensor,
    hi: Tensor, hole: Tensor, slope: Tensor, mask: Tensor | None, scale_t: str, seed: int,
    probability: float,
) -> Tensor:  # fmt: skip
    """`a` with its flagged queries computed again, exactly; NaN there in CUDA graph capture.

    Parameters
    ----------
    a, flagged
        As a backend's `attend` returns them.
    probability : float
        Of keeping a pair; negative: no dropout.
    """
    same = a.permute(1, 2, 0, 3).clone(memory_format=torch.contiguous_format).permute(2, 0, 1, 3)
    if a.is_cuda and torch.cuda.is_current_stream_capturing():
        return same.masked_fill_(flagged[..., None], math.nan)
    if not bool(flagged.any()):
        return same
    where = flagged.flatten().nonzero().squeeze(1)
    again = exact.recomputed(
        where, q, k, v, s, Geometry(lo, hi, hole, slope), mask, scale_t, _keep(seed, probability)
    )
    return replaced(same, where, again)


@register_fake("attnbench::repaired")
def _(a: Tensor, *_: Any) -> Tensor:
    heads, batch, n, width = a.shape
    return a.new_empty((batch, n, heads, width)).permute(2, 0, 1, 3)


@custom_op(
    "attnbench::repaired_backward",
    mutates_args=(),
    schema=f"(Tensor g, Tensor flagged, {_INPUTS}) -> (Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def repaired_backward(
    g: Tensor, flagged: Tensor, q: Tensor, k: Tensor, v: Tensor, s: Tensor | None, lo: Tensor,
    hi: Tensor, hole: Tensor, slope: Tensor, mask: Tensor | None, scale_t: str, seed: int,
    probability: float,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """Gradients of a, q, k, v and s (empty without one) for that of the result."""
    dtype = core_dtype(q.dtype)
    to_a = g.contiguous().masked_fill(flagged[..., None], 0)
    given = (q, k, v, v.new_empty(0) if s is None else s)
    sums = [torch.zeros(t.shape, dtype=dtype, device=t.device) for t in given]
    capturing = g.is_cuda and torch.cuda.is_current_stream_capturing()
    if not capturing and bool(flagged.any()):
        where = flagged.flatten().nonzero().squeeze(1)
        geometry = Geometry(lo, hi, hole, slope)
        keep = _keep(seed, probability)
        step = exact.chunk(k, v, dtype)
        for start in range(0, where.shape[0], step):
            part = where[start : start + step]
            _add_gradients(sums, part, g, q, k, v, s, geometry, mask, scale_t, keep)
    found = [total.to(t.dtype) for total, t in zip(sums, given, strict=True)]
    return to_a, found[0], found[1], found[2], found[3]


@register_fake("attnbench::repaired_backward")
def _(
    g: Tensor, flagged: Tensor, q: Tensor, k: Tensor, v: Tensor, s: Tensor | None, *_: Any
) -> tuple[Tensor, ...]:
    given = (q, k, v, v.new_empty(0) if s is None else s)
    return (g.new_empty(g.shape), *(t.new_empty(t.shape) for t in given))


def _add_gradients(
    sums: list[Tensor], where: Tensor, g: Tensor, q: Tensor, k: Tensor, v: Tensor,
    s: Tensor | None, geometry: Geometry, mask: Tensor | None, scale_t: str, keep: Keep | None,
) -> None:  # fmt: skip
    """Of some queries C, into q, k, v and s: the softmax's gradient over their own keys."""
    heads, batch, n, _ = v.shape
    dtype = sums[0].dtype
    here, query = exact.places(where, batch, n)
    own = exact.SequencesOfQueries(here, batch)
    queries, keys, values = q[(*here, query)].to(dtype), own.of(k).to(dtype), own.of(v).to(dtype)
    r = torch.bmm(keys, queries[:, :, None]).squeeze(2)  # [C, N]
    source = None if s is None else own.of(s).to(dtype)
    scores, open_pairs = exact.scores(r, here, query, source, geometry, mask, scale_t, batch)
    p = masked_softmax(scores, open_pairs[..., None], dim=1)  # [C, N, d_v or 1]
    flow = g[(*here, query)].to(dtype)[:, None]  # [C, 1, d_v]
    if keep is not None:
        hashes = keep.rows(heads, batch, n, v.device).flatten()[where]
        flow = flow * keep.of(hashes, 0, n)[..., None]  # [C, N, d_v]
    to_p = flow * values  # [C, N, d_v]
    if p.shape[2] == 1:
        to_p = to_p.sum(2, keepdim=True)
    to_scores = p * (to_p - (p * to_p).sum(1, keepdim=True))  # [C, N, d_v or 1]
    to_r = to_scores.sum(2)
    if scale_t == "log_sigmoid":
        to_r = to_r * torch.sigmoid(-r)
    sums[0].index_put_((*here, query), torch.bmm(to_r[:, None], keys).squeeze(1), accumulate=True)
    own.add(sums[1], to_r[..., None] * queries[:, None])
    own.add(sums[2], (p * flow).expand_as(values))
    if s is not None:
        own.add(sums[3], to_scores if s.shape[3] > 1 else to_scores.sum(2, keepdim=True))


def _remember(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    _, *tensors, scale_t, seed, probability = inputs
    ctx.save_for_backward(*tensors)
    ctx.options = (scale_t, seed, probability)


def _backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
    flagged, *tensors = ctx.saved_tensors
    to_a, dq, dk, dv, ds = repaired_backward(g, flagged, *tensors, *ctx.options)
    nothing = (None,) * 8  # lo, hi, hole, slope, mask, scale_t, seed, probability
    return to_a, None, dq, dk, dv, None if tensors[3] is None else ds, *nothing


register_autograd("attnbench::repaired", _backward, setup_context=_remember)
