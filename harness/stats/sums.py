"""Metrics that are functions of sums over test examples: words, spans and n-grams are counted.

A sentence has several words, so such a metric is no mean over sentences; what a sentence has in it
is its influence, as a correlation's is. Of tagged words it is spans that are counted.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING

from harness.stats.crossed import RESAMPLES, resamples

if TYPE_CHECKING:
    import numpy as np

ORDERS = 4
"""N-grams of words that BLEU counts (Papineni et al. 2002)."""
CHARACTERS = 6
"""N-grams of characters that chrF counts (Popovic 2015)."""
BETA = 2
"""How much more recall counts there than precision."""


def share(sums: np.ndarray) -> np.ndarray:
    """Right ones of all: [..., 2] -> [...], nan of none."""
    import numpy as np

    right, total = np.moveaxis(sums, -1, 0)
    return np.asarray(np.where(total > 0, right / np.maximum(total, 1e-300), math.nan))


def span_f1(sums: np.ndarray) -> np.ndarray:
    """F1 of spans that are right, were said, are true: [..., 3] -> [...]; 0 of none."""
    import numpy as np

    right, said, true = np.moveaxis(sums, -1, 0)
    return np.asarray(2 * right / np.maximum(said + true, 1e-300))


def bleu(sums: np.ndarray) -> np.ndarray:
    """Corpus BLEU from 0 to 100 without smoothing, 0 where an order has no match.

    Parameters
    ----------
    sums : ndarray, shape [..., 2 + 2 * ORDERS]
        Lengths of what was said and of the reference, matches of each order, n-grams of each order.
    """
    import numpy as np

    said, reference = sums[..., 0], sums[..., 1]
    matches, total = sums[..., 2 : 2 + ORDERS], sums[..., 2 + ORDERS :]
    with np.errstate(divide="ignore", invalid="ignore"):
        mean = np.log(matches / np.maximum(total, 1e-300)).mean(-1)
        brevity = np.minimum(0.0, 1 - reference / np.maximum(said, 1e-300))
    return np.asarray(100 * np.exp(mean + brevity))


def chrf(sums: np.ndarray) -> np.ndarray:
    """Corpus chrF from 0 to 100: F with beta 2 of mean precision and mean recall over orders.

    Parameters
    ----------
    sums : ndarray, shape [..., 3 * CHARACTERS]
        Of each order: n-grams of what was said, of the reference, and of both.
    """
    import numpy as np

    said, reference, both = np.moveaxis(sums.reshape(*sums.shape[:-1], CHARACTERS, 3), -1, 0)
    counted = (said > 0) & (reference > 0)
    precision, recall = (
        (both / np.maximum(total, 1e-300) * counted).sum(-1) / np.maximum(counted.sum(-1), 1)
        for total in (said, reference)
    )
    weighed = np.maximum(BETA**2 * precision + recall, 1e-300)
    return np.asarray(100 * (1 + BETA**2) * precision * recall / weighed)


@dataclass(frozen=True)
class Summed:
    """Where the counts of a metric stand, and what it is of their sums."""

    first: int  # first, last: columns of `Predictions.counts`, the last one not included
    last: int
    of: Callable[[np.ndarray], np.ndarray]  # sums [..., last - first] -> metric [...]

    def value(self, counts: np.ndarray) -> float:
        """The metric of examples with these counts [S, K]."""
        return float(self.of(counts[:, self.first : self.last].sum(0).astype(float)))

    def parts(self, counts: np.ndarray) -> np.ndarray:
        """What each example has in it, [S]: their mean is the metric.

        The metric and the influence of the example on it, by the gradient at the mean.
        """
        import numpy as np

        own = counts[:, self.first : self.last].astype(float)
        mean = own.mean(0)
        steps = np.maximum(mean, 1 / len(own)) * 1e-4
        moved = mean + steps * np.eye(len(mean))
        gradient = (self.of(moved) - self.of(mean)) / steps
        return np.asarray(float(self.of(mean)) + (own - mean) @ gradient)


SUMMED: Mapping[str, Summed] = MappingProxyType(
    {
        "tag_accuracy": Summed(0, 2, share),
        "tag_accuracy_unseen": Summed(2, 4, share),
        "span_f1": Summed(4, 7, span_f1),
        "bleu": Summed(0, 2 + 2 * ORDERS, bleu),
        "chrf": Summed(2 + 2 * ORDERS, 2 + 2 * ORDERS + 3 * CHARACTERS, chrf),
    }
)
"""By metric. Tags: right words and words, those unseen in training, spans that are right, were said
and are true. Translations: as `bleu` and `chrf`."""


def summed_p(metric: str, pairs: Sequence[tuple[np.ndarray, np.ndarray]]) -> list[float]:
    """Two-sided p by a paired bootstrap of the examples, for each pair of runs.

    As `harness.stats.crossed.correlation_p`; of translations it is Koehn's (2004). sacrebleu takes
    absolute values before it centres: what is then exceeded is one side, and its p is smaller.

    Parameters
    ----------
    pairs : sequence of (array [S, K], array [S, K])
        Counts of both models.
    """
    import numpy as np

    known = SUMMED[metric]
    out = []
    for pair in pairs:
        own = [side[:, known.first : known.last].astype(float) for side in pair]
        weights = resamples(len(own[0])).astype(np.float32)
        drawn, every = (
            [known.of((w @ side).astype(float)) for side in own]
            for w in (weights, np.ones((1, len(own[0])), np.float32))
        )
        apart, centre = drawn[0] - drawn[1], every[0] - every[1]
        out.append((1 + int((np.abs(apart - centre) >= np.abs(centre)).sum())) / (1 + RESAMPLES))
    return out


Span = tuple[str, int, int]
"""Type, first word, word behind the last."""


def spans_of(tags: Sequence[str]) -> set[Span]:
    """Spans of BIO tags, by the rules of CoNLL-2000's ``conlleval``.

    A span begins with B-X, and with an I-X that does not go on: behind O, or behind another type.

    Parameters
    ----------
    tags : sequence of str
        ``O``, ``B-X`` and ``I-X``; a tag without a hyphen is O.

    Examples
    --------
    >>> sorted(spans_of(["B-a", "I-a", "I-b", "O", "I-a", "B-a"]))
    [('a', 0, 2), ('a', 4, 5), ('a', 5, 6), ('b', 2, 3)]
    """
    found: set[Span] = set()
    kind, first = "", 0
    for place, tag in enumerate([*tags, "O"]):
        how, _, own = tag.partition("-")
        if kind and (how != "I" or own != kind):
            found.add((kind, first, place))
            kind = ""
        if own and not kind:
            kind, first = own, place
    return found


def has_spans(names: Sequence[str]) -> bool:
    """Whether these are names of BIO tags."""
    return any(name.startswith("B-") for name in names)
