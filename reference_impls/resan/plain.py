"""The stable yardsticks: whole sequences, unselected tokens masked."""

from __future__ import annotations

from torch import Tensor

from reference_impls.resa.plain import PlainResa
from reference_impls.resa.selecting import Selection
from reference_impls.resan.layer import ResanLayer, WordsLayer


class PlainResan(ResanLayer, PlainResa):
    """`ResanLayer` with an explicit softmax over all pairs."""

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        rows: Tensor | None = None,
        *,
        selection: Selection | None = None,
    ) -> Tensor:
        """[B, N, d_in] -> [B, d_out]; ``rows`` is ignored, there is one output per sequence."""
        return ResanLayer.forward(self, x, mask, selection=selection)


class PlainWords(WordsLayer):
    """`WordsLayer` as it stands."""

    def forward(
        self,
        x: Tensor,
        mask: Tensor | None = None,
        rows: Tensor | None = None,
        *,
        selection: Selection | None = None,
    ) -> Tensor:
        """[B, N, D] -> [B, D]; ``rows`` is ignored, there is one output per sequence."""
        return super().forward(x, mask, selection=selection)
