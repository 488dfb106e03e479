"""Sentence, pair and sequence models against their formulas in numpy."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from harness.registry import builtins
from harness.verify.batches import Batch
from harness.verify.check import check_batch
from reference_impls.encoders import (
    Embedding,
    Encoder,
    PairRelatedness,
    SentenceClassifier,
    SequenceRegressor,
    degree_distribution,
    expected_degree,
)
from reference_impls.mechanism import BadOption

IDS = torch.tensor([[3, 1, 2, 0], [2, 0, 0, 0], [1, 1, 3, 2]])
OTHER = torch.tensor([[2, 2, 0, 0], [1, 3, 1, 2], [3, 0, 0, 0]])
D, WIDTH, HIDDEN = 5, 5, 7


class Kept(nn.Module):
    """Passes tokens on and keeps what it saw."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        self.x, self.mask = x.detach().clone(), mask
        return x


class Total(nn.Module):
    """Sum over real tokens."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return (x * mask[..., None]).sum(1)


@pytest.fixture
def parts() -> tuple[Embedding, Encoder]:
    torch.manual_seed(0)
    table = torch.randn(4, D)
    table[0] = 0
    return Embedding(table), Encoder(Kept(), Total(), dropout=0.0)


def numbers(tensor: Tensor | None) -> np.ndarray:
    assert tensor is not None
    return tensor.detach().numpy().astype(np.float64)


def sentence(embedding: Embedding, ids: Tensor) -> np.ndarray:
    table = numbers(embedding.words.weight)
    return np.stack([sum(table[i] for i in row if i != 0) for row in ids.numpy()])


def test_sentence_classifier(parts: tuple[Embedding, Encoder]) -> None:
    model = SentenceClassifier(*parts, width=WIDTH, hidden=HIDDEN, classes=3, dropout=0.0)
    hidden = np.maximum(
        sentence(parts[0], IDS) @ numbers(model.hidden.w) + numbers(model.hidden.b), 0
    )
    expected = hidden @ numbers(model.logits.w)
    np.testing.assert_allclose(numbers(model(IDS)), expected, rtol=0, atol=1e-5)
    assert model.logits.b is None


def test_pair_relatedness(parts: tuple[Embedding, Encoder]) -> None:
    model = PairRelatedness(*parts, width=WIDTH, hidden=HIDDEN, degrees=5, dropout=0.0)
    assert model.logits.b is not None
    torch.nn.init.normal_(model.logits.b)
    a, b = sentence(parts[0], IDS), sentence(parts[0], OTHER)
    features = np.concatenate([a * b, np.abs(a - b)], axis=1)
    hidden = np.maximum(features @ numbers(model.hidden.w) + numbers(model.hidden.b), 0)
    expected = hidden @ numbers(model.logits.w) + numbers(model.logits.b)
    np.testing.assert_allclose(numbers(model(IDS, OTHER)), expected, rtol=0, atol=1e-4)
    torch.testing.assert_close(model(IDS, OTHER), model(OTHER, IDS))


def test_sequence_regressor() -> None:
    torch.manual_seed(1)
    kept = Kept()
    model = SequenceRegressor(
        Encoder(kept, Total(), 0.0), width=D, hidden=HIDDEN, outputs=2, dropout=0.0
    )
    x = torch.randn(3, 4, D)
    hidden = np.maximum(numbers(x).sum(1) @ numbers(model.hidden.w) + numbers(model.hidden.b), 0)
    expected = hidden @ numbers(model.output.w) + numbers(model.output.b)
    np.testing.assert_allclose(numbers(model(x)), expected, rtol=0, atol=1e-5)
    assert kept.mask.all()


def test_the_mask_is_that_of_the_words(parts: tuple[Embedding, Encoder]) -> None:
    x, mask = parts[0](IDS)
    assert mask.tolist() == [[i != 0 for i in row] for row in IDS.tolist()]
    parts[1](x, mask)
    assert parts[1].fusion.mask is mask
    torch.testing.assert_close(parts[1].fusion.x, x)


def test_a_fusion_that_gives_a_sentence_is_not_pooled() -> None:
    x, mask = torch.randn(2, 3, D), torch.ones(2, 3, dtype=torch.bool)
    torch.testing.assert_close(Encoder(Total(), None, 0.0)(x, mask), x.sum(1))


def test_dropout_acts_on_tokens_and_sentences_in_training_only() -> None:
    torch.manual_seed(2)
    x, mask = torch.ones(40, 6, 50), torch.ones(40, 6, dtype=torch.bool)
    kept = Kept()
    encoder = Encoder(kept, Total(), dropout=0.25)
    out = encoder(x, mask)
    assert kept.x.unique().tolist() == pytest.approx([0.0, 4 / 3])
    assert float((kept.x == 0).float().mean()) == pytest.approx(0.25, abs=0.02)
    assert (out == 0).float().mean().item() == pytest.approx(0.25, abs=0.05)
    encoder.eval()
    torch.testing.assert_close(encoder(x, mask), x.sum(1))
    model = SequenceRegressor(
        Encoder(Kept(), Total(), 0.0), width=50, hidden=9, outputs=1, dropout=0.5
    )
    assert (model(x) != model(x)).any()


@pytest.mark.parametrize(
    ("degree", "expected"),
    [
        (1.0, [1, 0, 0, 0, 0]),
        (3.4, [0, 0, 0.6, 0.4, 0]),
        (4.75, [0, 0, 0, 0.25, 0.75]),
        (5.0, [0, 0, 0, 0, 1]),
    ],
)
def test_the_distribution_of_a_degree(degree: float, expected: list[float]) -> None:
    found = degree_distribution(torch.tensor([degree], dtype=torch.float64), 5)
    torch.testing.assert_close(found, torch.tensor([expected], dtype=torch.float64))
    assert float(found @ torch.arange(1.0, 6.0, dtype=torch.float64)) == pytest.approx(degree)


def test_the_expected_degree() -> None:
    logits = torch.log(torch.tensor([[0.1, 0.2, 0.3, 0.4, 1e-30], [0.5, 1e-30, 1e-30, 1e-30, 0.5]]))
    assert expected_degree(logits).tolist() == pytest.approx([0.1 + 0.4 + 0.9 + 1.6, 3.0], rel=1e-5)


PRESET_TRIALS = [
    ("multi_scale_transformer", preset)
    for preset in ("mirrored_hier_s", "mirrored_deephier_s", "mirrored_flex", "sst", "ptb_pos")
] + [("transformer", preset) for preset in ("mirrored_transformer", "sst_transformer")]


@pytest.mark.parametrize(("name", "preset"), PRESET_TRIALS)
def test_a_preset_is_verified_as_what_it_stands_for(name: str, preset: str) -> None:
    """Its heads and its width, which no trial of another configuration has."""
    mechanism = builtins()[name]
    implementation = mechanism.implementation(mechanism.default)
    trial = Batch(preset, {"preset": preset}, (7, 4))
    found, _ = check_batch(mechanism, implementation, trial, "f64", "cpu")
    assert all(deviation.ok for deviation in found)
    assert len(found) > 6
    unknown = Batch("nonsense", {"preset": "nonsense"}, (3,))
    with pytest.raises(BadOption, match="preset='nonsense'"):
        check_batch(mechanism, implementation, unknown, "f64", "cpu")
