"""Attention over ranges of keys on the CPU, in C++: forward and backward, linear memory.

Built on first use, see `loader`. The same call gives the same numbers, bit for bit, for the same
number of threads: every sum has one order, whichever thread takes which part.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.library import custom_op, register_autograd, register_fake

from reference_impls.checks import core_dtype, least_denominator
from reference_impls.kernels.dropout import PairDropout
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.native import call
from reference_impls.mechanism import Unsupported

_INPUTS = (
    "Tensor q, Tensor k, Tensor v, Tensor? s, Tensor lo, Tensor hi, Tensor without_self, "
    "Tensor slope, Tensor? mask, str scale_t, SymInt seed, int threshold"
)


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    geometry: Geometry,
    mask: Tensor | None,
    scale_t: str,
    dropout: PairDropout | None = None,
) -> tuple[Tensor, Tensor]:
    """Attention over ranges of keys, with source2token weights (MTSA eq. 10-12).

    ``a_il = sum_j keep_ij P_ij v_jl E_jl / sum_j P_ij E_jl``, E = exp(s - maximum).

    Parameters
    ----------
    q, k : Tensor, shape [H, B, N, d_i]
        Queries, already divided by sqrt(d_i), and keys; d_i = 0: there are no such scores. Any
        strides, 1 in the last axis.
    v : Tensor, shape [H, B, N, d_v]
    s : Tensor, shape [H, B, N, d_v] or [H, B, N, 1], or None
        Source2token scores; None: E is 1.
    geometry : Geometry
        The keys of every query.
    mask : Tensor of bool, shape [B, N], or None
        True for real tokens.
    scale_t : {"log_sigmoid", "identity"}
        P is sigmoid(r) e^bias or e^(r + bias).
    dropout : PairDropout or None
        Pairs that it keeps of the numerator; nothing is scaled.

    Returns
    -------
    a : Tensor, shape [H, B, N, d_v]
        In the dtype of q, a view of a contiguous [B, N, H, d_v]; 0 for padded queries, those
        without a key, and those flagged. Sums are in float32 for half precision.
    flagged : Tensor of bool, shape [H, B, N]
        Queries some of whose denominators fell below `least_denominator`.

    Raises
    ------
    Unsupported
        Off the CPU, for another dtype, or where the kernel can't be built.
    """
    if q.device.type != "cpu":
        raise Unsupported(
            f"the native kernel runs on the CPU, q is on {q.device}: use fused_triton"
        )
    for name, t in zip("qkvs", (q, k, v, s), strict=True):
        if t is not None and t.dtype not in call.KINDS:
            raise Unsupported(
                f"{name} is {t.dtype}; the native kernel takes floats of 16 to 64 bits"
            )
    needed = torch.is_grad_enabled() and any(
        t is not None and t.requires_grad for t in (q, k, v, s)
    )
    ranges = geometry.lo, geometry.hi, geometry.without_self, geometry.slope
    seeded = (0, -1) if dropout is None else (dropout.seed, dropout.threshold)
    a, flagged, *_ = native_forward(q, k, v, s, *ranges, mask, scale_t, *seeded, needed)
    return a, flagged


def _rows_of(t: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Room for [H, B, N, width] that lies as [B, N, H, width], beside t [H, B, N, d]."""
    heads, batch, length, _ = t.shape
    return t.new_empty((batch, length, heads, width), dtype=dtype).permute(2, 0, 1, 3)


def _results(q: Tensor, v: Tensor, s: Tensor | None, save: bool) -> tuple[Tensor, ...]:
    """Room for a, flagged, the inverse denominators and the queries' highest scores."""
    shape = q.shape[:3]
    # Denominators only scale what flows back: bfloat16 will do where all else is that.
    dtype = torch.bfloat16 if q.dtype == torch.bfloat16 else core_dtype(q.dtype)
    sources = 1 if s is None else s.shape[3]
    saved = shape if save else (0, 0, 0)
    return (
        _rows_of(q, v.shape[3], q.dtype),
        q.new_empty(shape, dtype=torch.bool),
        q.new_empty((*saved, sources), dtype=dtype),
        q.new_empty(saved, dtype=core_dtype(q.dtype)),
    )


def _gradients(q: Tensor, k: Tensor, v: Tensor, s: Tensor | None) -> tuple[Tensor, ...]:
    """Room for the gradients; that of an absent s is empty."""
    source = v.new_empty((0,)) if s is None else _rows_of(s, s.shape[3], s.dtype)
    return (*(_rows_of(t, t.shape[3], t.dtype) for t in (q, k, v)), source)


@custom_op(
    "attnbench::native_forward",
    mutates_args=(),
    device_types="cpu",
    schema=f"({_INPUTS}, bool save) -> (Tensor, Tensor, Tensor, Tensor)",
)
def native_forward(*given: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """`attend`'s results for `call.Inputs`; with `save` also what the backward pass needs."""
    *tensors, save = given
    inputs = call.Inputs(*tensors).as_read()
    a, flagged, inverse, highest = _results(inputs.q, inputs.v, inputs.s, save)
    p = inputs.problem()
    p.least = least_denominator(core_dtype(inputs.q.dtype), inputs.q.shape[2])
    p.a, p.flagged = call.rows(a), call.address(flagged)
    p.inverse, p.highest = call.rows(inverse), call.address(highest)
    call.run("forward", p)
    return a, flagged, inverse, highest


@register_fake("attnbench::native_forward")
def _(*given: Any) -> tuple[Tensor, ...]:
    *tensors, save = given
    inputs = call.Inputs(*tensors)
    return _results(inputs.q, inputs.v, inputs.s, save)


@custom_op(
    "attnbench::native_backward",
    mutates_args=(),
    device_types="cpu",
    schema=f"(Tensor g, Tensor a, Tensor inverse, Tensor highest, {_INPUTS}) "
    "-> (Tensor, Tensor, Tensor, Tensor)",
)
def native_backward(
    g: Tensor, a: Tensor, inverse: Tensor, highest: Tensor, *given: Any
) -> tuple[Tensor, ...]:
    """Gradients of q, k, v and s for the gradient g of a; nothing flows to flagged queries."""
    inputs = call.Inputs(*given).as_read()
    g, a = call.unit_stride(g), call.unit_stride(a)
    inverse, highest = inverse.contiguous(), highest.contiguous()
    gradients = _gradients(*inputs[:4])
    p = inputs.problem()
    p.g, p.a, p.inverse = call.rows(g), call.rows(a), call.rows(inverse)
    p.highest = call.address(highest)
    p.dq, p.dk, p.dv = (call.rows(t) for t in gradients[:3])
    p.ds = call.rows(None if inputs.s is None else gradients[3])
    call.run("backward", p)
    return gradients


@register_fake("attnbench::native_backward")
def _(g: Tensor, a: Tensor, inverse: Tensor, highest: Tensor, *given: Any) -> tuple[Tensor, ...]:
    return _gradients(*call.Inputs(*given)[:4])


def _remember(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    *tensors, scale_t, seed, threshold, save = inputs
    a, _, inverse, highest = output
    ctx.save_for_backward(a, inverse, highest, *tensors)
    ctx.options = (scale_t, seed, threshold)
    ctx.saved = save
    ctx.set_materialize_grads(False)


def _backward(ctx: Any, g: Tensor | None, *others: Tensor | None) -> tuple[Any, ...]:
    nothing = (None,) * 9  # lo, hi, without_self, slope, mask, scale_t, seed, threshold, save
    if g is None:
        return None, None, None, None, *nothing
    if not ctx.saved:
        raise RuntimeError(
            "native_forward was called with save=False; give save=True where gradients are needed"
        )
    a, inverse, highest, *tensors = ctx.saved_tensors
    dq, dk, dv, ds = native_backward(g, a, inverse, highest, *tensors, *ctx.options)
    return dq, dk, dv, None if tensors[3] is None else ds, *nothing


register_autograd("attnbench::native_forward", _backward, setup_context=_remember)


def _no_second_derivative(ctx: Any, *gradients: Tensor | None) -> tuple[Any, ...]:
    # Torch's own words would have the user register one.
    raise Unsupported("the native attention has no second derivative; use algorithm1 or plain")


register_autograd("attnbench::native_backward", _no_second_derivative)
