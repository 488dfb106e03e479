"""SICK: relatedness of two sentences between 1 and 5 (Marelli et al. 2014)."""

from __future__ import annotations

from pathlib import Path

from harness.train.recipe import Recipe
from harness.train.task import Data, Split, Task

DEGREES = 5


def load(directory: Path | None, vectors: str, word_width: int, seed: int) -> Data:
    """The official splits, alike for all seeds."""
    import numpy as np

    from harness.errors import UsageError
    from harness.train.data.corpus import corpus
    from harness.train.data.directory import read_table
    from harness.train.data.text import tokens_raw

    assert directory is not None
    sides = ("sentence_a", "sentence_b")
    tokens, targets = {}, {}
    for name in ("train", "dev", "test"):
        path = directory / "sick" / f"{name}.tsv.gz"
        rows = read_table(path, ("relatedness", *sides))
        tokens[name] = [[tokens_raw(r[side]) for r in rows] for side in sides]
        degrees = []
        for number, row in enumerate(rows, start=2):
            try:
                degrees.append(float(row["relatedness"]))
            except ValueError:
                degrees.append(0.0)
            if not 1 <= degrees[-1] <= DEGREES:
                raise UsageError(
                    f"{path}:{number}: relatedness {row['relatedness']!r}; "
                    f"expected a number from 1 to {DEGREES}"
                )
        targets[name] = np.array(degrees, dtype=np.float32)
    words = corpus(
        [s for side in tokens["train"] for s in side],
        [s for name in ("dev", "test") for side in tokens[name] for s in side],
        vectors, directory, seed, word_width,
    )  # fmt: skip

    def split(name: str) -> Split:
        ids = tuple([words.encode(t) for t in side] for side in tokens[name])
        return Split(ids, targets[name])

    return Data(
        train=split("train"),
        dev=split("dev"),
        test=split("test"),
        width=words.embedding.shape[1],
        outputs=DEGREES,
        embedding=words.embedding,
        coverage=words.coverage,
        encode=lambda text: words.encode(tokens_raw(text)),
        tokenise=tokens_raw,
    )


TASKS = (
    Task(
        name="sick_relatedness",
        summary="relatedness of two sentences, 1 to 5; 4,500 / 500 / 4,927 pairs",
        source="Marelli et al. 2014; ReSAN Table 3",
        kind="relatedness",
        metrics=("pearson", "spearman", "mse"),
        split="official train, dev and test, the same for every seed",
        load="harness.train.tasks.sick:load",
        recipe=Recipe(
            width=300, heads=6, hidden=300, dropout=0.3, rate=1e-3, weight_decay=1e-4, clip=1.0,
            batch=32, epochs=25, patience=5,
        ),
        files=("sick/train.tsv", "sick/dev.tsv", "sick/test.tsv"),
        vectors="sick_840B_300d",
        tuned={"mtsa": 9, "multi_head": 9},  # by the dev split with seed 100
        one_test_set=True,
    ),
)  # fmt: skip
