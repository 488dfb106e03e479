"""Attention over ranges of keys on the CPU, in C++: forward and backward, linear memory.

Built on first use, see `loader`. The same call gives the same numbers, bit for bit, for the same
number of threads: every sum has one order, whichever thread takes which part.
"""

from __future__ import annotations

from functools import cache
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
from reference_impls.kernels.native import loader
from reference_impls.mechanism import Unsupported

DTYPES = (torch.float32, torch.float64, torch.bfloat16, torch.float16)
tile_rows = 0
"""Tokens of a tile, a multiple of 16; 0: chosen by the kernel. Tests and tuning set it."""
tile_panel = 0
"""Tokens of a panel: 16, 32, 48, 64, or 0."""


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
        if t is not None and t.dtype not in DTYPES:
            raise Unsupported(
                f"{name} is {t.dtype}; the native kernel takes floats of 16 to 64 bits"
            )
    if (save := call.wants_gradients()) or watched(call.q):
        a, flagged, *_ = _run(*call.flat(), save)
    else:
        a, flagged, *_ = _forward(call, save)
    return a, flagged


@cache
def _halves(enabled: bool) -> bool:
    """Whether products of bfloat16 do what the kernel expects, with oneDNN switched on or off."""
    return bool(loader.operators().halves.default())


def _as_told(call: KernelCall) -> tuple[Any, ...]:
    """The call as the library's operators take it."""
    dropout, halves = call.dropout, call.q.dtype == torch.bfloat16
    drawn = (0, -1) if dropout is None else (dropout.seed, dropout.threshold)
    return (
        *call[:4],
        *call.geometry,
        call.mask,
        call.scale_t == "log_sigmoid",
        *drawn,
        halves and _halves(bool(torch.backends.mkldnn.enabled)),
        tile_rows,
        tile_panel,
    )


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
    least = least_denominator(core_dtype(call.q.dtype), call.q.shape[2])
    found: tuple[Tensor, Tensor, Tensor, Tensor] = loader.operators().forward.default(
        *_as_told(call), least, save
    )
    return found


def _lying_as(t: Tensor, width: int) -> Tensor:
    """[H, B, N, width] that lies as [B, N, H, width], beside t [H, B, N, d]."""
    heads, batch, length, _ = t.shape
    return t.new_empty((batch, length, heads, width)).permute(2, 0, 1, 3)


@register_fake("attnbench::native_forward")
def _(q: Tensor, k: Tensor, v: Tensor, s: Tensor | None, *others: Any) -> tuple[Tensor, ...]:
    shape, save, dtype = q.shape[:3], others[-1], core_dtype(q.dtype)
    sources = 1 if s is None else s.shape[3]
    return (
        _lying_as(q, v.shape[3]),
        q.new_empty(shape, dtype=torch.bool),
        # Denominators only scale what flows back: bfloat16 will do where all else is that.
        q.new_empty(
            (*shape, sources) if save else 0,
            dtype=q.dtype if q.dtype == torch.bfloat16 else dtype,
        ),
        q.new_empty(shape if save else 0, dtype=dtype),
    )


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
    """Gradients of q, k, v and s for the gradient g of a; that of an absent s is empty."""
    found: tuple[Tensor, ...] = loader.operators().backward.default(
        g, a, flagged, inverse, highest, *_as_told(of_flat(*given))
    )
    return found


@register_fake("attnbench::native_backward")
def _(
    g: Tensor, a: Tensor, flagged: Tensor, inverse: Tensor, highest: Tensor, *given: Any
) -> tuple[Tensor, ...]:
    *others, s = given[:4]
    of_s = given[2].new_empty((0,)) if s is None else _lying_as(s, s.shape[3])
    return (*(_lying_as(t, t.shape[3]) for t in others), of_s)


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
