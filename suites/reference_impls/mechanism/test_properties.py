"""Properties that follow from what a mechanism is, whatever its numbers: no oracle is needed."""

from __future__ import annotations

import itertools
import math
import re
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from harness.build import make
from harness.registry import builtins
from suites.support.batches import D_IN, D_OUT, MECHANISMS, batch, build, error, run
from suites.support.configurations import (
    CONFIGURATIONS,
    DEFAULTS,
    PLAIN_AND_DEFAULT,
    by_day,
    default_of,
    implementations,
    made,
    mechanism_of,
    module_of,
    of_sentences,
    options_of,
)
from suites.support.traits import TRAITS, Traits
from suites.support.visibility import keys_of, masks_of, seen_by

torch.set_num_threads(1)

EXACT = 1e-11
"""Other shapes, another order of sums: rounding in float64, nothing more."""
SEEN = 1e-7
"""A change that is no rounding."""
few = settings(deadline=None, max_examples=8, derandomize=True, database=None)

PADDING_MATTERS = [n for n in DEFAULTS if mechanism_of(n).padding_matters]
KNOWN = [c for c in CONFIGURATIONS if c[0].partition(".")[0] in TRAITS]
"""Configurations of which more is known than what follows for all mechanisms alike."""
OTHERS = [n for n in PLAIN_AND_DEFAULT if not mechanism_of(n).padding_matters]


def traits_of(name: str) -> Traits:
    """The traits of an implementation's mechanism."""
    return TRAITS[name.partition(".")[0]]


def longer(x: Tensor, mask: Tensor, more: int, content: float = 0.0) -> tuple[Tensor, Tensor]:
    """The batch with more padding behind it."""
    x = nn.functional.pad(x, (0, 0, 0, more), value=content)
    return x, nn.functional.pad(mask, (0, more), value=False)


@st.composite
def batches(draw: st.DrawFn, least: int = 0) -> tuple[Tensor, Tensor]:
    """Up to four samples of up to six tokens, one at least not empty."""
    lengths = draw(st.lists(st.integers(least, 6), min_size=1, max_size=4).filter(any))
    return batch(tuple(lengths), seed=draw(st.integers(0, 99)))


def test_what_is_known_is_known_of_a_mechanism_that_is_there() -> None:
    gone = sorted(TRAITS.keys() - builtins().keys())
    assert not gone, f"no mechanism is named {', '.join(gone)}: tests of it find nothing to do"


@pytest.mark.parametrize("name", OTHERS)
@few
@given(batches(), st.integers(1, 20))
def test_amount_of_padding_does_not_matter(
    name: str, drawn: tuple[Tensor, Tensor], more: int
) -> None:
    module = module_of(name)
    x, mask = drawn
    wanted = run(module, x, mask)
    # A cotangent that is the same at the same place: gradients can be compared.
    x_more, mask_more = longer(x, mask, more)
    x_more.requires_grad_()
    module.zero_grad()
    out = module(x_more, mask_more)
    if not of_sentences(name):
        assert not out[:, x.shape[1] :].any()
        out = out[:, : x.shape[1]]
    generator = torch.Generator().manual_seed(2)  # as in `run`
    (out * torch.randn(out.shape, generator=generator, dtype=out.dtype)).sum().backward()
    assert x_more.grad is not None
    found = {"output": out, "x": x_more.grad[:, : x.shape[1]]}
    found |= {n: p.grad for n, p in module.named_parameters() if p.grad is not None}
    for what, tensor in found.items():
        assert error(tensor, wanted[what]) < EXACT, what


@pytest.mark.parametrize("name", PADDING_MATTERS)
def test_amount_of_padding_matters_where_the_record_says_so(name: str) -> None:
    module = module_of(name)
    # Blocks have 3 tokens in 7 to 13 positions, 4 in 14; those of padding count too.
    x, mask = batch((7, 6, 4))
    out = module(x, mask)
    changed = []
    for more in (1, 2, 5, 7):
        other = module(*longer(x, mask, more))
        changed.append(error(other if of_sentences(name) else other[:, :7], out))
        assert torch.equal(module(*longer(x, mask, more, math.nan)), other)  # its content does not
    assert max(changed) > 1e-3


def test_padding_reaches_the_released_hierarchy_from_behind() -> None:
    # The tail is zero before the first layer; two layers more carry it 2 * 2 tokens forward.
    module = module_of("hrchy_cnn_released.conv")
    x, mask = batch((9,))
    moved = (module(*longer(x, mask, 6))[:, :9] - module(x, mask)).abs().amax(-1)[0]
    assert moved[:5].max() < EXACT
    assert moved[5:].min() > SEEN


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
    for features, sees in traits_of(name).sees(
        options_of(name, variant), n, padded, moved.shape[-1]
    ):
        most = moved[..., features].amax(-1)
        assert not (most[~sees] > EXACT).any(), "a forbidden token is seen"
        assert (most[sees] > SEEN).all(), "an allowed token is not seen"


MASKS = (
    "none",
    "diagonal",
    "forward",
    "backward",
    "forward_inclusive",
    "backward_inclusive",
    "window:0",
    "window:1",
    "window:3",
    "distance:0",
    "distance:0.7",
)


@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("implementation", ["plain", "algorithm1"])
@pytest.mark.parametrize("scale_t", ["identity", "log_sigmoid"])
def test_every_mask_of_mtsa_alone(mask: str, implementation: str, scale_t: str) -> None:
    # Beside a head that sees nothing but itself, through an output layer that mixes nothing.
    name, masks = f"mtsa.{implementation}", ["window:0", mask]
    options = {**options_of("mtsa"), "heads": 2, "masks": masks, "scale_t": scale_t}
    module = made(name, options)
    with torch.no_grad():
        module.get_parameter("o_w").copy_(torch.eye(D_OUT))
    for n in (7, 2, 1):
        moved = changes(name, module, n, n + 2)[:n, :n]
        for text, features in zip(masks, moved.chunk(2, dim=-1), strict=True):
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


def reversed_tokens(x: Tensor, mask: Tensor) -> Tensor:
    """The real tokens of every sample in reverse order, padding behind them as before."""
    found = x.clone()
    for b, n in enumerate(mask.sum(1).tolist()):
        found[b, :n] = x[b, :n].flip(0)
    return found


def _swapped(out: Tensor) -> Tensor:
    return out.roll(out.shape[-1] // 2, -1)


@pytest.mark.parametrize(("name", "variant"), by_day(KNOWN))
def test_mirror_symmetry(name: str, variant: str) -> None:
    traits, options = traits_of(name), options_of(name, variant)
    lengths = traits.mirror_lengths
    if mechanism_of(name).padding_matters:
        lengths = (max(lengths),) * len(lengths)
    symmetry = traits.symmetry(options, max(lengths))
    x, mask = batch(lengths)
    module = module_of(name, variant)
    there = reversed_tokens(x, mask)
    wanted, sentence = module(x, mask), of_sentences(name)
    plainly = module(there, mask)
    plainly = plainly if sentence else reversed_tokens(plainly, mask)
    if symmetry in ("permutation", "reversal"):
        assert error(plainly, wanted) < EXACT
        return
    assert error(plainly, wanted) > 1e-3, "it does not know its direction"
    if symmetry == "none":
        return
    mirror = traits.mirror(options, module.state_dict())
    found = made(name, mirror.options, mirror.state)(there, mask)
    found = found if sentence else reversed_tokens(found, mask)
    assert error(_swapped(found) if mirror.halves_swapped else found, wanted) < EXACT


@pytest.mark.parametrize(("name", "variant"), by_day(KNOWN))
def test_permutation_symmetry(name: str, variant: str) -> None:
    x, mask = batch((7, 7))
    order = [3, 0, 6, 2, 1, 5, 4]
    module = module_of(name, variant)
    wanted = module(x, mask)
    wanted = wanted if of_sentences(name) else wanted[:, order]
    found = module(x[:, order], mask)
    if traits_of(name).symmetry(options_of(name, variant), 7) == "permutation":
        assert error(found, wanted) < EXACT
    else:
        assert error(found, wanted) > 1e-3, "it does not know the order of tokens"


@pytest.mark.parametrize(("name", "variant"), by_day(KNOWN))
def test_a_constant_added_to_scores(name: str, variant: str) -> None:
    shifts = traits_of(name).shifts(options_of(name, variant))
    module = build(name, variant)
    x, mask = batch((7, 4))
    wanted = module(x, mask)
    for pattern, free in shifts.items():
        biases = [p for n, p in module.named_parameters() if re.fullmatch(pattern, n)]
        with torch.no_grad():
            for bias in biases:
                bias.add_(1.5 * torch.linspace(1, 2, bias.numel()).reshape(bias.shape))
        moved = error(module(x, mask), wanted)
        if free:
            assert moved < EXACT, pattern
        elif biases:
            assert moved > SEEN, pattern
        wanted = module(x, mask)


PAIR_SCORES = [c for c in KNOWN if traits_of(c[0]).pair_scores(options_of(*c)) is not None]


@pytest.mark.parametrize(("name", "variant"), by_day(PAIR_SCORES))
def test_a_constant_added_to_pair_scores(name: str, variant: str) -> None:
    module = build(name, variant)
    x, mask = batch((7, 4))
    x[..., -1] = 1
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        # The last feature of every key is 1, of every query what the constant adds.
        parameters["k_w"][..., -1] = 0
        parameters["k_w"][..., -1, -1] = 1
        if "k_b" in parameters:
            parameters["k_b"][..., -1] = 0
            parameters["q_b"][..., -1] = 0
            parameters["q_w"][..., -1] = 0
        before = module(x, mask)
        parameters["q_w"][..., -1, -1] += 3
    moved = error(module(x, mask), before)
    if traits_of(name).pair_scores(options_of(name, variant)):
        assert moved < EXACT
    else:
        assert moved > 1e-4


def _sees_some(module: Any, length: int) -> slice:
    """Positions at which some head has an allowed key."""
    texts = {str(mask.text) for mask in getattr(module, "masks", ())}
    if texts == {"forward"}:
        return slice(1, length)
    return slice(0, length - 1) if texts == {"backward"} else slice(0, length)


WITH_ATTENTION = [c for c in CONFIGURATIONS if hasattr(module_of(*c), "attention")]


@pytest.mark.parametrize(("name", "variant"), by_day(WITH_ATTENTION))
def test_probabilities_sum_to_one(name: str, variant: str) -> None:
    module: Any = module_of(name, variant)
    if hasattr(module, "selection"):  # unselected rows are 0: test_attention.py
        module.selection = "all"
    x, mask = batch((7, 4, 1, 0), padding=math.nan)
    found = module.attention(x, mask)
    pairs = [w for what, w in found.items() if what.endswith("token2token_weights")]
    if pairs and pairs[0].shape[-1] == mask.shape[1] + 1:  # [CLS], which is real in every sample
        mask = torch.nn.functional.pad(mask, (1, 0), value=True)
    for weights in pairs:  # [H, B, N, N]
        assert not (weights < 0).any()
        assert not weights[:, ~mask].any()
        assert not weights.transpose(-1, -2)[:, ~mask].any()
        total = weights.sum(-1)[:, mask]
        assert torch.minimum(total.abs(), (total - 1).abs()).max() < EXACT
        # Every token of the first sample that may see some does.
        assert (total[:, :7].amax(0) > 0.5)[_sees_some(module, 7)].all()
    if not pairs:
        weights = found["weights"]  # [B, N] or [B, N, D]
        assert not weights[~mask].any()
        assert (weights.sum(1)[:3] - 1).abs().max() < EXACT


def _ones_in_last_feature(*lengths: int) -> tuple[Tensor, Tensor]:
    x, mask = batch(lengths)
    x[..., -1] = mask
    return x, mask


VALUES_OF_V_W = [c for c in PAIR_SCORES if not c[0].startswith(("mtsa_released", "msmsa_layer"))]


@pytest.mark.parametrize(("name", "variant"), by_day(VALUES_OF_V_W))
def test_values_of_one_give_one_where_a_key_exists(name: str, variant: str) -> None:
    module = build(name, variant)
    parameters = dict(module.named_parameters())
    with torch.no_grad():
        parameters["v_w"].zero_()
        parameters["v_w"][:, -1] = 1
        if "v_b" in parameters:
            parameters["v_b"].zero_()
        width = parameters["v_w"].shape[0] * parameters["v_w"].shape[2]
        if "o_w" in parameters:
            parameters["o_w"].copy_(torch.eye(width, parameters["o_w"].shape[1]))
    x, mask = _ones_in_last_feature(7, 4, 1, 0)
    out = module(x, mask)[..., :width]
    options = options_of(name, variant)
    for b, n in enumerate((7, 4, 1)):
        expected = torch.ones(n, width, dtype=torch.float64)
        if name.startswith("mtsa."):
            some = [keys_of(m, n).any(-1).double() for m in masks_of(options)]
            expected = torch.stack(some, -1).repeat_interleave(width // len(some), -1)
        assert error(out[b, :n], expected) < EXACT


@pytest.mark.parametrize("name", ["source2token", "additive", "resan_no_fusion"])
def test_tokens_of_one_are_pooled_to_one(name: str) -> None:
    options = options_of(name)
    if "selection" in options:
        options["selection"] = "all"
    x, mask = batch((7, 4, 1))
    out = made(default_of(name), options)(torch.ones_like(x), mask)
    assert error(out, torch.ones_like(out)) < EXACT


@pytest.mark.parametrize("name", ["disa", "resa"])
@pytest.mark.parametrize("direction", ["forward", "backward", "diagonal"])
def test_mapped_tokens_of_one_stay_one_where_a_key_exists(name: str, direction: str) -> None:
    options = {**options_of(name), "direction": direction}
    if "selection" in options:
        options["selection"] = "all"
    module = made(default_of(name), options)
    with torch.no_grad():
        module.get_parameter("map_w").zero_()
        module.get_parameter("map_b").fill_(1)
    x, mask = batch((7, 4, 1))
    out = module(x, mask)
    for b, n in enumerate((7, 4, 1)):
        some = keys_of(direction, n).any(-1)
        assert ((out[b, :n] - 1).abs() < EXACT).all(-1).eq(some).all()


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
