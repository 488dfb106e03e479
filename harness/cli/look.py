"""``attnbench train --look``: what the trained model attends to, as a record for the report."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.cli.output import say
from harness.errors import UsageError
from harness.experiments.design import Run, Surroundings
from harness.experiments.executors import LIMIT_SECONDS, PRELOAD
from harness.isolate import Interpreter, Limits
from harness.measure.device import environment
from harness.records import journal, schema

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
    run: Run, around: Surroundings, folder: Path, sentences: Sequence[str], out: Console
) -> Mapping[str, Any]:
    """Train once more in a child, look, and write the record.

    Raises
    ------
    UsageError
        If the model can't be looked at, or its training failed.
    """
    from harness.train.data.directory import corpus_files

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
        say(out, f"this look is in the journal {folder} already")
        return dict(known[key])
    arguments = {**run.arguments, "sentences": chosen, "tagged": tagged}
    with Interpreter("fork", preload=PRELOAD) as interpreter:
        outcome = interpreter.run(CALL, arguments, Limits(seconds=LIMIT_SECONDS))
    if outcome.status != "ok":
        raise UsageError(f"{run.label}: {outcome.status}: {outcome.detail}")
    session = {"environment": environment(), "purpose": "look"}
    writer = journal.Writer(folder, {**session, "fingerprint": dict(around.fingerprint)})
    try:
        return writer.append(
            {
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
        )
    finally:
        writer.close()


def tell(record: Mapping[str, Any], out: Console) -> None:
    """What was found, in two lines."""
    checks = record["checks"]
    say(
        out,
        f"looked at {len(record['sentences'])} sentences and {record['tagged']} with parts of "
        f"speech; rows sum to one within {checks['row_error']:.1e} ({checks['rows']:,} rows), "
        f"largest weight at a forbidden cell {checks['forbidden']:.1e} ({checks['cells']:,} cells)",
    )
    for kind, found in record["contrast"].items():
        say(
            out,
            f"{kind}: nouns and verbs less stop words {found['mean']:+.4g} "
            f"(sd {found['sd']:.2g} over {found['sentences']} sentences)",
        )
