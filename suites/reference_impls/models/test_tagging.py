"""The tagger and its chain against enumeration in float64, padding included."""

from __future__ import annotations

import itertools
import math
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from harness.build import make
from harness.registry import Registry
from reference_impls.models.encoders import Embedding
from reference_impls.models.tagging import (
    Chain,
    SpelledEmbedding,
    Tagger,
    TokenEncoder,
    log_partition,
    path_score,
    viterbi,
)

LENGTHS = (5, 1, 3, 4)
TAGS = 3
MASK = torch.arange(max(LENGTHS)) < torch.tensor(LENGTHS)[:, None]


def drawn(seed: int) -> tuple[Chain, Tensor]:
    """A chain with weights, and scores, whose values at padding are enormous."""
    torch.manual_seed(seed)
    chain = Chain(TAGS).double()
    for weight in chain.parameters():
        nn.init.normal_(weight)
    scores = torch.randn(*MASK.shape, TAGS, dtype=torch.float64)
    return chain, scores.masked_fill(~MASK[..., None], 1e4)


def score(chain: Chain, scores: Tensor, path: tuple[int, ...]) -> Tensor:
    """Of one sequence of tags, as the definition has it: start, words, transitions, end."""
    total = chain.start[path[0]] + chain.end[path[-1]]
    for place, tag in enumerate(path):
        total = total + scores[place, tag]
    for before, tag in itertools.pairwise(path):
        total = total + chain.transitions[before, tag]
    return total


def enumerated(chain: Chain, scores: Tensor, length: int) -> dict[tuple[int, ...], Tensor]:
    """The score of every sequence."""
    every = itertools.product(range(TAGS), repeat=length)
    return {path: score(chain, scores, path) for path in every}


@pytest.mark.parametrize("seed", range(3))
def test_the_forward_algorithm_and_viterbi_are_enumeration(seed: int) -> None:
    chain, scores = drawn(seed)
    potentials = chain(scores, MASK)
    sums, best = log_partition(potentials, MASK), viterbi(potentials, MASK)
    for row, length in enumerate(LENGTHS):
        every = enumerated(chain, scores[row], length)
        expected = math.log(sum(math.exp(value.item()) for value in every.values()))
        assert float(sums[row]) == pytest.approx(expected, abs=1e-12)
        winner = max(every, key=lambda path: every[path].item())
        assert tuple(best[row, :length].tolist()) == winner


def test_the_score_of_tags_is_that_of_the_definition() -> None:
    chain, scores = drawn(5)
    tags = torch.randint(TAGS, MASK.shape, generator=torch.Generator().manual_seed(1))
    found = path_score(chain(scores, MASK), tags, MASK)
    for row, length in enumerate(LENGTHS):
        expected = score(chain, scores[row], tuple(tags[row, :length].tolist()))
        assert float(found[row]) == pytest.approx(float(expected), abs=1e-12)


def test_gradients_are_those_of_enumeration() -> None:
    """The marginals of tags and of transitions."""
    chain, scores = drawn(2)
    scores.requires_grad_()
    weights = [scores, *chain.parameters()]
    mine = torch.autograd.grad(log_partition(chain(scores, MASK), MASK).sum(), weights)
    sums = [
        torch.stack(list(enumerated(chain, scores[row], length).values())).logsumexp(0)
        for row, length in enumerate(LENGTHS)
    ]
    exact = torch.autograd.grad(torch.stack(sums).sum(), weights)
    for own, expected in zip(mine, exact, strict=True):
        torch.testing.assert_close(own, expected, rtol=0, atol=1e-12)
    assert not mine[0][~MASK].any(), "padding has a gradient"


def test_a_chain_without_transitions_is_a_softmax_of_every_word() -> None:
    _, scores = drawn(3)
    chain, tags = Chain(TAGS).double(), scores.argmax(-1)
    potentials = chain(scores, MASK)
    likelihood = path_score(potentials, tags, MASK) - log_partition(potentials, MASK)
    alone = scores.log_softmax(-1).amax(-1).masked_fill(~MASK, 0).sum(1)
    torch.testing.assert_close(likelihood, alone, rtol=0, atol=1e-12)
    assert torch.equal(viterbi(potentials, MASK)[MASK], tags[MASK])


IDS = torch.tensor([[3, 2, 1], [2, 0, 0]])
SPELLING = torch.tensor(
    [[[1, 2, 3, 4], [4, 0, 0, 0], [2, 2, 0, 0]], [[3, 1, 0, 0], [0] * 4, [0] * 4]]
)


def spelled() -> SpelledEmbedding:
    torch.manual_seed(0)
    table = torch.randn(4, 5)
    table[0] = 0
    found = SpelledEmbedding(table, 6, 7, dropout=0.0)
    nn.init.normal_(found.filters.bias)  # type: ignore[arg-type]
    return found


def test_what_characters_add_is_the_largest_value_of_each_filter() -> None:
    embedding = spelled()
    x, mask = embedding(IDS, SPELLING)
    assert mask.tolist() == (IDS != 0).tolist()
    table = embedding.characters.detach().double().numpy()
    assert not table[0].any()
    weight = embedding.filters.weight.detach().double().numpy()  # [F, W, 3]
    bias = embedding.filters.bias
    assert bias is not None
    for (b, n), word in np.ndenumerate(IDS.numpy()):
        own = x[b, n].detach().double().numpy()
        np.testing.assert_allclose(own[:5], embedding.words.weight[word].tolist(), atol=1e-7)
        letters = [c for c in SPELLING[b, n].tolist() if c]
        if not letters:
            assert not own.any()
            continue
        around = [np.zeros(30), *(table[c] for c in letters), np.zeros(30)]
        values = [
            np.einsum("fwk,kw->f", weight, np.stack(around[i : i + 3])) for i in range(len(letters))
        ]
        expected = np.max(values, axis=0) + bias.detach().double().numpy()
        np.testing.assert_allclose(own[5:], expected, atol=1e-5)


def test_a_longer_word_in_the_batch_changes_no_other() -> None:
    embedding = spelled()
    wide = nn.functional.pad(SPELLING, (0, 6))
    torch.testing.assert_close(embedding(IDS, wide)[0], embedding(IDS, SPELLING)[0])


def fusion(name: str, **options: Any) -> nn.Module:
    """A mechanism of width 10 with the options for tokens."""
    mechanism, implementation = Registry().find(name)
    chosen = {**mechanism.options, **implementation.options, **mechanism.tokens, **options}
    return make(mechanism, implementation.factory, 5, 10, 5, chosen, 0)


@pytest.mark.parametrize("crf", [False, True])
@pytest.mark.parametrize("name", ["multi_scale_transformer", "transformer", "bi_lstm"])
def test_padding_changes_no_tag_and_each_token_has_its_own(name: str, crf: bool) -> None:
    torch.manual_seed(1)
    model = Tagger(
        Embedding(torch.randn(9, 5)),
        TokenEncoder(fusion(name), 0.0, None),
        width=10,
        tags=4,
        crf=crf,
    ).eval()
    ids = torch.tensor([[3, 1, 2, 5, 4, 8], [2, 7, 3, 0, 0, 0]])
    both = model(ids)
    assert both.shape == ((2, 6, 4, 4) if crf else (2, 6, 4))
    torch.testing.assert_close(both[1:, :3], model(ids[1:, :3]), rtol=0, atol=1e-5)
    changed = ids.clone()
    changed[0, 0] = 6
    apart = (model(changed) - both)[0].flatten(1).abs().amax(1)
    assert int(apart.argmax()) == 0, "the changed token is not where its tag is"


def test_tokens_of_a_sentence_model_are_its_states_behind_cls() -> None:
    inner = fusion("transformer").eval()
    x, mask = torch.randn(2, 4, 5), torch.tensor([[True] * 4, [True] * 2 + [False] * 2])
    found = TokenEncoder(inner, 0.0, None)(x, mask)
    states: Any = inner.states
    assert states(x, mask).shape == (2, 5, 10)
    torch.testing.assert_close(found, states(x, mask)[:, 1:])
