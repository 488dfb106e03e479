"""Oracles by hand, where neither torch nor the authors' numbers say what they compute."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from reference_impls.biblosa.naive import rule
from reference_impls.biblosa.rule import block_length, most_blocks
from reference_impls.naive import Array
from reference_impls.resa import naive as resa
from suites.support.oracles import D_H, Config, N, close, naive_of

disa = naive_of("disa")
RELEASED = {"form": "released"}
BLOSA = Config("biblosa", "blocks", {"activation": "elu"})


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


def test_block_rule_is_exact_and_no_sequence_has_more_blocks_than_the_most() -> None:
    cubes = {6: 108, 8: 256, 10: 500, 12: 864, 14: 1372, 16: 2048, 32: 16384}
    for k, n in cubes.items():
        assert [rule(n - 1), rule(n), rule(n + 1)] == [k, k, k + 1]
    for extra in range(4):
        most = 0
        for n in range(1, 501):
            r = rule(n)
            assert (r - 1) ** 3 < 2 * n <= r**3
            most = max(most, math.ceil(n / (r + extra)))
            assert block_length(n, extra) == r + extra
            assert most_blocks(n, extra) == most


@pytest.mark.parametrize("n", [1, 2, 3, 4, 5, 13, 14])
def test_paper_blocks_follow_the_rule_of_the_real_length(n: int) -> None:
    x, weights, _ = BLOSA.draw(n)
    want = BLOSA(x, weights, block_len=rule(n))[0]
    np.testing.assert_array_equal(BLOSA(x, weights)[0], want)
    extra = BLOSA(x, weights, block_len=rule(n) + 1)[0]
    np.testing.assert_array_equal(BLOSA(x, weights, extra=1)[0], extra)
    if n > 3:
        assert np.abs(want - extra).max() > 1e-6
    # A given block length is what it says.
    np.testing.assert_array_equal(BLOSA(x, weights, extra=1, block_len=rule(n))[0], want)
    # The released form is the same where there is no padding.
    np.testing.assert_array_equal(BLOSA(x, weights, **RELEASED)[0], want)


def test_padding_reaches_real_rows_through_empty_blocks_alone() -> None:
    x, weights, _ = BLOSA.draw(8)
    options = {**RELEASED, "block_len": 3}
    alone, filled, longer = (BLOSA(x, weights, **options, padded=p)[0] for p in (8, 9, 10))
    np.testing.assert_array_equal(alone, filled)  # the third block just gets its full length
    np.testing.assert_array_equal(alone[:, :D_H], longer[:, :D_H])  # forward: empty blocks follow
    assert (np.abs(alone - longer)[:, D_H:].max(axis=1) > 1e-6).all()  # backward: from all blocks


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_one_block_is_masked_attention_of_all_tokens(direction: str) -> None:
    options: dict[str, Any] = {"direction": direction, "activation": "elu"}
    config = Config("biblosa", "single", {**options, "block_len": N})
    x, W, _ = config.draw()
    out = config(x, W)[0]
    np.testing.assert_array_equal(out, config(x, W, block_len=50)[0])
    # The same scores as DiSA's; a gate that takes the attended vector alone brings out a.
    own = {name: W[name] for name in ("map_w", "map_b", "f_b")}
    own |= {"dep_w": W["dh_w"][:, :D_H], "head_w": W["dh_w"][:, D_H:]}
    own |= dict.fromkeys(("fi_w", "fa_w"), np.zeros((D_H, D_H)))
    own |= dict.fromkeys(("fi_b", "fa_b"), np.zeros(D_H))
    h, a = (disa(x, own | {"o_b": np.full(D_H, z)}, **options)[0] for z in (800.0, -800.0))
    z = a @ W["s2t_w"] + W["s2t_b"]
    p = np.exp(z) / np.exp(z).sum(axis=0)
    blk = {name[4:]: w for name, w in W.items() if name.startswith("blk_")}
    z = (p * a).sum(axis=0) @ blk["map_w"] + blk["map_b"]
    h_o = np.where(z > 0, z, np.expm1(z))  # alone, a block has nothing to attend to
    gate = h_o @ blk["fi_w"] + blk["fi_b"] + blk["fa_b"] + blk["o_b"]
    G = np.tile(h_o / (1 + np.exp(-gate)), (N, 1))
    cq = np.concatenate([h, a, G], axis=1) @ W["comb_w"] + W["comb_b"]
    c, q = cq[:, :D_H], 1 / (1 + np.exp(-cq[:, D_H:]))
    close(out, q * np.where(c > 0, c, np.expm1(c)) + (1 - q) * h)


def test_padded_positions_of_released_blocks_do_not_depend_on_their_neighbours() -> None:
    x, weights, _ = BLOSA.draw(4)
    options = {**RELEASED, "block_len": 3, "padded": 6}
    out = BLOSA(x, weights, np.arange(6), **options)[0]
    assert out.shape == (6, 2 * D_H)
    np.testing.assert_array_equal(out[4], out[5])  # h = f(b), a = 0, G of the same block
    assert np.abs(out[4:]).max() > 1e-3


@pytest.mark.parametrize(
    ("reading", "want"),
    [
        ("all_real", [0, 15 / 4, 15 / 4, 5 / 2]),
        ("dependents", [0, 5 / 2, 5 / 2, 5 / 2]),
        ("others", [0, 13 / 3, 11 / 3, 5 / 2]),
    ],
)
def test_unselected_heads_by_hand(reading: str, want: list[float]) -> None:
    x = np.array([[1.0], [2.0], [4.0], [8.0]])  # h = x, equal scores, and a gate that takes a
    weights = {name: np.zeros((1, 1)) for name in ("dep_w", "head_w", "fi_w", "fa_w")} | {
        name: np.zeros(1) for name in ("map_b", "f_b", "fi_b", "fa_b", "o_b")
    }
    weights |= {"map_w": np.ones((1, 1)), "o_b": np.array([-60.0])}
    dep, head = np.array([1, 0, 1, 0]) > 0, np.array([1, 0, 0, 1]) > 0

    def fuse(x: Array, dep: Array, head: Array) -> Array:
        return resa.fuse(
            x, weights, np.arange(len(x)), None, dep, head, "forward", "relu", 5.0, reading
        )[0][:, 0]

    close(fuse(x, dep, head), np.array(want), 1e-14)
    nobody = fuse(x, dep & False, head)
    assert nobody[3] == pytest.approx(0.0, abs=1e-14)
    assert (abs(nobody[1]) < 1e-14) == (reading == "dependents")
    alone = fuse(x[:1], np.array([True]), np.array([False]))[0]
    assert alone == pytest.approx(0.0 if reading == "others" else 1.0, abs=1e-14)
