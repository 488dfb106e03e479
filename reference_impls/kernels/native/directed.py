"""DiSA's sums over pairs on a CPU, in C++: nothing over pairs is kept, forward or backward."""

from __future__ import annotations

from typing import Any

from torch import Tensor
from torch.library import custom_op, register_autograd, register_fake

from reference_impls.kernels.call import by_hand, called
from reference_impls.kernels.native import loader
from reference_impls.mechanism import Unsupported

TENSORS = 3
"""First of what the operator takes; behind them the mask and the options."""
SCHEMA = (
    "Tensor h, Tensor keys, Tensor queries, Tensor? mask, int lo, int hi, bool without_self, "
    "float scale"
)


@custom_op(
    "attnbench::disa_forward",
    mutates_args=(),
    device_types="cpu",
    schema=f"({SCHEMA}, bool save) -> (Tensor, Tensor)",
)
def disa_forward(*given: Any) -> tuple[Tensor, Tensor]:
    """Attended values [B, N, d], and with `save` their denominators."""
    found: tuple[Tensor, Tensor] = loader.operators().directed.default(*given)
    return found


@register_fake("attnbench::disa_forward")
def _(h: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    shape = h.shape
    return h.new_empty(shape), h.new_empty(shape if others[-1] else (0, 0, 0))


@custom_op(
    "attnbench::disa_backward",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor g, Tensor a, Tensor denominator, {SCHEMA}) -> (Tensor, Tensor, Tensor)",
)
def disa_backward(*given: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of h, keys and queries for the gradient g of a."""
    found: tuple[Tensor, Tensor, Tensor] = loader.operators().directed_backward.default(*given)
    return found


@register_fake("attnbench::disa_backward")
def _(g: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
    return g.new_empty(g.shape), g.new_empty(g.shape), g.new_empty(g.shape)


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output, *inputs[: TENSORS + 1])
    ctx.options = inputs[TENSORS + 1 : -1]
    ctx.mark_non_differentiable(output[1])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, g: Tensor | None, *others: Tensor | None) -> tuple[Any, ...]:
    none = (None,) * (len(ctx.options) + 2)
    if g is None:
        return (None,) * TENSORS + none
    a, denominator, *inputs = ctx.saved_tensors
    return *called(disa_backward, g, a, denominator, *inputs, *ctx.options), *none


register_autograd("attnbench::disa_forward", _backward, setup_context=_remember)
attend = by_hand(disa_forward, _remember, _backward)


def _no_second_derivative(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    # Torch's own words would have the user register one.
    raise Unsupported("the native sums over pairs have no second derivative; use plain")


register_autograd("attnbench::disa_backward", _no_second_derivative)
