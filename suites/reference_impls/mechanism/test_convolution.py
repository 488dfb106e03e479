"""Convolutions as products of windows."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

from reference_impls.convolution import convolved, multiplied
from suites.support.batches import error


def test_products_of_windows_and_their_gradients() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    w2, w3 = (torch.randn(k, 3, 2, dtype=torch.float64, requires_grad=True) for k in (2, 3))
    bias = torch.randn(4, dtype=torch.float64, requires_grad=True)

    def products(count: int, x: Tensor, bias: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return multiplied(x, [w2, w3], bias, [0, 1], count)

    same = conv1d(x.mT, w3.permute(2, 1, 0), bias[2:], padding=1).mT
    assert error(products(6, x, bias, w2, w3)[..., 2:], same) < 1e-14
    for count in (4, 6):  # as many as there are tokens, and some left out
        assert torch.autograd.gradcheck(
            lambda *leaves, count=count: products(count, *leaves), (x, bias, w2, w3)
        )


@pytest.mark.parametrize("size", [1, 4, 5])
def test_convolutions_leave_the_features_last(size: int) -> None:
    torch.manual_seed(0)
    x, w, b = torch.randn(2, 9, 12), torch.randn(size, 12, 7), torch.randn(7)
    front = (size - 1) // 2
    out = convolved(x, w, b, front, size - 1 - front)
    assert out.is_contiguous()
    padded = pad(x.mT, (front, size - 1 - front))
    assert error(out, conv1d(padded, w.permute(2, 1, 0), b).mT) < 1e-5
