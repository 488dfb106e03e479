"""The stable yardstick: an explicit loop over time, one direction after the other."""

from __future__ import annotations

import torch
from torch import Tensor

from reference_impls.bi_gru.layer import DIRECTIONS, BiGruLayer


class PlainBiGru(BiGruLayer):
    """`BiGruLayer` one step at a time; the state stays zero until the first real token."""

    def both_ways(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The step as printed."""
        return torch.cat([self._one_way(x, mask, name) for name in DIRECTIONS], dim=-1)

    def _one_way(self, x: Tensor, mask: Tensor | None, direction: str) -> Tensor:
        gates_w, gates_b, cand_w, cand_b, cand_hb = self.weights(direction)
        h = x.new_zeros(x.shape[0], self.hidden)  # [B, h]
        steps = range(x.shape[1])
        states = {}
        for t in steps if direction == "fw" else reversed(steps):
            gates = torch.sigmoid(torch.cat([x[:, t], h], dim=-1) @ gates_w + gates_b)
            r, u = gates.chunk(2, dim=-1)  # [B, h] each
            if cand_hb is None:
                c = torch.tanh(torch.cat([x[:, t], r * h], dim=-1) @ cand_w + cand_b)
            else:
                from_x = x[:, t] @ cand_w[: self.d_in] + cand_b
                c = torch.tanh(from_x + r * (h @ cand_w[self.d_in :] + cand_hb))
            new = u * h + (1 - u) * c
            h = new if mask is None else torch.where(mask[:, t, None], new, h)
            states[t] = h
        return torch.stack([states[t] for t in steps], dim=1)  # [B, N, h]

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the positions ``rows`` [R]; None is all N.

        All positions are computed; ``rows`` picks.
        """
        out = super().forward(x, mask)
        return out if rows is None else out[:, rows]
