"""``attnbench train``: one run, and the attention scores of the trained model."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

from harness.cli.output import check_json, console, tell_skipped, write_json
from harness.cli.running import (
    journal_folder,
    print_failures,
    surroundings,
    train_missing,
    verified_or_refused,
)
from harness.errors import UsageError
from harness.experiments.costs import coverage
from harness.experiments.design import Run, Surroundings, make_run
from harness.experiments.model import check_read, parse_model
from harness.experiments.session import finished
from harness.experiments.wording import unit_of
from harness.registry import Registry
from harness.train.recipe import changed, parse_settings
from harness.train.task import Task
from harness.train.task import task as find_task


def read_sentences(given: list[str], file: str | None) -> list[str]:
    """Sentences from ``--sentence`` and from a file, one per line.

    Raises
    ------
    UsageError
        If there are none, or the file can't be read.
    """
    sentences = list(given)
    if file is not None:
        try:
            text = Path(file).read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise UsageError(f"can't read --sentences {file}: {error}") from None
        sentences += [line for line in text.split("\n") if line.strip()]
    if not all(sentence.strip() for sentence in sentences):
        raise UsageError("--sentence: given an empty text; expected at least one word")
    if not sentences:
        raise UsageError("--save-attention needs sentences: give --sentence TEXT or --sentences")
    return sentences


def attention_file(text: str, folder: Path) -> Path:
    """Where scores go: a bare name lies beside the journal's records, a path is taken as it is.

    Raises
    ------
    UsageError
        If its folder is not there.
    """
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


def _attention(values: dict[str, Any], task: Task, folder: Path) -> dict[str, Any] | None:
    """What ``--save-attention`` asks for; None without it."""
    if values["save_attention"] is None:
        if (values["sentence"] or values["sentences"] is not None) and not values["look"]:
            raise UsageError("--sentence is for --look or --save-attention FILE; give that too")
        return None
    sentences = read_sentences(values["sentence"], values["sentences"])
    if not task.vectors:
        raise UsageError(f"--save-attention: task {task.name} has no sentences; use a text task")
    return {"sentences": sentences, "file": str(attention_file(values["save_attention"], folder))}


def run_train(values: dict[str, Any], json_file: str | None) -> int:
    """Train one model on one task with one seed; returns the exit code."""
    check_json(json_file)
    out = console()
    registry = Registry(values["given"])
    folder = journal_folder(values["journal"])
    task = find_task(values["task"])
    model = parse_model(values["name"], registry)
    texts = list(values["recipe"])
    if values["choose"] is not None:
        texts.append(f"choose={values['choose']}")
    settings = parse_settings(texts, [model.names], task.recipes, task.name)[0]
    recipe = changed(task.recipe_for(model.mechanism), settings)
    check_read(texts, [model], [task], registry, values["vectors"])
    attention = _attention(values, task, folder)
    around = surroundings(task, registry, values)
    run = make_run(model, task, recipe, values["seed"], around, values["fold"])
    verified_or_refused([run], around, folder, out)
    if values["look"]:
        return _look(values, run, task, around, folder, out, json_file)
    known = finished(folder, partial(tell_skipped, out)).get(run.key)
    if attention is not None:
        folder.mkdir(parents=True, exist_ok=True)
        run = replace(run, arguments={**run.arguments, "attention": attention})
        if known is not None:
            out.print("this run is in the journal; trained again for its scores", markup=False)
    elif known is not None and values["again"]:
        out.print("this run is in the journal; trained again, its record stays", markup=False)
    if known is None or attention is not None or values["again"]:
        record = train_missing([run], around, folder, 1, out, keep=known is None)[0]
    else:
        record = known
        out.print(f"this run is in the journal {folder} already", markup=False, highlight=False)
    _show(out, record, task, recipe.choose)
    if attention is not None and record["status"] == "ok":
        out.print(
            f"attention scores: {attention['file']}", markup=False, highlight=False, soft_wrap=True
        )
    print_failures(out, [record])
    write_json(json_file, record)
    return 0 if record["status"] == "ok" else 1


def _look(
    values: dict[str, Any], run: Run, task: Task, around: Surroundings, folder: Path, out: Console,
    json_file: str | None,
) -> int:  # fmt: skip
    """``--look``: the record for the report's page on attention."""
    from harness.cli.looking import look, say

    if not task.vectors:
        raise UsageError(f"--look: task {task.name} has no sentences; use a text task")
    given = values["sentence"] or values["sentences"] is not None
    sentences = read_sentences(values["sentence"], values["sentences"]) if given else []
    record = look(run, around, folder, sentences, out)
    say(record, out)
    write_json(json_file, dict(record))
    return 0


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
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("epoch", justify="right")
    table.add_column("loss", justify="right")
    by_test = choose == "best-on-test"
    for name in task.metrics:
        table.add_column(f"dev {name}", justify="right")
        if by_test:
            table.add_column(f"test {name}", justify="right")
    table.add_column("seconds", justify="right")
    table.add_column("")
    epochs = record.get("epochs") or ()
    staged = any("stage" in epoch for epoch in epochs)
    if staged:
        table.add_column("stage")
    for epoch in epochs:
        cells = []
        for name in task.metrics:
            for split in ("dev", "test") if by_test else ("dev",):
                value = (epoch.get(split) or {}).get(name)
                cells.append("" if value is None else unit_of(name).value(value))
        mark = "chosen" if epoch["epoch"] == record.get("chosen_epoch") else ""
        stage = [epoch.get("stage") or ""] if staged else []
        loss = "" if epoch.get("loss") is None else f"{epoch['loss']:.4f}"
        table.add_row(
            str(epoch["epoch"]), loss, *cells, f"{epoch['seconds']:.1f}", mark, *stage
        )  # fmt: skip
    out.print(table)
    if record["status"] != "ok":
        return
    how = "best over time on the test set" if by_test else "test, looked at once"
    metrics = ", ".join(f"{n} {unit_of(n).value(v)}" for n, v in record["test"].items())
    peak = record.get("peak_bytes")
    memory = (
        f"{peak / 2**20:.0f} MiB" if peak is not None else record.get("memory_method") or "unknown"
    )
    out.print(f"{how}: {metrics}", highlight=False, markup=False)
    if all(record.get(name) for name in ("test_sampled", "selected", "selected_sampled")):
        out.print(_policy_line(record), highlight=False, markup=False, soft_wrap=True)
    out.print(
        f"{record['parameters']:,} parameters ({record['parameters_with_words']:,} with word "
        f"vectors), {record['seconds']:.1f} s, peak memory {memory}",
        highlight=False, markup=False, soft_wrap=True,
    )  # fmt: skip
    if record.get("coverage"):
        out.print(coverage([record]), highlight=False, markup=False, soft_wrap=True)
