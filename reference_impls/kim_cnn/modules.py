"""Kim's convolutional sentence encoder: weights, windows, maximum, and three ways to convolve.

Tap by tap; by torch's own convolutions; by products of matrices, the bias behind the maximum.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

from torch import Tensor, arange, cat
from torch.nn.functional import pad

from reference_impls.checks import OneRow, check_input, layer_of, one_of, zero_at_padding
from reference_impls.convolution import KernelSizes, convolved, multiplied, tap_by_tap


@layer_of("kim_cnn")
class KimCnnLayer(KernelSizes):
    """For each kernel size the largest relu(window w + b) of all windows, side by side.

    Parameters
    ----------
    d_in, d_out, kernel_sizes
        As for `KernelSizes`.
    windows : {"real", "padded"}
        real: windows of real tokens only; a sample that has none (it is shorter than k) gets the
        first window, with zeros behind its tokens. padded: all windows of the padded sequence, x
        zero at padding, so that the amount of padding matters.
    """

    def __init__(
        self,
        d_in: int,
        d_out: int,
        *,
        kernel_sizes: Sequence[int] = (3, 4, 5),
        windows: str = "real",
    ) -> None:
        super().__init__(d_in, d_out, kernel_sizes)
        self.windows = one_of("windows", windows, ("real", "padded"))

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
        for weight, bias in self.weights():
            behind = max(0, weight.shape[0] - x.shape[1])
            longer = pad(x, (0, 0, 0, behind)) if behind else x
            closed = self.closed(mask, weight.shape[0], behind)
            found.append(self.largest(longer, weight, bias, closed))
        return cat(found, dim=-1)

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
        first = arange(open_.shape[1], device=mask.device) == 0
        return ~(open_ | (first & ~open_.any(1, keepdim=True)))


class PlainKimCnn(OneRow, KimCnnLayer):
    """`KimCnnLayer` with one product per tap."""

    def largest(self, x: Tensor, weight: Tensor, bias: Tensor, closed: Tensor | None) -> Tensor:
        """Every window, and the maximum."""
        return _largest(tap_by_tap(x, weight, bias, 0, 0), closed)


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
        weights, biases = zip(*self.weights(), strict=True)
        count = max(1, n - min(sizes) + 1)
        z = multiplied(x, weights, cat(biases), [0] * len(sizes), count)  # [B, count, d_out]
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
