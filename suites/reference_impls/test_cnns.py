"""Kim's and the hierarchical CNN: their oracles by hand; convolutions as products."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import conv1d, pad

from reference_impls.convolution import convolved, multiplied, windows
from suites.support.batches import (
    D_IN,
    batch,
    error,
)
from suites.support.oracles import D_H, Config, D, N, close, naive_of


@pytest.mark.parametrize("n", [1, 2, 4, 5, N])
@pytest.mark.parametrize("tail", [0, 1, 4])
def test_kim_is_the_best_window(n: int, tail: int) -> None:
    sizes = (2, 3, 5)
    x, weights, _ = Config("kim_cnn", "windows", {"kernel_sizes": sizes}).draw(n)
    for kind, length in (("real", n), ("padded", n + tail)):
        want = []
        for k in sizes:
            long = np.zeros((max(length, k), D))
            long[:n] = x
            for f in range(D_H):
                scores = [
                    (long[i : i + k] * weights[f"w{k}"][:, :, f]).sum() + weights[f"b{k}"][f]
                    for i in range(len(long) - k + 1)
                ]
                want.append(max(0.0, *scores))
        options = {"kernel_sizes": sizes, "windows": kind, "padded": n + tail}
        close(naive_of("kim_cnn")(x, weights, **options)[0], np.array(want), 1e-14)


def test_kim_real_windows_never_reach_beyond_the_sequence() -> None:
    x = np.ones((4, 1))
    weights = {"w3": -np.ones((3, 1, 1)), "b3": np.array([10.0])}
    for kind, want in (("real", 7.0), ("padded", 10.0)):  # 10 - 1 - 1 - 1, and 10 - 0
        for padded in (7, 12):
            options = {"kernel_sizes": (3,), "windows": kind, "padded": padded}
            assert naive_of("kim_cnn")(x, weights, **options)[0].tolist() == [want]
    options = {"kernel_sizes": (3,), "windows": "real"}
    out, grad_x, grads = naive_of("kim_cnn")(x[:2], weights, None, np.ones(1), **options)
    assert out.tolist() == [8.0]  # one window of a short sequence: a zero behind it
    assert grad_x.tolist() == [[-1.0], [-1.0]]
    assert grads["w3"].ravel().tolist() == [1.0, 1.0, 0.0]


@pytest.mark.parametrize("n", [2, N])
def test_kim_padded_windows_are_real_windows_of_zeros(n: int) -> None:
    x, weights, rng = Config("kim_cnn", "zeros").draw(n)
    g = rng.normal(size=9)
    got = naive_of("kim_cnn")(x, weights, None, g, windows="padded", padded=n + 6)
    want = naive_of("kim_cnn")(np.concatenate([x, np.zeros((6, D))]), weights, None, g)
    close(got[0], want[0], 0.0)
    close(got[1], want[1][:n], 0.0)
    for name in weights:
        close(got[2][name], want[2][name], 1e-14)


RELEASED = {"form": "released"}


def test_hrchy_layer_by_hand() -> None:
    """Width 1, kernel 3, two layers: the formulas with numbers."""
    x = np.array([[2.0], [-1.0]])
    weights = {
        "l0_w": np.array([[[1.0, 0.0]], [[2.0, 1.0]], [[-1.0, 0.0]]]),
        "l0_b": np.array([0.5, 0.0]),
        "l1_w": np.array([[[0.0, 1.0]], [[1.0, 0.0]], [[3.0, 0.0]]]),
        "l1_b": np.array([0.0, -1.0]),
    }

    def s(z: float) -> float:
        return 1 / (1 + float(np.exp(-z)))

    options = {"layers": 2, "kernel_size": 3}
    y = [5.5 * s(2), 0.5 * s(-1)]  # A: 0.5 + 2*2 + 1, 0.5 + 2 - 2;  B: x itself
    want = [y[0] + (y[0] + 3 * y[1]) * s(-1), y[1] + y[1] * s(y[0] - 1)]
    out = naive_of("hrchy_cnn")(x, weights, **options)[0]
    close(out, np.array(want)[:, None], 1e-14)
    # Relu: gates with a negative B, of token 1 and of the second layer, open to a half.
    y = [5.5 * s(2), 0.5 * s(0)]
    want = [y[0] + (y[0] + 3 * y[1]) * s(0), y[1] + y[1] * s(y[0] - 1)]
    out = naive_of("hrchy_cnn")(x, weights, **options, form="released")[0]
    close(out, np.array(want)[:, None], 1e-14)
    # A padded position 2 has A = 0.5 + x_1 = -0.5, hence 0 after relu; position 3 has 0.5 * s(0).
    out = naive_of("hrchy_cnn")(x, weights, np.arange(4), **options, form="released", padded=4)[0]
    tail = [0.0 + 3 * 0.25 * s(0), 0.25 + 0.25 * s(0)]
    close(out, np.array([*want, *tail])[:, None], 1e-14)


def test_hrchy_forms_agree_where_no_preactivation_is_negative() -> None:
    x, weights, _ = Config("hrchy_cnn", "positive").draw()
    positive = {name: np.abs(w) for name, w in weights.items()}
    naive = naive_of("hrchy_cnn")
    released = naive(np.abs(x), positive, **RELEASED)[0]
    np.testing.assert_array_equal(naive(np.abs(x), positive)[0], released)
    assert np.abs(naive(x, weights)[0] - naive(x, weights, **RELEASED)[0]).max() > 1e-2


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_hrchy_released_sees_the_padded_tail_only_so_far(layers: int) -> None:
    config = Config("hrchy_cnn", "tail", {**RELEASED, "layers": layers})
    n = 12
    x, weights, _ = config.draw(n)
    x = np.abs(x)  # all positive, so that relu never hides a change of the layer below
    weights = {name: np.abs(w) for name, w in weights.items()}
    reach = 2 * (layers - 1)  # a layer looks 2 tokens ahead; the first sees zeros, tail or no tail
    alone, far, farther = (config(x, weights, padded=n + t)[0] for t in (0, reach, 3 * reach))
    close(far, farther, 1e-12)
    changed = np.abs(alone - far).max(axis=1) > 1e-9
    assert changed.tolist() == [i >= n - reach for i in range(n)]
    if reach:
        shorter = config(x, weights, padded=n + reach - 1)[0]
        assert np.abs(shorter - far).max() > 1e-9


@pytest.mark.parametrize("kernel", [2, 3, 4, 5])
def test_hrchy_receptive_field(kernel: int) -> None:
    config = Config("hrchy_cnn", "field", {"layers": 2, "kernel_size": kernel})
    n, t = 15, 7
    x, weights, _ = config.draw(n)
    moved = x.copy()
    moved[t] += 1.0
    changed = np.abs(config(moved, weights)[0] - config(x, weights)[0]).max(axis=1) > 0
    front, behind = (kernel - 1) // 2, kernel - 1 - (kernel - 1) // 2
    assert changed.tolist() == [t - 2 * behind <= i <= t + 2 * front for i in range(n)]


@pytest.mark.parametrize("count", [1, 6, 9])
@pytest.mark.parametrize("size", [1, 2, 5])
def test_windows_are_the_tokens_around(size: int, count: int) -> None:
    x, _ = batch((6, 6, 6))
    for front in range(size):
        found = windows(x, size, front, count).view(3, count, size, D_IN)
        for i in range(count):
            for t in range(size):
                j = i + t - front
                wanted = x[:, j] if 0 <= j < 6 else torch.zeros(3, D_IN)
                assert (found[:, i, t] == wanted).all()


def test_products_of_windows_and_their_gradients() -> None:
    torch.manual_seed(0)
    x = torch.randn(2, 6, 3, dtype=torch.float64, requires_grad=True)
    w2, w3 = (torch.randn(k, 3, 2, dtype=torch.float64, requires_grad=True) for k in (2, 3))
    bias = torch.randn(4, dtype=torch.float64, requires_grad=True)

    def products(count: int, x: Tensor, bias: Tensor, w2: Tensor, w3: Tensor) -> Tensor:
        return multiplied(x, [w2, w3], bias, [0, 1], count)

    same = conv1d(x.mT, w3.permute(2, 1, 0), bias[2:], padding=1).mT
    assert error(products(6, x, bias, w2, w3)[..., 2:], same) < 1e-14
    for count in (4, 6):
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
