"""What a trained model attends to, as a record for the report; it is trained in a child."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.experiments.design import Run, Surroundings
from harness.experiments.executors import LIMIT_SECONDS, PRELOAD
from harness.isolate import Interpreter, Limits
from harness.measure.device import environment
from harness.records import journal, schema
from harness.train.data.directory import corpus_files

CALL = "harness.attention.child:look"
SENTENCES = (
    "Who was the first man to walk on the moon ?",
    "A man is playing a guitar on the street .",
    "The film is not as good as the book , but it is worth watching .",
)
"""Where none are given."""
TAGGED = 300
"""Sentences with parts of speech, where the data directory has them."""


def look(
    run: Run, around: Surroundings, folder: Path, sentences: Sequence[str]
) -> tuple[dict[str, Any], bool]:
    """Train once more in a child, look, and write the record; and whether it was there before.

    Raises
    ------
    UsageError
        If the model can't be looked at, or its training failed.
    """
    chosen = list(sentences or SENTENCES)
    tagged = 0
    if around.directory is not None:
        place = Path(around.directory) / "ud_ewt"
        tagged = TAGGED if list(place.glob("test.tsv*")) else 0
        if tagged:
            corpus_files(Path(around.directory), ("ud_ewt/test.tsv",), {})
    key = schema.digest(["attention", run.key, chosen, tagged])
    known = journal.read(folder).finished()
    if key in known:
        return dict(known[key]), True
    arguments = {**run.arguments, "sentences": chosen, "tagged": tagged}
    with Interpreter("fork", preload=PRELOAD) as interpreter:
        outcome = interpreter.run(CALL, arguments, Limits(seconds=LIMIT_SECONDS))
    if outcome.status != "ok":
        raise UsageError(f"{run.label}: {outcome.status}: {outcome.detail}")
    session = {"environment": environment(), "purpose": "look"}
    record = {
        "kind": "attention",
        "key": key,
        "run": run.key,
        "model": str(run.model),
        "task": run.task,
        "seed": run.seed,
        "fold": run.fold,
        "recipe": run.recipe.as_dict(),
        "code": run.code,
        "fingerprint": schema.digest(dict(around.fingerprint)),
        "status": "ok",
        **outcome.value,
    }
    with journal.Writer(folder, {**session, "fingerprint": dict(around.fingerprint)}) as writer:
        return writer.append(record), False
