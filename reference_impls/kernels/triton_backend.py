"""Attention over ranges of keys by Triton kernels: CUDA, forward and backward, linear memory.

One pass per tile of queries sums numerator and denominator side by side over the tiles of keys
that its head's range opens; the backward pass computes the weights again. Products are exact to
float32 for float32 (TF32 only where torch's own products may be, by either of its settings), of
bfloat16 for bfloat16, and TF32 for float16, which has no room for exponentials; sums are always
float32.
Nothing is added atomically: results repeat bit for bit.

With ``TRITON_INTERPRET=1`` set before triton is imported, the same kernels run on the CPU in
Triton's interpreter, very slowly: for tests.
"""

from __future__ import annotations

import importlib.util
import os
from collections.abc import Sequence
from contextlib import nullcontext
from functools import cache
from typing import Any

import torch
from torch import Tensor

from reference_impls.kernels.constant import constant
from reference_impls.kernels.geometry import Geometry
from reference_impls.kernels.keeping import Keep
from reference_impls.kernels.tiles import ROOMY_BYTES, WIDEST, WIDEST_CRAMPED
from reference_impls.mechanism import Unsupported

DTYPES = (torch.float32, torch.bfloat16, torch.float16)
OLDEST = (8, 0)
"""Compute capability that has bfloat16 and TF32."""
BFLOAT16_INTERPRETED = False
"""Whether the interpreter's products of bfloat16 are right; tests mend them (triton 3.9)."""


def interpreted() -> bool:
    """Whether Triton's interpreter is asked for."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def usable() -> str:
    """Why the kernels can't run on this machine, in one line; empty where they can."""
    if importlib.util.find_spec("triton") is None:
        return "the package triton is missing; pip install triton (it comes with torch for CUDA)"
    if interpreted():
        return ""
    if not torch.cuda.is_available():
        return "no CUDA device is here; set TRITON_INTERPRET=1 for Triton's interpreter"
    capability = torch.cuda.get_device_capability()
    if capability < OLDEST:
        return f"the device has compute capability {capability}; expected {OLDEST} or later"
    return ""


def attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    geometry: Geometry,
    mask: Tensor | None,
    scale_t: str,
    keep: Keep | None,
) -> tuple[Tensor, Tensor]:
    """a_il = sum_j keep_ij P_ij v_jl E_jl / sum_j P_ij E_jl, E = exp(s - its maximum).

    Parameters
    ----------
    q, k : Tensor, shape [H, B, N, d_i]
        Queries, already divided by sqrt(d_i), and keys; d_i = 0 is no token2token scores.
    v : Tensor, shape [H, B, N, d_v]
    s : Tensor, shape [H, B, N, d_v] or [H, B, N, 1], or None
        Source2token scores; None is E = 1.
    geometry : Geometry
        On the device of q; it is read there.
    mask : Tensor of bool, shape [B, N], or None
        True for real tokens. Keys at padding must be finite.
    scale_t : {"log_sigmoid", "identity"}
        P = sigmoid(r) exp(bias), or exp(r + bias - maximum).
    keep : Keep or None
        Which pairs dropout keeps in the numerator.

    Returns
    -------
    a : Tensor, shape [H, B, N, d_v], dtype of q
        A view of [B, N, H, d_v]; 0 at closed, padded and flagged queries.
    flagged : Tensor of bool, shape [H, B, N]
        Queries with a key and a denominator below `least_denominator`.

    Raises
    ------
    Unsupported
        For other devices and dtypes, and for wider heads.
    """
    refuse(q, v)
    steady = [t.to(q.dtype) for t in (q, k, v)]
    save = torch.is_grad_enabled() and any(t.requires_grad for t in (*steady, s) if t is not None)
    out, _, flagged, *_ = triton_forward(
        *steady, s, geometry.lo, geometry.hi, geometry.hole, geometry.slope, mask,
        scale_t == "identity", 0 if keep is None else _signed(keep.seed),
        None if keep is None else _signed(keep.threshold), q.dtype == torch.float32 and exact(),
        save,
    )  # fmt: skip
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
    given = max(q.shape[-1], v.shape[-1])
    if given > widest(q.dtype, q.device):
        raise Unsupported(
            f"triton: heads are {given} wide; expected at most {widest(q.dtype, q.device)}"
            f"{'' if roomy(q.device) else ' on this device'}: take more heads, or another "
            "implementation"
        )


def widest(dtype: torch.dtype, device: torch.device | None = None) -> int:
    """The widest head that the kernels can do on a device, the current one where none is given."""
    return WIDEST if dtype == torch.bfloat16 or roomy(device) else WIDEST_CRAMPED


@constant
def roomy(device: torch.device | None = None) -> bool:
    """Whether one program may have the shared memory that the large tiles take."""
    if interpreted():
        return True
    named = None if device is None else device.index
    return _shared_bytes(torch.cuda.current_device() if named is None else named) >= ROOMY_BYTES


@cache
def _shared_bytes(device: int) -> int:
    """What one program may have on a device, as triton asks it: torch hides it on some builds."""
    from triton.runtime import driver

    return int(driver.active.utils.get_device_properties(device)["max_shared_mem"])


def _dense(values: Tensor) -> Tensor:
    """The values with steps of 1 in the last axis."""
    return values if values.stride(-1) == 1 or values.shape[-1] <= 1 else values.contiguous()


def _read(
    q: Tensor, k: Tensor, v: Tensor, s: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor | None]:
    """As the kernels read them: whoever calls the operators, whatever strides they come with."""
    return _dense(q), _dense(k), _dense(v), None if s is None else _dense(s)


def _signed(number: int) -> int:
    """32 bits as a signed number: one type of argument, so one kernel for all seeds."""
    return number - 2**32 if number >= 2**31 else number


@constant
def exact() -> bool:
    """Whether torch's own products of float32 on CUDA are exact, by its newer setting or its older.

    The older one raises an error where the newer one was used. torch.compile looks at it in its
    guards: another setting is another graph.
    """
    matmul = torch.backends.cuda.matmul
    own = getattr(matmul, "fp32_precision", "none")
    if own == "none":  # what stands for all of CUDA, then for everything, counts
        own = getattr(torch.backends.cuda, "fp32_precision", "none")
    if own == "none":
        own = getattr(torch.backends, "fp32_precision", "none")
    return not matmul.allow_tf32 if own == "none" else own != "tf32"


def centred(s: Tensor | None, threshold: int | None, precise: bool) -> bool:
    """Whether the values are taken less their mean over the real keys, which is added in the end.

    dP is a difference, dnum w - |dden| e. Where values have much in common, what the two parts lose
    to rounding is most of it (in bfloat16 5 % of dq where the mean is three standard deviations,
    1 % where it is 0); the common part cancels, so it need not be there. It has to stay with
    dropout, which does not act on the denominator.
    """
    return s is not None and threshold is None and not precise


def _outputs(
    q: Tensor, v: Tensor, s: Tensor | None, identity: bool, threshold: int | None, precise: bool,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:  # fmt: skip
    """What the forward pass fills: out, residue, flagged, inverse, top."""
    heads, batch, n, d_v = v.shape
    columns = 1 if s is None else s.shape[-1]
    half = q.dtype == torch.bfloat16
    return (
        q.new_empty(batch, n, heads, d_v),
        q.new_empty(
            (batch, n, heads, d_v) if save and centred(s, threshold, precise) else (0,),
            dtype=torch.bfloat16 if half else torch.float32,
        ),
        q.new_empty(heads, batch, n, dtype=torch.bool),
        q.new_empty((heads, batch, n, columns) if save else (0,), dtype=torch.float32),
        q.new_empty((heads, batch, n) if save and identity else (0,), dtype=torch.float32),
    )


@torch.library.custom_op("attnbench::triton_forward", mutates_args=())
def triton_forward(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    lo: Tensor,
    hi: Tensor,
    hole: Tensor,
    slope: Tensor,
    mask: Tensor | None,
    identity: bool,
    seed: int,
    threshold: int | None,
    precise: bool,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    """`attend` as an operator of torch.

    Parameters
    ----------
    precise : bool
        Whether products are those of float32, see `exact`: settled once, so that the backward pass
        is that of this forward pass whatever torch is told in between.

    Returns
    -------
    out : Tensor, shape [B, N, H, d_v]
    residue : Tensor, shape [B, N, H, d_v]
        Without the mean value, see `centred`; else, and unless ``save``, empty.
    flagged : Tensor of bool, shape [H, B, N]
    inverse : Tensor of float32, shape [H, B, N, d_v or 1]
        1 / denominator, 0 where no gradient flows; empty unless ``save``, as ``top``.
    top : Tensor of float32, shape [H, B, N]
        Row maxima of the identity; else empty.
    maximum : Tensor of float32, shape [H, B, 1, d_v or 1]
        Of s over the real keys; empty without s.
    """
    from reference_impls.kernels import triton_launch

    q, k, v, s = _read(q, k, v, s)
    given = triton_launch.Inputs(
        q, k, v, s, lo, hi, hole, slope, mask, identity, seed, threshold, precise
    )
    outputs = _outputs(q, v, s, identity, threshold, precise, save)
    found = triton_launch.Outputs(*outputs, given.maximum())
    with _on(q):
        for launch in triton_launch.forward(given, found, save):
            launch.run()
    return found.out, found.residue, found.flagged, found.inverse, found.top, found.maximum


@triton_forward.register_fake
def _(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    lo: Tensor,
    hi: Tensor,
    hole: Tensor,
    slope: Tensor,
    mask: Tensor | None,
    identity: bool,
    seed: int,
    threshold: int | None,
    precise: bool,
    save: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
    outputs = _outputs(q, v, s, identity, threshold, precise, save)
    shape = (0,) if s is None else (*s.shape[:2], 1, s.shape[3])
    return *outputs, q.new_empty(shape, dtype=torch.float32)


@torch.library.custom_op("attnbench::triton_backward", mutates_args=())
def triton_backward(
    g: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    lo: Tensor,
    hi: Tensor,
    hole: Tensor,
    slope: Tensor,
    mask: Tensor | None,
    identity: bool,
    seed: int,
    threshold: int | None,
    precise: bool,
    out: Tensor,
    residue: Tensor,
    flagged: Tensor,
    inverse: Tensor,
    top: Tensor,
    maximum: Tensor,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Gradients of q, k, v and s (empty without s) from that of ``out``, [B, N, H, d_v]."""
    from reference_impls.kernels import triton_launch

    q, k, v, s = _read(q, k, v, s)
    given = triton_launch.Inputs(
        q, k, v, s, lo, hi, hole, slope, mask, identity, seed, threshold, precise
    )
    found = triton_launch.Outputs(out, residue, flagged, inverse, top, maximum)
    gradients = _gradients(q, k, v, s)
    with _on(q):
        seen = _dense(g).permute(2, 0, 1, 3)  # [H, B, N, d_v]
        for launch in triton_launch.backward(given, found, seen, gradients):
            launch.run()
    return gradients


@triton_backward.register_fake
def _(
    g: Tensor,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    s: Tensor | None,
    *others: Any,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    return _gradients(*_read(q, k, v, s))


def _gradients(
    q: Tensor, k: Tensor, v: Tensor, s: Tensor | None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    dq, dk, dv = (torch.empty_like(t) for t in (q, k, v))
    return dq, dk, dv, q.new_empty(0) if s is None else torch.empty_like(s)


def _setup(ctx: Any, inputs: Sequence[Any], output: Sequence[Tensor]) -> None:
    ctx.set_materialize_grads(False)
    ctx.mark_non_differentiable(*output[1:])
    *tensors, ctx.identity, ctx.seed, ctx.threshold, ctx.precise, _ = inputs
    ctx.save_for_backward(*tensors, *output)


def _differentiate(ctx: Any, g: Tensor | None, *unused: Any) -> tuple[Any, ...]:
    rest = (None,) * 10
    if g is None:
        return None, None, None, None, *rest
    saved = ctx.saved_tensors  # read once: checkpointing hands them out once
    tensors, outputs = saved[:9], saved[9:]
    options = (ctx.identity, ctx.seed, ctx.threshold, ctx.precise)
    dq, dk, dv, ds = triton_backward(g, *tensors, *options, *outputs)
    return dq, dk, dv, None if tensors[3] is None else ds, *rest


triton_forward.register_autograd(_differentiate, setup_context=_setup)


def _on(values: Tensor) -> Any:
    """The device of the values made the current one, as Triton launches on that."""
    return torch.cuda.device(values.device) if values.is_cuda else nullcontext()
