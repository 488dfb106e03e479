"""TREC question types, six classes (Li and Roth 2002)."""

from __future__ import annotations

from pathlib import Path

from harness.train.recipe import Recipe
from harness.train.task import Data, Split, Task

CLASSES = ("ABBR", "DESC", "ENTY", "HUM", "LOC", "NUM")
DEV_SHARE = 0.1


def load(directory: Path | None, vectors: str, word_width: int, seed: int) -> Data:
    """Official test set; a tenth of the training questions, drawn by the seed, is dev."""
    import numpy as np

    from harness.errors import UsageError
    from harness.train.data.corpus import corpus
    from harness.train.data.directory import read_table
    from harness.train.data.text import tokens_whitespace

    assert directory is not None
    rows = {}
    for name in ("train", "test"):
        path = directory / "trec" / f"{name}.tsv.gz"
        rows[name] = read_table(path, ("coarse", "text"))
        for number, row in enumerate(rows[name], start=2):
            if row["coarse"] not in CLASSES:
                raise UsageError(
                    f"{path}:{number}: class {row['coarse']!r}; expected {', '.join(CLASSES)}"
                )
    shuffled = np.random.default_rng([seed, 0]).permutation(len(rows["train"]))
    dev = round(DEV_SHARE * len(shuffled))
    parts = {
        "train": [rows["train"][i] for i in shuffled[dev:]],
        "dev": [rows["train"][i] for i in shuffled[:dev]],
        "test": rows["test"],
    }
    tokens = {name: [tokens_whitespace(r["text"]) for r in part] for name, part in parts.items()}
    words = corpus(
        tokens["train"], [*tokens["dev"], *tokens["test"]], vectors, directory, seed, word_width
    )

    def split(name: str) -> Split:
        targets = np.array([CLASSES.index(r["coarse"]) for r in parts[name]], dtype=np.int64)
        return Split(([words.encode(t) for t in tokens[name]],), targets)

    return Data(
        train=split("train"),
        dev=split("dev"),
        test=split("test"),
        width=words.embedding.shape[1],
        outputs=len(CLASSES),
        embedding=words.embedding,
        coverage=words.coverage,
        encode=lambda text: words.encode(tokens_whitespace(text)),
        tokenise=tokens_whitespace,
    )


TASKS = (
    Task(
        name="trec",
        summary="question type, 6 classes; 5,452 questions to train and choose on, 500 to test",
        source="Li and Roth 2002; MTSA Table 5",
        kind="classification",
        metrics=("accuracy",),
        split="official test set; a tenth of the training questions, drawn by the seed, is dev",
        load="harness.train.tasks.trec:load",
        recipe=Recipe(
            width=300, heads=6, hidden=300, dropout=0.2, rate=1e-3, weight_decay=1e-4, clip=1.0,
            batch=32, epochs=25, patience=5,
        ),
        files=("trec/train.tsv", "trec/test.tsv"),
        vectors="top10k_100d_int8",
        tuned={"mtsa": 5, "multi_head": 5},  # by the dev split of seed 100
        one_test_set=True,
    ),
)  # fmt: skip
