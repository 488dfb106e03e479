"""``attnbench data``: which corpora there are, and whether the copies here are right."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from pathlib import Path

    from harness.train.data.corpora import FileState, KnownCorpus

app = typer.Typer(
    help="Which corpora exist, where their files are expected, and whether yours are right.",
    no_args_is_help=True,
)

DATA = Annotated[
    str | None,
    typer.Option("--data", metavar="DIR", help="Corpora (default: $ATTNBENCH_DATA)."),
]
JSON = Annotated[
    str | None, typer.Option("--json", metavar="FILE", help="Also write the result as JSON.")
]
NAMES = Annotated[
    list[str] | None, typer.Argument(metavar="[CORPUS]...", help="All of them without any.")
]
COLOURS = {"right": "green", "wrong": "red", "missing": "yellow", "yours": "green"}


def _chosen(names: list[str] | None) -> list[KnownCorpus]:
    from harness.train.data.corpora import corpora, corpus_named

    return [corpus_named(name) for name in dict.fromkeys(names or corpora())]


@app.command("list")
def list_(names: NAMES = None, data: DATA = None, json_file: JSON = None) -> None:
    """List corpora: what they are, their tasks, sizes, licences, sources, and files."""
    from harness.cli.output import check_json, console, write_json

    check_json(json_file)
    folder = _shown_folder(data)
    out = console()
    for corpus in _chosen(names):
        _describe(out, corpus, folder)
    write_json(json_file, [_as_json(corpus) for corpus in _chosen(names)])


def _shown_folder(data: str | None) -> Path | None:
    """Where a list looks for files; None where there is no folder, which a list can do without."""
    import os
    from pathlib import Path

    from harness.train.data import hub
    from harness.train.data.directory import VARIABLE, data_directory

    if hub.asked(data):
        return None
    if data is not None:
        return data_directory(data)
    name = os.environ.get(VARIABLE)
    return Path(name) if name and Path(name).is_dir() else None


def _describe(out: Any, corpus: KnownCorpus, folder: Path | None) -> None:
    from harness.train.data.corpora import supplied, tasks_of

    def say(text: str) -> None:
        out.print(text, highlight=False, markup=False, soft_wrap=True)

    out.print(f"[bold]{corpus.name}[/]: {corpus.what}", highlight=False, soft_wrap=True)
    say(f"  tasks: {', '.join(tasks_of(corpus.name)) or 'none yet'}")
    say(f"  licence: {corpus.licence}")
    say(f"  source: {corpus.source}; original: {corpus.original}")
    say(f"  note: {corpus.note}")
    if corpus.hub is not None:
        say(f"  hub: {corpus.hub.repository} at {corpus.hub.revision} (--data hub)")
    where = "DIR" if folder is None else str(folder)
    for file in corpus.files:
        there = ""
        if folder is not None:
            here = any((folder / f"{file.name}{end}").exists() for end in (".gz", ""))
            there = ", there" if here else ", not there"
        say(
            f"  {where}/{file.name}.gz: {file.rows:,} rows, {file.bytes:,} bytes, columns "
            f"{' '.join(file.columns)}, sha256 {file.sha256}{there}"
        )
    for name, how in supplied().items():
        if name.partition("/")[0] == corpus.name:
            say(f"  {where}/{name}.gz: yours; {how.replace('DIR', where)}")


def _as_json(corpus: KnownCorpus) -> dict[str, Any]:
    from dataclasses import asdict

    from harness.train.data.corpora import tasks_of

    return {**asdict(corpus), "tasks": tasks_of(corpus.name)}


@app.command()
def check(names: NAMES = None, data: DATA = None, json_file: JSON = None) -> None:
    """Compare the files here with the checksums of the corpora.

    What counts is the content: a file that was unpacked or packed again is right. Exit code 1: a
    file is wrong, or one of a corpus that was asked for by name is missing; 2: nothing is there.
    """
    from harness.cli.output import check_json, console, write_json
    from harness.errors import UsageError
    from harness.train.data import hub
    from harness.train.data.corpora import findings
    from harness.train.data.directory import VARIABLE, data_directory

    check_json(json_file)
    if hub.asked(data):
        raise UsageError(
            f"{VARIABLE if data is None else '--data'} says {hub.NAME!r}: what comes from there is "
            "checked when it is loaded; give --data DIR to check files of your own"
        )
    out, folder = console(), data_directory(data)
    found = [f for corpus in _chosen(names) for f in findings(folder, corpus)]
    for one in found:
        detail = f": {one.detail}" if one.detail else ""
        out.print(f"[{COLOURS[one.status]}]{one.status:8}[/] {one.name}", end="", highlight=False)
        out.print(detail, highlight=False, markup=False, soft_wrap=True)
    counts = {status: sum(f.status == status for f in found) for status in COLOURS}
    said = ", ".join(f"{count} {status}" for status, count in counts.items() if count)
    out.print(f"{folder}: {said}", highlight=False, markup=False, soft_wrap=True)
    write_json(json_file, [f.as_dict() for f in found])
    if not names and all(f.status == "missing" for f in found):
        raise UsageError(
            f"--data {folder}: none of {len(found)} files is there; expected {found[0].name}.gz "
            "and others: see attnbench data list"
        )
    raise typer.Exit(1 if _bad(found, bool(names)) else 0)


def _bad(found: list[FileState], by_name: bool) -> bool:
    return any(f.status == "wrong" or (by_name and f.status == "missing") for f in found)
