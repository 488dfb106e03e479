"""SST-5: sentiment of film reviews in five degrees (Socher et al. 2013)."""

from __future__ import annotations

from dataclasses import replace

from harness.train.data.texts import Texts
from harness.train.recipe import NamedRecipe
from harness.train.recipes import PAPER, ROWS, SENTENCES, TUNED, lasting
from harness.train.task import Task

ESCAPES = {"-LRB-": "(", "-RRB-": ")"}
"""How the tree bank writes brackets; inside a token a backslash stands before / and *."""


def tokens(text: str) -> list[str]:
    """Tokens of a tree bank's text, its escapes undone."""
    return [
        ESCAPES.get(token, token.replace("\\/", "/").replace("\\*", "*")) for token in text.split()
    ]


def _texts(train: str) -> Texts:
    return Texts(
        files=(f"sst5/{train}.tsv", "sst5/dev.tsv", "sst5/test.tsv"),
        columns=("text",),
        target="label",
        classes=("0", "1", "2", "3", "4"),
        tokenise=tokens,
    )


sentences, phrases = _texts("train"), _texts("train_phrases")

_SOURCE = "Socher et al. 2013; MTSA Table 5"
_PAPER = lasting(replace(PAPER, batch=128, dropout=0.3), 120_000, 159_274)

TASKS = (
    Task(
        name="sst5",
        summary="sentiment in 5 degrees, trained on sentences; 8,544 / 1,101 / 2,210",
        source=_SOURCE,
        split="official train, dev and test sentences, the same for every seed",
        load="harness.train.tasks.sst5:sentences",
        recipe=replace(SENTENCES, patience=3),
        files=sentences.files,
        vectors="top10k_100d_int8",
        tuned=TUNED,
        one_test_set=True,
    ),
    Task(
        name="sst5_phrases",
        summary="the same, trained on the 159,274 distinct phrases of the training sentences",
        source=_SOURCE,
        split="every distinct phrase of the official training sentences (these too), each once; "
        "official dev and test sentences",
        load="harness.train.tasks.sst5:phrases",
        recipe=replace(SENTENCES, batch=128, patience=2),
        recipes={"paper": NamedRecipe(_PAPER, ROWS)},
        files=phrases.files,
        vectors="top10k_100d_int8",
        tuned=TUNED,
        one_test_set=True,
    ),
)
