"""Tags of the tokens of a sentence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.stats.sums import SUMMED, has_spans, spans_of
from harness.train.batches import gather, in_order
from harness.train.objective import EVALUATION_BATCH, Objective, embedding
from harness.train.recipe import Recipe
from harness.train.task import Data, Split, Task
from reference_impls.models.encoders import Encoder
from reference_impls.models.tagging import (
    SpelledEmbedding,
    Tagger,
    TokenEncoder,
    log_partition,
    path_score,
    viterbi,
)

UNSEEN = "tag_accuracy_unseen"


def counts(said: Sequence[np.ndarray], split: Split) -> np.ndarray:
    """What of each sentence counts, int32 [S, 7], in the columns of `SUMMED`.

    Words that are right and all words, the same of those that training has not seen; spans that
    are right, were said, are true: 0 where tags are no BIO.

    Parameters
    ----------
    said : sequence of ndarray
        Tags of each sentence.
    split : Split
        ``also`` has ``unseen`` (bool of each word) and ``tags`` (their names, from number 1 on).
    """
    names = split.also["tags"]
    rows = []
    for told, tags, unseen in zip(said, split.targets, split.also["unseen"], strict=True):
        right = told == np.asarray(tags)
        row = [right.sum(), len(tags), (right & unseen).sum(), unseen.sum(), 0, 0, 0]
        if has_spans(names):
            mine, true = (spans_of([names[t - 1] for t in one]) for one in (told, tags))
            row[4:] = len(mine & true), len(mine), len(true)
        rows.append(row)
    return np.array(rows, np.int32)


def metric(name: str, said: Sequence[np.ndarray], split: Split) -> float:
    """One of `SUMMED`, of all sentences together."""
    return SUMMED[name].value(counts(said, split))


class Tagging(Objective):
    """Scores of the tags of each word, or of all sequences of tags."""

    metrics = MappingProxyType(
        {name: partial(metric, name) for name in ("tag_accuracy", UNSEEN, "span_f1")}
    )

    def head(
        self, task: Task, encode: Encoder, data: Data, recipe: Recipe, sizes: Mapping[str, Any]
    ) -> nn.Module:
        """A linear layer for each word; a chain if the recipe asks for it.

        What comes out of the encoder was given what words are made of too.
        """
        assert isinstance(encode, TokenEncoder)
        words = embedding(data)
        if recipe.characters and data.characters:
            table = words.words.weight.detach()
            words = SpelledEmbedding(table, data.characters, recipe.characters, recipe.dropout)
        return Tagger(words, encode, tags=data.outputs, crf=recipe.crf, width=sizes["width"])

    def losses(self, recipe: Recipe, output: Tensor, targets: Tensor) -> Tensor:
        """Negative log-likelihood of each sentence, weighed so that the mean is one over words.

        Parameters
        ----------
        output : Tensor
            Of a `Tagger`.
        targets : Tensor of int64, shape [B, N]
            Tags from 1 on, 0 at padding.
        """
        mask, tags = targets > 0, targets - 1
        if output.ndim == 4:
            each = log_partition(output, mask) - path_score(output, tags.clamp(min=0), mask)
        else:
            flat = cross_entropy(
                output.flatten(0, 1), tags.flatten(), ignore_index=-1, reduction="none"
            )
            each = flat.unflatten(0, tags.shape).sum(1)
        return each * (len(each) / mask.sum())

    @torch.inference_mode()
    def outputs(self, module: nn.Module, split: Split, device: torch.device) -> list[np.ndarray]:
        """Tags of each sentence, uint8, from 1 on: the likeliest of each word, or of all."""
        module.eval()
        found: dict[int, np.ndarray] = {}
        for index in in_order(split, EVALUATION_BATCH):
            inputs, targets = gather(split, index, device)
            output, mask = module(*inputs).float(), targets > 0
            tags = viterbi(output, mask) if output.ndim == 4 else output.argmax(-1)
            rows = (tags + 1).cpu().numpy().astype(np.uint8)
            lengths = mask.sum(1).tolist()
            found |= {int(i): r[:n] for i, r, n in zip(index, rows, lengths, strict=True)}
        return [found[i] for i in range(len(split))]

    def predict(self, output: list[np.ndarray]) -> list[np.ndarray]:
        """The same."""
        return output

    def judged(self, task: Task, said: Any, split: Split) -> dict[str, float]:
        """Without that of unseen words where a split has none."""
        found = super().judged(task, said, split)
        if not any(unseen.any() for unseen in split.also["unseen"]):
            found.pop(UNSEEN, None)
        return found

    def kept(self, split: Split, output: Any, said: Sequence[np.ndarray]) -> dict[str, np.ndarray]:
        """Tags, one sentence behind the other, and what counts of each."""
        return {
            "truth": np.concatenate([np.asarray(tags, np.uint8) for tags in split.targets]),
            "said": np.concatenate(said),
            "lengths": np.array([len(tags) for tags in said], np.uint32),
            "counts": counts(said, split),
        }


OBJECTIVES = {"tagging": Tagging()}
