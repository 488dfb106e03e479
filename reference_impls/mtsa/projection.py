"""Queries, keys, values and source scores of the paper's layer, with a backward pass by hand.

Beside x and the product q | k | v nothing is kept of many tokens: the scores' hidden layer is
computed again. The gradients of q, k and v meet their weights as they come, each [B*N, H*d] where
it is token-first: nothing is put together before the products, and nothing taken apart behind them.
Of few tokens each head's weights are multiplied as they are.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from reference_impls.checks import ACTIVATIONS, in_place
from reference_impls.kernels import sizes
from reference_impls.mechanism import Unsupported
from reference_impls.merged import few

FEW_TOKENS = 512
"""Up to this many what a backward pass would make again is kept: it is less than the weights."""
SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def padded(s1_w: Tensor, s1_b: Tensor, s2_w: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """The weights of the hidden layer and of the scores, with columns and rows of zeros.

    The zeros make whole vectors of both layers' outputs: a product is faster by a third for it.
    """
    hidden, width = s2_w.shape[1:]
    wide, whole = sizes.fast_width(hidden) - hidden, sizes.fast_width(width) - width
    if wide == whole == 0:
        return s1_w, s1_b, s2_w
    return pad(s1_w, (0, wide)), pad(s1_b, (0, wide)), pad(s2_w, (0, whole, 0, wide))


def hidden_layer(
    k: Tensor, s1_w: Tensor, s1_b: Tensor, activation: Callable[..., Tensor]
) -> Tensor:
    """sigma_m(k W + b), [H, M, d_a]; 0 W + 0 remains 0."""
    return in_place(activation)(torch.baddbmm(s1_b.unsqueeze(1), k, s1_w))


def before(gradient: Tensor, hidden: Tensor, activation: Callable[..., Tensor]) -> Tensor:
    """The gradient in front of an activation, from that behind it, which it overwrites."""
    aten = torch.ops.aten
    if activation is ACTIVATIONS["relu"]:
        aten.threshold_backward.grad_input(gradient, hidden, 0, grad_input=gradient)
        return gradient
    alpha, scale = (SELU_ALPHA, SELU_SCALE) if activation is ACTIVATIONS["selu"] else (1.0, 1.0)
    aten.elu_backward.grad_input(gradient, alpha, scale, 1, True, hidden, grad_input=gradient)
    return gradient


def flat(gradient: Tensor) -> Tensor:
    """[H, M, d] -> [M, H*d]: no copy where the memory stands so already."""
    return gradient.transpose(0, 1).flatten(1)


def columns_of(*weights: Tensor) -> Tensor:
    """Weights [H, D, d] of queries, keys, values as columns [D, sum of H*d]; queries / sqrt(d_i).

    One pass over each, where no gradient is wanted; `torch.cat` would want those of queries divided
    in a copy of their own.
    """
    heads, d_in, _ = weights[0].shape
    widths = [heads * weight.shape[2] for weight in weights]
    out = weights[0].new_empty((d_in, sum(widths)))
    parts = out.split(widths, dim=1)
    for part, weight in zip(parts, weights, strict=True):
        part.view(d_in, heads, -1).copy_(weight.transpose(0, 1))
    parts[0].mul_(shares(weights[0])[0])
    return out


def scaled_product(a: Tensor, b: Tensor, share: float, to: Tensor | None = None) -> Tensor:
    """For each head share * a @ b, added to `to` in place where that is given."""
    if to is not None:
        return to.baddbmm_(a, b, alpha=share)
    return torch.baddbmm(a.new_empty(()), a, b, beta=0, alpha=share)


def shares(q_w: Tensor) -> tuple[float, float, float]:
    """What queries, keys and values are multiplied by: queries by 1 / sqrt(d_i), eq. 8."""
    return 1 / math.sqrt(q_w.shape[2]), 1.0, 1.0


def backward_by_head(
    x: Tensor, weights: Sequence[Tensor], gradients: Sequence[Tensor], wanted: bool
) -> tuple[Tensor | None, list[Tensor]]:
    """Gradients of x [M, D], where wanted, and of q_w, k_w, v_w from those of q, k, v [H, M, d]."""
    each, by = x.t().expand(len(weights[0]), *x.t().shape), shares(weights[0])
    of_w = [scaled_product(each, g, share) for g, share in zip(gradients, by, strict=True)]
    per_head = None  # [H, M, D]
    for g, w, share in zip(gradients, weights, by, strict=True) if wanted else ():
        per_head = scaled_product(g, w.transpose(1, 2), share, per_head)
    return None if per_head is None else per_head.sum(0), of_w


def backward_by_columns(
    x: Tensor,
    weights: Sequence[Tensor],
    gradients: Sequence[Tensor],
    wanted: bool,
    weight: Tensor | None,
) -> tuple[Tensor | None, list[Tensor]]:
    """The same of many tokens; `weight` is what `columns_of` returned, if it was kept."""
    columns = [flat(gradient) for gradient in gradients]  # [M, H*d]
    of_x = None
    if wanted:
        weight = columns_of(*weights) if weight is None else weight
        backs = weight.t().split([column.shape[1] for column in columns])  # [H*d, D]
        for column, back in zip(columns, backs, strict=True):
            of_x = column @ back if of_x is None else of_x.addmm_(column, back)
    of_w = [
        torch.addmm(x.new_empty(()), x.t(), column, beta=0, alpha=share)
        .view(x.shape[1], len(weights[0]), -1)
        .transpose(0, 1)
        for column, share in zip(columns, shares(weights[0]), strict=True)
    ]
    return of_x, of_w


class Projection(torch.autograd.Function):
    """``(x [M, D], q_w, k_w, v_w, s1_w, s1_b, s2_w, s2_b, sigma_m) -> q, k, v, s``, [H, M, d].

    s is without its bias s2_b, which changes no weight of any key: its gradient is 0.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        q_w: Tensor,
        k_w: Tensor,
        v_w: Tensor,
        s1_w: Tensor,
        s1_b: Tensor,
        s2_w: Tensor,
        s2_b: Tensor,
        activation: Callable[..., Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Eq. 7 and 9 with sigma_s = identity; q, k and v are views of one product."""
        # No `setup_context`: torch would read the signature of this function at every call.
        heads, weight = q_w.shape[0], None
        if few(x):
            each = x.expand(heads, *x.shape)
            parts = zip((q_w, k_w, v_w), shares(q_w), strict=True)
            q, k, v = (scaled_product(each, w, share) for w, share in parts)
        else:
            widths = [heads * w.shape[2] for w in (q_w, k_w, v_w)]
            weight = columns_of(q_w, k_w, v_w)
            q, k, v = (
                part.unflatten(1, (heads, -1)).transpose(0, 1)
                for part in (x @ weight).split(widths, dim=1)
            )
        ctx.activation, ctx.widths = activation, (s1_b.shape[1], s2_b.shape[1])
        # Of fewer tokens than the weights have rows, a pass over those takes more than it saves.
        ctx.padding = len(x) >= s1_w.shape[1]
        s1_w, s1_b, s2_w = wide = padded(s1_w, s1_b, s2_w) if ctx.padding else (s1_w, s1_b, s2_w)
        hidden = hidden_layer(k, s1_w, s1_b, activation)
        kept = (weight, hidden) if len(x) <= FEW_TOKENS else ()
        ctx.save_for_backward(x, q_w, k_w, v_w, *wide, k, *kept)
        return q, k, v, torch.bmm(hidden, s2_w)[..., : s2_b.shape[1]]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x and of all weights."""
        if torch.is_grad_enabled():
            raise Unsupported("the fused layer has no second derivative; use algorithm1")
        x, q_w, k_w, v_w, s1_w, s1_b, s2_w, k, *kept = ctx.saved_tensors
        gq, gk, gv, gs = gradients
        narrow, width = ctx.widths
        # Of many tokens nothing was kept; the hidden layer is [H, M, wide].
        weight, hidden = kept or (None, hidden_layer(k, s1_w, s1_b, ctx.activation))
        if ctx.padding:  # the product whose result has whole vectors in its rows
            of_s2_w = torch.bmm(gs.transpose(1, 2), hidden).transpose(1, 2)[:, :narrow]
        else:
            of_s2_w = torch.bmm(hidden.transpose(1, 2), gs)
        gh = torch.bmm(gs, s2_w[..., :width].transpose(1, 2))  # [H, M, wide]
        gh = before(gh, hidden, ctx.activation)
        del hidden  # this is the pass's peak of memory
        if k.dtype.itemsize == 2:  # oneDNN takes nine times as long for what follows otherwise
            of_s1_w = torch.bmm(gh.transpose(1, 2), k).transpose(1, 2)[..., :narrow]
        else:
            of_s1_w = torch.bmm(k.transpose(1, 2), gh)[..., :narrow]
        of_s1_b = gh.sum(1)[:, :narrow]
        d_i, back = k.shape[2], s1_w.transpose(1, 2)
        if ctx.padding:
            back = pad(back, (0, sizes.fast_width(d_i) - d_i))
        # Not into what came in: others may hold it.
        gk = torch.add(gk, torch.bmm(gh, back)[..., :d_i], out=torch.empty_like(gk))
        del gh
        of_parts, weights, wanted = (gq, gk, gv), (q_w, k_w, v_w), ctx.needs_input_grad[0]
        if few(x):
            of_x, of_w = backward_by_head(x, weights, of_parts, wanted)
        else:
            of_x, of_w = backward_by_columns(x, weights, of_parts, wanted, weight)
        of_s2_b = s1_b.new_zeros((s1_b.shape[0], width))
        return of_x, *of_w, of_s1_w, of_s1_b, of_s2_w, of_s2_b, None
