"""From the golden folder snli_model to the authors' whole natural-language-inference model."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from reference_impls.golden_rows import Arrays, Config
from reference_impls.models.encoders import Embedding, Encoder, PairClassifier
from reference_impls.source2token.modules import DirectSource2Token

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
"""Weights of `PairClassifier` outside its encoder, by their names in the file."""


def _array_of(name: str) -> str:
    """The file's name of a weight."""
    inside = name.replace("encoder.fusion.", "mtsa_").replace("encoder.pooling.", "s2t_")
    return HEAD.get(name, inside)


def _penalty(model: nn.Module) -> Tensor:
    """|w|^2 / 2 of matrices, twice for the encoder, whose graph the program builds twice."""
    total = torch.zeros((), dtype=torch.float64)
    for name, weight in model.named_parameters():
        if not name.endswith(("_b", ".b")) and not name.startswith("embedding."):
            times = 2 if name.startswith("encoder.fusion.") else 1
            total = total + times * (weight.double() ** 2).sum() / 2
    return total


def inference_model(
    config: Config, arrays: Arrays, build: Callable[..., nn.Module], dtype: torch.dtype
) -> dict[str, Tensor]:
    """Logits, losses and sentence vectors of the model around a module that `build` makes.

    Returns
    -------
    dict
        By the names of the file's arrays.
    """
    width = config["heads"] * config["head_dim"]
    options = {name: config[name] for name in ("activation", "scale_t")}
    model = PairClassifier(
        Embedding(torch.zeros(arrays["embedding"].shape)),
        Encoder(
            build(config["embedding_dim"], width, config["heads"], options),
            DirectSource2Token(width, width, activation=config["activation"]),
            dropout=0.0,
        ),
        width=width,
        hidden=config["hidden"],
        classes=arrays["out_b"].shape[0],
        dropout=0.0,
    ).to(dtype)
    # Strict: a weight that is missing, left over or of another shape is an error.
    state = {name: torch.from_numpy(arrays[_array_of(name)]) for name in model.state_dict()}
    model.load_state_dict(state)
    first, second = (torch.from_numpy(arrays[f"tokens{k}"]).long() for k in (1, 2))
    logits = model(first, second)
    entropy = cross_entropy(logits, torch.from_numpy(arrays["label"]).long())
    return {
        "output": logits,
        "xent": entropy,
        "loss": entropy + config["weight_decay"] * _penalty(model),
        "rep1": model.encoder(*model.embedding(first)),
        "rep2": model.encoder(*model.embedding(second)),
    }
