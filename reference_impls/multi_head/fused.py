"""Multi-head attention by fused kernels: torch's own, its backends by name, FlashAttention 3 and 4.

Heads whose width is no multiple of 8 can be given columns of zeros in their weights: no copy of
queries, keys or values, and no other kernel because 75 columns are not those of one.
"""

from __future__ import annotations

import importlib
import math
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from reference_impls.checks import one_of, refuse_rows, true_or_false
from reference_impls.mechanism import Unsupported
from reference_impls.multi_head.modules import MultiHeadLayer, visible

BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}
WHOLE = 8
"""Columns that the kernels' loads take at once: 16 bytes of half precision."""


class Release(NamedTuple):
    """A FlashAttention of its own package.

    Attributes
    ----------
    title : str
    package : str
        Module with its ``flash_attn_func``.
    majors : tuple of int
        Compute capabilities that it is written for, as torch's own glue says of it.
    """

    title: str
    package: str
    majors: tuple[int, ...]


RELEASES = {
    "flash3": Release("FlashAttention 3", "flash_attn_interface", (9,)),
    "flash4": Release("FlashAttention 4", "flash_attn.cute", (9, 10)),
}
"""Called by themselves: where torch offers them (`activate_flash_attention_impl`), they take the
place of its flash kernels in the whole process, the baseline's too."""


def by_torch(
    backend: str | None,
    q: Tensor,
    k: Tensor,
    v: Tensor,
    scale: float,
    keys: Tensor | None = None,
    causal: bool = False,
) -> Tensor:
    """Eq. 4 by `scaled_dot_product_attention`: [B, H, N, d_h] -> the same.

    Parameters
    ----------
    backend : {"math", "flash", "efficient", "cudnn"} or None
        Forced; None leaves the choice to torch.
    scale : float
    keys : Tensor of bool, broadcastable to [B, H, N, N], or None
        What may be seen.
    causal : bool
        Without ``keys`` alone.

    Raises
    ------
    Unsupported
        If the forced backend can't take the call.
    """
    given: dict[str, Any] = {"attn_mask": keys, "is_causal": causal, "scale": scale}
    if backend is None:
        return scaled_dot_product_attention(q, k, v, **given)
    if reason := _refusal(backend, q, keys):
        raise Unsupported(f"sdpa backend {backend} {reason}")
    if torch.compiler.is_compiling():
        with sdpa_kernel(BACKENDS[backend]):
            return scaled_dot_product_attention(q, k, v, **given)
    try:
        with sdpa_kernel(BACKENDS[backend]):
            return scaled_dot_product_attention(q, k, v, **given)
    except RuntimeError as error:
        if "No available kernel" in str(error) or "No viable backend" in str(error):
            what = f"{q.dtype}, head width {q.shape[-1]}, {'no' if keys is None else 'a'} mask"
            raise Unsupported(
                f"sdpa backend {backend} has no kernel on {q.device.type} for {what}"
            ) from error
        raise


def by_release(
    release: str, q: Tensor, k: Tensor, v: Tensor, scale: float, causal: bool = False
) -> Tensor:
    """Eq. 4 by FlashAttention 3 or 4: [B, H, N, d_h] -> the same.

    Raises
    ------
    Unsupported
        Where it is not installed, or can't take the call.
    """
    title, _, majors = RELEASES[release]
    if q.device.type != "cuda":
        raise Unsupported(f"{title} runs on CUDA only, x is on {q.device.type}; take sdpa")
    if q.dtype not in (torch.float16, torch.bfloat16):
        name = str(q.dtype).removeprefix("torch.")
        raise Unsupported(f"{title} takes float16 and bfloat16, not {name}; take sdpa")
    major, minor = torch.cuda.get_device_capability(q.device)
    if major not in majors:
        known = " and ".join(f"{one}.x" for one in majors)
        raise Unsupported(
            f"{title} is for compute capability {known}, this is {major}.{minor}; take sdpa"
        )
    if q.shape[-1] % WHOLE:
        raise Unsupported(
            f"{title} takes heads whose width is a multiple of {WHOLE}, not {q.shape[-1]}; take "
            "sdpa_flash, which pads them"
        )
    found = release_of(release)(
        *(t.transpose(1, 2) for t in (q, k, v)), softmax_scale=scale, causal=causal
    )
    attended: Tensor = found[0] if isinstance(found, tuple) else found  # beside it the sums
    return attended.transpose(1, 2)


@cache
def release_of(release: str) -> Callable[..., Any]:
    """``flash_attn_func`` of its package.

    Raises
    ------
    Unsupported
        Where that is not installed, or another one.
    """
    title, package, _ = RELEASES[release]
    try:
        found: Callable[..., Any] = importlib.import_module(package).flash_attn_func
    except (ImportError, AttributeError) as error:
        raise Unsupported(f"{title}: no flash_attn_func in a package {package} here") from error
    return found


def _refusal(backend: str, q: Tensor, keys: Tensor | None) -> str:
    """Why a backend can't take a call, as far as it can be told beforehand; empty if nothing."""
    if q.device.type != "cuda":
        return "runs on CUDA only" if backend in ("efficient", "cudnn") else ""
    if backend == "flash" and keys is not None:
        return "takes no padding mask on CUDA; use efficient, or leave the backend to torch"
    if backend in ("flash", "cudnn") and q.dtype not in (torch.float16, torch.bfloat16):
        return f"takes float16 and bfloat16 on CUDA, not {str(q.dtype).removeprefix('torch.')}"
    return ""


class SdpaMultiHead(MultiHeadLayer):
    """`torch.nn.functional.scaled_dot_product_attention`.

    Parameters
    ----------
    backend : {"math", "flash", "efficient", "cudnn"}, optional
        Forced; None leaves the choice to torch.
    padded : bool
        Whether heads have columns of zeros up to a multiple of `WHOLE`.

    Notes
    -----
    `forward` raises `Unsupported` if the forced backend can't take the call.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        backend: str | None = None,
        padded: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(d_in, d_out, **options)
        self.backend = None if backend is None else one_of("backend", backend, BACKENDS)
        if true_or_false("padded", padded):
            self.room = -self.head_dim % WHOLE

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 4, fused."""
        refuse_rows(rows)
        keys = None if mask is None else visible(mask, self.causal)  # [B, 1, 1 or N, N]
        causal = self.causal and keys is None  # torch takes one of both
        return by_torch(self.backend, q, k, v, 1 / math.sqrt(self.head_dim), keys, causal)


class FlashMultiHead(MultiHeadLayer):
    """FlashAttention 3 or 4, of its own package.

    Parameters
    ----------
    release : {"flash3", "flash4"}

    Notes
    -----
    `forward` raises `Unsupported` where that is not there, and with a mask.
    """

    def __init__(self, d_in: int, d_out: int, *, release: str, **options: Any) -> None:
        super().__init__(d_in, d_out, **options)
        self.release = one_of("release", release, RELEASES)
        self.room = -self.head_dim % WHOLE

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 4, fused."""
        refuse_rows(rows)
        if mask is not None:
            raise Unsupported(f"{RELEASES[self.release].title} takes no padding mask; take sdpa")
        return by_release(self.release, q, k, v, 1 / math.sqrt(self.head_dim), self.causal)
