"""Bidirectional LSTM by `torch.nn.LSTM`, on packed sequences where there is padding."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from reference_impls.bi_lstm.layer import BiLstmLayer
from reference_impls.checks import check_input, zero_at_padding


class PackedBiLstm(BiLstmLayer):
    """`torch.nn.LSTM`; packing makes the backward direction start at the last real token."""

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, N, d_out].

        Packing needs the lengths on the CPU, one wait for the device; without a mask there is none.

        Raises
        ------
        ValueError
            If padding is not on the right.
        """
        check_input(x, mask, self.d_in)
        if mask is None or not len(x):  # a batch of no samples can't be packed
            return self.lstm(x)[0]
        real = mask.cpu()
        lengths = real.sum(1)  # [B]
        n = x.shape[1]
        if not torch.equal(real, torch.arange(n) < lengths[:, None]):
            raise ValueError(
                "mask has a real token behind padding; expected padding on the right only, "
                "move it there"
            )
        # A packed sequence can't be empty: a sample without a real token is given one, zeros.
        packed = pack_padded_sequence(
            zero_at_padding(x, mask), lengths.clamp(min=1), batch_first=True, enforce_sorted=False
        )
        out, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=n)
        return zero_at_padding(out, mask)  # [B, N, 2*h]
