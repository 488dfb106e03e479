"""Texts of which a model's masks allow nothing."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from types import MappingProxyType

from harness.experiments.model import form_of
from harness.experiments.replicates import Record
from harness.train.data.corpora import is_known

ONE_WORD = MappingProxyType({"mpqa": 3381 / 10603})
"""Share of a task's test texts that are one word, where it is more than one in a hundred.

Of texts for a class of each; folds test every text once. Records don't tell: `corpora.toml` has
the count.
"""
STRICT = ("mtsa",)
"""Mechanisms whose own masks forbid every token itself, and that pass nothing by the attention.

To a text of one word they leave no key, so that all of these give the same: zeros. Others have
such masks too, and a gate, a sum or values of the token itself beside what is attended to.
"""

WITHOUT_KEY = "no key under strict masks"


def one_word_without_key(model: str, runs: Sequence[Record]) -> float | None:
    """Share of the test texts on which a model can say but one thing, by its masks.

    None for a model, a task or data of which that is not so, or not known.

    Parameters
    ----------
    model : str
        As a design or a record calls it.
    runs : sequence of mapping
        Its run records on one task.
    """
    mechanism = form_of(model).partition("[")[0]
    task = str(next((run.get("task") for run in runs), ""))
    if mechanism not in STRICT or "masks=" in model or task not in ONE_WORD:
        return None
    other = any(is_known(task, str(run.get("data") or "")) is False for run in runs)
    return None if other else ONE_WORD[task]


def one_word_told(model: str, runs: Sequence[Record]) -> str:
    """In short what `one_word_without_key` gives; empty for None."""
    share = one_word_without_key(model, runs)
    return "" if share is None else f"{100 * share:.1f} % of the texts are one word: {WITHOUT_KEY}"


def without_keys(models: Iterable[tuple[str, Sequence[Record]]]) -> list[str]:
    """Which models, given with their runs, have no key for a text of one word; a line each."""
    shares = [(model, one_word_without_key(model, runs)) for model, runs in models]
    return [
        f"texts of one word have no key under the strict masks of {model}: all of them, "
        f"{100 * share:.1f} % of the test texts, get the same answer"
        for model, share in shares
        if share is not None
    ]
