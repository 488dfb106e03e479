"""Pair classifiers: the authors' whole inference model, both features, published sizes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.build import make
from harness.registry import builtins
from reference_impls.encoders import Embedding, Encoder, PairClassifier
from reference_impls.mechanism import BadOption

torch.set_num_threads(1)

GOLDEN = Path(__file__).parents[2] / "harness" / "verify" / "golden" / "snli_model" / "tiny.npz"
HEAD = {
    "hidden.w": "pre_w",
    "hidden.b": "pre_b",
    "logits.w": "out_w",
    "logits.b": "out_b",
    "highway.map.w": "hw_map_w",
    "highway.map.b": "hw_map_b",
    "highway.gate.w": "hw_gate_w",
    "highway.gate.b": "hw_gate_b",
    "embedding.words.weight": "embedding",
}
ELU = ("[p;h;p-h;p*h]", "[p;h;|p-h|;p-h]")


def fusion(name: str, d_in: int, d_out: int, heads: int, **options: Any) -> nn.Module:
    """A mechanism's module: its default implementation, or the one that is named."""
    mechanism = builtins()[name.partition(".")[0]]
    implementation = mechanism.implementation(name.partition(".")[2] or mechanism.default)
    return make(
        mechanism,
        implementation.factory,
        d_in,
        d_out,
        heads,
        {**mechanism.options, **implementation.options, **options},
    )


def golden() -> tuple[dict[str, Any], dict[str, np.ndarray]]:
    with np.load(GOLDEN) as z:
        arrays = {name: z[name] for name in z.files}
    return json.loads(str(arrays.pop("config"))), arrays


def released(implementation: str, dtype: torch.dtype) -> PairClassifier:
    """The model of the golden with its weights."""
    config, arrays = golden()
    hidden, width = config["hidden"], config["heads"] * config["head_dim"]
    options = {name: config[name] for name in ("activation", "scale_t")}
    fused = fusion(
        f"mtsa_released.{implementation}",
        config["embedding_dim"],
        width,
        config["heads"],
        **options,
    )
    pooling = fusion("source2token", width, width, 0, activation=config["activation"])
    model = PairClassifier(
        Embedding(torch.zeros(arrays["embedding"].shape)),
        Encoder(fused, pooling, dropout=0.0),
        width=width,
        hidden=hidden,
        classes=3,
        dropout=0.0,
    )
    names = {
        name: HEAD.get(name)
        or name.replace("encoder.fusion.", "mtsa_").replace("encoder.pooling.", "s2t_")
        for name in model.state_dict()
    }
    floats = {name for name, a in arrays.items() if a.dtype == np.float32}
    assert set(names.values()) == floats - {"output", "xent", "loss", "rep1", "rep2"}
    model.to(dtype)
    model.load_state_dict(
        {name: torch.from_numpy(arrays[theirs]).to(dtype) for name, theirs in names.items()}
    )
    return model


def decayed(model: nn.Module) -> Tensor:
    """The released penalty: |w|^2 / 2 of matrices, twice for the encoder that is built twice."""
    total = torch.zeros((), dtype=torch.float64)
    for name, weight in model.named_parameters():
        if name.endswith("_b") or name.endswith(".b") or name.startswith("embedding."):
            continue
        times = 2 if name.startswith("encoder.fusion.") else 1
        total = total + times * (weight.double() ** 2).sum() / 2
    return total


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("implementation", ["plain", "algorithm1"])
def test_the_authors_inference_model(implementation: str, dtype: torch.dtype) -> None:
    config, arrays = golden()
    model = released(implementation, dtype).train()
    first, second = (torch.from_numpy(arrays[f"tokens{k}"]).long() for k in (1, 2))
    logits = model(first, second)
    xent = cross_entropy(logits, torch.from_numpy(arrays["label"]).long())
    loss = xent + config["weight_decay"] * decayed(model)
    single = dtype == torch.float32
    tolerance = 1e-5 if single else 1e-10
    for got, name in ((logits, "output"), (loss, "loss")):
        wanted = arrays[name if single else f"{name}_f64"].astype(np.float64)
        np.testing.assert_allclose(
            got.detach().double().numpy(),
            wanted,
            rtol=0,
            atol=tolerance * max(1.0, np.abs(wanted).max()),
        )
    # Of these only float32 numbers are given.
    for got, name in (
        (xent, "xent"),
        (model.encoder(*model.embedding(first)), "rep1"),
        (model.encoder(*model.embedding(second)), "rep2"),
    ):
        np.testing.assert_allclose(got.detach().numpy(), arrays[name], rtol=0, atol=1e-6)
    loss.backward()
    assert all(p.grad is not None and p.grad.isfinite().all() for p in model.parameters())


class Total(nn.Module):
    """Sum over real tokens."""

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        return (x * mask[..., None]).sum(1)


def small(**options: Any) -> PairClassifier:
    torch.manual_seed(0)
    table = torch.randn(5, 4)
    table[0] = 0
    encoder = Encoder(Total(), None, options.pop("encoder_dropout", 0.0))
    settings = {"width": 4, "hidden": 6, "classes": 3, "dropout": 0.0, **options}
    model = PairClassifier(Embedding(table), encoder, **settings).double()
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
@pytest.mark.parametrize("features", ELU)
@pytest.mark.parametrize("activation", ["elu", "relu"])
def test_the_formula(features: str, highway: bool, activation: str) -> None:
    model = small(features=features, highway=highway, activation=activation)
    w = {name: p.detach().numpy() for name, p in model.named_parameters()}
    p, h = (w["embedding.words.weight"][ids.numpy()].sum(1) for ids in (FIRST, SECOND))
    difference = [p - h, p * h] if features == ELU[0] else [np.abs(p - h), p - h]
    f = elu if activation == "elu" else lambda z: np.maximum(z, 0)
    hidden = f(np.concatenate([p, h, *difference], 1) @ w["hidden.w"] + w["hidden.b"])
    if highway:
        gate = 1 / (1 + np.exp(-(hidden @ w["highway.gate.w"] + w["highway.gate.b"])))
        mapped = f(hidden @ w["highway.map.w"] + w["highway.map.b"])
        hidden = gate * mapped + (1 - gate) * hidden
    assert any("highway" in name for name in w) == highway
    wanted = hidden @ w["logits.w"] + w["logits.b"]
    np.testing.assert_allclose(model(FIRST, SECOND).detach().numpy(), wanted, rtol=0, atol=1e-13)


def test_more_padding_of_either_sentence_changes_nothing() -> None:
    model = released("algorithm1", torch.float64)
    longer = nn.functional.pad(SECOND, (0, 5))
    torch.testing.assert_close(model(FIRST, longer), model(FIRST, SECOND), rtol=0, atol=1e-13)
    torch.testing.assert_close(model(longer, FIRST), model(SECOND, FIRST), rtol=0, atol=1e-13)


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
