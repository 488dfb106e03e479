"""Sentence, pair and sequence models against their formulas in numpy.

The authors' whole inference model is a golden, see `reference_impls.golden_encoders`.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from reference_impls.mechanism import BadOption
from reference_impls.models.encoders import (
    Dense,
    Embedding,
    Encoder,
    PairClassifier,
    PairRelatedness,
    SentenceClassifier,
    SequenceRegressor,
    degree_distribution,
    expected_degree,
)

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


def layered(features: np.ndarray, hidden: Dense, last: Dense) -> np.ndarray:
    """Two layers, relu between them."""
    z = np.maximum(features @ numbers(hidden.w) + numbers(hidden.b), 0) @ numbers(last.w)
    return z if last.b is None else z + numbers(last.b)


def test_sentence_classifier(parts: tuple[Embedding, Encoder]) -> None:
    model = SentenceClassifier(*parts, width=WIDTH, hidden=HIDDEN, classes=3, dropout=0.0)
    expected = layered(sentence(parts[0], IDS), model.hidden, model.logits)
    np.testing.assert_allclose(numbers(model(IDS)), expected, rtol=0, atol=1e-5)
    assert model.logits.b is None


def test_an_entry_is_between_the_words_and_the_fusion(parts: tuple[Embedding, Encoder]) -> None:
    torch.manual_seed(2)
    entry = nn.Linear(D, WIDTH + 1)
    x, mask = parts[0](IDS)
    encoder = Encoder(Kept(), Total(), dropout=0.0, entry=entry)
    expected = (entry(x) * mask[..., None]).sum(1)
    torch.testing.assert_close(encoder(x, mask), expected, rtol=0, atol=1e-6)


def test_pair_relatedness(parts: tuple[Embedding, Encoder]) -> None:
    model = PairRelatedness(*parts, width=WIDTH, hidden=HIDDEN, degrees=5, dropout=0.0)
    assert model.logits.b is not None
    torch.nn.init.normal_(model.logits.b)
    a, b = sentence(parts[0], IDS), sentence(parts[0], OTHER)
    features = np.concatenate([a * b, np.abs(a - b)], axis=1)
    expected = layered(features, model.hidden, model.logits)
    np.testing.assert_allclose(numbers(model(IDS, OTHER)), expected, rtol=0, atol=1e-4)


def test_sequence_regressor() -> None:
    torch.manual_seed(1)
    kept = Kept()
    model = SequenceRegressor(
        Encoder(kept, Total(), 0.0), width=D, hidden=HIDDEN, outputs=2, dropout=0.0
    )
    x = torch.randn(3, 4, D)
    expected = layered(numbers(x).sum(1), model.hidden, model.output)
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


def test_the_hidden_layer_drops_features_in_training_only() -> None:
    torch.manual_seed(0)
    parts = Embedding(torch.randn(4, 6)), Encoder(Total(), None, 0.0)
    sizes: dict[str, Any] = {"width": 6, "hidden": 200, "dropout": 0.5}
    for model, given in (
        (SentenceClassifier(*parts, classes=3, **sizes), (IDS,)),
        (PairRelatedness(*parts, degrees=5, **sizes), (IDS, OTHER)),
        (
            SequenceRegressor(Encoder(Kept(), Total(), 0.0), outputs=1, **sizes),
            (torch.ones(2, 3, 6),),
        ),
    ):
        assert not torch.equal(model(*given), model(*given))
        model.eval()
        assert torch.equal(model(*given), model(*given))


def test_word_vectors_are_trained_but_that_of_padding() -> None:
    embedding = Embedding(torch.randn(4, 3))
    x, _ = embedding(torch.tensor([[1, 3, 0], [1, 0, 0]]))
    (x * 2).sum().backward()
    grad = embedding.words.weight.grad
    assert grad is not None
    assert grad.tolist() == [[0.0] * 3, [4.0] * 3, [0.0] * 3, [2.0] * 3]


FEATURES = ("[p;h;p-h;p*h]", "[p;h;|p-h|;p-h]")


def small(**options: Any) -> PairClassifier:
    torch.manual_seed(0)
    table = torch.randn(5, 4)
    table[0] = 0
    sizes: dict[str, Any] = {"width": 4, "hidden": 6, "classes": 3, "dropout": 0.0, **options}
    model = PairClassifier(Embedding(table), Encoder(Total(), None, 0.0), **sizes).double()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if name.endswith(".b"):
                parameter.normal_()
    return model


FIRST = torch.tensor([[3, 1, 2, 0], [2, 0, 0, 0], [1, 1, 3, 4]])
SECOND = torch.tensor([[2, 2], [1, 3], [4, 0]])


def elu(z: np.ndarray) -> np.ndarray:
    return np.where(z > 0, z, np.expm1(np.minimum(z, 0)))


@pytest.mark.parametrize("highway", [True, False])
@pytest.mark.parametrize("features", FEATURES)
@pytest.mark.parametrize("activation", ["elu", "relu"])
def test_the_formula(features: str, highway: bool, activation: str) -> None:
    model = small(features=features, highway=highway, activation=activation)
    w = {name: p.detach().numpy() for name, p in model.named_parameters()}
    p, h = (w["embedding.words.weight"][ids.numpy()].sum(1) for ids in (FIRST, SECOND))
    difference = [p - h, p * h] if features == FEATURES[0] else [np.abs(p - h), p - h]
    f = elu if activation == "elu" else lambda z: np.maximum(z, 0)
    hidden = f(np.concatenate([p, h, *difference], 1) @ w["hidden.w"] + w["hidden.b"])
    if highway:
        gate = 1 / (1 + np.exp(-(hidden @ w["highway.gate.w"] + w["highway.gate.b"])))
        mapped = f(hidden @ w["highway.map.w"] + w["highway.map.b"])
        hidden = gate * mapped + (1 - gate) * hidden
    assert any("highway" in name for name in w) == highway
    wanted = hidden @ w["logits.w"] + w["logits.b"]
    np.testing.assert_allclose(model(FIRST, SECOND).detach().numpy(), wanted, rtol=0, atol=1e-13)


def test_dropout_acts_in_front_of_highway_and_logits_in_training_only() -> None:
    model = small(dropout=0.5)
    seen: dict[str, Tensor] = {}
    assert model.highway is not None
    for name, part in (("highway", model.highway), ("logits", model.logits)):
        part.register_forward_pre_hook(lambda _, a, name=name: seen.update({name: a[0]}))
    with torch.no_grad():
        model(FIRST.repeat(100, 1), SECOND.repeat(100, 1))
        for value in seen.values():
            # 1800 numbers: five standard deviations are 0.06.
            assert (value == 0).double().mean().item() == pytest.approx(0.5, abs=0.06)
        model.eval()(FIRST, SECOND)
    assert all((value != 0).all() for value in seen.values())


@pytest.mark.parametrize("option", ["features", "activation"])
def test_unknown_choices_are_refused(option: str) -> None:
    with pytest.raises(BadOption, match=f"{option}='other'; expected"):
        small(**{option: "other"})
