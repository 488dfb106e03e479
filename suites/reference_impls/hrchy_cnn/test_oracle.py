"""The hierarchical CNN: its oracle by hand."""

from __future__ import annotations

import numpy as np
import pytest

from suites.support.oracles import Config, close, naive_of

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
