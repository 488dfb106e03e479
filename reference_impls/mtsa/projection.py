"""Queries, keys, values and source scores of the paper's layer, with a backward pass by hand.

Beside x and the product q | k | v nothing is kept: the scores' hidden layer is computed again. The
gradients of q, k and v meet their weights as they come, each [B*N, H*d] where it is token-first:
nothing is put together before the products, and nothing taken apart behind them.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from reference_impls.checks import ACTIVATIONS, in_place
from reference_impls.mechanism import Unsupported
from reference_impls.mtsa.layer import side_by_side

SELU_ALPHA, SELU_SCALE = 1.6732632423543772848170429916717, 1.0507009873554804934193349852946


def _hidden(k: Tensor, s1_w: Tensor, s1_b: Tensor, activation: Callable[..., Tensor]) -> Tensor:
    """sigma_m(k W + b), [H, M, d_a]."""
    return in_place(activation)(torch.baddbmm(s1_b[:, None], k, s1_w))


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


class Projection(torch.autograd.Function):
    """``(x [M, D], q_w, k_w, v_w, s1_w, s1_b, s2_w, s2_b, sigma_m) -> q, k, v, s``, [H, M, d]."""

    @staticmethod
    def forward(
        x: Tensor, q_w: Tensor, k_w: Tensor, v_w: Tensor, s1_w: Tensor, s1_b: Tensor, s2_w: Tensor,
        s2_b: Tensor, activation: Callable[..., Tensor],
    ) -> tuple[Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
        """Eq. 7 and 9 with sigma_s = identity; q, k and v are views of one product."""
        heads, _, d_i = q_w.shape
        product = x @ side_by_side(q_w / math.sqrt(d_i), k_w, v_w)
        q, k, v = (
            part.unflatten(1, (heads, -1)).transpose(0, 1)
            for part in product.split([heads * w.shape[2] for w in (q_w, k_w, v_w)], dim=1)
        )
        s = torch.baddbmm(s2_b[:, None], _hidden(k, s1_w, s1_b, activation), s2_w)
        return q, k, v, s

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
        """Keep x, the weights and k."""
        ctx.save_for_backward(*inputs[:7], output[1])
        ctx.activation = inputs[8]

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor | None, ...]:
        """Gradients of x and of all weights."""
        if torch.is_grad_enabled():
            raise Unsupported("the fused layer has no second derivative; use algorithm1")
        x, q_w, k_w, v_w, s1_w, s1_b, s2_w, k = ctx.saved_tensors
        gq, gk, gv, gs = gradients
        hidden = _hidden(k, s1_w, s1_b, ctx.activation)  # [H, M, d_a]
        of_s2_w, of_s2_b = torch.bmm(hidden.transpose(1, 2), gs), gs.sum(1)
        gh = before(torch.bmm(gs, s2_w.transpose(1, 2)), hidden, ctx.activation)
        of_s1_w, of_s1_b = torch.bmm(k.transpose(1, 2), gh), gh.sum(1)
        # Not into what came in: others may hold it.
        gk = gk.clone().baddbmm_(gh, s1_w.transpose(1, 2))
        root = math.sqrt(q_w.shape[2])
        of_x = None
        of_w = []
        for gradient, weight in ((gq, q_w / root), (gk, k_w), (gv, v_w)):
            columns = flat(gradient)  # [M, H*d]
            if ctx.needs_input_grad[0]:
                back = side_by_side(weight).t()  # [H*d, D]
                of_x = columns @ back if of_x is None else of_x.addmm_(columns, back)
            of_w.append((x.t() @ columns).unflatten(1, (weight.shape[0], -1)).transpose(0, 1))
        of_w[0] = of_w[0] / root
        return of_x, *of_w, of_s1_w, of_s1_b, of_s2_w, of_s2_b, None
