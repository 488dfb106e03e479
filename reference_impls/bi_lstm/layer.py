"""Bidirectional LSTM: weights in torch's own layout, shared by both implementations."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import nn

from reference_impls.checks import refuse_unknown, width_per_part


class BiLstmLayer(nn.Module):
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

    def __init__(self, d_in: int, d_out: int, **unknown: Any) -> None:
        super().__init__()
        if unknown:
            refuse_unknown("bi_lstm", unknown, ("none",))
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
