"""``attnbench verify``: the table of errors and budgets, and the golden vectors."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn
from rich.table import Table

from harness.case import DTYPES, parse_options
from harness.cli.output import console, write_json
from harness.errors import UsageError
from harness.registry import Registry

DEFAULT_DTYPES = ("f64", "f32", "bf16")


def verify_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Error, budget, margin and verdict of each implementation and dtype."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("implementation", no_wrap=True)
    table.add_column("dtype")
    for column in ("error", "budget", "margin", "grad error", "budget", "margin"):
        table.add_column(column, justify="right")
    table.add_column("verdict")
    table.add_column("")
    colours = {"ok": "green", "unsupported": "dim", "skipped": "dim"}
    for row in rows:
        cells = []
        for part in ("value", "gradient"):
            for name, form in (("error", ".1e"), ("budget", ".1e"), ("margin", ".3g")):
                value = row.get(f"{part}_{name}")
                cells.append("" if value is None else f"{value:{form}}")
        colour = colours.get(row["verdict"], "bold red")
        table.add_row(
            escape(row["name"]), row["dtype"], *cells, f"[{colour}]{row['verdict']}[/]",
            escape(str(row.get("detail") or "")) if row["verdict"] == "ok" else "",
        )  # fmt: skip
    return table


def print_verified(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """The table, and below it a line for everything that is not ok."""
    out.print(verify_table(rows))
    for row in rows:
        if row["verdict"] != "ok":
            line = f"{row['name']} {row['dtype']}: {row['verdict']}: {row['detail']}"
            out.print(line, markup=False, highlight=False, soft_wrap=True)


def progress_bar(out: Console) -> Progress:
    """A bar with time left, for work whose steps are of one kind."""
    return Progress(
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeRemainingColumn(),
        console=out,
        transient=True,
        disable=not out.is_terminal,
    )


def exit_code(rows: Sequence[Mapping[str, Any]]) -> int:
    """1 if anything is wrong, crashed or ran out of time or memory."""
    return int(any(r["verdict"] not in ("ok", "unsupported", "skipped") for r in rows))


def verify_oracles(
    names: list[str], dtypes: str, device: str, given: list[str], option: list[str],
    workers: int, exact_alone: bool, journal: str, json_file: str | None,
) -> int:  # fmt: skip
    """Check implementations against their oracles, then the exact claims; both are recorded."""
    from harness.measure.device import environment
    from harness.verify.run import jobs, verify, workers_for
    from suites.bench.options import journal_folder
    from suites.bench.setup import device_fingerprint

    if workers < 0:
        raise UsageError(f"--jobs: given {workers}; expected 0 (one per core) or more")
    options = parse_options(option)
    folder = journal_folder(journal)
    registry = Registry(given)
    wanted = names or list(registry.given_names) or list(registry.mechanisms)
    pairs = registry.select(wanted)
    kinds = tuple(d.strip() for d in dtypes.split(",") if d.strip()) or DEFAULT_DTYPES
    for dtype in kinds:
        if dtype not in DTYPES:
            raise UsageError(f"unknown dtype {dtype!r}; use one of {', '.join(DTYPES)}")
    fingerprint = device_fingerprint(device)
    out = console()
    wanted_jobs = [(f"{m.name}.{i.name}", dtype, options) for m, i in pairs for dtype in kinds]
    todo = jobs(wanted_jobs, registry, fingerprint)
    workers = workers_for(fingerprint, workers)
    rows: list[dict[str, Any]] = []
    if not exact_alone:
        with progress_bar(out) as bar:
            task = bar.add_task("verifying", total=len(todo))
            rows = verify(
                todo, registry, fingerprint, lambda _: bar.advance(task), folder,
                {"environment": environment(), "purpose": "verify"}, workers, again=True,
            )  # fmt: skip
        print_verified(out, rows)
        bad = sum(exit_code([r]) for r in rows)
        checked = sum(r["verdict"] == "ok" for r in rows)
        comparisons = sum(int(r.get("comparisons", 0)) for r in rows)
        out.print(
            f"{checked} ok, {bad} wrong, {len(rows) - checked - bad} unsupported; "
            f"{comparisons:,} comparisons on {fingerprint['model']}, torch {fingerprint['torch']}"
        )
    # What options or one's own mechanisms change is not what the papers claim.
    records = [] if options else verify_exact({m.name for m, _ in pairs}, fingerprint, folder, out)
    if exact_alone and not records:
        raise UsageError("--exact: no paper claims anything exact of these; leave the names out")
    write_json(json_file, {"fingerprint": fingerprint, "rows": rows, "exact": records})
    return max(exit_code(rows), exit_code(records))


def verify_exact(
    mechanisms: set[str], fingerprint: Mapping[str, Any], folder: Path, out: Console
) -> list[dict[str, Any]]:
    """Check the exact claims about some mechanisms, one line each, and record them."""
    from harness.measure.device import environment
    from harness.records.journal import Writer
    from harness.verify.exact import concerning, run

    checks = concerning(mechanisms)
    if not checks:
        return []
    first = {"environment": environment(), "purpose": "verify", "fingerprint": dict(fingerprint)}
    writer = Writer(folder, first)
    try:
        with progress_bar(out) as bar:
            task = bar.add_task("exact claims", total=len(checks))
            records = run(checks, fingerprint, lambda _: bar.advance(task), writer)
    finally:
        writer.close()
    for record in records:
        colour = "green" if record["verdict"] == "ok" else "bold red"
        text = escape(f"{record['check']}: {record['detail']}")
        out.print(f"[{colour}]{record['verdict']:8}[/] {text}", highlight=False, soft_wrap=True)
    return records


def golden_files(place: Path) -> list[Path]:
    """All ``.npz`` files at or below a folder (or the file itself).

    Raises
    ------
    UsageError
        If the path does not exist.
    """
    if not place.exists():
        raise UsageError(f"no such folder: {place}")
    return [place] if place.is_file() else sorted(place.rglob("*.npz"))


def verify_golden(
    folder: str, names: list[str], given: list[str], json_file: str | None
) -> int:  # fmt: skip
    """Check golden files, one line each.

    Raises
    ------
    UsageError
        If the folder holds nothing that could be checked.
    """
    from harness.build import threads_available
    from harness.isolate import Call, Limits, run_all
    from harness.registry import Registry

    if names:
        Registry(given).select(names)
    paths = golden_files(Path(folder))
    out = console()
    lines = []
    calls = [
        (
            path,
            Call(
                "harness.verify.golden:check_path",
                {"path": str(path), "given": given, "names": names},
                Limits(seconds=120),
            ),
        )
        for path in paths
    ]
    with progress_bar(out) as bar:
        task = bar.add_task("golden vectors", total=len(paths))
        for path, outcome in run_all(calls, threads_available(), ordered=True):
            label = f"{path.parent.name}/{path.stem}"
            bar.advance(task)
            if outcome.status == "ok" and outcome.value is None:
                continue
            if outcome.status == "ok":
                line = dict(outcome.value)
            else:
                line = {"golden": label, "verdict": outcome.status, "detail": outcome.detail}
            lines.append(line)
            colour = {"ok": "green", "skipped": "dim"}.get(line["verdict"], "bold red")
            text = escape(f"{line['golden']}: {line['detail']}")
            out.print(f"[{colour}]{line['verdict']:8}[/] {text}", highlight=False, soft_wrap=True)
    checked = [r for r in lines if r["verdict"] != "skipped"]
    write_json(json_file, {"rows": lines})
    if not checked:
        raise UsageError(
            f"nothing was checked: {len(lines)} golden files below {folder}, "
            "none of a mechanism that is built"
        )
    bad = exit_code(lines)
    wrong = sum(exit_code([r]) for r in lines)
    out.print(f"{len(checked) - wrong} ok, {wrong} wrong, {len(lines) - len(checked)} skipped")
    return bad
