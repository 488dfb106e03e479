"""SNLI: inference between two sentences, three classes; the user supplies the training file."""

from __future__ import annotations

from dataclasses import replace

from harness.train.data.texts import Texts
from harness.train.recipe import NamedRecipe
from harness.train.recipes import PAPER, ROWS, SENTENCES, TUNED, lasting
from harness.train.task import Task

HOW = (
    "it is not handed on with the others: give --data hub, or take labels.train, s1.train and "
    "s2.train of e-SNLI (github.com/OanaMariaCamburu/e-SNLI, dataset/eSNLI) and run (printf "
    r"'label\tsentence1\tsentence2\n'; paste labels.train s1.train s2.train) | gzip > "
    "DIR/snli/train.tsv.gz"
)
"""How to make the training file; dev and test were made in the same way."""


load = Texts(
    files=("snli/train.tsv", "snli/dev.tsv", "snli/test.tsv"),
    columns=("sentence1", "sentence2"),
    target="label",
    classes=("entailment", "neutral", "contradiction"),
)

_EXAMPLES = 549_367
_PAPER = replace(PAPER, batch=128, dropout=0.35, weight_decay=5e-5, activation="elu", highway=True)
_RESAN = replace(
    _PAPER,
    policy_steps=5000,
    policy_epochs=lasting(_PAPER, 195_000, _EXAMPLES).epochs,
    policy_penalty=0.02,
    policy_weight_decay=5e-5,
)
"""The policy's numbers are the ReSAN program's (SNLI_rl_pub/configs.py): 200,000 steps on top of a
base model, the first 5,000 of the policy alone. The program's policy has Adadelta too; here it is
Adam. The share is the text's (eq. 17), the program's product ``policy_share=released``."""

TASKS = (
    Task(
        name="snli",
        summary="entailment, neutral or contradiction; 549,367 (yours) / 9,842 / 9,824 pairs",
        source="Bowman et al. 2015; MTSA Table 1",
        split="official train, dev and test, the same for every seed; all training pairs, where "
        "the released program leaves out the longest 3 %",
        load="harness.train.tasks.snli:load",
        recipe=replace(SENTENCES, dropout=0.3, batch=128, patience=2),
        recipes={"paper": NamedRecipe(lasting(_RESAN, 600_000, _EXAMPLES), ROWS)},
        files=load.files,
        supplied={"snli/train.tsv": HOW},
        vectors="top10k_100d_int8",
        pairs=True,
        tuned=TUNED,
        one_test_set=True,
    ),
)
