"""DiSA's sums over pairs on a CPU, in C++: nothing over pairs is kept, forward or backward."""

from __future__ import annotations

import struct
from typing import Any

from torch import Tensor
from torch.library import custom_op, register_autograd, register_fake

from reference_impls.kernels.call import by_hand, called
from reference_impls.kernels.native import problem
from reference_impls.mechanism import Unsupported

DIRECTED = struct.Struct("=7q d 45q")
"""`Directed` of `directed.h`."""
TENSORS = 3
"""First of what the operator takes; behind them the mask and the options."""
SCHEMA = (
    "Tensor h, Tensor keys, Tensor queries, Tensor? mask, int lo, int hi, bool without_self, "
    "float scale"
)


def _rows(t: Tensor | None) -> tuple[int, ...]:
    """Address, kind and strides of a tensor [B, N, d], its one head as `Tensor` there."""
    if t is None:
        return problem.NOTHING
    return problem.address(t), problem.KINDS[t.dtype], 0, t.stride(0), t.stride(1)


def _run(given: tuple[Any, ...], *results: Tensor | None) -> None:
    """The kernel on what `SCHEMA` says; a, its denominators, and going back g and the gradients."""
    h, keys, queries, mask, lo, hi, without_self, scale = given
    tensors = [None if t is None else problem.unit_stride(t) for t in (h, keys, queries, *results)]
    mask = None if mask is None else mask.contiguous()
    numbers = [*h.shape, lo, hi, without_self, problem.address(mask), scale]
    for t in tensors:
        numbers += _rows(t)
    numbers += problem.NOTHING * (9 - len(tensors))
    problem.run("directed", DIRECTED.pack(*numbers))


@custom_op(
    "attnbench::disa_forward",
    mutates_args=(),
    device_types="cpu",
    schema=f"({SCHEMA}, bool save) -> (Tensor, Tensor)",
)
def disa_forward(*given: Any) -> tuple[Tensor, Tensor]:
    """Attended values [B, N, d], and with `save` their denominators."""
    a, denominator = _results(*given)
    _run(given[:-1], a, denominator if given[-1] else None)
    return a, denominator


@register_fake("attnbench::disa_forward")
def _results(h: Tensor, *others: Any) -> tuple[Tensor, Tensor]:
    shape = h.shape
    return h.new_empty(shape), h.new_empty(shape if others[-1] else (0, 0, 0))


@custom_op(
    "attnbench::disa_backward",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor g, Tensor a, Tensor denominator, {SCHEMA}) -> (Tensor, Tensor, Tensor)",
)
def disa_backward(g: Tensor, a: Tensor, denominator: Tensor, *given: Any) -> tuple[Tensor, ...]:
    """Gradients of h, keys and queries for the gradient g of a."""
    gradients = _gradients(g, a, denominator, *given)
    _run(given, a, denominator, g, *gradients)
    return gradients


@register_fake("attnbench::disa_backward")
def _gradients(g: Tensor, *given: Any) -> tuple[Tensor, Tensor, Tensor]:
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
