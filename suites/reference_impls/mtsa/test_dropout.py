"""Attention dropout of MTSA (appendix A.3): on the two factors of the numerator, nowhere else."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from torch import nn

import reference_impls.mtsa.optimized as algorithm
from reference_impls.kernels import tiled, underflow
from reference_impls.mtsa import dropout
from reference_impls.mtsa.fused import FusedMTSA, FusedReleasedMTSA
from reference_impls.mtsa.layer import TensorizedLayer
from reference_impls.mtsa.optimized import Algorithm1MTSA, Algorithm1ReleasedMTSA
from reference_impls.mtsa.plain import PlainMTSA, PlainReleasedMTSA
from suites.support.batches import D_IN, D_OUT, HEADS, assert_same, batch, error, run

PAIRS = ((PlainMTSA, Algorithm1MTSA), (PlainReleasedMTSA, Algorithm1ReleasedMTSA))
FACTORIES = [*(factory for pair in PAIRS for factory in pair), FusedMTSA, FusedReleasedMTSA]
SHARE = 0.6
"""p_ad of most tests; attention_dropout is one less that."""


def made(factory: Any, **options: Any) -> nn.Module:
    """A float64 module in training mode, dropout on."""
    torch.manual_seed(0)
    options = {"heads": HEADS, "attention_dropout": 1 - SHARE, **options}
    if issubclass(factory, (FusedMTSA, FusedReleasedMTSA)):
        options["backend"] = "tiled"
    module: nn.Module = factory(D_IN, D_OUT, **options)
    return module.double()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"scale_t": "identity"},
        {"token2token": False},
        {"source2token": False},
        {"token2token": False, "source2token": False},
    ],
)
@pytest.mark.parametrize(
    ("plain", "fast"), [*PAIRS, (PlainMTSA, FusedMTSA), (PlainReleasedMTSA, FusedReleasedMTSA)]
)
@pytest.mark.parametrize("again", [False, True])
def test_with_the_same_factors_all_forms_are_plain(
    plain: Any, fast: Any, options: dict[str, Any], again: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    slow, quick = (made(factory, **options) for factory in (plain, fast))
    if again:  # as if denominators had lost something: all of the tiles', of few keys elsewhere
        monkeypatch.setattr(tiled, "least_denominator", lambda dtype, length: math.inf)
        monkeypatch.setattr(algorithm, "least_denominator", lambda dtype, length: 1.5)
        monkeypatch.setattr(underflow, "CHUNK_BYTES", 5_000)
    whole, ragged = batch((7, 7))[0], batch((7, 4, 0), padding=math.nan)
    for x, mask in (batch((1, 1), padding=math.nan), ragged, (whole, None)):
        found = []
        for module in (quick, slow):
            torch.manual_seed(5)
            found.append(run(module, x, mask))
        assert_same(found[0], found[1], 1e-11)
    assert error(run(quick.eval(), whole, None)["output"], found[0]["output"]) > 0.05


def test_mixed_masks_and_half_precision() -> None:
    masks = ["window:2", "distance:0.7", "diagonal", "none"]
    plain, fast = (made(factory, masks=masks) for factory in PAIRS[0])
    x, mask = batch((7, 4))
    torch.manual_seed(5)
    wanted = run(plain, x, mask)
    torch.manual_seed(5)
    assert_same(run(fast, x, mask), wanted, 1e-11)
    torch.manual_seed(5)
    out = fast.bfloat16()(x.bfloat16(), mask)
    assert out.dtype == torch.bfloat16
    assert error(out, wanted["output"]) < 5e-2


def test_plain_of_some_rows_drops_the_factors_of_those_rows() -> None:
    module = made(PlainMTSA)
    x, mask = batch((7, 4))
    rows, found = torch.tensor([5, 0, 3]), []
    for some in (None, rows):
        torch.manual_seed(5)
        found.append(module(x, mask, some))
    torch.testing.assert_close(found[1], found[0][:, rows], rtol=0, atol=1e-14)


@pytest.mark.parametrize("rate", [0.1, 0.19, 0.5])
def test_each_factor_is_kept_with_the_root_of_the_share(rate: float) -> None:
    torch.manual_seed(1)
    values, keep = dropout.draw(torch.ones(4, 5, 50, 50, dtype=torch.float64), rate)
    assert torch.equal(values.unique(), torch.tensor([0, 1 / (1 - rate)], dtype=torch.float64))
    pairs, factors, root = keep.pairs(values), values > 0, math.sqrt(1 - rate)
    for drawn, p in ((pairs, root), (factors, root), (pairs & factors, 1 - rate)):
        assert drawn.dtype == torch.bool
        # Five standard deviations of a mean of so many coins.
        assert drawn.double().mean().item() == pytest.approx(
            p, abs=5 * math.sqrt(p * (1 - p) / drawn.numel())
        )


@pytest.mark.parametrize("factory", FACTORIES)
def test_evaluation_and_rate_zero_draw_nothing(
    factory: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    x, mask = batch((7, 4))
    dropping, without = made(factory), made(factory, attention_dropout=0.0)
    before = torch.get_rng_state()
    monkeypatch.setattr(dropout, "draw", None)
    wanted = run(without, x, mask)
    assert_same(run(dropping.eval(), x, mask), wanted, 0.0)
    assert torch.equal(torch.get_rng_state(), before)
    with pytest.raises(TypeError):
        dropping.train()(x, mask)


@pytest.mark.parametrize("factory", FACTORIES)
def test_every_call_draws_anew_and_attention_shows_whole_weights(factory: Any) -> None:
    module = made(factory)
    x, mask = batch((7, 4))
    assert not torch.equal(module(x, mask), module(x, mask))
    assert isinstance(module, TensorizedLayer)
    shown, again = module.attention(x, mask), module.eval().attention(x, mask)
    torch.testing.assert_close(shown, again, rtol=0, atol=1e-14)
