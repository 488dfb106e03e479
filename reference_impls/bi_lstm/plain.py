"""The stable yardstick: an explicit loop over time."""

from __future__ import annotations

import torch
from torch import Tensor

from reference_impls.bi_lstm.layer import BiLstmLayer
from reference_impls.checks import check_input, weight_of, zero_at_padding


class PlainBiLstm(BiLstmLayer):
    """`BiLstmLayer` one step at a time; the state stays zero until the first real token."""

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, R, d_out] for the positions ``rows`` [R]; None is all N.

        All positions are computed; ``rows`` picks.
        """
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        both = [self._one_way(x, mask, ""), self._one_way(x, mask, "_reverse")]
        out = zero_at_padding(torch.cat(both, dim=-1), mask)  # [B, N, 2*h]
        return out if rows is None else out[:, rows]

    def _one_way(self, x: Tensor, mask: Tensor | None, suffix: str) -> Tensor:
        w_x = weight_of(self.lstm, f"weight_ih_l0{suffix}")  # [4*h, D]
        w_h = weight_of(self.lstm, f"weight_hh_l0{suffix}")  # [4*h, h]
        bias = weight_of(self.lstm, f"bias_ih_l0{suffix}") + weight_of(
            self.lstm, f"bias_hh_l0{suffix}"
        )
        h = c = x.new_zeros(x.shape[0], self.hidden)  # [B, h]
        steps = range(x.shape[1])
        states = {}
        for t in reversed(steps) if suffix else steps:
            gates = x[:, t] @ w_x.T + h @ w_h.T + bias  # [B, 4*h]
            i, f, g, o = gates.chunk(4, dim=-1)
            new_c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
            new_h = torch.sigmoid(o) * torch.tanh(new_c)
            if mask is None:
                h, c = new_h, new_c
            else:
                real = mask[:, t, None]  # [B, 1]
                h, c = torch.where(real, new_h, h), torch.where(real, new_c, c)
            states[t] = h
        return torch.stack([states[t] for t in steps], dim=1)  # [B, N, h]
