"""The stable yardstick: all N x N x d scores, unselected keys masked, and their softmax."""

from __future__ import annotations

from torch import Tensor

from reference_impls.disa.plain import PlainDisa
from reference_impls.masks import HeadMask
from reference_impls.resa.layer import ResaLayer
from reference_impls.resa.selecting import Selection


class PlainResa(ResaLayer, PlainDisa):
    """`ResaLayer` with an explicit softmax; memory B * R * N * d_out, several times."""

    def attended(
        self,
        h: Tensor,
        dependent: Tensor,
        head: Tensor,
        direction: HeadMask,
        heads: Tensor,
        dependents: Tensor,
        rows: Tensor | None,
    ) -> Tensor:
        """Eq. 11-13: DiSA with the dependents as the only keys."""
        return PlainDisa.attend(self, h, dependent, head, direction, dependents, rows)

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        rows: Tensor | None = None,
        *,
        selection: Selection | None = None,
    ) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the query positions ``rows`` [R]; None is all N."""
        return self.fuse(x, mask, rows, selection)
