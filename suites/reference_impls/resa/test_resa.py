"""ReSA and ReSAN: what is selected, what selections change, and how policies learn from them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable
from functools import partial
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.utils.flop_counter import FlopCounterMode

from reference_impls.models.encoders import Dense
from reference_impls.naive import Oracle, sigmoid
from reference_impls.resa import naive
from reference_impls.resa.modules import GatheredResa, MaskedResa, PlainResa
from reference_impls.resa.selecting import POLICIES, Selection, given
from reference_impls.resan.modules import (
    PREFIXES,
    GatheredResan,
    GatheredWords,
    PlainResan,
    PlainWords,
)
from suites.support.batches import D_IN, D_OUT, assert_same, batch, cotangent_of, error, run
from suites.support.oracles import assert_gradients_of

ALL = (PlainResa, MaskedResa, GatheredResa)
LENGTHS = (7, 4, 1, 0)
SHARES = (0.5, 0.1, 0.9, 0.0)
SCALES = (5.0, 100.0, 5.0, 5.0)
DIRECTIONS = ("both", "diagonal", "forward", "both")


def built(kind: type, **options: Any) -> Any:
    """A layer in float64 with biases that are not zero; equal for all kinds."""
    torch.manual_seed(0)
    d_in = D_OUT if "Words" in kind.__name__ else D_IN
    module = kind(d_in, D_OUT, **options).double()
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.add_(0.1 * torch.randn(parameter.shape, dtype=torch.float64))
    return module


def drawn(mask: Tensor, seed: int, share: float = 0.5) -> Selection:
    """A random selection; true at some padded positions too."""
    generator = torch.Generator().manual_seed(seed)
    heads, dependents = torch.rand((2, *mask.shape), generator=generator) < share
    return given(heads, dependents, mask)


def run_with(module: Any, x: Tensor, mask: Tensor, selection: Selection) -> dict[str, Tensor]:
    """Output and gradients under a given selection."""
    with patch.object(module, "forward", partial(module.forward, selection=selection)):
        return run(module, x, mask)


# Policies


RSS = {"w1": (9, 3), "b1": (3,), "w2": (3, 1), "b2": (1,)}
"""Weights of a policy over tokens of width 3."""


def log_probability(chosen: np.ndarray, f: str = "elu") -> Callable[..., Any]:
    """The logarithms of what a policy's actions are likely by, as an oracle."""

    def forward(x: np.ndarray, W: Any, rows: np.ndarray) -> np.ndarray:
        return naive.log_probabilities(naive.logits(x, W, f), chosen)

    return Oracle(forward)


@pytest.mark.parametrize("f", ["elu", "relu", "selu"])
def test_rss_gradients(f: str) -> None:
    rng = np.random.default_rng(7)
    x = rng.normal(size=(6, 3))
    W = {name: rng.normal(size=shape) for name, shape in RSS.items()}
    assert_gradients_of(log_probability(rng.random(6) < 0.5, f), x, W, rng)


def test_rss_is_the_oracles() -> None:
    """Actions, log-probabilities and their gradients, one sample at a time."""
    layer = built(PlainResa, rss_hidden=5)
    x, mask = batch((7, 4, 1))
    uniform = torch.rand(mask.shape, dtype=torch.float64)
    weights = {name: layer.get_parameter(f"head_{name}") for name in layer.policy_shapes}
    cotangent = torch.randn(mask.shape, dtype=torch.float64)
    x.requires_grad_()
    made = POLICIES["rss"].decide(weights, x, mask, uniform)
    (made.log_probability * cotangent).sum().backward()
    assert x.grad is not None
    total = {name: np.zeros(w.shape) for name, w in weights.items()}
    arrays = {name: w.detach().numpy() for name, w in weights.items()}
    for b, n in enumerate((7, 4, 1)):
        own = x[b, :n].detach().numpy()
        p = sigmoid(naive.logits(own, arrays))
        chosen = uniform[b, :n].numpy() <= p
        log, grad_x, grads = log_probability(chosen)(own, arrays, None, cotangent[b, :n].numpy())
        assert (made.actions[b, :n].numpy() == chosen).all()
        assert not made.actions[b, n:].any()
        assert error(made.probability[b, :n], torch.from_numpy(p)) < 1e-12
        assert error(made.log_probability[b, :n], torch.from_numpy(log)) < 1e-12
        assert not made.log_probability[b, n:].any()
        assert float(made.share[b]) == pytest.approx(naive.share(chosen))
        assert error(x.grad[b, :n], torch.from_numpy(grad_x)) < 1e-12
        total = {name: value + grads[name] for name, value in total.items()}
    for name, weight in weights.items():
        assert weight.grad is not None
        assert error(weight.grad, torch.from_numpy(total[name])) < 1e-12


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("unselected", ["all_real", "dependents", "others"])
def test_given_selections_are_the_oracles(kind: type, unselected: str) -> None:
    """Outputs and gradients, few or many or none selected, scores up to +-100."""
    x, mask = batch(LENGTHS, padding=math.nan)
    for seed, (share, c, direction) in enumerate(zip(SHARES, SCALES, DIRECTIONS, strict=True)):
        options: dict[str, Any] = {
            "unselected": unselected,
            "tanh_scale": c,
            "direction": direction,
        }
        layer = built(kind, **options)
        weights = {name: w.detach().numpy() for name, w in layer.named_parameters()}
        selection = drawn(mask, seed, share)
        found = run_with(layer, x, mask, selection)
        cotangent = cotangent_of(found["output"])
        total = {name: np.zeros(w.shape) for name, w in weights.items()}
        for b, n in enumerate(LENGTHS[:3]):
            options |= {"dep_sel": selection.dependents[b, :n].numpy()}
            options |= {"head_sel": selection.heads[b, :n].numpy()}
            fused: Callable[..., Any] = Oracle(naive.fuse)
            g = cotangent[b, :n].numpy()
            out, grad_x, grads = fused(x[b, :n].numpy(), weights, None, g, **options)
            assert error(found["output"][b, :n], torch.from_numpy(out)) < 1e-12
            assert error(found["x"][b, :n], torch.from_numpy(grad_x)) < 1e-12
            total = {name: value + grads[name] for name, value in total.items()}
        for name, value in total.items():
            # A policy's gradient is zero: a step has none.
            assert error(found[name], torch.from_numpy(value)) < 1e-12, name


def test_log_probability_is_clipped_and_finite() -> None:
    weights = {
        "w1": torch.zeros(3 * D_IN, 2),
        "b1": torch.zeros(2),
        "w2": torch.zeros(2, 1),
        "b2": torch.tensor([-200.0]),
    }
    for sign in (1, -1):
        # An action of no probability at all: it can't be drawn, but it can be given.
        named = {**weights, "b2": sign * weights["b2"].clone().requires_grad_()}
        u = torch.zeros(1, 3) if sign > 0 else torch.full((1, 3), 1.5)
        made = POLICIES["rss"].decide(named, torch.zeros(1, 3, D_IN), torch.ones(1, 3).bool(), u)
        assert error(made.log_probability, torch.full((1, 3), math.log(1e-10))) < 1e-6
        oracles = naive.log_probabilities(np.full(3, sign * -200.0), made.actions.numpy()[0])
        assert error(made.log_probability[0], torch.from_numpy(oracles)) < 1e-6


def test_half_precision_does_not_decide() -> None:
    """Every dtype selects what float64 arithmetic on the same numbers does."""
    layer = built(GatheredResa, selection="threshold").bfloat16()
    x, mask = batch((257, 100))
    x = x.bfloat16()
    wanted = layer.select(x, mask)
    with torch.autocast("cpu", torch.bfloat16):
        same = layer.select(x, mask)
    exact = layer.double().select(x.double(), mask)
    assert torch.equal(wanted.heads, exact.heads)
    assert torch.equal(same.dependents, exact.dependents)
    assert 0 < wanted.head_share[0] < 1


@pytest.mark.parametrize("policy", POLICIES)
def test_sampling_follows_the_generator_and_the_probabilities(policy: str) -> None:
    layer = built(GatheredResa, selection="sampled", policy=policy)
    x, mask = batch((5, 3))
    found = []
    for seed in (0, 0, 1):
        layer.generator = torch.Generator().manual_seed(seed)
        found.append(layer.select(x, mask))
    assert torch.equal(found[0].heads, found[1].heads)
    assert torch.equal(found[0].dependents, found[1].dependents)
    assert torch.equal(found[0].log_probability, found[1].log_probability)
    assert any(not torch.equal(a, b) for a, b in zip(found[0][:2], found[2][:2], strict=True))
    many = 4000
    one, real = x[:1].expand(many, -1, -1), mask[:1].expand(many, -1)
    sampled = layer.select(one, real)
    frequency = sampled.heads[:, 0].double().mean()
    u = torch.full(mask.shape, 0.5, dtype=torch.float64)
    p = float(layer.decide("head", x, mask, u).probability[0, 0].detach())  # no history
    assert 0.05 < p < 0.95
    assert abs(float(frequency) - p) < 5 * math.sqrt(p * (1 - p) / many)
    # exp(log-probability) is the probability of the whole selection: the mean of 1/q over the
    # draws estimates how many selections there are, 2^5 for heads times 2^5 for dependents.
    count = float((-sampled.log_probability.detach()).exp().mean())
    assert count == pytest.approx(2**10, rel=0.25)
    heads, dependents = (s.sum(1) / 5 for s in sampled[:2])
    assert error(sampled.head_share, heads) < 1e-6
    assert error(sampled.dependent_share, dependents) < 1e-6


def test_the_threshold_is_certain_and_needs_no_random_numbers() -> None:
    layer = built(GatheredResa)
    x, mask = batch(LENGTHS, padding=math.nan)
    state = torch.get_rng_state()
    one, again = layer.select(x, mask), layer.select(x, mask)
    layer(x, mask)
    assert torch.equal(torch.get_rng_state(), state)
    for a, b in zip(one, again, strict=True):
        assert torch.equal(a, b)
    assert not one.log_probability.any()
    assert not (one.heads & ~mask).any()
    for prefix, chosen in (("head", one.heads), ("dep", one.dependents)):
        u = torch.rand(mask.shape, dtype=torch.float64)
        p = layer.decide(prefix, x.masked_fill(~mask[..., None], 0), mask, u).probability
        assert torch.equal(chosen, (p >= 0.5) & mask)
        assert 0 < chosen.sum() < mask.sum()


def test_decisions_are_noted_where_a_list_is_given() -> None:
    for kind, d_in in ((GatheredResa, D_IN), (PlainResan, D_IN), (GatheredWords, D_OUT)):
        layer = built(kind, selection="sampled")
        x, mask = torch.randn(2, 5, d_in, dtype=torch.float64), torch.ones(2, 5).bool()
        layer(x, mask)
        assert layer.decisions is None
        layer.decisions = []
        layer(x, mask)
        layer(x, mask)
        assert len(layer.decisions) == 2
        log_probability = layer.decisions[0].log_probability
        assert log_probability.requires_grad
        assert (log_probability < 0).all()


# Attention between selected tokens


@pytest.mark.parametrize("kind", ALL)
@pytest.mark.parametrize("unselected", ["all_real", "dependents", "others"])
def test_what_unselected_queries_get(kind: type, unselected: str) -> None:
    layer = built(kind, unselected=unselected, direction="forward")
    x, mask = batch((5, 1), padding=math.nan)
    heads = torch.zeros_like(mask)
    dependents = torch.tensor([[True, False, False, True, False], [False] * 5])
    out = layer(x, mask, selection=given(heads, dependents, mask))
    for b, n in enumerate((5, 1)):
        h = torch.nn.functional.elu(x[b, :n] @ layer.map_w + layer.map_b)
        chosen = dependents[b, :n]
        among = {
            "all_real": [h for _ in range(n)],
            "dependents": [h[chosen] for _ in range(n)],
            "others": [h[torch.arange(n) != i] for i in range(n)],
        }[unselected]
        a = torch.stack([m.mean(0) if len(m) else torch.zeros_like(h[0]) for m in among])
        gate = torch.sigmoid(h @ layer.fi_w + a @ layer.fa_w + layer.fi_b + layer.fa_b + layer.o_b)
        assert error(out[b, :n], gate * h + (1 - gate) * a) < 1e-12
        assert not out[b, n:].any()


def test_gathering_saves_products_and_memory() -> None:
    """An eighth of the heads and dependents: a sixty-fourth of the pairs."""
    x, mask = torch.randn(2, 64, D_IN), torch.ones(2, 64, dtype=torch.bool)
    few = torch.arange(64).expand(2, -1) % 8 == 0
    selection = given(few, few)
    flops, kept = {}, {}
    for kind in (MaskedResa, GatheredResa):
        layer = built(kind).float()
        with FlopCounterMode(display=False) as counter:
            layer(x, mask, selection=selection)
        flops[kind] = counter.get_total_flops()
        sizes: list[int] = []

        def noted(tensor: Tensor, sizes: list[int] = sizes) -> Tensor:
            sizes.append(tensor.nbytes)
            return tensor

        with torch.autograd.graph.saved_tensors_hooks(noted, lambda t: t):
            layer(x.clone().requires_grad_(), mask, selection=selection)
        kept[kind] = sum(sizes)
    pairs = 2 * 2 * 2 * (64 * 64 - 8 * 8) * D_OUT  # two samples, a product of width two
    assert flops[MaskedResa] - flops[GatheredResa] == pairs
    assert kept[GatheredResa] < kept[MaskedResa] / 4


def test_it_compiles() -> None:
    layer = built(GatheredResan, variant="one_rss").float()
    x, mask = batch((9, 4))
    wanted = layer(x.float(), mask)
    got = torch.compile(layer, backend="eager")(x.float(), mask)
    assert error(got, wanted) < 1e-6


# Training of the policies


def test_the_estimator_is_unbiased() -> None:
    """Eq. 19-20: over all actions, sum of p R grad log p = gradient of the expected reward."""
    layer = built(GatheredResa, rss_hidden=2)
    x, mask = batch((2, 1))
    readout = torch.randn(D_OUT, generator=torch.Generator().manual_seed(5), dtype=torch.float64)
    weights = layer.policy_parameters()
    for b, n in enumerate((2, 1)):
        one, real = x[b : b + 1], mask[b : b + 1]
        expected = torch.zeros((), dtype=torch.float64)
        estimate = [torch.zeros_like(w) for w in weights]
        total = 0.0
        for actions in itertools.product((False, True), repeat=2 * n):
            heads, dependents = torch.zeros(2, 1, 2, dtype=torch.bool)
            heads[0, :n], dependents[0, :n] = torch.tensor(actions[:n]), torch.tensor(actions[n:])
            # u = -1 selects and u = 2 does not, whatever the probability.
            log_probability = torch.stack(
                [
                    layer.decide(prefix, one, real, torch.where(a, -1.0, 2.0)).log_probability.sum()
                    for prefix, a in (("head", heads), ("dep", dependents))
                ]
            ).sum()
            out = layer(one, real, selection=given(heads, dependents, real)).detach()
            reward = float((out @ readout).sum() - 0.3 * heads.sum() - 0.1 * dependents.sum())
            probability = log_probability.exp()
            total += float(probability.detach())
            expected = expected + probability * reward
            found = torch.autograd.grad(reward * log_probability, weights, retain_graph=True)
            for sum_of, g in zip(estimate, found, strict=True):
                sum_of += probability.detach() * g
        assert total == pytest.approx(1, abs=1e-12)
        exact = torch.autograd.grad(expected, weights)
        for got, wanted in zip(estimate, exact, strict=True):
            assert wanted.abs().max() > 1e-4
            assert error(got, wanted) < 1e-10


# Sentences


def weights_of(d_in: int, d_out: int, kind: type, **options: Any) -> int:
    return sum(p.numel() for p in kind(d_in, d_out, **options).parameters())


def test_sizes_are_those_measured_on_the_released_graphs() -> None:
    """At 300 -> 600 with the pair classifier and its highway layer of 180,600."""

    def classifier(width: int) -> int:
        head = (Dense(4 * width, 300), Dense(300, 3))
        return 180_600 + sum(p.numel() for layer in head for p in layer.parameters())

    assert PREFIXES.keys() == {"full", "without_unselected_heads", "one_rss", "no_hard"}
    for variant in ("full", "without_unselected_heads"):  # the others are checked as models
        assert weights_of(300, 600, GatheredResan, variant=variant) + classifier(600) == 3_067_205
    words = {"no_soft": 993_004, "neither": 541_803}  # 1.0m and 0.5m in Table 2
    for variant, count in words.items():
        assert weights_of(300, 300, GatheredWords, variant=variant) + classifier(300) == count
    one_policy = sum(p.numel() for p in GatheredWords(300, 300).policy_parameters())
    assert one_policy == 270_601


CONFIGURATIONS = [
    (PlainResan, GatheredResan, {"variant": variant, "direction": direction})
    for variant in PREFIXES
    for direction in ("both", "diagonal")
] + [(PlainWords, GatheredWords, {"variant": variant}) for variant in ("no_soft", "neither")]


@pytest.mark.parametrize(("plain", "fast", "options"), CONFIGURATIONS)
def test_short_sequences_give_what_masked_ones_do(
    plain: type, fast: type, options: dict[str, Any]
) -> None:
    slow, quick = built(plain, **options), built(fast, **options)
    x, mask = batch(LENGTHS, padding=math.nan)
    if "Words" in plain.__name__:
        x = torch.nn.functional.pad(x, (0, D_OUT - D_IN), value=0.3)
    one_policy = options["variant"] in ("one_rss", "no_soft")
    for seed, share in enumerate(SHARES):
        selection = drawn(mask, seed, share)
        if one_policy:
            selection = given(selection.heads, selection.heads, mask)
        wanted = run_with(slow, x, mask, selection)
        assert all(torch.isfinite(value).all() for value in wanted.values())
        assert_same(run_with(quick, x, mask, selection), wanted, 1e-12)
    assert_same(run(quick, x, mask), run(slow, x, mask), 1e-12)


def test_nothing_kept_gives_zeros() -> None:
    x, mask = batch((4, 2))
    nothing = given(torch.zeros_like(mask), torch.zeros_like(mask), mask)
    for variant in ("without_unselected_heads", "one_rss"):
        for kind in (PlainResan, GatheredResan):
            assert not built(kind, variant=variant)(x, mask, selection=nothing).any()
    assert built(PlainResan)(x, mask, selection=nothing).any()


def test_the_oracle_draws_no_selection_of_its_own() -> None:
    with pytest.raises(ValueError, match="'sample' is drawn at random; give the actions"):
        naive.select(np.zeros((3, D_IN)), {}, "head", "sample", "tanh")
