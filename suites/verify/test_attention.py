"""The scores that ``attention`` shows are those by which ``forward`` attends."""

from __future__ import annotations

import pytest
import torch

from reference_impls.mtsa.optimized import Algorithm1MTSA, Algorithm1ReleasedMTSA
from reference_impls.multi_head.plain import PlainMultiHead
from reference_impls.source2token.plain import PlainSource2Token

B, N, D = 3, 6, 8
LENGTHS = (6, 4, 1)


@pytest.fixture
def batch() -> tuple[torch.Tensor, torch.Tensor]:
    torch.manual_seed(5)
    mask = torch.arange(N)[None] < torch.tensor(LENGTHS)[:, None]
    return torch.randn(B, N, D, dtype=torch.float64), mask


@pytest.mark.parametrize("masks", [None, ["window:2", "distance:0.5", *["backward_inclusive"] * 6]])
@pytest.mark.parametrize("scale_t", ["identity", "log_sigmoid"])
def test_mtsa_with_one_feature_per_head(batch: tuple, masks: list | None, scale_t: str) -> None:
    # With one feature per head the mean over features is the weight itself.
    x, mask = batch
    module = Algorithm1MTSA(D, D, heads=D, masks=masks, scale_t=scale_t).double()
    weights = module.attention(x, mask)["token2token_weights"]
    v = torch.stack([x.masked_fill(~mask[..., None], 0) @ w for w in module.v_w])
    out = torch.cat(list(weights @ v), dim=-1) @ module.o_w
    torch.testing.assert_close(out, module(x, mask), rtol=0, atol=1e-12)


def test_mtsa_rows_sum_to_one_and_forbidden_pairs_are_zero(batch: tuple) -> None:
    x, mask = batch
    found = Algorithm1MTSA(D, D, heads=2).double().attention(x, mask)
    weights = found["token2token_weights"]
    assert weights.shape == (2, B, N, N)
    assert found["source2token_scores"].shape == (2, B, N, D // 2)
    for h, forward in enumerate((True, False)):
        for b, length in enumerate(LENGTHS):
            for i in range(N):
                found_keys = range(i) if forward else range(i + 1, length)
                keys = [j for j in found_keys if i < length]
                row = weights[h, b, i]
                assert row.sum().item() == pytest.approx(1.0 if keys else 0.0, abs=1e-12)
                assert all(row[j] == 0 for j in range(N) if j not in keys)


def test_released_form_gives_attention_of_its_values(batch: tuple) -> None:
    x, mask = batch
    module = Algorithm1ReleasedMTSA(D, D, heads=D, fusion_gate=False).double()
    assert module.v_b is not None
    weights = module.attention(x, mask)["token2token_weights"]
    clean = x.masked_fill(~mask[..., None], 0)
    v = torch.relu(clean @ module.v_w[:, None] + module.v_b[:, None, None])
    out = torch.cat(list(weights @ v), dim=-1).masked_fill(~mask[..., None], 0)
    torch.testing.assert_close(out, module(x, mask), rtol=0, atol=1e-12)


def test_multi_head(batch: tuple) -> None:
    x, mask = batch
    module = PlainMultiHead(D, D, heads=2, positions=None).double()
    assert module.o_w is not None
    found = module.attention(x, mask)
    clean = x.masked_fill(~mask[..., None], 0)
    v = torch.stack([clean @ w for w in module.v_w])
    out = torch.cat(list(found["token2token_weights"] @ v), dim=-1) @ module.o_w
    torch.testing.assert_close(out, module(x, mask), rtol=0, atol=1e-12)
    q = torch.stack([clean @ w for w in module.q_w])
    k = torch.stack([clean @ w for w in module.k_w])
    expected = torch.einsum("hbid,hbjd->hbij", q, k) / (D // 2) ** 0.5
    torch.testing.assert_close(found["token2token_scores"], expected, rtol=0, atol=1e-12)


def test_source2token(batch: tuple) -> None:
    x, mask = batch
    module = PlainSource2Token(D, D).double()
    weights = module.attention(x, mask)["weights"]
    assert (weights[~mask] == 0).all()
    out = (weights * x.masked_fill(~mask[..., None], 0)).sum(1)
    torch.testing.assert_close(out, module(x, mask), rtol=0, atol=1e-12)
