"""Attention with source2token weights in pure PyTorch: some queries at a time, no N x N kept.

P is sigmoid(r) (or exp(r - its maximum)), E is exp(s - its maximum), both at most 1, and
[numerator | denominator] = P [v*E | E] is one product (Algorithm 1, stabilised). The backward pass
computes P again. With D = [dnum | dden], dnum = g / denominator, dden = -dnum * a:

    d[v*E | E] = P^T D        dP = D [v*E | E]^T        dr = dP * P * (1 - P), or dP * P

Only products, sums and elementwise operations in place, on tensors that stay in a core's cache. The
source scores' gradient is made to add to 0 over the keys, as it does but for rounding: a constant
added to all of them changes nothing.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from reference_impls.checks import least_denominator
from reference_impls.kernels import underflow
from reference_impls.kernels.call import COUNT, TENSORS, KernelCall, flowing_back, of_flat
from reference_impls.kernels.tiled import cutting
from reference_impls.kernels.tiled.sequences import Inputs, Sequences, added, into
from reference_impls.mechanism import Unsupported


def attend(call: KernelCall) -> tuple[Tensor, Tensor]:
    """As `reference_impls.kernels.call.KernelCall` says; on every device, in every dtype."""
    a, flagged, _ = TiledAttention.apply(*call.flat(), call.wants_gradients())
    return a, flagged


class TiledAttention(torch.autograd.Function):
    """`attend` with its own backward pass; the profiler shows it under this name."""

    @staticmethod
    def forward(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
        """Attended values, flags, and the denominators [H, B, N, d_v or 1] for `backward`."""
        *flat, training = given
        call = of_flat(*flat)
        inputs = Inputs(call)
        a, flagged, divisor = _forward(inputs, training)
        dtype = given[0].dtype
        # float16 has no room for denominators.
        saved = inputs.dtype if dtype == torch.float16 else dtype
        a = a.to(dtype)
        underflow.repair(call, a, flagged)
        return a, flagged, divisor.to(saved)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep the inputs, the attended values and the denominators: all linear in N."""
        _, flagged, divisor = output
        ctx.save_for_backward(*inputs[:TENSORS], *output)
        ctx.options = inputs[TENSORS:COUNT]
        ctx.mark_non_differentiable(flagged, divisor)
        ctx.set_materialize_grads(False)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor | None) -> tuple[Tensor | None, ...]:
        """Gradients of q, k, v and s."""
        g = gradients[0]
        if g is None:
            return (None,) * (COUNT + 1)
        if torch.is_grad_enabled() and not torch.compiler.is_compiling():
            raise Unsupported("the tiled attention has no second derivative; use algorithm1")
        *tensors, a, flagged, divisor = ctx.saved_tensors
        call = of_flat(*tensors, *ctx.options)
        inputs = Inputs(call)
        found = _backward(inputs, *(t.to(inputs.dtype) for t in (a, divisor, g)))
        underflow.add_gradients(call, g, flagged, found)
        dtype = tensors[0].dtype
        return flowing_back([t.to(dtype) for t in found], call.s, 1)


def _forward(c: Inputs, training: bool) -> tuple[Tensor, Tensor, Tensor]:
    """Values, flags, and the divisors that the backward pass wants (empty if not training).

    A divisor is infinite where no result is wanted: value and gradients are 0 there by themselves.
    """
    heads, batch, n, _ = c.v.shape
    a = token_first(c.v)
    flagged = torch.empty((heads, batch, n), dtype=torch.bool, device=c.v.device)
    wide = c.columns if training else 0
    divisor = token_first(c.v[..., :wide])
    if a.numel() == 0:
        return a, flagged, divisor
    closed = c.closed()  # [H, B, N]
    least = least_denominator(c.dtype, n)
    for group, some, samples, step in c.parts():
        sequences = Sequences(c, group, some, samples)
        for rows in cutting.cuts(0, n, step):
            here = (some, samples, rows)
            dead = closed[here]  # [h, b, R]
            pairs = sequences.pairs(rows)
            if pairs is None:
                a[here] = 0
                flagged[here] = False
                if training:
                    divisor[here] = math.inf
                continue
            numerator, denominator = sequences.sums(pairs)  # [h, b, R, d_v], [h, b, R, d_v or 1]
            lost = (denominator.amin(-1) < least) & ~dead
            flagged[here] = lost
            _close(denominator, lost | dead, c.mask is None)
            into(a[here], torch.div, numerator, denominator)
            if training:
                divisor[here] = denominator
    return a, flagged, divisor


def _close(denominator: Tensor, dead: Tensor, few: bool) -> None:
    """Make the denominators [h, b, R, columns] of dead queries [h, b, R] infinite."""
    if few and denominator.device.type == "cpu" and not torch.compiler.is_compiling():
        # A look at the flags, not at all the denominators.
        denominator[dead.nonzero(as_tuple=True)] = math.inf
    else:
        denominator.masked_fill_(dead[..., None], math.inf)


def _backward(
    c: Inputs, a: Tensor, divisor: Tensor, g: Tensor
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and s (empty without one) from that of the attended values."""
    n = c.v.shape[2]
    gq, gk, gv = (token_first(t) for t in (c.q, c.k, c.v))
    gs = c.v.new_empty(0) if c.s is None else torch.empty_like(c.s)
    if gv.numel() == 0:
        return gq, gk, gv, gs
    for group, some, samples, step in c.parts():
        sequences = Sequences(c, group, some, samples)
        of_sums = of_keys = None
        for rows in cutting.cuts(0, n, step):
            here = (some, samples, rows)
            pairs = sequences.pairs(rows)
            if pairs is None:
                gq[here] = 0
                continue
            d = sequences.of_quotient(*(t[here] for t in (g, a, divisor)))  # [S, R, w]
            dr = sequences.of_scores(pairs, d)  # [S, R, C]
            keys = pairs.keys
            gq[here] = sequences.apart(torch.bmm(dr, sequences.k[:, keys]))
            of_sums = sequences.add_products(of_sums, pairs, d)
            of_keys = added(of_keys, n, keys, dr.transpose(1, 2), sequences.q[:, rows])
        here = (some, samples, slice(0, n))
        if of_sums is None or of_keys is None:
            gk[here] = 0
            gv[here] = 0
            if c.s is not None:
                gs[here] = 0
            continue
        gk[here] = sequences.apart(of_keys)
        of_sums = sequences.apart(of_sums)
        numerator, denominator = sequences.of_v(of_sums), sequences.of_e(of_sums)
        e = sequences.of_e(sequences.apart(sequences.w))
        into(gv[here], torch.mul, numerator, e)
        if c.s is not None:
            gs[here] = _of_source_scores(numerator, denominator, c.v[some, samples], e)
    return gq, gk, gv, gs


def _of_source_scores(numerator: Tensor, denominator: Tensor, v: Tensor, e: Tensor) -> Tensor:
    """The gradient of s from those of v*E and E; all [h, b, N, d_v or 1]."""
    if e.shape[-1] == v.shape[-1]:
        of_e = denominator.addcmul_(numerator, v)
    else:
        of_e = denominator + (numerator * v).sum(-1, keepdim=True)
    # Only a sample of padding alone has weights that add to less than 1, their maximum.
    mean = (of_e * e).sum(2, keepdim=True) / e.sum(2, keepdim=True).clamp_(min=1)
    return of_e.sub_(mean).mul_(e)


def token_first(like: Tensor) -> Tensor:
    """An uninitialised [H, B, N, d] that is a view of a contiguous [B, N, H, d]."""
    heads, batch, n, width = like.shape
    return like.new_empty((batch, n, heads, width)).permute(2, 0, 1, 3)
