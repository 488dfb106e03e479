"""Cores of attention without projections: the input is queries, keys, values (and scores)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn

from reference_impls.checks import (
    check_input,
    masked_softmax,
    one_of,
    positive_int,
    refuse_unknown,
    true_or_false,
    width_per_part,
)
from reference_impls.kernels import core
from reference_impls.kernels.geometry import GeometryByLength
from reference_impls.masks import parse_all
from reference_impls.mechanism import BadOption, Unsupported
from reference_impls.mtsa.layer import SCALES, TensorizedLayer, concatenate
from reference_impls.mtsa.optimized import Algorithm1Attention
from reference_impls.mtsa.plain import PlainAttention
from reference_impls.multi_head.fused import BACKENDS, RELEASES, by_release, by_torch
from reference_impls.multi_head.modules import by_products, up_to_each


def _parts(d_in: int, d_out: int, count: int) -> None:
    """Refuse widths that are not those of `count` tensors side by side."""
    if d_in != count * d_out:
        raise BadOption(
            f"d_in={d_in}, d_out={d_out}; a core's input is {count} tensors of width d_out side by "
            f"side: give d_in={count * d_out}"
        )


class CoreLayer(TensorizedLayer):
    """MTSA's attention of an input ``[B, N, 4 * d_out]``: queries, keys, values, scores.

    Parameters
    ----------
    d_in, d_out, heads : int
    masks : sequence of str, optional
        As for MTSA.
    scale_t : {"log_sigmoid", "identity"}
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        heads: int,
        masks: Sequence[str] | None = None,
        scale_t: str = "log_sigmoid",
        **unknown: Any,
    ) -> None:
        super().__init__()
        refuse_unknown("core_mtsa", unknown, ("heads", "masks", "scale_t"))
        _parts(d_in, d_out, 4)
        self.d_in, self.heads = d_in, positive_int("heads", heads)
        width_per_part(d_out, heads, "heads")
        self.masks = parse_all(masks, heads)
        self.scale_t = one_of("scale_t", scale_t, SCALES)

    def project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Views of the input, [H, B, N, d_h] each: no product and no copy."""
        # Cut along the last axis: their gradients are then put together in one pass.
        parts = (p.unflatten(-1, (self.heads, -1)).permute(2, 0, 1, 3) for p in x.chunk(4, -1))
        q, k, v, s = parts
        return q, k, v, s

    def combine(self, attended: Tensor, v: Tensor) -> Tensor:
        """[H, B, N, d_h] -> [B, N, d_out]; a view where the heads stand side by side already."""
        return concatenate(attended)


class PlainCore(PlainAttention, CoreLayer):
    """`CoreLayer` with the tensor of scores: the yardstick."""


class Algorithm1Core(Algorithm1Attention, CoreLayer):
    """`CoreLayer` by stabilised Algorithm 1; memory B * H * N * N."""


class FusedCore(CoreLayer):
    """`CoreLayer` by `reference_impls.kernels.core.attend`.

    Parameters
    ----------
    backend : str
        As that function takes it; "auto" chooses.
    """

    def __init__(self, d_in: int, d_out: int, *, backend: str = "auto", **options: Any) -> None:
        super().__init__(d_in, d_out, **options)
        self.backend = backend
        self._geometries = GeometryByLength(self.masks)

    def attend(
        self, q: Tensor, k: Tensor, v: Tensor, s: Tensor, mask: Tensor | None, rows: Tensor | None
    ) -> Tensor:
        """Eq. 10-12, see `TensorizedLayer.attend`."""
        geometry = self._geometries.of(q.shape[2], q.device)
        return core.attend(q, k, v, s, geometry, mask, self.scale_t, None, backend=self.backend)


class DotCore(nn.Module):
    """Dot-product attention of an input ``[B, N, 3 * d_out]``: queries, keys, values.

    Parameters
    ----------
    d_in, d_out, heads : int
    causal : bool
        Whether a query sees only keys up to itself.
    """

    def __init__(
        self, d_in: int, d_out: int, *, heads: int, causal: bool = False, **unknown: Any
    ) -> None:
        super().__init__()
        refuse_unknown("core_dot", unknown, ("heads", "causal"))
        _parts(d_in, d_out, 3)
        self.d_in, self.heads = d_in, positive_int("heads", heads)
        width_per_part(d_out, heads, "heads")
        self.causal = true_or_false("causal", causal)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, rows: Tensor | None) -> Tensor:
        """q, k, v [B, H, N, d_h] -> [B, H, R, d_h]."""
        raise NotImplementedError

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out]; ``rows`` [R] are query positions, None is all N.

        Raises
        ------
        Unsupported
            With a mask: the bare core is measured without padding.
        """
        check_input(x, mask, self.d_in)
        if mask is not None:
            raise Unsupported("the bare core takes no padding; give mask=None")
        parts = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in x.chunk(3, -1))
        q, k, v = parts
        return self.attend(q, k, v, rows).transpose(1, 2).flatten(2)


class PlainDotCore(DotCore):
    """`DotCore` with the N x N scores: the yardstick."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, rows: Tensor | None) -> Tensor:
        """Step by step."""
        i = j = torch.arange(k.shape[2], device=q.device)
        if rows is not None:
            q, i = q[:, :, rows], rows
        pairs = j <= i[:, None] if self.causal else torch.ones_like(j, dtype=torch.bool)
        return masked_softmax(q @ k.transpose(-1, -2), pairs, dim=-1) @ v


class ProductsCore(DotCore):
    """`DotCore` by two batched products, as multi-head's ``matmul``; memory B * H * N * N."""

    def attend(self, q: Tensor, k: Tensor, v: Tensor, rows: Tensor | None) -> Tensor:
        """All rows."""
        closed = ~up_to_each(q.shape[2], q.device)[None, None] if self.causal else None
        return by_products(q, k, v, 1.0, closed)


class SdpaCore(DotCore):
    """`DotCore` by `torch.nn.functional.scaled_dot_product_attention`.

    Parameters
    ----------
    backend : str, optional
        Forced, as for multi-head attention; None leaves the choice to torch.
    """

    def __init__(
        self, d_in: int, d_out: int, *, backend: str | None = None, **options: Any
    ) -> None:
        super().__init__(d_in, d_out, **options)
        self.backend = None if backend is None else one_of("backend", backend, BACKENDS)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, rows: Tensor | None) -> Tensor:
        """Fused; all rows."""
        return by_torch(self.backend, q, k, v, 1.0, causal=self.causal)


class FlashCore(DotCore):
    """`DotCore` by FlashAttention 3 or 4, as multi-head attention's ``flash3`` and ``flash4``."""

    def __init__(self, d_in: int, d_out: int, *, release: str, **options: Any) -> None:
        super().__init__(d_in, d_out, **options)
        self.release = one_of("release", release, RELEASES)

    def attend(self, q: Tensor, k: Tensor, v: Tensor, rows: Tensor | None) -> Tensor:
        """Fused; all rows."""
        return by_release(self.release, q, k, v, 1.0, self.causal)
