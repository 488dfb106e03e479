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


@real("mpqa/all.tsv.gz")
def test_so_many_real_texts_are_one_word() -> None:
    texts = [row["text"].split() for row in read_table(REAL / "mpqa" / "all.tsv", ("text",))]
    single = sum(len(words) == 1 for words in texts)
    assert single / len(texts) == ONE_WORD["mpqa"]
    assert f"{single:,} are one word" in corpus_named("mpqa").note
