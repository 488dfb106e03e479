"""Bidirectional LSTM by torch's own kernels: packed, or turned over, where there is padding."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from reference_impls.bi_lstm.layer import BiLstmLayer
from reference_impls.checks import check_input, zero_at_padding

FILLED = 0.4
"""Least share of real tokens at which sequences are turned over rather than packed, on a CPU: what
oneDNN's kernel gains over torch's own loop for packed ones, 1.6x to 6x, pays for the padding."""


class PackedBiLstm(BiLstmLayer):
    """`torch.nn.LSTM`, whose backward direction must start at the last real token.

    Packing does that, on a GPU as fast as without padding. A CPU's fast kernel takes no packed
    sequences: each direction is a pass of its own there, the second over the sequences turned over.
    """

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
        x = zero_at_padding(x, mask)
        onednn = x.device.type == "cpu" and torch.backends.mkldnn.is_available()
        if onednn and int(lengths.sum()) >= FILLED * mask.numel():
            return zero_at_padding(self.turned_over(x, lengths), mask)
        # A packed sequence can't be empty: a sample without a real token is given one, zeros.
        packed = pack_padded_sequence(
            x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False
        )
        out, _ = pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=n)
        return zero_at_padding(out, mask)  # [B, N, 2*h]

    def turned_over(self, x: Tensor, lengths: Tensor) -> Tensor:
        """Both directions forwards, [B, N, 2*h]; what stands behind a sequence follows it in both.

        Parameters
        ----------
        x : Tensor [B, N, d_in]
        lengths : int64 Tensor [B]
            Real tokens of each sequence.
        """
        at = torch.arange(x.shape[1])
        last = lengths[:, None] - 1  # [B, 1]
        order = torch.where(at <= last, last - at, at)  # [B, N], its own inverse
        samples = torch.arange(len(x))[:, None]
        backward = self._one_way(x[samples, order], "_reverse")[samples, order]
        return torch.cat([self._one_way(x, ""), backward], dim=-1)

    def _one_way(self, x: Tensor, direction: str) -> Tensor:
        names = ("weight_ih", "weight_hh", "bias_ih", "bias_hh")
        weights = [getattr(self.lstm, f"{name}_l0{direction}") for name in names]
        start = x.new_zeros(1, len(x), self.hidden)
        return torch.lstm(x, (start, start), weights, True, 1, 0.0, self.training, False, True)[0]
