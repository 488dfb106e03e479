"""Properties that follow from what a mechanism is, whatever its numbers: no oracle is needed."""

from __future__ import annotations

import math
import re

import pytest
import torch
from torch import Tensor, nn

from harness.build import make
from harness.registry import builtins
from reference_impls.biblosa.naive import rule
from reference_impls.biblosa.rule import block_length, most_blocks
from suites.support.batches import (
    CONFIGURATIONS,
    D_IN,
    D_OUT,
    MECHANISMS,
    batch,
    by_day,
    default_of,
    error,
    longer,
    made,
    module_of,
    of_sentences,
    options_of,
    run,
)
from suites.support.visibility import SEES, keys_of, seen_by

EXACT = 1e-11
"""Other shapes, another order of sums: rounding in float64, nothing more."""
SEEN = 1e-7
"""A change that is no rounding."""
KNOWN = [c for c in CONFIGURATIONS if c[0].partition(".")[0] in SEES or of_sentences(c[0])]


def test_what_is_known_is_known_of_a_mechanism_that_is_there() -> None:
    gone = sorted(SEES.keys() - builtins().keys())
    assert not gone, f"no mechanism is named {', '.join(gone)}: tests of it find nothing to do"


def test_released_blocks_follow_the_padded_length() -> None:
    module = module_of("biblosa_released.folded")
    x, mask = batch((4,))
    out = module(x, mask)
    # 4 positions: blocks of 2 (8 >= 2 * 4). 5 positions: blocks of 3.
    assert error(module(*longer(x, mask, 1))[:, :4], out) > 1e-3
    paper = made("biblosa.folded", options_of("biblosa"), module.state_dict())
    assert error(paper(x, mask), out) < EXACT
    assert error(paper(*longer(x, mask, 1))[:, :4], out) < EXACT


def test_block_rule_is_exact_and_no_sequence_has_more_blocks_than_the_most() -> None:
    for extra in range(4):
        most = 0
        for n in range(1, 501):
            r = rule(n)
            assert (r - 1) ** 3 < 2 * n <= r**3
            most = max(most, math.ceil(n / (r + extra)))
            assert block_length(n, extra) == r + extra
            assert most_blocks(n, extra) == most
    for k in (16, 32):
        assert [rule(k**3 // 2 + more) for more in (-1, 0, 1)] == [k, k, k + 1]


def changes(module: nn.Module, n: int, padded: int) -> Tensor:
    """By how much features move when one token changes, [rows, changed token, features].

    The most of several draws; a sentence has one row.
    """
    draws = 6
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
    moved = changes(module_of(name, variant), n, padded)
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
@pytest.mark.parametrize("scale_t", ["identity", "log_sigmoid"])
def test_every_mask_of_mtsa_alone(masks: tuple[str, ...], scale_t: str) -> None:
    # Through an output layer that mixes nothing.
    options = {**options_of("mtsa"), "masks": list(masks), "scale_t": scale_t}
    module = made("mtsa.oracle", options)
    with torch.no_grad():
        module.get_parameter("o_w").copy_(torch.eye(D_OUT))
    for n in (7, 1):
        moved = changes(module, n, n + 2)[:n, :n]
        for text, features in zip(masks, moved.chunk(len(masks), dim=-1), strict=True):
            most, sees = features.amax(-1), seen_by(keys_of(text, n))
            assert (most[sees] > SEEN).all()
            assert not (most[~sees] > EXACT).any()


@pytest.mark.parametrize("direction", ["both", "forward", "backward", "diagonal"])
@pytest.mark.parametrize("unselected", ["all_real", "dependents", "others"])
def test_all_selected_resa_is_disa(direction: str, unselected: str) -> None:
    x, mask = batch((7, 4, 1, 0))
    options = {**options_of("resa"), "direction": direction, "unselected": unselected}
    every = made("resa.oracle", {**options, "selection": "all"})
    of_disa = {
        n: w for n, w in every.state_dict().items() if not re.match(r"(head|dep)_[wb][12]", n)
    }
    disa = made("disa.plain", {**options_of("disa"), "direction": direction}, of_disa)
    wanted = run(disa, x, mask)
    found = run(every, x, mask)
    for what, tensor in wanted.items():
        assert error(found[what], tensor) < EXACT, what
    # A policy that selects everything by itself, and one that selects nothing.
    by_threshold = made("resa.oracle", options, every.state_dict())
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
