"""Kim's convolutional sentence encoder: weights, windows, maximum, and three ways to convolve.

Tap by tap; by torch's own convolutions; by products of matrices, the bias behind the maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, cat, nn
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
from reference_impls.convolution import convolved, multiplied
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


class PlainKimCnn(KimCnnLayer):
    """`KimCnnLayer` with one product per tap."""

    def largest(self, x: Tensor, weight: Tensor, bias: Tensor, closed: Tensor | None) -> Tensor:
        """z_i = b + sum over t of x_{i+t} w_t for every window i, and its maximum."""
        k = weight.shape[0]
        windows = x.shape[1] - k + 1
        z = x[:, :windows] @ weight[0]  # [B, W, F]
        for t in range(1, k):
            z = z + x[:, t : t + windows] @ weight[t]
        return _largest(z + bias, closed)

    def forward(self, x: Tensor, mask: Tensor | None = None, rows: Tensor | None = None) -> Tensor:
        """[B, N, d_in] -> [B, d_out]; ``rows`` is ignored, there is one output per sequence."""
        return super().forward(x, mask)


class ConvKimCnn(KimCnnLayer):
    """`KimCnnLayer` by one convolution for each kernel size."""

    def largest(self, x: Tensor, weight: Tensor, bias: Tensor, closed: Tensor | None) -> Tensor:
        """The bias is the same for all windows: it is added to the maximum."""
        return _largest(convolved(x, weight, None, 0, 0), closed) + bias


class GemmKimCnn(KimCnnLayer):
    """`KimCnnLayer` by one product for each kernel size; the windows are copied once for all."""

    def side_by_side(self, x: Tensor, mask: Tensor | None) -> Tensor:
        """As many windows as the smallest kernel has; larger ones leave some at the end out."""
        n, sizes = x.shape[1], self.kernel_sizes
        weights = [weight_of(self, f"w{k}") for k in sizes]
        bias = cat([weight_of(self, f"b{k}") for k in sizes])
        count = max(1, n - min(sizes) + 1)
        z = multiplied(x, weights, bias, [0] * len(sizes), count)  # [B, count, d_out]
        found = []
        for k, part in zip(sizes, z.chunk(len(sizes), dim=-1), strict=True):
            behind = max(0, k - n)
            found.append(_largest(part[:, : n + behind - k + 1], self.closed(mask, k, behind)))
        return cat(found, dim=-1)


def _largest(z: Tensor, closed: Tensor | None) -> Tensor:
    """Maximum over the windows that are not closed: [B, W, F] -> [B, F]."""
    if closed is not None:
        z = z.masked_fill(closed[..., None], -math.inf)
    return z.amax(1)
