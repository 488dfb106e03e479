"""CR, MPQA, SUBJ and MR: two classes and no split, so ten folds (MTSA Table 5)."""

from __future__ import annotations

from dataclasses import replace

from harness.train.data.texts import Texts
from harness.train.recipe import NamedRecipe
from harness.train.recipes import PAPER, ROWS, SENTENCES, TUNED, lasting
from harness.train.task import Task

FOLDS = 10


def _texts(corpus: str) -> Texts:
    return Texts((f"{corpus}/all.tsv",), ("text",), "label", classes=("0", "1"), folds=FOLDS)


cr, mpqa, subj, mr = map(_texts, ("cr", "mpqa", "subj", "mr"))
"""One fold is the test set; a tenth of the other nine, drawn by the seed, is dev."""

_COMMON = replace(SENTENCES, patience=3)
# The papers report every fold's best epoch on the fold itself, and train on all of the other nine.
# Here a tenth of these is dev by these recipes too, and nothing is chosen by it; the steps are the
# papers'.
_PAPER = replace(PAPER, batch=64, optimiser="adam", rate=1e-3, choose="best-on-test")


def _papers(
    examples: int, attention: float, released_dropout: float, released_attention: float
) -> dict[str, NamedRecipe]:
    """Recipes of the paper and of the released program's read-me, which differ in dropout.

    Parameters
    ----------
    examples : int
        Of the whole corpus.
    attention : float
        Attention dropout of the paper.
    released_dropout, released_attention : float
    """
    trained_on = round(0.9 * 0.9 * examples)
    paper = lasting(replace(_PAPER, attention_dropout=attention), 1000, trained_on)
    released = replace(paper, dropout=released_dropout, attention_dropout=released_attention)
    return {"paper": NamedRecipe(paper, ROWS), "released": NamedRecipe(released, ROWS)}


def _task(
    name: str,
    summary: str,
    source: str,
    examples: int,
    recipes: dict[str, NamedRecipe],
    note: str = "",
) -> Task:
    """The record of one corpus; a note on its split."""
    return Task(
        name=name,
        summary=f"{summary}, 2 classes; {examples:,} examples",
        source=source,
        split="10 folds, fixed by the corpus alone and the same for all models and seeds; a tenth "
        f"of the other nine, drawn by the seed, is dev{note}",
        load=f"harness.train.tasks.cross_validated:{name}",
        recipe=_COMMON,
        recipes=recipes,
        files=_texts(name).files,
        vectors="top10k_100d_int8",
        tuned=TUNED,
        folds=FOLDS,
    )


TASKS = (
    _task(
        "cr",
        "customer reviews, positive or negative",
        "Hu and Liu 2004; MTSA Table 5",
        3771,
        _papers(3771, 0.2, 0.525, 0.19),
    ),
    _task(
        "mpqa",
        "phrases, positive or negative opinion",
        "Wiebe et al. 2005; MTSA Table 5",
        10_603,
        _papers(10_603, 0.2, 0.45, 0.0),
        "; 2,363 phrases are repeated, so the folds overlap in text",
    ),
    _task(
        "subj",
        "sentences, subjective or objective",
        "Pang and Lee 2004; MTSA Table 5",
        10_000,
        _papers(10_000, 0.0, 0.45, 0.19),
    ),
    _task(
        "mr",
        "film reviews, positive or negative",
        "Pang and Lee 2005; in no table of the papers here",
        10_662,
        {},
    ),
)
