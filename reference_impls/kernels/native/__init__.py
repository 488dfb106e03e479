"""Attention over ranges of keys on the CPU, in C++: forward and backward, linear memory.

Built on first use, see `loader`. The same call gives the same numbers, bit for bit, for the same
number of threads: every sum has one order, whichever thread takes which part.
"""

from __future__ import annotations

from ctypes import addressof, c_int64
from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op, register_autograd, register_fake

from reference_impls.checks import core_dtype, least_denominator
from reference_impls.kernels.call import (
    COUNT,
    FLAT,
    TENSORS,
    KernelCall,
    by_hand,
    called,
    flowing_back,
    of_flat,
    watched,
)
from reference_impls.kernels.native import problem
from reference_impls.mechanism import Unsupported


def attend(call: KernelCall) -> tuple[Tensor, Tensor]:
    """As `reference_impls.kernels.call.KernelCall` says; flagged queries are right as well.

    Raises
    ------
    Unsupported
        Off the CPU, for another dtype, or where the kernel can't be built.
    """
    if call.q.device.type != "cpu":
        raise Unsupported(
            f"the native kernel runs on the CPU, q is on {call.q.device}: use fused_triton"
        )
    for name, t in zip("qkvs", call[:4], strict=True):
        if t is not None and t.dtype not in problem.KINDS:
            raise Unsupported(
                f"{name} is {t.dtype}; the native kernel takes floats of 16 to 64 bits"
            )
    if (save := call.wants_gradients()) or watched(call.q):
        a, flagged, *_ = _run(*call.flat(), save)
    else:
        a, flagged, *_ = _forward(call, save)
    return a, flagged


def _rows_of(t: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Room for [H, B, N, width] that lies as [B, N, H, width], beside t [H, B, N, d]."""
    heads, _, length, _ = t.shape
    strides = (width, length * heads * width, heads * width, 1)
    return t.new_empty_strided((*t.shape[:3], width), strides, dtype=dtype)


def _results(q: Tensor, v: Tensor, s: Tensor | None, save: bool) -> tuple[Tensor, ...]:
    """Room for a, flagged, the inverse denominators and the queries' highest scores."""
    shape = q.shape[:3]
    # Denominators only scale what flows back: bfloat16 will do where all else is that.
    dtype = torch.bfloat16 if q.dtype == torch.bfloat16 else core_dtype(q.dtype)
    sources = 1 if s is None else s.shape[3]
    return (
        _rows_of(q, v.shape[3], q.dtype),
        q.new_empty(shape, dtype=torch.bool),
        q.new_empty((*shape, sources) if save else 0, dtype=dtype),
        q.new_empty(shape if save else 0, dtype=core_dtype(q.dtype)),
    )


def _gradients(q: Tensor, k: Tensor, v: Tensor, s: Tensor | None) -> tuple[Tensor, ...]:
    """Room for the gradients; that of an absent s is empty."""
    source = v.new_empty((0,)) if s is None else _rows_of(s, s.shape[3], s.dtype)
    return (*(_rows_of(t, t.shape[3], t.dtype) for t in (q, k, v)), source)


@custom_op(
    "attnbench::native_forward",
    mutates_args=(),
    device_types="cpu",
    schema=f"({FLAT}, bool save) -> (Tensor, Tensor, Tensor, Tensor)",
)
def native_forward(*given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`attend`'s results for a flat call; with `save` also what the backward pass needs."""
    return _forward(of_flat(*given[:-1]), given[-1])


def _forward(call: KernelCall, save: bool) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    inputs = problem.as_read(call)
    a, flagged, inverse, highest = _results(inputs.q, inputs.v, inputs.s, save)
    least, lost = least_denominator(core_dtype(inputs.q.dtype), inputs.q.shape[2]), c_int64()
    own = problem.of(
        inputs, a, inverse, highest, least=least, flagged=flagged, lost=addressof(lost)
    )
    problem.run("forward", own)
    if lost.value:
        problem.run("repair", own)
    return a, flagged, inverse, highest


@register_fake("attnbench::native_forward")
def _(q: Tensor, k: Tensor, v: Tensor, s: Tensor | None, *others: Any) -> tuple[Tensor, ...]:
    return _results(q, v, s, others[-1])


@custom_op(
    "attnbench::native_backward",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor g, Tensor a, Tensor flagged, Tensor inverse, Tensor highest, {FLAT}) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
def native_backward(
    g: Tensor, a: Tensor, flagged: Tensor, inverse: Tensor, highest: Tensor, *given: Any
) -> tuple[Tensor, ...]:
    """Gradients of q, k, v and s for the gradient g of a."""
    call = of_flat(*given)
    inputs = problem.as_read(call)
    g, a = problem.unit_stride(g), problem.unit_stride(a)
    inverse, highest = inverse.contiguous(), highest.contiguous()
    gradients = _gradients(*inputs[:4])
    found = (*gradients[:3], None if inputs.s is None else gradients[3])
    flagged, lost = flagged.contiguous(), c_int64()
    own = problem.of(
        inputs,
        a,
        inverse,
        highest,
        flagged=flagged,
        lost=addressof(lost),
        g=g,
        gradients=found,
    )
    problem.run("backward", own)
    if lost.value:
        problem.run("repair", own)
    return gradients


@register_fake("attnbench::native_backward")
def _(
    g: Tensor, a: Tensor, flagged: Tensor, inverse: Tensor, highest: Tensor, *given: Any
) -> tuple[Tensor, ...]:
    return _gradients(*given[:4])


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    ctx.save_for_backward(*output, *inputs[:TENSORS])
    ctx.options = inputs[TENSORS:COUNT]
    ctx.saved = inputs[COUNT]
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, g: Tensor | None, *others: Tensor | None) -> tuple[Any, ...]:
    if g is None:
        return (None,) * (COUNT + 1)
    if not ctx.saved:
        raise RuntimeError(
            "native_forward was called with save=False; give save=True where gradients are needed"
        )
    a, flagged, inverse, highest, *tensors = ctx.saved_tensors
    found = called(native_backward, g, a, flagged, inverse, highest, *tensors, *ctx.options)
    return flowing_back(found, tensors[3], 1)


register_autograd("attnbench::native_forward", _backward, setup_context=_remember)
_run = by_hand(native_forward, _remember, _backward)


def _no_second_derivative(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    # Torch's own words would have the user register one.
    raise Unsupported("the native attention has no second derivative; use algorithm1 or plain")


register_autograd("attnbench::native_backward", _no_second_derivative)
