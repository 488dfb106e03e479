"""``attnbench data``: which corpora there are, and whether the copies here are right."""

from __future__ import annotations

import os
from collections.abc import Iterable
from dataclasses import asdict
from pathlib import Path

from rich.console import Console
from rich.markup import escape

from harness.cli.output import console, say
from harness.errors import UsageError
from harness.json_file import write_json
from harness.options.measure import DataOptions
from harness.train.data import hub
from harness.train.data.corpora import (
    KnownCorpus,
    corpora,
    corpus_named,
    findings,
    supplied,
    tasks_of,
)
from harness.train.data.directory import VARIABLE, data_directory, there

COLOURS = {"right": "green", "wrong": "red", "missing": "yellow", "yours": "green"}


def _chosen(names: Iterable[str]) -> list[KnownCorpus]:
    return [corpus_named(name) for name in dict.fromkeys(names or corpora())]


def run_list(options: DataOptions) -> int:
    """What corpora are, their tasks, sizes, licences, sources, and files; 0."""
    folder = _shown_folder(options.data)
    out = console()
    for corpus in _chosen(options.names):
        _describe(out, corpus, folder)
    found = [{**asdict(c), "tasks": tasks_of(c.name)} for c in _chosen(options.names)]
    write_json(options.json_file, found)
    return 0


def _shown_folder(data: str | None) -> Path | None:
    """Where a list looks for files; None where there is no folder, which a list can do without."""
    if hub.asked(data):
        return None
    if data is not None:
        return data_directory(data)
    name = os.environ.get(VARIABLE)
    return Path(name) if name and Path(name).is_dir() else None


def _describe(out: Console, corpus: KnownCorpus, folder: Path | None) -> None:
    say(out, f"[bold]{corpus.name}[/]: {corpus.what}", markup=True)
    say(out, f"  tasks: {', '.join(tasks_of(corpus.name)) or 'none yet'}")
    say(out, f"  licence: {corpus.licence}")
    say(out, f"  source: {corpus.source}; original: {corpus.original}")
    say(out, f"  note: {corpus.note}")
    if corpus.hub is not None:
        say(out, f"  hub: {corpus.hub.repository} at {corpus.hub.revision} (--data hub)")
    where = "DIR" if folder is None else str(folder)
    for file in corpus.files:
        state = ""
        if folder is not None:
            state = ", not there" if there(folder, file.name) is None else ", there"
        say(
            out,
            f"  {where}/{file.name}.gz: {file.rows:,} rows, {file.bytes:,} bytes, columns "
            f"{' '.join(file.columns)}, sha256 {file.sha256}{state}",
        )
    for name, how in supplied().items():
        if name.partition("/")[0] == corpus.name:
            say(out, f"  {where}/{name}.gz: yours; {how.replace('DIR', where)}")


def run_check(options: DataOptions) -> int:
    """Compare the files here with the checksums of the corpora; returns the exit code."""
    if hub.asked(options.data):
        asked = VARIABLE if options.data is None else "--data"
        raise UsageError(
            f"{asked} says {hub.NAME!r}: what comes from there is checked when it is loaded; "
            "give --data DIR to check files of your own"
        )
    out, folder = console(), data_directory(options.data)
    found = [f for corpus in _chosen(options.names) for f in findings(folder, corpus)]
    for one in found:
        said = f"{one.name}: {one.detail}" if one.detail else one.name
        say(out, f"[{COLOURS[one.status]}]{one.status:8}[/] {escape(said)}", markup=True)
    counts = {status: sum(f.status == status for f in found) for status in COLOURS}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    say(out, f"{folder}: {said}")
    write_json(options.json_file, [asdict(f) for f in found])
    if not options.names and all(f.status == "missing" for f in found):
        raise UsageError(
            f"--data {folder}: none of {len(found)} files is there; expected {found[0].name}.gz "
            "and others: see attnbench data list"
        )
    bad = ("wrong", "missing") if options.names else ("wrong",)
    return int(any(f.status in bad for f in found))
