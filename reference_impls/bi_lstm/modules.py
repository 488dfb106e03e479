"""Bidirectional LSTM: weights in torch's own layout, an explicit loop, and torch's own kernels.

Torch's kernels are given packed sequences, or ones turned over, where there is padding.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence

from reference_impls.bi_gru.modules import BothWays
from reference_impls.checks import (
    PicksRows,
    layer_of,
    lengths_of,
    weight_of,
    width_per_part,
)


@layer_of("bi_lstm")
class BiLstmLayer(BothWays):
    """Weights of a forward and a backward LSTM of width d_out / 2.

    Parameters
    ----------
    d_in, d_out : int

    Notes
    -----
    Names and gate order (input, forget, candidate, output) are `torch.nn.LSTM`'s. Its second bias
    is redundant: it is frozen at zero.

    Raises
    ------
    BadOption
        If d_out is odd, or an option is given.
    """

    def __init__(self, d_in: int, d_out: int) -> None:
        super().__init__()
        self.d_in = d_in
        self.hidden = width_per_part(d_out, 2, "directions")
        self.lstm = nn.LSTM(d_in, self.hidden, batch_first=True, bidirectional=True)
        with torch.no_grad():
            for name, weight in self.lstm.named_parameters():
                if name.startswith("weight"):
                    # Glorot over one gate's matrix [h, fan_in].
                    bound = math.sqrt(6 / (weight.shape[1] + self.hidden))
                    weight.uniform_(-bound, bound)
                else:
                    weight.zero_()
                    weight.requires_grad_(not name.startswith("bias_hh"))


class PlainBiLstm(PicksRows, BiLstmLayer):
    """`BiLstmLayer` one step at a time; the state stays zero until the first real token."""

    def both_ways(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """The step as printed."""
        both = [self._one_way(x, mask, suffix) for suffix in ("", "_reverse")]
        return torch.cat(both, dim=-1)

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


FILLED = 0.4
"""Least share of real tokens at which sequences are turned over rather than packed, on a CPU: what
oneDNN's kernel gains over torch's own loop for packed ones, 1.6x to 6x, pays for the padding."""


class PackedBiLstm(BiLstmLayer):
    """`torch.nn.LSTM`, whose backward direction must start at the last real token.

    Packing does that, on a GPU as fast as without padding (predicted). A CPU's fast kernel takes no
    packed sequences: each direction is a pass of its own there, the second over the sequences
    turned over.
    """

    def both_ways(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """Packing needs the lengths on the CPU, one wait for the device; no mask, none.

        Raises
        ------
        ValueError
            If padding is not on the right.
        """
        if mask is None or not len(x):  # a batch of no samples can't be packed
            return self.lstm(x)[0]
        lengths = lengths_of(mask)
        onednn = x.device.type == "cpu" and torch.backends.mkldnn.is_available()
        if onednn and int(lengths.sum()) >= FILLED * mask.numel():
            return self.turned_over(x, lengths)
        # A packed sequence can't be empty: a sample without a real token is given one, zeros.
        packed = pack_padded_sequence(
            x, lengths.clamp(min=1), batch_first=True, enforce_sorted=False
        )
        n = x.shape[1]
        return pad_packed_sequence(self.lstm(packed)[0], batch_first=True, total_length=n)[0]

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
