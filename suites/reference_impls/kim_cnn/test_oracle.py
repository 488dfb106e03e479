"""Kim's CNN: its oracle by hand."""

from __future__ import annotations

import numpy as np
import pytest

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
