"""Cores of attention without projections: the input is queries, keys, values (and scores)."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from reference_impls.checks import check_input, positive_int, refuse_unknown, width_per_part
from reference_impls.masks import parse_all
from reference_impls.mechanism import BadOption, Unsupported
from reference_impls.mtsa.fused import FusedAttention
from reference_impls.mtsa.layer import TensorizedLayer, concatenate
from reference_impls.mtsa.plain import PlainAttention
from reference_impls.multi_head.fused import FlashMultiHead, SdpaMultiHead
from reference_impls.multi_head.modules import MatmulMultiHead, MultiHeadLayer, PlainMultiHead


def _parts(d_in: int, d_out: int, count: int) -> None:
    """Refuse widths that are not those of `count` tensors side by side."""
    if d_in != count * d_out:
        raise BadOption(
            f"d_in={d_in}, d_out={d_out}; a core's input is {count} tensors of width d_out side by "
            f"side: give d_in={count * d_out}"
        )


class CoreLayer(TensorizedLayer):
    """MTSA's attention of an input ``[B, N, 4 * d_out]``: queries, keys, values, scores."""

    scale_t = "log_sigmoid"

    def __init__(self, d_in: int, d_out: int, *, heads: int, **unknown: Any) -> None:
        super().__init__()
        refuse_unknown("core_mtsa", unknown, ("heads",))
        _parts(d_in, d_out, 4)
        self.d_in, self.heads = d_in, positive_int("heads", heads)
        width_per_part(d_out, heads, "heads")
        self.masks = parse_all(None, heads)

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


class FusedCore(FusedAttention, CoreLayer):
    """`CoreLayer` by the kernel that `reference_impls.kernels.core.attend` chooses."""


class DotCore(MultiHeadLayer):
    """Dot-product attention of an input ``[B, N, 3 * d_out]``: queries, keys, values."""

    def __init__(self, d_in: int, d_out: int, **options: Any) -> None:
        _parts(d_in, d_out, 3)
        super().__init__(d_in, d_out, positions=None, output_layer=False, **options)
        self.room = 0
        for weight in ("q_w", "k_w", "v_w"):
            self.register_parameter(weight, None)

    def _project(self, x: Tensor, mask: Tensor | None) -> tuple[Tensor, Tensor, Tensor]:
        """Views of the input, [B, H, N, d_h] each; a bare core is measured without padding."""
        check_input(x, mask, self.d_in)
        if mask is not None:
            raise Unsupported("the bare core takes no padding; give mask=None")
        parts = (p.unflatten(-1, (self.heads, -1)).transpose(1, 2) for p in x.chunk(3, -1))
        q, k, v = parts
        return q, k, v


class PlainDotCore(DotCore, PlainMultiHead):
    """`DotCore` with the N x N scores: the yardstick."""


class ProductsCore(DotCore, MatmulMultiHead):
    """`DotCore` by two batched products; memory B * H * N * N."""


class SdpaCore(DotCore, SdpaMultiHead):
    """`DotCore` by `torch.nn.functional.scaled_dot_product_attention`."""


class FlashCore(DotCore, FlashMultiHead):
    """`DotCore` by FlashAttention 3 or 4."""
