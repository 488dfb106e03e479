"""Bi-BloSA: its oracle by hand."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from reference_impls.biblosa.naive import rule
from suites.support.oracles import D_H, Config, N, close, naive_of

disa = naive_of("disa")

RELEASED = {"form": "released"}


BLOSA = Config("biblosa", "blocks", {"activation": "elu"})


def test_block_rule_is_exact() -> None:
    cubes = {6: 108, 8: 256, 10: 500, 12: 864, 14: 1372, 16: 2048, 32: 16384}
    for k, n in cubes.items():
        assert [rule(n - 1), rule(n), rule(n + 1)] == [k, k, k + 1]
    assert [rule(n) for n in range(1, 15)] == [2, 2, 2, 2] + 9 * [3] + [4]
    for n in range(1, 3000):
        assert (rule(n) - 1) ** 3 < 2 * n <= rule(n) ** 3


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


def test_released_blocks_follow_the_rule_of_the_padded_length() -> None:
    x, weights, _ = BLOSA.draw()
    for length in (N, 13, 14, 33):
        options = {**RELEASED, "padded": length}
        np.testing.assert_array_equal(
            BLOSA(x, weights, **options)[0],
            BLOSA(x, weights, **options, block_len=rule(length))[0],
        )


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


def test_blocks_of_one_token_are_position_wise() -> None:
    x, weights, _ = BLOSA.draw()
    moved = x.copy()
    moved[3] += 1.0
    changed = BLOSA(moved, weights, block_len=1)[0] != BLOSA(x, weights, block_len=1)[0]
    assert changed.any(axis=1).tolist() == [i == 3 for i in range(N)]


@pytest.mark.parametrize("direction", ["forward", "backward"])
def test_a_row_sees_its_own_block_and_those_of_its_direction(direction: str) -> None:
    config = Config("biblosa", "sees", {"direction": direction, "activation": "elu"})
    x, weights, _ = config.draw(9)
    moved = x.copy()
    moved[4] += 1.0
    changed = config(moved, weights, block_len=3)[0] != config(x, weights, block_len=3)[0]
    seen = [i >= 3 if direction == "forward" else i < 6 for i in range(9)]
    assert changed.any(axis=1).tolist() == seen


def test_block_directions_mirror_each_other_and_stand_side_by_side() -> None:
    x, weights, _ = BLOSA.draw(9)  # three full blocks
    parts = []
    for prefix, direction in (("fw_", "forward"), ("bw_", "backward")):
        one = {n.removeprefix(prefix): w for n, w in weights.items() if n.startswith(prefix)}
        parts.append(BLOSA(x, one, direction=direction)[0])
        other = {"forward": "backward", "backward": "forward"}[direction]
        close(parts[-1], BLOSA(x[::-1], one, direction=other)[0][::-1])
    np.testing.assert_array_equal(BLOSA(x, weights)[0], np.concatenate(parts, axis=1))


def test_padded_positions_of_released_blocks_do_not_depend_on_their_neighbours() -> None:
    x, weights, _ = BLOSA.draw(4)
    options = {**RELEASED, "block_len": 3, "padded": 6}
    out = BLOSA(x, weights, np.arange(6), **options)[0]
    assert out.shape == (6, 2 * D_H)
    np.testing.assert_array_equal(out[4], out[5])  # h = f(b), a = 0, G of the same block
    assert np.abs(out[4:]).max() > 1e-3
