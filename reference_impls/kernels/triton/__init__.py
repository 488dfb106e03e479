"""Attention over ranges of keys by Triton kernels: CUDA, forward and backward, linear memory.

One pass per tile of queries sums numerator and denominator side by side over the tiles of keys
that its head's range opens; the backward pass computes the weights again. Products are exact to
float32 for float32 (TF32 only where torch's own products may be, by either of its settings), of
bfloat16 for bfloat16, and TF32 for float16, which has no room for exponentials; sums are always
float32.
Nothing is added atomically: results repeat bit for bit. Queries whose denominators underflow are
computed again on the device, by kernels that are always launched: no call waits for it, and a CUDA
graph holds all of them.

With ``TRITON_INTERPRET=1`` set before triton is imported, the same kernels run on the CPU in
Triton's interpreter, very slowly: for tests.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from reference_impls.kernels.call import (
    COUNT,
    FLAT,
    TENSORS,
    KernelCall,
    by_hand,
    called,
    flowing_back,
    of_flat,
)
from reference_impls.kernels.triton.device import (
    current,
    exact,
    interpreted,
    large_tiles,
    usable,
    widest,
)
from reference_impls.kernels.triton.inputs import Inputs, dense
from reference_impls.mechanism import Unsupported

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
BFLOAT16_INTERPRETED = False
"""Whether the interpreter's products of bfloat16 are right; tests mend them (triton 3.9)."""


def attend(call: KernelCall) -> tuple[Tensor, Tensor]:
    """As `reference_impls.kernels.call.KernelCall` says; flagged queries are right as well.

    Raises
    ------
    Unsupported
        For other devices and dtypes, and for wider heads.
    """
    q, k, v, s = call[:4]
    refuse(q, v)
    call = KernelCall(q, k.to(q.dtype), v.to(q.dtype), s, *call[4:])
    precise = q.dtype == torch.float32 and exact()
    out, _, flagged, *_ = _run(*call.flat(), precise, call.wants_gradients())
    return out.permute(2, 0, 1, 3), flagged


def refuse(q: Tensor, v: Tensor) -> None:
    """Raise `Unsupported` for what the kernels can't do."""
    if reason := usable():
        raise Unsupported(f"triton: {reason}")
    if not (q.is_cuda or interpreted()):
        raise Unsupported(f"triton: tensors are on {q.device}; expected cuda, move them there")
    if q.dtype not in DTYPES:
        raise Unsupported(
            f"triton: dtype {q.dtype}; expected float32, bfloat16 or float16: convert, or take "
            "another implementation"
        )
    if q.dtype == torch.bfloat16 and interpreted() and not BFLOAT16_INTERPRETED:
        raise Unsupported(
            "triton: its interpreter multiplies bfloat16 as integers; expected float32 or float16 "
            "there: convert"
        )
    heads, batch, _, width = v.shape
    if heads * batch * width >= 2**31:
        raise Unsupported(
            f"triton: {heads:,} heads of {batch:,} sequences, {width} wide, are more than the "
            "kernels count in 32 bits: split the batch"
        )
    given = max(q.shape[-1], width)
    if given > widest(q.dtype, q.device):
        raise Unsupported(
            f"triton: heads are {given} wide; expected at most {widest(q.dtype, q.device)}"
            f"{'' if large_tiles(q.device) else ' on this device'}: take more heads, or another "
            "implementation"
        )


@torch.library.custom_op(
    "attnbench::triton_forward",
    mutates_args=(),
    schema=f"({FLAT}, bool precise, bool save) -> (Tensor, Tensor, Tensor, Tensor, Tensor, Tensor)",
)
def triton_forward(*given: Any) -> tuple[Tensor, ...]:
    """`attend` as an operator of torch.

    Parameters
    ----------
    given
        A flat `KernelCall`, whether it is precise, and whether to save what the backward pass
        needs.

    Returns
    -------
    out : Tensor, shape [B, N, H, d_v]
        Of flagged queries too.
    residue : Tensor, shape [B, N, H, d_v]
        Without the mean value, see `Inputs.centred`; else, and unless ``save``, empty.
    flagged : Tensor of bool, shape [H, B, N]
    inverse : Tensor of float32, shape [H, B, N, d_v or 1]
        1 / denominator, 0 where no gradient flows; at flagged queries the logarithm of their own
        sum, see `repair`. Empty unless ``save``, as ``top``.
    top : Tensor of float32, shape [H, B, N]
        Row maxima of the identity; else empty.
    maximum : Tensor of float32, shape [H, B, 1, d_v or 1]
        Of s over the real keys; empty without s.
    """
    from reference_impls.kernels.triton import launch, repair

    *flat, precise, save = given
    inputs = Inputs(of_flat(*flat), precise)
    found = launch.Outputs.of(inputs, save)
    with current(inputs.q):
        for kernel in launch.forward(inputs, found, save):
            kernel.run()
        repair.forward(inputs, found.flagged, found.out, found.inverse, save).run()
    return found.out, found.residue, found.flagged, found.inverse, found.top, found.maximum


@triton_forward.register_fake
def _(*given: Any) -> tuple[Tensor, ...]:
    *flat, precise, save = given
    inputs = Inputs(of_flat(*flat), precise)
    s = inputs.s
    shape = (0,) if s is None else (*s.shape[:2], 1, s.shape[3])
    return *inputs.outputs(save), inputs.q.new_empty(shape, dtype=torch.float32)


@torch.library.custom_op(
    "attnbench::triton_backward",
    mutates_args=(),
    schema=f"(Tensor g, {FLAT}, bool precise, Tensor out, Tensor residue, Tensor flagged, "
    "Tensor inverse, Tensor top, Tensor maximum) -> (Tensor, Tensor, Tensor, Tensor)",
)
def triton_backward(g: Tensor, *given: Any) -> tuple[Tensor, ...]:
    """Gradients of q, k, v and s (empty without s) from that of ``out``, [B, N, H, d_v]."""
    from reference_impls.kernels.triton import launch, repair

    inputs = Inputs(of_flat(*given[:COUNT]), given[COUNT])
    found = launch.Outputs(*given[COUNT + 1 :])
    gradients = inputs.gradients()
    with current(inputs.q):
        seen = dense(g.permute(2, 0, 1, 3))  # [H, B, N, d_v]
        launches = launch.backward(inputs, found, seen, gradients)
        means = launches[-1].arguments["dnum"], launches[-1].arguments["dden"]
        repairs = repair.backward(inputs, found.flagged, found.inverse, means, seen, gradients)
        for kernel in (*launches, *repairs):
            kernel.run()
    return gradients


@triton_backward.register_fake
def _(g: Tensor, *given: Any) -> tuple[Tensor, ...]:
    return Inputs(of_flat(*given[:COUNT]), given[COUNT]).gradients()


def _setup(ctx: Any, inputs: Sequence[Any], output: Sequence[Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])
    ctx.options = inputs[TENSORS:-1]
    ctx.save_for_backward(*inputs[:TENSORS], *output)


def _differentiate(ctx: Any, g: Tensor | None, *unused: Any) -> tuple[Any, ...]:
    if g is None:
        return (None,) * (COUNT + 2)
    saved = ctx.saved_tensors  # read once: checkpointing hands them out once
    tensors, outputs = saved[:TENSORS], saved[TENSORS:]
    found = called(triton_backward, g, *tensors, *ctx.options, *outputs)
    return flowing_back(found, tensors[3], 2)


triton_forward.register_autograd(_differentiate, setup_context=_setup)
_run = by_hand(triton_forward, _setup, _differentiate)
