"""Multi-head attention by matrix products, and by torch's fused attention and its backends."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from reference_impls.checks import one_of, refuse_rows
from reference_impls.mechanism import Unsupported
from reference_impls.multi_head.layer import MultiHeadLayer, up_to_each

BACKENDS = {
    "math": SDPBackend.MATH,
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
}


def visible_keys(mask: Tensor) -> Tensor:
    """The mask [B, N] with the first key opened in samples that have no real token.

    A softmax over nothing is NaN. x is zero at padding, so the opened key holds zeros, and those
    samples' rows are set to zero in the end.
    """
    first = torch.arange(mask.shape[1], device=mask.device) == 0  # [N]
    return mask | (first & ~mask.any(1, keepdim=True))


def visible_pairs(mask: Tensor) -> Tensor:
    """Pairs of a causal mask with padding, [B, N, N] of a mask [B, N].

    A real token always sees itself. So may padding, for the same reason as above.
    """
    n = mask.shape[1]
    own = torch.eye(n, dtype=torch.bool, device=mask.device)
    return (mask[:, None, :] | own) & up_to_each(n, mask.device)


def visible(mask: Tensor, causal: bool) -> Tensor:
    """What every head may see of a padded batch: [B, 1, 1, N], or [B, 1, N, N] if causal."""
    return visible_pairs(mask)[:, None] if causal else visible_keys(mask)[:, None, None, :]


def by_products(q: Tensor, k: Tensor, v: Tensor, scale: float, closed: Tensor | None) -> Tensor:
    """Two batched products and torch's softmax between them (eq. 1).

    Parameters
    ----------
    q, k, v : Tensor, shape [B, H, N, d_h]
    scale : float
        Of the scores.
    closed : Tensor of bool, shape [1 or B, 1 or H, 1 or N, N], or None
        True at pairs that don't count.
    """
    b, h, n, _ = q.shape

    def head_by_head(values: Tensor) -> Tensor:
        # A copy, gone as soon as it is used; its width by name, for a batch of no samples.
        return values.reshape(b * h, n, values.shape[-1])

    # The first product takes scale and mask with it, which saves passes over N * N.
    r = torch.baddbmm(
        q.new_empty(()) if closed is None else _bias(closed, q),
        head_by_head(q), head_by_head(k).mT, beta=0.0 if closed is None else 1.0, alpha=scale,
    )  # fmt: skip
    del closed  # N * N bytes
    r = r.softmax(-1)  # [B*H, N, N]
    return (r @ head_by_head(v)).unflatten(0, (b, h))


def _bias(closed: Tensor, like: Tensor) -> Tensor:
    """Minus infinity at pairs that don't count; gone as soon as it is added."""
    return like.new_zeros(closed.shape).masked_fill_(closed, -math.inf).flatten(0, 1)


class MatmulMultiHead(MultiHeadLayer):
    """Two batched products and torch's softmax between them."""

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 4."""
        refuse_rows(rows)
        return by_products(q, k, v, 1 / math.sqrt(self.head_dim), self._closed(q, mask))

    def _closed(self, q: Tensor, mask: Tensor | None) -> Tensor | None:
        """Pairs that don't count, as `by_products` takes them."""
        if mask is not None:
            return ~visible(mask, self.causal).expand(-1, self.heads, -1, -1)
        return ~up_to_each(q.shape[2], q.device)[None, None] if self.causal else None


class SdpaMultiHead(MultiHeadLayer):
    """`torch.nn.functional.scaled_dot_product_attention`.

    Parameters
    ----------
    backend : {"math", "flash", "efficient", "cudnn"}, optional
        Forced; None leaves the choice to torch.

    Notes
    -----
    `forward` raises `Unsupported` if the forced backend can't take the call.
    """

    def __init__(
        self, d_in: int, d_out: int, *, backend: str | None = None, **options: Any
    ) -> None:
        super().__init__(d_in, d_out, **options)
        self.backend = None if backend is None else one_of("backend", backend, BACKENDS)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 4, fused."""
        refuse_rows(rows)
        keys = None if mask is None else visible(mask, self.causal)  # [B, 1, 1 or N, N]
        causal = self.causal and keys is None  # torch takes one of both
        if self.backend is None:
            return scaled_dot_product_attention(q, k, v, attn_mask=keys, is_causal=causal)
        if reason := _refusal(self.backend, q, keys):
            raise Unsupported(f"sdpa backend {self.backend} {reason}")
        if torch.compiler.is_compiling():
            with sdpa_kernel(BACKENDS[self.backend]):
                return scaled_dot_product_attention(q, k, v, attn_mask=keys, is_causal=causal)
        try:
            with sdpa_kernel(BACKENDS[self.backend]):
                return scaled_dot_product_attention(q, k, v, attn_mask=keys, is_causal=causal)
        except RuntimeError as error:
            if "No available kernel" in str(error) or "No viable backend" in str(error):
                what = (
                    f"{q.dtype}, head width {q.shape[-1]}, {'a' if mask is not None else 'no'} mask"
                )
                raise Unsupported(
                    f"sdpa backend {self.backend} has no kernel on {q.device.type} for {what}"
                ) from error
            raise


def _refusal(backend: str, q: Tensor, keys: Tensor | None) -> str:
    """Why a backend can't take a call, as far as it can be told beforehand; empty if nothing."""
    if q.device.type != "cuda":
        return "runs on CUDA only" if backend in ("efficient", "cudnn") else ""
    if backend == "flash" and keys is not None:
        return "takes no padding mask on CUDA; use efficient, or leave the backend to torch"
    if backend in ("flash", "cudnn") and q.dtype not in (torch.float16, torch.bfloat16):
        return f"takes float16 and bfloat16 on CUDA, not {str(q.dtype).removeprefix('torch.')}"
    return ""
