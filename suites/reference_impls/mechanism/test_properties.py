"""Properties that follow from what a mechanism is, whatever its numbers: no oracle is needed."""

from __future__ import annotations

import itertools
import re
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from harness.build import make
from harness.registry import builtins
from suites.support.batches import D_IN, D_OUT, MECHANISMS, batch, error, run
from suites.support.configurations import (
    CONFIGURATIONS,
    by_day,
    default_of,
    implementations,
    made,
    module_of,
    of_sentences,
    options_of,
)
from suites.support.visibility import SEES, keys_of, seen_by

torch.set_num_threads(1)

EXACT = 1e-11
"""Other shapes, another order of sums: rounding in float64, nothing more."""
SEEN = 1e-7
"""A change that is no rounding."""
KNOWN = [c for c in CONFIGURATIONS if c[0].partition(".")[0] in SEES or of_sentences(c[0])]


def test_what_is_known_is_known_of_a_mechanism_that_is_there() -> None:
    gone = sorted(SEES.keys() - builtins().keys())
    assert not gone, f"no mechanism is named {', '.join(gone)}: tests of it find nothing to do"


def longer(x: Tensor, mask: Tensor, more: int) -> tuple[Tensor, Tensor]:
    """The batch with more padding behind it."""
    x = nn.functional.pad(x, (0, 0, 0, more))
    return x, nn.functional.pad(mask, (0, more), value=False)


def test_more_padding_raises_the_released_maximum_until_windows_of_zeros_are_in() -> None:
    module = module_of("kim_cnn_released.conv")
    x, mask = batch((7, 5, 2))
    found = [module(*longer(x, mask, more)) for more in range(9)]
    for less, more in itertools.pairwise(found):
        assert (more >= less - EXACT).all()
    assert error(found[5], found[8]) < EXACT  # the longest kernel has five taps
    assert error(found[0], found[5]) > SEEN


def test_released_blocks_follow_the_padded_length() -> None:
    module = module_of("biblosa_released.folded")
    x, mask = batch((4,))
    out = module(x, mask)
    # 4 positions: blocks of 2 (8 >= 2 * 4). 5 positions: blocks of 3.
    assert error(module(*longer(x, mask, 1))[:, :4], out) > 1e-3
    paper = made("biblosa.folded", options_of("biblosa"), module.state_dict())
    assert error(paper(x, mask), out) < EXACT
    assert error(paper(*longer(x, mask, 1))[:, :4], out) < EXACT


def changes(name: str, module: nn.Module, n: int, padded: int, draws: int = 6) -> Tensor:
    """By how much every feature moves when one token changes.

    Returns
    -------
    Tensor, shape [rows, changed token, features]
        The most of several draws. A sentence has one row.
    """
    x = torch.randn(draws, 1, padded, D_IN, generator=torch.Generator().manual_seed(3)).double()
    x = x.repeat(1, padded + 1, 1, 1)  # [draws, changed token, N, D]
    fresh = torch.randn(draws, padded, D_IN, generator=torch.Generator().manual_seed(4)).double()
    for j in range(padded):
        x[:, j, j] = fresh[:, j]
    mask = (torch.arange(padded) < n).expand(draws * (padded + 1), -1)
    out = module(x.flatten(0, 1), mask).detach()
    out = out[:, None] if out.ndim == 2 else out  # [.., rows, features]
    out = out.unflatten(0, (draws, padded + 1))
    return (out[:, :-1] - out[:, -1:]).abs().amax(0).transpose(0, 1)


@pytest.mark.parametrize("n", [7, 2, 1])
@pytest.mark.parametrize(("name", "variant"), by_day(KNOWN))
def test_rows_see_what_they_may_and_nothing_else(name: str, variant: str, n: int) -> None:
    padded = n + 2
    moved = changes(name, module_of(name, variant), n, padded)
    assert moved[:, n:].max() < EXACT, "padding is seen"
    if of_sentences(name):
        assert (moved[0, :n].amax(-1) > SEEN).all(), "a token is not seen"
        return
    assert not moved[n:].any(), "a padded row is not zero"
    moved = moved[:n, :n]
    sees = SEES[name.partition(".")[0]]
    for features, seen in sees(options_of(name, variant), n, padded, moved.shape[-1]):
        most = moved[..., features].amax(-1)
        assert not (most[~seen] > EXACT).any(), "a forbidden token is seen"
        assert (most[seen] > SEEN).all(), "an allowed token is not seen"


MASKS = (
    ("none", "diagonal", "forward", "backward"),
    ("forward_inclusive", "backward_inclusive", "window:0", "window:1"),
    ("window:3", "distance:0", "distance:0.7", "none"),
)


@pytest.mark.parametrize("masks", MASKS, ids=str)
@pytest.mark.parametrize("implementation", ["plain", "algorithm1"])
@pytest.mark.parametrize("scale_t", ["identity", "log_sigmoid"])
def test_every_mask_of_mtsa_alone(
    masks: tuple[str, ...], implementation: str, scale_t: str
) -> None:
    # Through an output layer that mixes nothing.
    name = f"mtsa.{implementation}"
    options = {**options_of("mtsa"), "masks": list(masks), "scale_t": scale_t}
    module = made(name, options)
    with torch.no_grad():
        module.get_parameter("o_w").copy_(torch.eye(D_OUT))
    for n in (7, 1):
        moved = changes(name, module, n, n + 2)[:n, :n]
        for text, features in zip(masks, moved.chunk(len(masks), dim=-1), strict=True):
            most, sees = features.amax(-1), seen_by(keys_of(text, n))
            assert (most[sees] > SEEN).all()
            assert not (most[~sees] > EXACT).any()


def test_a_steep_distance_is_a_narrow_window_and_a_flat_one_no_mask() -> None:
    x, mask = batch((7, 4))
    for scale_t in ("identity", "log_sigmoid"):
        options = {**options_of("mtsa"), "scale_t": scale_t}
        found = {
            text: made("mtsa.algorithm1", {**options, "masks": [text] * 4})(x, mask)
            for text in ("distance:1000", "window:0", "distance:0", "none", "distance:0.5")
        }
        assert error(found["distance:1000"], found["window:0"]) < EXACT
        assert error(found["distance:0"], found["none"]) < EXACT
        assert error(found["distance:0.5"], found["none"]) > 1e-3


def test_distances_are_added_to_the_score() -> None:
    # Equal scores everywhere: the weight of a key is exp(-0.5 * distance) and nothing else.
    options = {**options_of("mtsa"), "scale_t": "identity", "masks": ["distance:0.5"] * 4}
    module: Any = made("mtsa.algorithm1", options)
    with torch.no_grad():
        for name in ("q_w", "s2_w"):
            module.get_parameter(name).zero_()
    x, mask = batch((7, 4))
    found = module.attention(x, mask)["token2token_weights"]
    for b, n in enumerate((7, 4)):
        apart = torch.arange(n)[:, None] - torch.arange(n)
        weights = (-0.5 * apart.abs().double()).softmax(-1)
        assert error(found[:, b, :n, :n], weights.expand(4, n, n)) < EXACT


@pytest.mark.parametrize("implementation", ["plain", "algorithm1"])
def test_windows_beyond_the_length_are_no_mask(implementation: str) -> None:
    name, x = f"mtsa.{implementation}", batch((7, 4))
    for scale_t in ("identity", "log_sigmoid"):
        options = {**options_of("mtsa"), "scale_t": scale_t}
        wide = made(name, {**options, "masks": ["window:6"] * 4})(*x)
        none = made(name, {**options, "masks": ["none"] * 4})(*x)
        narrow = made(name, {**options, "masks": ["window:5"] * 4})(*x)
        assert error(wide, none) < EXACT
        assert error(narrow, none) > 1e-4


@pytest.mark.parametrize("name", implementations("msmsa"))
def test_scales_beyond_the_length_are_multi_head_attention(name: str) -> None:
    x, mask = batch((7, 4))
    options = options_of("msmsa")
    wide = made(name, {**options, "scales": [13, 15, 99, 13]})
    full = made("multi_head.plain", options_of("multi_head", "no_positions"), wide.state_dict())
    assert error(wide(x, mask), full(x, mask)) < EXACT
    radius = made(
        name, {**options, "scales": [6, 7, 99, 8], "width_reading": "radius"}, wide.state_dict()
    )
    assert error(radius(x, mask), full(x, mask)) < EXACT
    narrow = made(name, {**options, "scales": [11, 15, 99, 13]}, wide.state_dict())
    assert error(narrow(x, mask), full(x, mask)) > 1e-4


@pytest.mark.parametrize("name", implementations("msmsa"))
def test_scale_one_is_a_position_wise_layer(name: str) -> None:
    x, mask = batch((7, 4))
    module = made(name, {**options_of("msmsa"), "scales": [1, 1, "n/16", 1.9]})
    v_w, o_w = (module.get_parameter(n).detach() for n in ("v_w", "o_w"))
    wanted = torch.cat([x @ w for w in v_w], dim=-1) @ o_w
    assert error(module(x, mask), wanted.masked_fill(~mask[..., None], 0)) < EXACT


@pytest.mark.parametrize("name", implementations("resa"))
@pytest.mark.parametrize("direction", ["both", "forward", "backward", "diagonal"])
@pytest.mark.parametrize("unselected", ["all_real", "dependents", "others"])
def test_all_selected_resa_is_disa(name: str, direction: str, unselected: str) -> None:
    x, mask = batch((7, 4, 1, 0))
    options = {**options_of("resa"), "direction": direction, "unselected": unselected}
    every = made(name, {**options, "selection": "all"})
    of_disa = {
        n: w for n, w in every.state_dict().items() if not re.match(r"(head|dep)_[wb][12]", n)
    }
    disa = made("disa.plain", {**options_of("disa"), "direction": direction}, of_disa)
    wanted = run(disa, x, mask)
    found = run(every, x, mask)
    for what, tensor in wanted.items():
        assert error(found[what], tensor) < EXACT, what
    # A policy that selects everything by itself, and one that selects nothing.
    by_threshold = made(name, options, every.state_dict())
    with torch.no_grad():
        for bias in ("head_b2", "dep_b2"):
            by_threshold.get_parameter(bias).fill_(1e3)
    assert error(by_threshold(x, mask), wanted["output"]) < EXACT
    with torch.no_grad():
        by_threshold.get_parameter("head_b2").fill_(-1e3)
    assert error(by_threshold(x, mask), wanted["output"]) > 1e-3


@pytest.mark.parametrize("name", ["resan", "disan"])
def test_sentences_of_everything_selected_are_disa_and_a_pooling(name: str) -> None:
    x, mask = batch((7, 4, 1, 0))
    options = options_of(name) | ({"selection": "all"} if name == "resan" else {})
    module = made(default_of(name), options)
    state = {n.rpartition(".")[2]: w for n, w in module.state_dict().items()}
    tokens = made("disa.plain", options_of("disa"))
    tokens.load_state_dict({n: state[n] for n in tokens.state_dict()})
    mechanism = MECHANISMS["source2token"]
    options = {"activation": options["activation"]}
    pooling = make(mechanism, str(mechanism.plain), D_OUT, D_OUT, 0, options).double()
    prefix = "s2t_" if "s2t_s1_w" in state else ""
    pooling.load_state_dict({n: state[prefix + n] for n in pooling.state_dict()})
    assert error(module(x, mask), pooling(tokens(x, mask), mask)) < EXACT
