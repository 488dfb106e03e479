"""ReSAN on selected tokens only: sequences are shortened before anything is computed."""

from __future__ import annotations

from torch import Tensor

from reference_impls.resa.optimized import GatheredResa, positions, take
from reference_impls.resa.selecting import Selection
from reference_impls.resan.layer import ResanLayer, WordsLayer, among


class GatheredResan(ResanLayer, GatheredResa):
    """`ResanLayer` that gathers; variants that drop tokens drop them from the sequence."""

    def encode(self, x: Tensor, real: Tensor, selection: Selection) -> Tensor:
        """Only heads and dependents are encoded where the others are dropped, and heads pooled."""
        if not self.drops_unselected:
            return super().encode(x, real, selection)
        used = (selection.heads | selection.dependents) & real
        index, kept = positions(used)  # [B, S], in order: the direction of a pair stays
        selection = among(selection, index, kept)
        y = self.directions(take(x, index), kept, selection)  # [B, S, d_out]
        at, pooled = positions(selection.heads)
        return self.pool(take(y, at), pooled, self.activation)


class GatheredWords(WordsLayer):
    """`WordsLayer` on the selected words only."""

    def encode(self, x: Tensor, kept: Tensor) -> Tensor:
        """Gather, then pool."""
        index, real = positions(kept)  # [B, S]
        return self.pool(take(x, index), real, self.activation)
