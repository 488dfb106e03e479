"""Tags of words: parts of speech of UD English EWT, entities of WNUT-17.

Stand-ins for the Penn Treebank and CoNLL-2003 of the Multi-Scale Transformer's Table 4, which are
licensed.
"""

from __future__ import annotations

from dataclasses import replace

from harness.train.data.texts import Tagged
from harness.train.recipe import Recipe
from harness.train.task import Task

UPOS = "ADJ ADP ADV AUX CCONJ DET INTJ NOUN NUM PART PRON PROPN PUNCT SCONJ SYM VERB X"  # universal
TYPES = ("corporation", "creative-work", "group", "location", "person", "product")

parts_of_speech = Tagged(
    files=("ud_ewt/train.tsv", "ud_ewt/dev.tsv", "ud_ewt/test.tsv"),
    column="upos",
    tags=tuple(UPOS.split()),
)
entities = Tagged(
    files=("wnut17/train.tsv", "wnut17/dev.tsv", "wnut17/test.tsv"),
    column="tags",
    tags=("O", *(f"{how}-{kind}" for kind in TYPES for how in "BI")),
)

RECIPE = Recipe(
    width=300,
    heads=10,
    hidden=300,
    dropout=0.3,
    rate=1e-3,
    warmup=400,
    weight_decay=1e-4,
    clip=1.0,
    batch=32,
    epochs=100,
    patience=3,
    policy_epochs=100,
    characters=30,
)
"""Width and heads (10 of 30) are those of the Multi-Scale Transformer's tagging (Table 1), the
characters those of Ma and Hovy (2016), the rest the common recipe of single sentences. Dropout and
rate, which the paper leaves to an appendix that its public text lacks, are ours: without a warm-up
the Transformer of three layers, whose norms come last, does not train at this rate at all."""

_ARMS = ("multi_scale_transformer", "transformer", "multi_head[positions=none]", "bi_lstm", "mtsa")
"""With each of them as many recipes were tried."""

_TASK = Task(
    name="ud_ewt",
    summary="part of speech of each word, 17 tags; 12,544 / 2,001 / 2,077 sentences",
    source="Silveira et al. 2014 (UD English EWT); for the PTB of Multi-Scale Transformer Table 4",
    kind="tagging",
    metrics=("tag_accuracy", "tag_accuracy_unseen"),
    split="official train, dev and test, the same for every seed",
    load="harness.train.tasks.tagging:parts_of_speech",
    recipe=RECIPE,
    files=parts_of_speech.files,
    vectors="top10k_100d_int8",
    tuned=dict.fromkeys(_ARMS, 4),
    one_test_set=True,
)

TASKS = (
    _TASK,
    replace(
        _TASK,
        name="wnut17",
        summary="emerging entities, 6 types; 3,394 / 1,009 / 1,287 sentences",
        source="Derczynski et al. 2017; for the CoNLL-2003 of Multi-Scale Transformer Table 4",
        metrics=("span_f1", "tag_accuracy", "tag_accuracy_unseen"),
        load="harness.train.tasks.tagging:entities",
        recipe=replace(RECIPE, dropout=0.5, batch=16, patience=5, characters=60, crf=True),
        tuned=dict.fromkeys(_ARMS, 6),
        files=entities.files,
    ),
)
