"""Attention over ranges of keys by PyTorch's FlexAttention: CUDA, forward and backward.

A softmax's normaliser cancels in a quotient: with softmax weights S of the scores log P,

    a = [P v E] / [P E] = [S v E] / [S E],

so one call with the values [v E | E], of double width, gives both. The second half lies in (0, 1];
it is at most P E where the largest P is 1, so what it does not flag has a safe denominator.
The ranges become lists of blocks of keys; blocks wholly inside a range are not masked. They take
(N / 128)^2 numbers per head, and nothing else here grows with N^2.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import softplus

from reference_impls.checks import least_denominator
from reference_impls.compiled_flex import DTYPES, fused, wide_enough
from reference_impls.kernels import sizes
from reference_impls.kernels.call import KernelCall
from reference_impls.kernels.flex.blocks import block_mask
from reference_impls.mechanism import Unsupported

WIDEST = sizes.WIDEST["flex"]
"""Values of double width fit into shared memory up to here."""


def usable() -> str:
    """Why FlexAttention can't run on this machine, in one line; empty where it can."""
    return "" if torch.cuda.is_available() else "no CUDA device is here; FlexAttention needs one"


def attend(call: KernelCall) -> tuple[Tensor, Tensor]:
    """As `reference_impls.kernels.call.KernelCall` says, without dropout.

    Raises
    ------
    Unsupported
        For other devices than CUDA, float64, wider heads, and dropout of the numerator alone: one
        softmax normalises both halves.
    """
    if reason := usable():
        raise Unsupported(f"flex: {reason}")
    if not call.q.is_cuda:
        raise Unsupported(f"flex: tensors are on {call.q.device}; expected cuda, move them there")
    refuse(call)
    return quotient(fused, call)


def refuse(call: KernelCall) -> None:
    """Raise `Unsupported` for what this path can't do on any device."""
    if call.dropout is not None:
        raise Unsupported(
            "flex: dropout of the numerator alone, where one softmax normalises both halves; "
            "take fused_triton or fused_tiled"
        )
    if call.q.dtype not in DTYPES:
        raise Unsupported(f"flex: dtype {call.q.dtype}; expected float32, bfloat16 or float16")
    widest = max(call.q.shape[-1], call.v.shape[-1])
    if widest > WIDEST:
        raise Unsupported(
            f"flex: heads are {widest} wide; expected at most {WIDEST}, as values have twice that: "
            "take more heads, or another implementation"
        )


def quotient(run: Callable[..., Any], call: KernelCall) -> tuple[Tensor, Tensor]:
    """`attend` by one call of ``run``, which is `flex_attention` or what it was compiled to."""
    q, k, v, s, geometry, mask, scale_t, _ = call
    heads, batch, n, d_v = v.shape
    # Float16 has no room for exponentials.
    dtype = torch.float32 if q.dtype == torch.float16 else q.dtype
    closed = geometry.open_keys(n, mask) <= 0  # [H, B or 1, N]
    if mask is not None:
        closed = closed | ~mask
    values = _values(v, s, mask, dtype)  # [H, B, N, d_v to 2 d_v]
    found = run(
        *(wide_enough(t.to(dtype)).transpose(0, 1) for t in (q, k, values)),  # [B, H, N, d]
        score_mod=_score(scale_t, geometry.slope.float()),
        block_mask=block_mask(geometry, mask, batch, n),
        scale=1.0,
        kernel_options={
            "FORCE_USE_FLEX_ATTENTION": True,  # the kernel for few queries has no backward pass
            **_tiles(dtype, max(q.shape[-1], values.shape[-1])),
        },
    ).transpose(0, 1)  # [H, B, N, d_v to 2 d_v]
    a = found[..., :d_v].float()
    if s is None:
        flagged = torch.zeros(heads, batch, n, dtype=torch.bool, device=q.device)
    else:
        denominator = found[..., d_v : d_v + s.shape[-1]].float()
        low = denominator.detach().amin(-1) < least_denominator(torch.float32, n)
        flagged = low & ~closed  # [H, B, N]
        nothing = (flagged | closed)[..., None]
        a = a / denominator.masked_fill(nothing, 1)
        closed = flagged | closed
    a = a.masked_fill(closed[..., None], 0).to(q.dtype)
    # The layout that the output has: [B, N, H, d_v].
    return a.permute(1, 2, 0, 3).contiguous().permute(2, 0, 1, 3), flagged


def _values(v: Tensor, s: Tensor | None, mask: Tensor | None, dtype: torch.dtype) -> Tensor:
    """[v E | E] in the dtype of the products; v alone without s."""
    if s is None:
        return v.to(dtype)
    s = s.float()
    if mask is not None:
        padded = ~mask[None, :, :, None]
        s, v = s.masked_fill(padded, -torch.inf), v.masked_fill(padded, 0)
    highest = s.detach().amax(2, keepdim=True)
    e = (s - highest.masked_fill(highest == -torch.inf, 0)).exp()
    return torch.cat([v * e, e], dim=-1).to(dtype)


def _tiles(dtype: torch.dtype, widest: int) -> dict[str, int]:
    """Tiles in place of FlexAttention's own, which go by the width of keys and forget the values.

    Those are its choices for keys as wide as our values are. None of them is measured.
    """
    if dtype == torch.float32:
        rows, columns, stages, warps = 32, 32, 2, 4
    elif widest <= 64:
        return {}
    elif widest <= 128:
        rows, columns, stages, warps = 128, 64, 3, 8
    else:
        rows, columns, stages, warps = 64, 32, 3, 4
    tiles = {"BLOCK_M": rows, "BLOCK_N": columns, "num_stages": stages, "num_warps": warps}
    tiles = {f"fwd_{name}": value for name, value in tiles.items()}
    if dtype != torch.float32 and widest > 128:
        backward = dict.fromkeys(("M1", "N1", "M2", "N2"), 64)
        tiles |= {f"bwd_BLOCK_{axis}": size for axis, size in backward.items()}
        tiles |= {"bwd_num_stages": 1, "bwd_num_warps": 8}
    return tiles


def _score(scale_t: str, slope: Tensor) -> Callable[..., Tensor]:
    """What is log P but for the row's maximum: sigma_t(r) - slope |i - j|."""

    def log_sigmoid(r: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return -softplus(-r) - slope[h] * (i - j).abs()

    def identity(r: Tensor, b: Tensor, h: Tensor, i: Tensor, j: Tensor) -> Tensor:
        return r - slope[h] * (i - j).abs()

    return log_sigmoid if scale_t == "log_sigmoid" else identity
