"""SST-5: sentiment of film reviews in five degrees (Socher et al. 2013)."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from harness.train.recipe import PAPER, ROWS, SENTENCES, TUNED, NamedRecipe, lasting
from harness.train.task import Data, Task

CLASSES = ("0", "1", "2", "3", "4")
ESCAPES = {"-LRB-": "(", "-RRB-": ")"}
"""How the tree bank writes brackets; inside a token a backslash stands before / and *."""


def tokens(text: str) -> list[str]:
    """Tokens of a tree bank's text, its escapes undone."""
    return [
        ESCAPES.get(token, token.replace("\\/", "/").replace("\\*", "*")) for token in text.split()
    ]


def load(
    directory: Path | None, vectors: str, word_width: int, seed: int, *, phrases: bool
) -> Data:
    """Official dev and test sentences, to train the sentences or every distinct phrase of them."""
    from harness.train.data.examples import assemble, read_classes

    assert directory is not None
    files = {"train": "train_phrases" if phrases else "train", "dev": "dev", "test": "test"}
    parts = {
        name: read_classes(
            directory / "sst5" / f"{file}.tsv.gz", ("text",), "label", CLASSES, tokens
        )
        for name, file in files.items()
    }
    return assemble(parts, len(CLASSES), tokens, vectors, directory, seed, word_width)


_SOURCE = "Socher et al. 2013; MTSA Table 5"
_PAPER = lasting(replace(PAPER, batch=128, dropout=0.3), 120_000, 159_274)

TASKS = (
    Task(
        name="sst5",
        summary="sentiment in 5 degrees, trained on sentences; 8,544 / 1,101 / 2,210",
        source=_SOURCE,
        kind="classification",
        metrics=("accuracy",),
        split="official train, dev and test sentences, the same for every seed",
        load="harness.train.tasks.sst5:load",
        recipe=replace(SENTENCES, epochs=12, patience=3),
        options={"phrases": False},
        files=("sst5/train.tsv", "sst5/dev.tsv", "sst5/test.tsv"),
        vectors="top10k_100d_int8",
        tuned=TUNED,
        one_test_set=True,
    ),
    Task(
        name="sst5_phrases",
        summary="the same, trained on the 159,274 distinct phrases of the training sentences",
        source=_SOURCE,
        kind="classification",
        metrics=("accuracy",),
        split="every distinct phrase of the official training sentences (these too), each once; "
        "official dev and test sentences",
        load="harness.train.tasks.sst5:load",
        recipe=replace(SENTENCES, batch=128, epochs=5, patience=2),
        recipes={"paper": NamedRecipe(_PAPER, ROWS)},
        options={"phrases": True},
        files=("sst5/train_phrases.tsv", "sst5/dev.tsv", "sst5/test.tsv"),
        vectors="top10k_100d_int8",
        tuned=TUNED,
        one_test_set=True,
    ),
)
