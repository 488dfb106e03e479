"""The translation model against its formulas in numpy, its search against every sentence there is.

The oracles are written from Vaswani et al. 2017 (with the norms of tensor2tensor) and from the
definition of what is searched for.
"""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterator

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.build import make
from harness.registry import Registry
from reference_impls.models.decoding import beam_search, greedy
from reference_impls.models.tokens import END, PADDING
from reference_impls.models.translation import Translator

Array = np.ndarray
ARMS = ("multi_head", "mtsa_nmt", "bi_gru", "none")
WIDTH, HEADS, LAYERS, VOCABULARY = 8, 2, 2, 5


def sharp(name: str = "multi_head", seed: int = 4) -> Translator:
    """With random norms and offsets too, and prefixes that go on in different ways."""
    mechanism, implementation = Registry().find(name)
    options = {**mechanism.options, **implementation.options}
    if "positions" in options:
        options["positions"] = None
    fusions = [
        make(mechanism, implementation.factory, WIDTH, WIDTH, HEADS, options, seed + i)
        for i in range(LAYERS)
    ]
    torch.manual_seed(seed)
    model = Translator(
        fusions, width=WIDTH, heads=HEADS, hidden=12, vocabulary=VOCABULARY, dropout=0.0, spaces=0
    )
    model.double().eval()
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for label, parameter in model.named_parameters():
            noise = torch.randn(parameter.shape, generator=generator, dtype=torch.float64)
            if label != "words.weight":
                parameter.add_((0.3 if "ln_" in label else 1.5) * noise)
    return model


def oracle(model: Translator, source: list[int], previous: list[int]) -> Array:
    """Logits of one sentence in float64, token by token, of a model with multi-head attention."""
    weights = {n: p.detach().numpy().astype(np.float64) for n, p in model.named_parameters()}
    table = weights["words.weight"]

    def norm(x: Array, name: str) -> Array:
        spread = np.sqrt(x.var() + 1e-6)
        return (x - x.mean()) / spread * weights[f"{name}.ln_scale"] + weights[f"{name}.ln_offset"]

    def embedded(ids: list[int]) -> list[Array]:
        out = []
        for place, token in enumerate(ids):
            angle = place / 10_000 ** (np.arange(0, WIDTH, 2) / WIDTH)
            waves = np.stack([np.sin(angle), np.cos(angle)], axis=1).flatten()
            out.append((table[token] * np.sqrt(WIDTH) if token else 0) + waves)
        return out

    def attend(x: Array, others: list[Array], q: Array, k: Array, v: Array, o: Array) -> Array:
        heads = []
        for h in range(HEADS):
            scores = [(x @ q[h]) @ (y @ k[h]) / np.sqrt(WIDTH / HEADS) for y in others]
            shares = np.exp(scores - np.max(scores))
            heads.append(
                sum(s * (y @ v[h]) for s, y in zip(shares / shares.sum(), others, strict=True))
            )
        return np.concatenate(heads) @ o

    def dot_product(x: Array, others: list[Array], name: str) -> Array:
        parts = [np.split(weights[f"{name}.{p}_w"], HEADS, axis=1) for p in "qkv"]
        q, k, v = map(np.array, parts)
        return attend(x, others, q, k, v, weights[f"{name}.o_w"])

    def fused(x: Array, others: list[Array], name: str) -> Array:
        return attend(x, others, *(weights[f"{name}.{p}_w"] for p in "qkvo"))

    def fed(x: Array, name: str) -> Array:
        wide = np.maximum(x @ weights[f"{name}.wide.w"] + weights[f"{name}.wide.b"], 0)
        return wide @ weights[f"{name}.narrow.w"] + weights[f"{name}.narrow.b"]

    h = embedded(source)
    for i in range(LAYERS):
        at = f"encoder.{i}"
        normed = [norm(x, f"{at}.norm1") for x in h]
        h = [x + fused(y, normed, f"{at}.fusion") for x, y in zip(h, normed, strict=True)]
        h = [x + fed(norm(x, f"{at}.norm2"), f"{at}.feed_forward") for x in h]
    states = [norm(x, "encoder_norm") for x in h]
    h = embedded(previous)
    for i in range(LAYERS):
        at = f"decoder.{i}"
        normed = [norm(x, f"{at}.norm1") for x in h]
        h = [x + dot_product(normed[t], normed[: t + 1], f"{at}.own") for t, x in enumerate(h)]
        h = [x + dot_product(norm(x, f"{at}.norm2"), states, f"{at}.cross") for x in h]
        h = [x + fed(norm(x, f"{at}.norm3"), f"{at}.feed_forward") for x in h]
    return np.array([norm(x, "decoder_norm") @ table.T for x in h])


def test_logits_are_those_of_the_formulas() -> None:
    model = sharp()
    source, previous = [3, 4, 2, 3, END], [PADDING, 2, 4, 3]
    found = model(torch.tensor([source]), torch.tensor([previous]))[0]
    np.testing.assert_allclose(found.detach().numpy(), oracle(model, source, previous), rtol=1e-10)


@pytest.mark.parametrize("name", ARMS)
def test_padding_changes_nothing(name: str) -> None:
    model = sharp(name)
    source, previous = torch.tensor([[3, 4, END]]), torch.tensor([[PADDING, 2, 4]])
    alone = model(source, previous)
    longer = torch.tensor([[3, 4, END, PADDING, PADDING], [2, 2, 3, 4, END]])
    beside = torch.tensor([[PADDING, 2, 4, PADDING], [PADDING, 4, 3, 2]])
    torch.testing.assert_close(model(longer, beside)[:1, :3], alone, rtol=1e-12, atol=1e-12)


def test_no_token_sees_one_behind_it() -> None:
    model = sharp()
    source = torch.tensor([[3, 4, 2, END]])
    first, other = (torch.tensor([[PADDING, 2, 4, last]]) for last in (3, 2))
    one, two = model(source, first), model(source, other)
    torch.testing.assert_close(one[:, :3], two[:, :3], rtol=1e-12, atol=1e-12)
    assert (one[:, 3] - two[:, 3]).abs().max() > 1e-3
    assert (model(source.flip(1), first) - one).abs().min() > 0, "every token sees the source"


@pytest.mark.parametrize("name", ["multi_head", "mtsa_nmt"])
def test_a_cache_gives_what_no_cache_gives(name: str) -> None:
    model = sharp(name)
    source = torch.tensor([[3, 4, 2, END], [2, END, PADDING, PADDING]])
    previous = torch.tensor([[PADDING, 2, 4, 3, 3], [PADDING, 4, 3, 2, 2]])
    kept = model.start(source, previous.shape[1])
    steps = [model.step(previous[:, t : t + 1], kept)[:, 0] for t in range(previous.shape[1])]
    torch.testing.assert_close(
        torch.stack(steps, 1), model(source, previous), rtol=1e-12, atol=1e-12
    )


def test_the_cache_follows_the_prefixes_that_are_chosen() -> None:
    """Two prefixes of each of three sentences; then the first is dropped, the others change."""
    model = sharp()
    source = torch.tensor([[3, END, 0], [4, 2, END], [2, 2, END]])
    kept = model.start(source, 3)
    begun = torch.tensor([[2, 3], [3, 4], [4, 2]])
    model.step(torch.full_like(begun, PADDING), kept)
    model.step(begun, kept)
    kept.choose(torch.tensor([1, 2]), torch.tensor([3, 3, 5, 4]))
    found = model.step(torch.tensor([[2, 3], [4, 4]]), kept)
    for row, column, tokens in ((0, 0, [4, 2]), (0, 1, [4, 3]), (1, 0, [2, 4]), (1, 1, [4, 4])):
        whole = model(source[row + 1 : row + 2], torch.tensor([[PADDING, *tokens]]))[0, -1]
        torch.testing.assert_close(found[row, column], whole, rtol=1e-12, atol=1e-12)


def likelihood(model: Translator, source: Tensor, said: tuple[int, ...]) -> float:
    """Log p of a sentence that begins so, by one pass without a cache."""
    logits = model(source[None], torch.tensor([[PADDING, *said[:-1]]]))[0].detach().numpy()
    logits[:, PADDING] = -np.inf
    shares = np.exp(logits - logits.max(1, keepdims=True))
    shares /= shares.sum(1, keepdims=True)
    return float(np.log(shares[np.arange(len(said)), list(said)]).sum())


WORDS = range(END + 1, VOCABULARY)


def sentences(most: int) -> Iterator[tuple[int, ...]]:
    """Every one of at most so many tokens."""
    for length in range(most + 1):
        yield from itertools.product(WORDS, repeat=length)


SOURCE = torch.tensor([[3, 4, 2, END], [2, 3, END, PADDING], [4, END, PADDING, PADDING]])
LIMITS = torch.tensor([4, 2, 3])
SEEDS = (4, 6, 14)
WIDE = 2 * 3**4
"""Twice as many are all ways in which 81 prefixes go on: three words and an end."""


@pytest.mark.parametrize("seed", SEEDS)
def test_a_wide_beam_finds_the_best_of_all_sentences(seed: int) -> None:
    model = sharp(seed=seed)
    every = [
        {one: likelihood(model, source, (*one, END)) for one in sentences(limit)}
        for source, limit in zip(SOURCE, LIMITS.tolist(), strict=True)
    ]
    for alpha in (0.0, 0.6, 2.0):
        found = beam_search(model, SOURCE, LIMITS, beams=WIDE, alpha=alpha)
        for said, of in zip(found, every, strict=True):
            best = max(of, key=lambda one: of[one] / ((5 + len(one) + 1) / 6) ** alpha)
            assert tuple(said) == best, alpha


def test_the_searches_differ_where_they_should() -> None:
    """Otherwise the others show nothing."""
    ways = [
        [beam_search(sharp(seed=seed), SOURCE, LIMITS, beams, alpha) for seed in SEEDS]
        for beams, alpha in ((1, 0.6), (WIDE, 0.6), (WIDE, 0.0), (WIDE, 2.0))
    ]
    assert all(one != other for one, other in itertools.combinations(ways, 2))
    assert {len(said) for way in ways for found in way for said in found} == {0, 1, 2, 3, 4}


def narrow(model: Translator, source: Tensor, limit: int, beams: int, alpha: float) -> list[int]:
    """The definition of a beam search, prefix by prefix."""
    prefixes: list[tuple[int, ...]] = [()]
    best = -math.inf
    answer: tuple[int, ...] = ()
    for length in range(limit + 1):
        ways = [(likelihood(model, source, (*one, END)), one, True) for one in prefixes]
        if length < limit:
            longer = [(*one, word) for one in prefixes for word in WORDS]
            ways += [(likelihood(model, source, one), one, False) for one in longer]
        ways = sorted(ways, key=lambda way: -way[0])[: 2 * beams]
        for log_p, one, ends in ways:
            score = log_p / ((5 + length + 1) / 6) ** alpha
            if ends and score > best:
                best, answer = score, one
        prefixes = [one for _, one, ends in ways if not ends][:beams]
    return list(answer)


@pytest.mark.parametrize("beams", [1, 2, 4])
@pytest.mark.parametrize("seed", SEEDS)
def test_a_narrow_beam_keeps_the_likeliest_prefixes(beams: int, seed: int) -> None:
    model = sharp(seed=seed)
    found = beam_search(model, SOURCE, LIMITS, beams, alpha=0.6)
    for said, source, limit in zip(found, SOURCE, LIMITS.tolist(), strict=True):
        assert said == narrow(model, source, limit, beams, 0.6)


@pytest.mark.parametrize("seed", SEEDS)
def test_greedy_says_the_likeliest_next_token(seed: int) -> None:
    model = sharp(seed=seed)
    for said, source, limit in zip(
        greedy(model, SOURCE, LIMITS), SOURCE, LIMITS.tolist(), strict=True
    ):
        expected: list[int] = []
        while len(expected) < limit:
            logits = model(source[None], torch.tensor([[PADDING, *expected]]))[0, -1]
            token = int(logits[END:].argmax()) + END
            if token == END:
                break
            expected.append(token)
        assert said == expected
