"""What of a text masks and policies allow: is what is told of mechanisms and corpora so?"""

from __future__ import annotations

import pytest
import torch

from harness.build import make
from harness.experiments.allowed import ONE_WORD, STRICT, one_word_without_key
from harness.registry import builtins
from harness.train.data.corpora import corpus_named
from harness.train.data.directory import read_table
from suites.support.comparisons import HIGH, LOW, B, design, judged, runs, warned
from suites.support.real_data import REAL, real

TEXTS = "texts of one word have no key under the strict masks of mtsa.fused"


@pytest.mark.parametrize("name", builtins())
def test_only_mechanisms_that_are_named_say_one_thing_of_every_single_word(name: str) -> None:
    mechanism = builtins()[name]
    width = 16 if mechanism.keeps_width else 48
    factory = mechanism.implementations[0].factory
    module = make(mechanism, factory, 16, width, 4, mechanism.options).eval()
    words = torch.randn(2, 1, 16, generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        first, second = module(words, torch.ones(2, 1, dtype=torch.bool))
    assert torch.equal(first, second) == (name in STRICT)


def test_a_comparison_tells_which_texts_have_no_key() -> None:
    mine, theirs = runs("mtsa.fused", LOW, "mpqa"), runs(B, HIGH, "mpqa")
    declared = design(5, "mtsa.fused", "mpqa")
    found = judged(declared, [*mine, *theirs])
    assert warned(f"{TEXTS}: all of them, 31.9 % of the test texts, get the same answer", found)
    assert sum("no key" in w for w in found.warnings) == 1, "multi-head attention has one"
    other = [{**r, "data": "0" * 32} for r in mine]
    assert not warned("no key", judged(declared, [*other, *theirs])), "other texts"
    assert one_word_without_key("mtsa.fused[token2token=false]", mine) == ONE_WORD["mpqa"]
    for model in ("mtsa_released.fused", "mtsa.fused[masks=none]", "disa.chunked"):
        assert one_word_without_key(model, mine) is None
    assert one_word_without_key("mtsa.fused", runs("mtsa.fused", LOW, "trec")) is None


@pytest.mark.parametrize(
    ("task", "alone"),
    [
        ("mirrored_summation", 0.57),
        ("mirrored_summation[k=12]", 0.14),
        ("mirrored_summation[k=1]", 0.93),
    ],
)
def test_a_comparison_tells_that_neither_model_shows_to_use_order(task: str, alone: float) -> None:
    def told(first: float, second: float, of: str = task) -> bool:
        every = [*runs("mtsa.fused", LOW, of), *runs(B, HIGH, of)]
        for one in every:
            one["test"] |= {"relative_mse": second if one["model"] == B else first}
        said = f"use order: relative_mse {first:.2f} and {second:.2f}, by the sum of all tokens"
        found = judged(design(5, "mtsa.fused", of), every)
        assert warned("neither shows", found) == warned(f"{said} {alone:.2f}", found)
        return warned("neither shows", found)

    assert told(alone, 1.0)
    assert told(1.0, alone)
    assert not told(0.9 * alone, 1.0)
    assert not told(1.0, 0.9 * alone)
    assert not told(alone, 1.0, "trec")
    assert not told(alone, 1.0, "mirrored_summation[k=13]"), "some tokens are in two products"
    every = [*runs("mtsa.fused", LOW, task), *runs(B, HIGH, task)]
    assert not warned("neither shows", judged(design(5, "mtsa.fused", task), every))


@real("mpqa/all.tsv.gz")
def test_so_many_real_texts_are_one_word() -> None:
    texts = [row["text"].split() for row in read_table(REAL / "mpqa" / "all.tsv", ("text",))]
    single = sum(len(words) == 1 for words in texts)
    assert single / len(texts) == ONE_WORD["mpqa"]
    assert f"{single:,} are one word" in corpus_named("mpqa").note
