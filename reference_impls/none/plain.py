"""The stable yardstick: product, then bias."""

from __future__ import annotations

from torch import Tensor

from reference_impls.none.layer import NoneLayer


class PlainNone(NoneLayer):
    """`NoneLayer` step by step."""

    def map(self, x: Tensor) -> Tensor:
        """The product, then the bias."""
        return x @ self.map_w + self.map_b

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the positions ``rows`` [R]; None is all N."""
        if rows is not None:
            x, mask = x[:, rows], None if mask is None else mask[:, rows]
        return super().forward(x, mask)
