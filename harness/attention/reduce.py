"""Scores of a model on sentences, reduced to what a page shows; pure functions on arrays."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Scores = Mapping[str, np.ndarray]
"""Of one sentence, by name: ``token2token_weights`` [H, n, n], ``source2token_scores`` [H, n, d],
``pooling_weights`` [n, d], ``selected_heads`` [n] ...; layers in front, as in ``l0_``."""
TOKEN2TOKEN, SOURCE2TOKEN = "token2token_weights", "source2token_scores"
HEADS, DEPENDENTS, NEITHER = "selected_heads", "selected_dependents", "selected_neither"
DIGITS = 4
CONTENT = ("NOUN", "PROPN", "VERB")
STOP = ("ADP", "AUX", "CCONJ", "DET", "PART", "PRON", "SCONJ")
"""Universal part-of-speech tags of what the papers call stop words."""
RULES = {
    "none": lambda offset: np.ones_like(offset, dtype=bool),
    "diagonal": lambda offset: offset != 0,
    "forward": lambda offset: offset > 0,
    "backward": lambda offset: offset < 0,
    "forward_inclusive": lambda offset: offset >= 0,
    "backward_inclusive": lambda offset: offset <= 0,
}


def allowed(mask: str, length: int) -> np.ndarray:
    """Whether query i may attend to key j, [n, n], by the mask's text alone.

    Written again, in numpy, and not taken from the modules that it is to check.

    ``none``, ``diagonal``, ``forward`` (j < i), ``backward`` (j > i), the ``..._inclusive`` ones,
    ``window:W`` (|i - j| <= W) or ``distance:A`` (all); `ValueError` for another.
    """
    places = np.arange(length)
    offset = places[:, None] - places[None, :]  # i - j
    name, _, value = mask.partition(":")
    if name == "window" and value.isdigit():
        return np.abs(offset) <= int(value)
    if name == "distance" and value:
        return np.ones_like(offset, dtype=bool)
    if mask not in RULES:
        raise ValueError(f"given mask {mask!r}; expected {', '.join(RULES)}, window:W, distance:A")
    return np.asarray(RULES[mask](offset))


def layers(scores: Scores) -> list[str]:
    """What stands in front of the names of each layer's scores: ``""``, or ``"l0_"``, ``"l1_"``."""
    return [name.removesuffix(TOKEN2TOKEN) for name in scores if name.endswith(TOKEN2TOKEN)]


def pairs(masks: Sequence[str], length: int, scores: Scores) -> np.ndarray:
    """Which query may attend to which key, [H, n, n]: by the mask, and where both are selected."""
    inside = np.stack([allowed(mask, length) for mask in masks])
    for name, place in ((HEADS, np.s_[:, None]), (DEPENDENTS, np.s_[None, :])):
        if name in scores:
            inside = inside & scores[name].astype(bool)[place]
    return inside


def checked(
    weights: np.ndarray, masks: Sequence[str], scores: Scores | None = None
) -> dict[str, float | int]:
    """What weights [H, n, n] of a layer and sentence must be: rows that sum to 1, and zeros.

    The scores say what was selected, where a policy selects.

    Returns
    -------
    dict
        ``row_error``, the largest deviation of a row's sum from 1 (from 0 where no key is
        allowed); ``forbidden``, the largest weight at a forbidden cell; ``rows`` and ``cells``, how
        many were looked at.
    """
    inside = pairs(masks, weights.shape[-1], scores or {})
    wanted = inside.any(-1).astype(float)
    outside = weights[~inside]
    return {
        "row_error": float(np.abs(weights.sum(-1) - wanted).max()),
        "forbidden": float(np.abs(outside).max()) if outside.size else 0.0,
        "rows": int(wanted.size),
        "cells": int(outside.size),
    }


def worst(found: Sequence[Mapping[str, float | int]]) -> dict[str, float | int]:
    """The checks of several layers and sentences as one; nothing that is no number is lost."""
    errors = {n: float(np.max([0.0, *(o[n] for o in found)])) for n in ("row_error", "forbidden")}
    return errors | {n: int(sum(one[n] for one in found)) for n in ("rows", "cells")}


def distances(
    weights: np.ndarray, masks: Sequence[str], scores: Scores | None = None
) -> list[Counter[int]]:
    """How far from the query the key with the largest weight is, j - i, for each head.

    Queries without an allowed key are left out.
    """
    found = []
    for head, inside in zip(weights, pairs(masks, weights.shape[-1], scores or {}), strict=True):
        rows = np.flatnonzero(inside.any(-1))
        found.append(Counter((head[rows].argmax(-1) - rows).tolist()))
    return found


def importance(scores: Scores) -> dict[str, np.ndarray]:
    """One number per token and kind: features and heads are averaged (MTSA, appendix E)."""
    found: dict[str, np.ndarray] = {}
    for name, value in scores.items():
        if name.endswith(SOURCE2TOKEN):
            found[name] = value.mean((0, 2))  # [n]
        elif name == "pooling_weights":
            found[name] = value.mean(-1)
        elif name.startswith("selected_"):
            found[name] = value.astype(float)
    if HEADS in found and DEPENDENTS in found:
        found[NEITHER] = ((found[HEADS] == 0) & (found[DEPENDENTS] == 0)).astype(float)
    return {name: value for name, value in found.items() if np.isfinite(value).all()}


def by_tag(
    numbers: Sequence[Mapping[str, np.ndarray]], tags: Sequence[Sequence[str]]
) -> dict[str, dict[str, dict[str, float | int]]]:
    """How the tokens of each part of speech stand out of their sentences.

    In every sentence the mean over its tokens of a tag, less the mean over all its tokens; then
    mean and deviation over sentences, which are independent, as tokens of one are not.

    Returns
    -------
    dict
        By kind and tag ``mean``, ``sd`` (over sentences), ``sentences``, ``tokens``.
    """
    found: dict[str, dict[str, list[float]]] = {}
    counts: Counter[str] = Counter(tag for sentence in tags for tag in sentence)
    for kinds, sentence in zip(numbers, tags, strict=True):
        for kind, value in kinds.items():
            places = np.array(sentence)
            for tag in dict.fromkeys(sentence):
                apart = float(value[places == tag].mean() - value.mean())
                found.setdefault(kind, {}).setdefault(tag, []).append(apart)
    return {
        kind: {
            tag: {**_spread(values), "tokens": counts[tag]}
            for tag, values in sorted(tagged.items())
        }
        for kind, tagged in found.items()
    }


def of_tags(
    numbers: Sequence[Mapping[str, np.ndarray]],
    tags: Sequence[Sequence[str]],
    some: Sequence[str],
    less: Sequence[str] = (),
) -> dict[str, dict[str, float | int]]:
    """The mean over tokens of some tags, less that over others, and its spread; by kind.

    Over the sentences that have both; without others over those that have some.
    """
    found: dict[str, list[float]] = {}
    for kinds, sentence in zip(numbers, tags, strict=True):
        places = [np.isin(sentence, group) for group in (some, less) if group]
        if all(place.any() for place in places):
            for kind, value in kinds.items():
                first, *others = (float(value[place].mean()) for place in places)
                found.setdefault(kind, []).append(first - sum(others))
    return {kind: _spread(values) for kind, values in found.items()}


def _spread(values: Sequence[float]) -> dict[str, float | int]:
    sd = statistics.stdev(values) if len(values) > 1 else 0.0
    return {"mean": statistics.fmean(values), "sd": sd, "sentences": len(values)}


def rounded(array: np.ndarray) -> list[Any]:
    """As nested lists of short numbers."""
    return np.round(array.astype(float), DIGITS).tolist()


def sentence_record(
    tokens: Sequence[str], scores: Scores, masks: Mapping[str, Sequence[str]]
) -> dict[str, Any]:
    """What is drawn of one sentence.

    Returns
    -------
    dict
        ``tokens``; ``layers``, each with ``masks``, ``token2token`` [H][n][n] (queries before
        keys) and, where it has one, ``source2token`` [H][n]; ``numbers``, one list per kind of
        `importance`.
    """
    found = []
    for layer in layers(scores):
        one: dict[str, Any] = {
            "masks": list(masks[layer]),
            "token2token": rounded(scores[layer + TOKEN2TOKEN]),
        }
        if layer + SOURCE2TOKEN in scores:
            one["source2token"] = rounded(scores[layer + SOURCE2TOKEN].mean(-1))
        found.append(one)
    numbers = {kind: rounded(value) for kind, value in importance(scores).items()}
    return {"tokens": list(tokens), "layers": found, "numbers": numbers}
