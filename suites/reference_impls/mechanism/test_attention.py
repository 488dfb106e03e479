"""The scores that ``attention`` shows are those by which ``forward`` attends."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch

from reference_impls.disa.modules import PlainDisa
from reference_impls.msmsa.modules import PlainMsmsa
from reference_impls.mtsa.optimized import Algorithm1MTSA
from reference_impls.multi_head.modules import PlainMultiHead
from reference_impls.multi_scale_transformer.modules import WindowedMultiScaleTransformer
from reference_impls.resa.modules import PlainResa
from reference_impls.resa.selecting import given
from reference_impls.source2token.modules import PlainSource2Token
from reference_impls.transformer.modules import SdpaTransformer
from suites.support.batches import FAST, PLAIN, build, error, module_of
from suites.support.batches import batch as batch_of

B, N, D = 3, 6, 8
LENGTHS = (6, 4, 1)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(5)
    mask = torch.arange(N)[None] < torch.tensor(LENGTHS)[:, None]
    return torch.randn(B, N, D, dtype=torch.float64), mask


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        # With one feature per head the mean over features is the weight itself.
        *(
            (Algorithm1MTSA, {"heads": D, "masks": masks, "scale_t": scale_t})
            for masks in (None, ["window:2", "distance:0.5", *["backward_inclusive"] * 6])
            for scale_t in ("identity", "log_sigmoid")
        ),
        (PlainMultiHead, {"heads": 2, "positions": None}),
        (PlainMsmsa, {"heads": 4, "scales": [1, 3, 5, "n/2"]}),
    ],
)
def test_values_weighted_as_shown_are_what_forward_gives(
    batch: tuple, kind: Any, options: dict[str, Any]
) -> None:
    x, mask = batch
    module = kind(D, D, **options).double()
    found, clean = module.attention(x, mask), x.masked_fill(~mask[..., None], 0)
    out = torch.cat(list(found["token2token_weights"] @ (clean @ module.v_w[:, None])), dim=-1)
    torch.testing.assert_close(out @ module.o_w, module(x, mask), rtol=0, atol=1e-12)
    q, k = (clean @ w[:, None] for w in (module.q_w, module.k_w))  # [H, B, N, d_h]
    expected = q @ k.mT / q.shape[-1] ** 0.5
    torch.testing.assert_close(found["token2token_scores"], expected, rtol=0, atol=1e-12)


def test_source2token(batch: tuple) -> None:
    x, mask = batch
    module = PlainSource2Token(D, D).double()
    for bias in (module.s1_b, module.s2_b):
        torch.nn.init.normal_(bias)
    found, clean = module.attention(x, mask), x.masked_fill(~mask[..., None], 0)
    hidden = torch.relu(clean @ module.s1_w + module.s1_b)
    # A bias on all keys alike changes no weight: only the scores show it.
    scores = hidden @ module.s2_w + module.s2_b
    torch.testing.assert_close(found["scores"], scores, rtol=0, atol=1e-12)
    out = (found["weights"] * clean).sum(1)
    torch.testing.assert_close(out, module(x, mask), rtol=0, atol=1e-12)


def by_direction(module: torch.nn.Module, x: torch.Tensor, prefix: str) -> torch.Tensor:
    """Tokens of one block: h of eq. 4, [B, N, 1]."""
    w, b = (module.get_parameter(f"{prefix}map_{kind}") for kind in "wb")
    return torch.nn.functional.elu(x @ w + b)


def gated(module: torch.nn.Module, h: torch.Tensor, a: torch.Tensor, prefix: str) -> torch.Tensor:
    """The fusion gate of eq. 7-8, its biases zero as initialised."""
    fi, fa = (module.get_parameter(f"{prefix}{name}_w") for name in ("fi", "fa"))
    gate = torch.sigmoid(h @ fi + a @ fa)
    return gate * h + (1 - gate) * a


@pytest.mark.parametrize("direction", ["both", "diagonal"])
def test_disa_with_one_feature_per_block(batch: tuple, direction: str) -> None:
    x, mask = batch
    clean = x.masked_fill(~mask[..., None], 0)
    prefixes = ("fw_", "bw_") if direction == "both" else ("",)
    module = PlainDisa(D, len(prefixes), direction=direction).double()
    weights = module.attention(x, mask)["token2token_weights"]
    assert weights.shape == (len(prefixes), B, N, N)
    parts = []
    for prefix, own in zip(prefixes, weights, strict=True):
        h = by_direction(module, clean, prefix)
        parts.append(gated(module, h, own @ h, prefix))
    out = torch.cat(parts, -1).masked_fill(~mask[..., None], 0)
    torch.testing.assert_close(out, module(x, mask), rtol=0, atol=1e-12)


def test_resa_shows_selected_pairs_only(batch: tuple) -> None:
    x, mask = batch
    clean = x.masked_fill(~mask[..., None], 0)
    module = PlainResa(D, 2).double()
    heads = torch.rand(B, N) < 0.6
    dependents = torch.rand(B, N) < 0.6
    module._select = lambda *_: given(heads, dependents, mask)  # type: ignore[method-assign]
    weights = module.attention(x, mask)["token2token_weights"]
    chosen = (heads & mask)[:, :, None] & (dependents & mask)[:, None]
    assert (weights[:, ~chosen] == 0).all()
    assert (weights.sum(-1).sub(1).abs() < 1e-12).any()
    out = module(x, mask, selection=given(heads, dependents, mask))
    for prefix, own, got in zip(("fw_", "bw_"), weights, out.split(1, -1), strict=True):
        h = by_direction(module, clean, prefix)
        wanted = gated(module, h, own @ h, prefix)
        selected = heads & mask
        torch.testing.assert_close(got[selected], wanted[selected], rtol=0, atol=1e-12)


def values_of(module: torch.nn.Module, h: torch.Tensor, layer: int) -> torch.Tensor:
    """[B, M, d] -> [H, B, M, d_h]."""
    return torch.stack([h @ w for w in getattr(module, f"l{layer}_v_w")])


def begun(module: torch.nn.Module, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """[CLS] and the tokens."""
    clean = x.masked_fill(~mask[..., None], 0)
    return torch.cat([module.cls.expand(B, 1, -1), clean], dim=1)  # type: ignore[operator]


def norm(h: torch.Tensor) -> torch.Tensor:
    """As initialised: scale one, offset zero."""
    return (h - h.mean(-1, keepdim=True)) / (h.var(-1, keepdim=True, correction=0) + 1e-5).sqrt()


def test_a_transformer_attends_by_what_it_shows(batch: tuple) -> None:
    """Eq. 1-5 from the shown weights alone, layer by layer."""
    x, mask = batch
    module = SdpaTransformer(D, D, heads=2, layers=2, readout="sum", positions=False).double()
    found = module.attention(x, mask)
    assert found["l1_token2token_weights"].shape == (2, B, N + 1, N + 1)
    h, real = begun(module, x, mask), torch.nn.functional.pad(mask, (1, 0), value=True)
    for i in range(2):
        scores = found[f"l{i}_token2token_scores"].masked_fill(~real[:, None], -torch.inf)
        weights = scores.softmax(-1) * real[..., None]
        torch.testing.assert_close(found[f"l{i}_token2token_weights"], weights, rtol=0, atol=1e-12)
        mixed = torch.cat(list(found[f"l{i}_token2token_weights"] @ values_of(module, h, i)), -1)
        h = norm(h + mixed @ getattr(module, f"l{i}_o_w"))
        hidden = (h @ getattr(module, f"l{i}_ff1_w")).relu()
        h = norm(h + hidden @ getattr(module, f"l{i}_ff2_w"))
    tokens = h[:, 1:].masked_fill(~mask[..., None], -torch.inf)
    torch.testing.assert_close(h[:, 0] + tokens.amax(1), module(x, mask), rtol=0, atol=1e-12)


def test_a_multi_scale_transformer_attends_by_what_it_shows(batch: tuple) -> None:
    """Eq. 6-10 from the shown weights alone; nothing outside of a window."""
    x, mask = batch
    scales = [[1, 3], [3, 5]]
    module = WindowedMultiScaleTransformer(D, D, heads=2, readout="sum", scales=scales).double()
    found = module.attention(x, mask)
    real = torch.nn.functional.pad(mask, (1, 0), value=True)
    h = begun(module, x, mask)
    far = (torch.arange(N + 1)[:, None] - torch.arange(N + 1)).abs()
    for i, widths in enumerate(scales):
        weights = found[f"l{i}_token2token_weights"]
        for head, width in enumerate(widths):
            assert (weights[head][:, far > width // 2] == 0).all()
        sums = weights.sum(-1)
        assert torch.allclose(sums, real.double().expand_as(sums), atol=1e-12)
        mixed = torch.cat(list(weights @ values_of(module, h, i)), -1)
        h = norm(h + (mixed @ getattr(module, f"l{i}_o_w")).relu())
        h = h.masked_fill(~real[..., None], 0)
    tokens = h[:, 1:].masked_fill(~mask[..., None], -torch.inf)
    torch.testing.assert_close(h[:, 0] + tokens.amax(1), module(x, mask), rtol=0, atol=1e-12)


LOOKED_AT = [name for name in (*FAST, *PLAIN) if hasattr(module_of(name), "attention")]


@pytest.mark.parametrize("name", LOOKED_AT)
def test_what_is_shown_are_probabilities_of_what_forward_takes(name: str) -> None:
    module: Any = build(name)
    if hasattr(module, "selection"):  # the rows of what is not selected are 0
        module.selection = "all"
    x, mask = batch_of((7, 4, 1, 0))
    shown = module.attention(x, mask)
    for content in (math.nan, 1e6):
        found = module.attention(x.masked_fill(~mask[..., None], content), mask)
        for key in shown:
            assert torch.equal(found[key], shown[key]), key
    whole, ones = module.attention(x, None), module.attention(x, torch.ones_like(mask))
    for key in shown:
        assert whole[key].shape == shown[key].shape
        assert error(whole[key], ones[key]) < 1e-14, key
    pairs = [w for what, w in shown.items() if what.endswith("token2token_weights")]
    if not pairs:
        weights = shown["weights"]  # [B, N] or [B, N, D]
        assert weights.dim() == 2 or weights.shape[2] > 1
        assert not weights[~mask].any()
        assert (weights.sum(1)[:3] - 1).abs().max() < 1e-11
    elif pairs[0].shape[-1] == mask.shape[1] + 1:  # [CLS], which is real in every sample
        mask = torch.nn.functional.pad(mask, (1, 0), value=True)
    for weights in pairs:  # [H, B, N, N]
        assert not (weights < 0).any()
        assert not weights[:, ~mask].any()
        assert not weights.transpose(-1, -2)[:, ~mask].any()
        total = weights.sum(-1)[:, mask]
        assert torch.minimum(total.abs(), (total - 1).abs()).max() < 1e-11
        # In the first sample every token attends in some head.
        assert (total[:, :7].amax(0) > 0.5).all()


@pytest.mark.parametrize("name", ["transformer.plain", "transformer.sdpa"])
def test_what_is_shown_of_a_transformer_knows_positions(name: str) -> None:
    module: Any = build(name)
    x = torch.ones(1, 5, module.d_in, dtype=torch.float64)
    for what, shown in module.attention(x).items():  # [H, B, M, M]
        assert (shown[..., 1, :] - shown[..., 2, :]).abs().amax(-1).min() > 1e-6, what
