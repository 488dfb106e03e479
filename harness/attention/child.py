"""Trains a model and looks at what it attends to; runs in children."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import nn

from harness.attention import reduce
from harness.errors import UsageError
from harness.train.attention import entered, fusions, scores
from harness.train.batches import padded
from harness.train.data.directory import existing, read_table
from harness.train.reinforce import StagedTrainer
from harness.train.run import make_trainer
from harness.train.trainer import Trainer
from reference_impls.models.translation import Translator

TAGGED = "ud_ewt/test.tsv"
"""Sentences with universal part-of-speech tags, made by hand."""
MOST_TOKENS = 40
CLS = "[CLS]"
FARTHEST = 15
"""Larger distances are counted together."""


def look(
    *, sentences: Sequence[str], tagged: int = 0, directory: str | None = None, **run: Any
) -> dict[str, Any]:
    """Train a model as `harness.train.run.train_run` does, and reduce its scores.

    Parameters
    ----------
    sentences : sequence of str
        Shown one by one.
    tagged : int
        How many sentences with parts of speech are looked at as well, from `TAGGED` of the data
        directory.

    Returns
    -------
    dict
        ``sentences`` (see `reduce.sentence_record`), ``checks``, ``distances`` by layer and head,
        ``by_tag``, ``contrast`` and ``stop_words`` with ``tagged`` (how many sentences), ``test``
        metrics, ``chosen_epoch``, ``seconds``.

    Raises
    ------
    UsageError
        If the task has no sentences, or the model nothing to look at.
    """
    began = time.perf_counter()
    trainer = make_trainer(directory=directory, **run)
    if trainer.data.encode is None:
        raise UsageError(
            f"task {trainer.task.name} has no sentences; look at a model of a text task"
        )
    if sentences:  # what has nothing to look at is known before minutes of training
        _sentence(trainer, sentences[0])
    trainer.train()
    trainer.module.load_state_dict(trainer.best_state)
    found = {k: v for k, v in trainer.test().items() if k != "predictions"}
    out = {**found, "chosen_epoch": trainer.best_epoch}
    looked = [_sentence(trainer, text) for text in sentences]
    out |= summary(looked, _tagged(trainer, directory, tagged))
    out["seconds"] = time.perf_counter() - began
    return out


Looked = tuple[list[str], dict[str, np.ndarray], dict[str, list[str]]]
"""Tokens, scores and, by layer, the masks of its heads."""


def summary(looked: Sequence[Looked], rows: Sequence[tuple[Looked, list[str]]]) -> dict[str, Any]:
    """Reduce the scores of shown and of tagged sentences."""
    everything = [*looked, *(one for one, _ in rows)]
    checks, counts = [], dict[tuple[str, int, str], Counter[int]]()
    for _, found, masks in everything:
        for layer in reduce.layers(found):
            weights = found[layer + reduce.TOKEN2TOKEN]
            checks.append(reduce.checked(weights, masks[layer], found))
            # A window that grows with the sentence is one head all the same.
            for head, far in enumerate(reduce.distances(weights, masks[layer], found)):
                name = masks[layer][head].partition(":")[0]
                clipped = counts.setdefault((layer, head, name), Counter())
                for distance, times in far.items():
                    clipped[max(-FARTHEST, min(FARTHEST, distance))] += times
    numbers = [reduce.importance(found) for (_, found, _), _ in rows]
    tags = [labels for _, labels in rows]
    return {
        "sentences": [reduce.sentence_record(*one) for one in looked],
        "checks": reduce.worst(checks),
        "distances": [
            {"layer": layer, "head": head, "mask": mask, "counts": sorted(found.items())}
            for (layer, head, mask), found in counts.items()
        ],
        "by_tag": reduce.by_tag(numbers, tags),
        "contrast": reduce.of_tags(numbers, tags, reduce.CONTENT, reduce.STOP),
        "stop_words": reduce.of_tags(numbers, tags, reduce.STOP),
        "tagged": len(rows),
    }


def _sentence(trainer: Trainer, text: str) -> Looked:
    """Scores of one sentence, those of the selection too."""
    module, data, place = trainer.module, trainer.data, trainer.device
    selected: dict[str, np.ndarray] = {}
    if isinstance(trainer, StagedTrainer):
        policy = trainer.policy
        with policy.tested("threshold"), policy.noted() as decisions:
            found = scores(module, data, [text], place)
            if not decisions:  # what gives a sentence itself is not run for its scores
                with torch.inference_mode():
                    encoder, *given = entered(module, [padded([data.encode(text)]).to(place)])
                    encoder.fusion(*given)
        for name in ("heads", "dependents"):
            array = getattr(decisions[-1], name)[0].cpu().numpy()
            selected[f"selected_{name}"] = array[: len(found["tokens/0"])]
    else:
        found = scores(module, data, [text], place)
    tokens = [str(token) for token in found.pop("tokens/0")]
    own = {name.removesuffix("/0"): value for name, value in found.items()} | selected
    masks: dict[str, list[str]] = {}
    for before, fusion in fusions(module).items():
        mine = {k.removeprefix(before): v for k, v in own.items() if k.startswith(before)}
        masks |= {before + layer: masks_of(fusion, mine, layer) for layer in reduce.layers(mine)}
    lengths = {own[layer + reduce.TOKEN2TOKEN].shape[-1] for layer in reduce.layers(own)}
    if lengths == {len(tokens) + 1}:  # the node of a sentence model stands before the tokens
        tokens = [CLS, *tokens]
    return tokens, own, masks


def masks_of(fusion: nn.Module, found: Mapping[str, np.ndarray], layer: str) -> list[str]:
    """The masks of a layer's heads as texts: its own, or windows of its scales, or none."""
    heads, length = found[layer + reduce.TOKEN2TOKEN].shape[:2]
    if masks := getattr(fusion, "masks", None):
        return [str(mask.text) for mask in masks]
    if scales := getattr(fusion, "scales", None):
        # A sentence model has scales for every layer, l0_, l1_, ...
        own = scales[int(layer[1:-1])] if layer else scales
        return [f"window:{int(scale.half(length))}" for scale in own]
    return ["none"] * heads


def _tagged(trainer: Trainer, directory: str | None, count: int) -> list[tuple[Looked, list[str]]]:
    """The first tagged sentences that are not too long, and the tag of every token.

    Without those that the task's own tokeniser cuts otherwise than their tags say.
    """
    if not count or directory is None or isinstance(trainer.module, Translator):
        return []  # the tokens of a translation are pieces of words, which have no tag
    rows = read_table(existing(Path(directory) / f"{TAGGED}.gz"), ("tokens", "upos"))
    found = [(row["tokens"], row["upos"].split(" ")) for row in rows]
    chosen = [one for one in found if 4 <= len(one[1]) <= MOST_TOKENS][:count]
    return [
        (_sentence(trainer, text), tags)
        for text, tags in chosen
        if len(trainer.data.tokenise(text)) == len(tags)
    ]
