"""Convolutions over a sequence with tokens as rows: tap by tap, by torch's own, and by products.

All leave the features last, where the layers before and after want them: no axes are turned.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.function import once_differentiable
from torch.nn.functional import conv1d, conv2d, pad

from reference_impls.checks import glorot, positive_int, weight_of, width_per_part, zero_bias
from reference_impls.mechanism import BadOption


class KernelSizes(nn.Module):
    """The weights of convolutions with several kernel sizes side by side.

    Parameters
    ----------
    d_in, d_out : int
        Every kernel size k has F = d_out / len(kernel_sizes) filters, weights ``w<k>`` [k, d_in, F]
        and ``b<k>`` [F].
    kernel_sizes : sequence of int
        All different.

    Raises
    ------
    BadOption
        For sizes that can't be.
    """

    def __init__(self, d_in: int, d_out: int, kernel_sizes: Sequence[int]) -> None:
        super().__init__()
        if isinstance(kernel_sizes, str) or not isinstance(kernel_sizes, Sequence):
            raise BadOption(f"kernel_sizes={kernel_sizes!r}; expected a list of integers")
        if not kernel_sizes or len(set(kernel_sizes)) != len(kernel_sizes):
            raise BadOption(f"kernel_sizes={list(kernel_sizes)}; expected different integers")
        self.d_in = d_in
        self.kernel_sizes = tuple(positive_int("kernel_sizes", k) for k in kernel_sizes)
        filters = width_per_part(d_out, len(self.kernel_sizes), "kernel sizes")
        for k in self.kernel_sizes:
            self.register_parameter(f"w{k}", glorot(k, d_in, filters, taps=k))
            self.register_parameter(f"b{k}", zero_bias(filters))

    def weights(self) -> list[tuple[Tensor, Tensor]]:
        """Weight [k, D, F] and bias [F] of each kernel size."""
        return [(weight_of(self, f"w{k}"), weight_of(self, f"b{k}")) for k in self.kernel_sizes]


def around(size: int) -> tuple[int, int]:
    """Tokens that a kernel reads in front of a position and behind it, where the length stays."""
    return (size - 1) // 2, size // 2


def tap_by_tap(x: Tensor, weight: Tensor, bias: Tensor, front: int, behind: int) -> Tensor:
    """As `convolved`, one product per tap."""
    padded = pad(x, (0, 0, front, behind)) if front or behind else x
    taps = weight.shape[0]
    n = padded.shape[1] - taps + 1
    z = padded[:, :n] @ weight[0]  # [B, n, F]
    for t in range(1, taps):
        z = z + padded[:, t : t + n] @ weight[t]
    return z + bias


def convolved(x: Tensor, weight: Tensor, bias: Tensor | None, front: int, behind: int) -> Tensor:
    """sum_t x_{i + t - front} w_t + b by torch's convolution.

    Parameters
    ----------
    x : Tensor, shape [B, N, D]
    weight, bias : Tensor, shapes [k, D, F] and [F], or None
    front, behind : int
        Zeros around the sequence.

    Returns
    -------
    Tensor, shape [B, N + front + behind - k + 1, F]
    """
    if front != behind:  # torch pads alike on both sides
        x, front = pad(x, (0, 0, front, behind)), 0
    if x.device.type != "cpu":
        return conv1d(x.mT, weight.permute(2, 1, 0), bias, padding=front).mT
    # [B, D, 1, N] and [F, D, 1, k]: an image of one row whose memory is channels last.
    image, kernel = x.mT.unsqueeze(2), weight.permute(2, 1, 0).unsqueeze(2)
    return conv2d(image, kernel, bias, padding=(0, front)).squeeze(2).mT


def windows(x: Tensor, size: int, front: int, count: int) -> Tensor:
    """The tokens i - front ... i - front + size - 1 of every window i, zeros beyond the sequence.

    Parameters
    ----------
    x : Tensor, shape [B, N, D]
    size, front, count : int
        Tokens per window, how many of the first lie in front of x, and number of windows.

    Returns
    -------
    Tensor, shape [B * count, size * D]
    """
    behind = count + size - 1 - front - x.shape[1]
    padded = pad(x, (0, 0, front, behind)) if front or behind else x.contiguous()
    batch, rows, d = padded.shape
    found = padded.as_strided((batch, count, size * d), (rows * d, d, 1)).flatten(0, 1)
    return found.contiguous()  # rows of one sample alone would still overlap


class WindowProducts(torch.autograd.Function):
    """Convolutions of several sizes side by side: windows in rows, and one product for each size.

    ``WindowProducts.apply(x, bias, fronts, count, *weights)``: x [B, N, D], bias [F of all sizes],
    weights [k, D, F] with their own k and F, for each how many tokens in front of position i its
    first tap reads, and the number of positions -> [B, count, F of all sizes].
    """

    @staticmethod
    def forward(
        ctx: Any, x: Tensor, bias: Tensor, fronts: tuple[int, ...], count: int, *weights: Tensor
    ) -> Tensor:
        """Sizes share their rows: a smaller window is a part of the largest one."""
        ctx.save_for_backward(x, *weights)
        ctx.fronts, ctx.count = fronts, count
        widths = [weight.shape[2] for weight in weights]
        out = x.new_empty(x.shape[0], count, sum(widths))
        parts = out.flatten(0, 1).split(widths, dim=1)
        rows = _rows(x, fronts, count, weights)
        for part, some, weight, b in zip(parts, rows, weights, bias.split(widths), strict=True):
            if torch.compiler.is_compiling():
                part.copy_(torch.addmm(b, some, weight.flatten(0, 1)))
            else:
                torch.addmm(b, some, weight.flatten(0, 1), out=part)
        return out

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, g: Tensor) -> tuple[Any, ...]:
        """The gradient of x is a convolution too, with the taps the other way round."""
        x, *weights = ctx.saved_tensors
        g_weights: list[Tensor | None] = [None] * len(weights)
        g_x = None
        parts = g.split([weight.shape[2] for weight in weights], dim=-1)  # [B, count, F] each
        if any(ctx.needs_input_grad[4:]):
            rows = _rows(x, ctx.fronts, ctx.count, weights)
            g_weights = [
                (some.T @ part.flatten(0, 1)).view(weight.shape)
                for some, part, weight in zip(rows, parts, weights, strict=True)
            ]
        if ctx.needs_input_grad[0]:
            for part, weight, front in zip(parts, weights, ctx.fronts, strict=True):
                k = weight.shape[0]
                back = weight.flip(0).mT.flatten(0, 1)  # [k * F, D]
                product = windows(part, k, k - 1 - front, x.shape[1]) @ back
                g_x = product if g_x is None else g_x.add_(product)
            g_x = None if g_x is None else g_x.view(x.shape)
        g_bias = g.sum((0, 1)) if ctx.needs_input_grad[1] else None
        return g_x, g_bias, None, None, *g_weights


def _rows(x: Tensor, fronts: Sequence[int], count: int, weights: Sequence[Tensor]) -> list[Tensor]:
    """For each weight [k, D, F] its windows in rows, [B * count, k * D]: parts of one matrix."""
    d, front = x.shape[2], max(fronts)
    size = front + max(w.shape[0] - f for w, f in zip(weights, fronts, strict=True))
    rows = windows(x, size, front, count)
    found = []
    for weight, own in zip(weights, fronts, strict=True):
        first = (front - own) * d
        found.append(rows[:, first : first + weight.shape[0] * d])
    return found


def multiplied(
    x: Tensor, weights: Sequence[Tensor], bias: Tensor, fronts: Sequence[int], count: int
) -> Tensor:
    """`WindowProducts`, in the dtype of `torch.autocast` where that is on."""
    kind = x.device.type
    if torch.is_autocast_enabled(kind):
        low = torch.get_autocast_dtype(kind)
        x, bias = x.to(low), bias.to(low)
        weights = [weight.to(low) for weight in weights]
    return WindowProducts.apply(x, bias, tuple(fronts), count, *weights)
