"""Attention scores of a trained model on given sentences, as one ``.npz`` file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import torch
from torch import nn

from harness.errors import UsageError
from harness.train.batches import padded
from harness.train.task import Data
from reference_impls.models.encoders import Embedding, Encoder
from reference_impls.models.translation import EncoderLayer, Translator


def scores(
    module: nn.Module, data: Data, sentences: Sequence[str], device: torch.device
) -> dict[str, np.ndarray]:
    """Scores by name, ``NAME/K`` for sentence K, padding cut off.

    ``tokens/K`` [n] are the texts; the fusion's come as its module's ``attention`` gives them,
    heads first (``token2token_weights/K`` [H, n, n], queries before keys, ...), of a translation
    those of the encoder's layers, ``l0_...``, ``l1_...``; the pooling's as ``pooling_weights/K``
    [n, width].

    Raises
    ------
    UsageError
        If the task has no sentences, one of them no word, or the model nothing to look at.
    """
    if data.encode is None:
        raise UsageError("this task has no sentences; --save-attention needs a text task")
    tokens = [data.tokenise(text) for text in sentences]
    for text, words in zip(sentences, tokens, strict=True):
        if not words:
            raise UsageError(f"sentence {text!r} has no word; give sentences with at least one")
    module.eval()
    found: dict[str, np.ndarray] = {}
    # One sentence at a time: nothing is padded, and nothing of one can reach another.
    for number, words in enumerate(tokens):
        found[f"tokens/{number}"] = np.array(words)
        given = [data.encode(sentences[number])]
        if data.spell is not None:
            given.append(data.spell(words))
        with torch.inference_mode():
            parts = _parts(module, [padded([one]).to(device) for one in given])
        if not parts:
            raise UsageError("this model offers no scores to look at")
        for name, value in parts.items():
            array = value[:, 0].cpu().numpy()
            found[f"{name}/{number}"] = array[0] if name == "pooling_weights" else array
    return found


def fusions(module: nn.Module) -> dict[str, nn.Module]:
    """The modules that are looked at, by what stands in front of the names of their scores."""
    if isinstance(module, Translator):
        return {f"l{number}_": one.fusion for number, one in enumerate(_layers(module))}
    return {"": next(m for m in module.modules() if isinstance(m, Encoder)).fusion}


def _layers(module: Translator) -> list[EncoderLayer]:
    return [layer for layer in module.encoder if isinstance(layer, EncoderLayer)]


def _parts(module: nn.Module, given: Sequence[torch.Tensor]) -> dict[str, torch.Tensor]:
    """Scores of one sentence by name, [H, 1, N, ...]."""
    parts: dict[str, torch.Tensor] = {}
    if isinstance(module, Translator):
        h, real = module.entered(*given)
        for number, layer in enumerate(_layers(module)):
            shown = _looked_at(layer.fusion, layer.norm1(h), real)
            parts |= {f"l{number}_{name}": value for name, value in shown.items()}
            h = layer(h, real)
        return parts
    encoder, x, mask = entered(module, given)
    parts |= _looked_at(encoder.fusion, x, mask)
    if encoder.pooling is not None:
        fused = encoder.fusion(x, mask)
        parts["pooling_weights"] = _looked_at(encoder.pooling, fused, mask)["weights"][None]
    return parts


def entered(
    module: nn.Module, given: Sequence[torch.Tensor]
) -> tuple[Encoder, torch.Tensor, torch.Tensor]:
    """The encoder of a model of sentences, and what its fusion is given, with the mask of it."""
    embedding = next(m for m in module.modules() if isinstance(m, Embedding))
    encoder = next(m for m in module.modules() if isinstance(m, Encoder))
    x, mask = embedding(*given)
    return encoder, encoder.entered(x), mask


def _looked_at(module: nn.Module, x: torch.Tensor, mask: torch.Tensor) -> dict[str, torch.Tensor]:
    """What a module's ``attention`` gives; nothing where it has none (a recurrent one, say)."""
    attention = getattr(module, "attention", None)
    return attention(x, mask) if callable(attention) else {}


def save(
    module: nn.Module, data: Data, sentences: Sequence[str], file: Path, device: torch.device
) -> None:
    """Write the scores of some sentences.

    Raises
    ------
    UsageError
        If the file can't be written.
    """
    found = scores(module, data, sentences, device)
    try:
        with file.open("wb") as out:
            np.savez_compressed(out, **found)  # type: ignore[arg-type]
    except OSError as error:
        raise UsageError(f"can't write {file}: {error.strerror}; give another file") from None
