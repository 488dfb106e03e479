"""Sentences of one language to sentences of another."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any

import numpy as np
import torch
from sacrebleu.metrics import BLEU, CHRF
from torch import Tensor, nn
from torch.nn.functional import cross_entropy

from harness.errors import UsageError
from harness.registry import Registry
from harness.stats.sums import BETA, CHARACTERS, ORDERS
from harness.train.batches import gather, in_order, order_by_tokens, padded
from harness.train.encoder import context_fusion, stream
from harness.train.objective import Objective
from harness.train.recipe import Recipe
from harness.train.task import Data, Split, Task
from reference_impls.models.decoding import beam_search, greedy
from reference_impls.models.tokens import PADDING
from reference_impls.models.translation import Translator

BEAMS, ALPHA = 4, 0.6
"""Of the test's beam search and its length penalty (Vaswani et al. 2017, section 6.1)."""
DECODED = 100
"""Sentences that are translated together."""
BLEU_SCORE = BLEU(tokenize="none", force=True, smooth_method="none")
"""On tokens as the corpus has them, as published numbers of it are; without smoothing, a corpus'
score is a function of sums."""
CHRF_SCORE = CHRF(char_order=CHARACTERS, word_order=0, beta=BETA)

Search = Callable[[Translator, Tensor, Tensor], list[list[int]]]


def limits(source: Tensor) -> Tensor:
    """Most tokens of the translations of sentences [B, N]: twice as many and ten."""
    return 2 * (source != PADDING).sum(1) + 10


def texts(said: Sequence[Sequence[int]], split: Split) -> list[str]:
    """What was said of each sentence of a split, in words."""
    write = split.also["write"]
    return [write(tokens) for tokens in said]


def bleu(said: Sequence[Sequence[int]], split: Split) -> float:
    """Corpus BLEU, from 0 to 100."""
    return float(BLEU_SCORE.corpus_score(texts(said, split), [split.also["references"]]).score)


def chrf(said: Sequence[Sequence[int]], split: Split) -> float:
    """Corpus chrF, from 0 to 100."""
    return float(CHRF_SCORE.corpus_score(texts(said, split), [split.also["references"]]).score)


def grams(text: str, size: int) -> Counter[str]:
    """Pieces of so many characters, white space left out, and how often each is there."""
    letters = "".join(text.split())
    return Counter(letters[i : i + size] for i in range(len(letters) - size + 1))


def counts(said: str, reference: str) -> list[int]:
    """What `harness.stats.sums.bleu` and `chrf` sum, of one sentence, one behind the other."""
    own = BLEU_SCORE.corpus_score([said], [[reference]])
    found = [own.sys_len, own.ref_len, *own.counts[:ORDERS], *own.totals[:ORDERS]]
    for size in range(1, CHARACTERS + 1):
        mine, other = grams(said, size), grams(reference, size)
        # As sacrebleu: what is said of an order that the reference does not have counts nothing.
        found += [mine.total() if other else 0, other.total(), (mine & other).total()]
    return found


class Translation(Objective):
    """A Transformer around the mechanism; its loss is the cross entropy of each next token.

    Greedy translations of dev choose the epoch, the test set is translated by `beam_search`. A
    test split with ``further`` in ``also`` is followed by that one: metrics whose names end in
    ``_2017`` are those of it, and predictions are kept of the first alone.
    """

    metrics = MappingProxyType({"bleu": bleu, "chrf": chrf, "bleu_2017": bleu, "chrf_2017": chrf})

    def build(
        self,
        task: Task,
        model: str,
        options: Mapping[str, str],
        data: Data,
        recipe: Recipe,
        registry: Registry,
        seed: int,
    ) -> nn.Module:
        """As `Objective.build`; positions are the Transformer's, so the mechanism adds none.

        Raises
        ------
        UsageError
            For a mechanism that does not give tokens, or has a policy to be trained.
        """
        mechanism, _ = registry.find(model)
        if mechanism.output != "tokens" or "selection" in mechanism.options:
            why = "has a policy" if mechanism.output == "tokens" else "makes one vector of them"
            raise UsageError(
                f"{mechanism.name} {why}; {task.name} needs a mechanism that gives tokens and is "
                "trained by its gradient alone"
            )
        widths = (recipe.width, recipe.width)
        fusions = [
            context_fusion(
                model,
                options,
                widths,
                recipe,
                registry,
                stream(seed, "fusion", layer),
                {"positions": None},
            )
            for layer in range(recipe.layers)
        ]
        torch.manual_seed(stream(seed, "head"))
        return Translator(
            fusions,
            width=recipe.width,
            heads=recipe.heads,
            hidden=recipe.hidden,
            vocabulary=data.outputs,
            dropout=recipe.dropout,
        )

    def batches(
        self, sizes: np.ndarray, recipe: Recipe, generator: np.random.Generator
    ) -> list[np.ndarray]:
        """So many tokens in each."""
        return order_by_tokens(sizes, recipe.batch, generator)

    def losses(self, recipe: Recipe, output: Tensor, targets: Tensor) -> Tensor:
        """Of logits [B, M, V] and targets [B, M]; the mean over sentences is that over tokens."""
        each = cross_entropy(
            output.flatten(0, 1),
            targets.flatten(),
            ignore_index=PADDING,
            reduction="none",
            label_smoothing=recipe.smoothing,
        ).view_as(targets)
        return each.sum(1) * (len(targets) / (targets != PADDING).sum())

    def outputs(self, module: nn.Module, split: Split, device: torch.device) -> Tensor:
        """Tokens that a beam search finds, 0 behind them: [S, L], the further split's below."""
        parts = [split, *([split.also["further"]] if "further" in split.also else [])]
        search = partial(beam_search, beams=BEAMS, alpha=ALPHA)
        said = [tokens for part in parts for tokens in self._said(module, part, device, search)]
        return padded(said)

    def predict(self, output: Tensor) -> list[list[int]]:
        """Tokens of each sentence."""
        return [[token for token in row if token != PADDING] for row in output.tolist()]

    def evaluate(
        self, task: Task, module: nn.Module, split: Split, device: torch.device
    ) -> dict[str, float]:
        """The metrics of greedy translations, without those of a further split."""
        said = self._said(module, split, device, greedy)
        return self.judged(task, said, Split(split.inputs, split.targets, _alone(split)))

    def judged(self, task: Task, said: Sequence[Sequence[int]], split: Split) -> dict[str, float]:
        """The task's metrics of the split, and of the further one where there is one."""
        found, count = {}, len(split)
        for name in task.metrics:
            if name.endswith("_2017"):
                if "further" in split.also:
                    found[name] = self.metrics[name](said[count:], split.also["further"])
            else:
                found[name] = self.metrics[name](said[:count], split)
        return found

    def told(self, said: Sequence[Sequence[int]], seconds: float) -> dict[str, Any]:
        """How fast the test was translated, how, and by which metrics it is judged."""
        tokens = sum(len(one) + 1 for one in said)
        how = {"beams": BEAMS, "length_penalty": ALPHA}
        speed = {"sentences": len(said), "tokens": tokens, "seconds": seconds}
        signatures = {
            "bleu": str(BLEU_SCORE.get_signature()),
            "chrf": str(CHRF_SCORE.get_signature()),
        }
        return {"decoding": {**how, **speed}, "signatures": signatures}

    def kept(
        self, split: Split, output: Tensor, said: Sequence[Sequence[int]]
    ) -> dict[str, np.ndarray]:
        """What was written, in UTF-8, and its counts."""
        written = texts(said[: len(split)], split)
        encoded = [text.encode() for text in written]
        each = [counts(*both) for both in zip(written, split.also["references"], strict=True)]
        return {
            "said": np.frombuffer(b"".join(encoded), np.uint8),
            "lengths": np.array([len(one) for one in encoded], np.uint32),
            "counts": np.array(each, np.int32),
        }

    def _said(
        self, module: nn.Module, split: Split, device: torch.device, search: Search
    ) -> list[list[int]]:
        assert isinstance(module, Translator)
        module.eval()
        said: list[list[int]] = [[] for _ in range(len(split))]
        for index in in_order(split, DECODED):
            (source, _), _ = gather(split, index, device)
            for i, tokens in zip(index, search(module, source, limits(source)), strict=True):
                said[i] = tokens
        return said


def _alone(split: Split) -> dict[str, Any]:
    return {name: value for name, value in split.also.items() if name != "further"}


OBJECTIVES = {"translation": Translation()}
