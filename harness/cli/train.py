"""``attnbench train``: one run, and the attention scores of the trained model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console

from harness.cli.output import bare_table, console, say, tell_skipped
from harness.cli.running import print_failures, train_missing, verified_or_refused
from harness.errors import UsageError
from harness.experiments.costs import coverage, workload
from harness.experiments.design import make_run, surroundings
from harness.experiments.look import look
from harness.experiments.model import check_read, parse_model, recipes_of
from harness.experiments.queue import finished
from harness.experiments.replicates import BEST_ON_TEST, unit_of
from harness.json_file import write_json
from harness.measure.device import device_fingerprint
from harness.options.train import TrainOptions
from harness.records.sharing import at_work
from harness.registry import Registry
from harness.train.task import Task
from harness.train.task import task as find_task


def run_train(options: TrainOptions) -> int:
    """Train one model on one task with one seed; returns the exit code."""
    out, folder = console(), options.journal
    registry = Registry(options.given)
    task = find_task(options.sized(options.task))
    model = parse_model(options.name, registry)
    (recipe,) = recipes_of(task, [model], options.changes)
    check_read(options.changes, [model], [task], registry, options.vectors)
    attention = _attention(options, task)
    if options.look and not task.vectors:
        raise UsageError(f"--look: task {task.name} has no sentences; use a text task")
    fingerprint = partial(device_fingerprint, options.device)
    around = surroundings(task, registry, options, fingerprint)
    run = make_run(model, task, recipe, options.seed, around, options.fold)
    with at_work(folder, "train", alone=False):
        verified_or_refused([run], around, folder, out)
        if options.look:
            given = options.sentence or options.sentences is not None
            record, there = look(run, around, folder, read_sentences(options) if given else [])
            if there:
                say(out, f"this look is in the journal {folder} already")
            _tell_look(out, record)
            write_json(options.json_file, record)
            return 0
        known = finished(folder, partial(tell_skipped, out)).get(run.key)
        if attention is not None:
            folder.mkdir(parents=True, exist_ok=True)
            run = replace(run, arguments={**run.arguments, "attention": attention})
            if known is not None:
                say(out, "this run is in the journal; trained again for its scores")
        elif known is not None and options.again:
            say(out, "this run is in the journal; trained again, its record stays")
        if known is None or attention is not None or options.again:
            record = train_missing([run], around, folder, 1, out, keep=known is None)[0]
        else:
            record = known
            say(out, f"this run is in the journal {folder} already")
    _show(out, record, task, recipe.choose)
    if attention is not None and record["status"] == "ok":
        say(out, f"attention scores: {attention['file']}")
    print_failures(out, [record])
    write_json(options.json_file, record)
    return 0 if record["status"] == "ok" else 1


def read_sentences(options: TrainOptions) -> list[str]:
    """Sentences from ``--sentence`` and from a file, one per line.

    Raises
    ------
    UsageError
        If there are none, or the file can't be read.
    """
    sentences = list(options.sentence)
    if options.sentences is not None:
        try:
            text = options.sentences.read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"can't read --sentences {options.sentences}: {error}") from None
        sentences += [line for line in text.split("\n") if line.strip()]
    if not sentences:
        empty = f"{options.sentences} is empty" if options.sentences else "none was given"
        raise UsageError(f"scores need a sentence; {empty}; give --sentence or --sentences FILE")
    return sentences


def _attention_file(text: str, folder: Path) -> Path:
    """Where scores go: a bare name lies beside the journal's records, a path is taken as it is."""
    path = Path(text)
    if path.name == text:
        path = folder / text
    if path.suffix != ".npz":
        path = path.with_name(path.name + ".npz")
    if path.parent != folder and not path.parent.is_dir():
        raise UsageError(f"--save-attention: no folder {path.parent}; make it, or give a bare name")
    if path.is_dir():
        raise UsageError(f"--save-attention: {path} is a folder; give a file")
    return path.resolve()


def _attention(options: TrainOptions, task: Task) -> dict[str, Any] | None:
    """What ``--save-attention`` asks for; None without it."""
    if options.save_attention is None:
        return None
    sentences = read_sentences(options)
    if not task.vectors:
        raise UsageError(f"--save-attention: task {task.name} has no sentences; use a text task")
    file = _attention_file(options.save_attention, options.journal)
    return {"sentences": sentences, "file": str(file)}


def _tell_look(out: Console, record: dict[str, Any]) -> None:
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


def _policy_line(record: dict[str, Any]) -> str:
    """What a policy selects, and the metrics when it draws at test time, as the program does."""
    sampled = ", ".join(f"{n} {unit_of(n).value(v)}" for n, v in record["test_sampled"].items())

    def shares(selected: dict[str, float]) -> str:
        return f"{selected['heads']:.0%} of heads, {selected['dependents']:.0%} of dependents"

    return (
        f"selected above the threshold: {shares(record['selected'])}; sampled at test time: "
        f"{sampled}, {shares(record['selected_sampled'])}"
    )


def _show(out: Any, record: dict[str, Any], task: Any, choose: str) -> None:
    by_test, epochs = choose == "best-on-test", record.get("epochs") or ()
    splits = ("dev", "test") if by_test else ("dev",)
    # Not of a further test set, which dev has no part of.
    metrics = [n for n in task.metrics if any(n in (e.get("dev") or ()) for e in epochs)]
    told = [(split, name) for name in metrics for split in splits]
    table = bare_table(numbers=("epoch", "loss", *map(" ".join, told), "seconds"))
    table.add_column("")
    staged = any("stage" in epoch for epoch in epochs)
    if staged:
        table.add_column("stage")
    for epoch in epochs:
        values = [((epoch.get(split) or {}).get(name), unit_of(name)) for split, name in told]
        cells = ["" if value is None else unit.value(value) for value, unit in values]
        mark = "chosen" if epoch["epoch"] == record.get("chosen_epoch") else ""
        stage = [epoch.get("stage") or ""] if staged else []
        loss = "" if epoch.get("loss") is None else f"{epoch['loss']:.4f}"
        seconds = f"{epoch['seconds']:.1f}"
        table.add_row(str(epoch["epoch"]), loss, *cells, seconds, mark, *stage)
    out.print(table)
    if record["status"] != "ok":
        return
    how = BEST_ON_TEST if by_test else "test, looked at once"
    found = ", ".join(f"{n} {unit_of(n).value(v)}" for n, v in record["test"].items())
    peak = record.get("peak_bytes")
    memory = (
        f"{peak / 2**20:.0f} MiB" if peak is not None else record.get("memory_method") or "unknown"
    )
    say(out, f"{how}: {found}")
    if all(record.get(name) for name in ("test_sampled", "selected", "selected_sampled")):
        say(out, _policy_line(record))
    say(
        out,
        f"{record['parameters']:,} parameters ({record['parameters_with_words']:,} with word "
        f"vectors), {record['seconds']:.1f} s, peak memory {memory}",
    )
    if said := workload([record]):
        say(out, said)
    if record.get("coverage"):
        say(out, coverage([record]))
