"""Kim's convolutional sentence encoder around its convolutions: weights, windows, maximum."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import pad

from reference_impls.checks import (
    check_input,
    glorot,
    one_of,
    positive_int,
    refuse_unknown,
    weight_of,
    width_per_part,
    zero_at_padding,
    zero_bias,
)
from reference_impls.mechanism import BadOption


class KimCnnLayer(nn.Module):
    """For each kernel size the largest relu(window w + b) of all windows, side by side.

    Parameters
    ----------
    d_in, d_out : int
        Every kernel size k has d_out / len(kernel_sizes) filters, weights ``w<k>`` [k, d_in, F]
        and ``b<k>`` [F].
    kernel_sizes : sequence of int
        All different.
    windows : {"real", "padded"}
        real: windows of real tokens only; a sample that has none (it is shorter than k) gets the
        first window, with zeros behind its tokens. padded: all windows of the padded sequence, x
        zero at padding, so that the amount of padding matters.

    Raises
    ------
    BadOption
        For a configuration that does not exist.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        kernel_sizes: Sequence[int] = (3, 4, 5),
        windows: str = "real",
        **unknown: Any,
    ) -> None:
        super().__init__()
        refuse_unknown("kim_cnn", unknown, ("kernel_sizes", "windows"))
        if isinstance(kernel_sizes, str) or not isinstance(kernel_sizes, Sequence):
            raise BadOption(f"kernel_sizes={kernel_sizes!r}; expected a list of integers")
        if not kernel_sizes or len(set(kernel_sizes)) != len(kernel_sizes):
            raise BadOption(f"kernel_sizes={list(kernel_sizes)}; expected different integers")
        self.d_in = d_in
        self.kernel_sizes = tuple(positive_int("kernel_sizes", k) for k in kernel_sizes)
        self.windows = one_of("windows", windows, ("real", "padded"))
        filters = width_per_part(d_out, len(self.kernel_sizes), "kernel sizes")
        for k in self.kernel_sizes:
            self.register_parameter(f"w{k}", glorot(k, d_in, filters, taps=k))
            self.register_parameter(f"b{k}", zero_bias(filters))

    def largest(self, x: Tensor, weight: Tensor, bias: Tensor, closed: Tensor | None) -> Tensor:
        """Maximum over windows i of sum_t x_{i+t} w_t + b, before relu.

        Parameters
        ----------
        x : Tensor, shape [B, N, D], N >= k
        weight, bias : Tensor, shapes [k, D, F] and [F]
        closed : Tensor of bool, shape [B, N-k+1], or None
            Windows that do not count; at least one does in every sample.

        Returns
        -------
        Tensor, shape [B, F]
        """
        raise NotImplementedError

    def side_by_side(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """All kernel sizes, before relu: x zero at padding -> [B, d_out], a tensor of its own."""
        found = []
        for k in self.kernel_sizes:
            behind = max(0, k - x.shape[1])
            longer = pad(x, (0, 0, 0, behind)) if behind else x
            weight, bias = weight_of(self, f"w{k}"), weight_of(self, f"b{k}")
            found.append(self.largest(longer, weight, bias, self.closed(mask, k, behind)))
        return torch.cat(found, dim=-1)

    def forward(self, x: Tensor, mask: Tensor | None = None) -> Tensor:
        """[B, N, d_in] with mask [B, N] (true for real tokens; None: all) -> [B, d_out].

        A sample without a real token gives zeros.
        """
        check_input(x, mask, self.d_in)
        x = zero_at_padding(x, mask)
        out = self.side_by_side(x, mask).relu_()
        return out if mask is None else out.masked_fill(~mask.any(1, keepdim=True), 0)

    def closed(self, mask: Tensor | None, k: int, behind: int) -> Tensor | None:
        """Windows of k tokens one of which is not real, [B, W]; never all of a sample's.

        W is N + behind - k + 1: so many zeros stand behind the sequence.
        """
        if mask is None or self.windows == "padded":
            return None
        open_ = pad(mask, (0, behind), value=False).unfold(1, k, 1).all(-1)
        first = torch.arange(open_.shape[1], device=mask.device) == 0
        return ~(open_ | (first & ~open_.any(1, keepdim=True)))
