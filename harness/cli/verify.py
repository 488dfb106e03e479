"""``attnbench verify``: the table of errors and budgets, and the golden vectors."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.cli.output import bare_table, console, say, steps, write_json
from harness.errors import UsageError
from harness.measure.device import device_fingerprint, environment
from harness.options import VerifyOptions
from harness.registry import Registry
from harness.verify.run import jobs, verify, workers_for

DEFAULT_DTYPES = ("f64", "f32", "bf16")


def verify_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Error, budget, margin and verdict of each implementation and dtype."""
    table = bare_table()
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
            escape(row["name"]),
            row["dtype"],
            *cells,
            f"[{colour}]{row['verdict']}[/]",
            escape(str(row.get("detail") or "")) if row["verdict"] == "ok" else "",
        )
    return table


def print_verified(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """The table, and below it a line for everything that is not ok."""
    out.print(verify_table(rows))
    for row in rows:
        if row["verdict"] != "ok":
            say(out, f"{row['name']} {row['dtype']}: {row['verdict']}: {row['detail']}")


def exit_code(rows: Sequence[Mapping[str, Any]]) -> int:
    """1 if anything is wrong, crashed or ran out of time or memory."""
    return int(any(r["verdict"] not in ("ok", "unsupported", "skipped") for r in rows))


def run_verify(options: VerifyOptions) -> int:
    """Check what was asked for; returns the exit code."""
    if options.stress:
        from harness.cli.stress import run_stress

        return run_stress(options)
    if options.golden is not None:
        return verify_golden(options.golden, options)
    return verify_oracles(options)


def verified(
    wanted: Iterable[tuple[str, str, tuple[tuple[str, str], ...]]],
    registry: Registry,
    fingerprint: Mapping[str, Any],
    folder: Path,
    out: Console,
    *,
    workers: int = 0,
    again: bool = False,
) -> list[dict[str, Any]]:
    """Verify (name, dtype, options) with a bar and a table; the rows are recorded.

    Parameters
    ----------
    workers : int
        At a time; 0: one per core.
    again : bool
        Also what the journal knows.
    """
    todo = jobs(wanted, registry, fingerprint)
    with steps(out, "verifying", len(todo)) as step:
        rows = verify(
            todo,
            registry,
            fingerprint,
            lambda _: step(),
            folder,
            {"environment": environment(), "purpose": "verify"},
            workers_for(fingerprint, workers),
            again=again,
        )
    print_verified(out, rows)
    return rows


def verify_oracles(options: VerifyOptions) -> int:
    """Check implementations against their oracles, then the exact claims; both are recorded."""
    registry = Registry(options.given)
    wanted = options.names or list(registry.given_names) or list(registry.mechanisms)
    pairs = registry.select(wanted)
    kinds = options.dtypes or DEFAULT_DTYPES
    fingerprint = device_fingerprint(options.device)
    folder, out = options.journal, console()
    rows: list[dict[str, Any]] = []
    if not options.exact:
        rows = verified(
            [(f"{m.name}.{i.name}", dtype, options.option) for m, i in pairs for dtype in kinds],
            registry,
            fingerprint,
            folder,
            out,
            workers=options.jobs,
            again=True,
        )
        bad = sum(exit_code([r]) for r in rows)
        checked = sum(r["verdict"] == "ok" for r in rows)
        comparisons = sum(int(r.get("comparisons", 0)) for r in rows)
        out.print(
            f"{checked} ok, {bad} wrong, {len(rows) - checked - bad} unsupported; "
            f"{comparisons:,} comparisons on {fingerprint['model']}, torch {fingerprint['torch']}"
        )
    # What options or one's own mechanisms change is not what the papers claim.
    named = set() if options.option else {m.name for m, _ in pairs}
    records = verify_exact(named, fingerprint, folder, out)
    if options.exact and not records:
        raise UsageError("--exact: no paper claims anything exact of these; leave the names out")
    write_json(options.json_file, {"fingerprint": fingerprint, "rows": rows, "exact": records})
    return max(exit_code(rows), exit_code(records))


def verify_exact(
    mechanisms: set[str], fingerprint: Mapping[str, Any], folder: Path, out: Console
) -> list[dict[str, Any]]:
    """Check the exact claims about some mechanisms, one line each, and record them."""
    from harness.records.journal import Writer
    from harness.verify.exact import concerning, run

    checks = concerning(mechanisms)
    if not checks:
        return []
    first = {"environment": environment(), "purpose": "verify", "fingerprint": dict(fingerprint)}
    writer = Writer(folder, first)
    try:
        with steps(out, "exact claims", len(checks)) as step:
            records = run(checks, fingerprint, lambda _: step(), writer)
    finally:
        writer.close()
    for record in records:
        colour = "green" if record["verdict"] == "ok" else "bold red"
        text = escape(f"{record['check']}: {record['detail']}")
        out.print(f"[{colour}]{record['verdict']:8}[/] {text}", highlight=False, soft_wrap=True)
    return records


def golden_files(place: Path) -> list[Path]:
    """All ``.npz`` files at or below a folder (or the file itself)."""
    return [place] if place.is_file() else sorted(place.rglob("*.npz"))


def verify_golden(place: Path, options: VerifyOptions) -> int:
    """Check golden files, one line each.

    Raises
    ------
    UsageError
        If the folder holds nothing that could be checked.
    """
    from harness.build import threads_available
    from harness.isolate import Call, Limits, run_all

    names, given = list(options.names), list(options.given)
    if names:
        Registry(given).select(names)
    paths = golden_files(place)
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
    with steps(out, "golden vectors", len(paths)) as step:
        for path, outcome in run_all(calls, threads_available(), ordered=True):
            label = f"{path.parent.name}/{path.stem}"
            step()
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
    write_json(options.json_file, {"rows": lines})
    if not checked:
        raise UsageError(
            f"nothing was checked: {len(lines)} golden files below {place}, "
            "none of a mechanism that is built"
        )
    bad = exit_code(lines)
    wrong = sum(exit_code([r]) for r in lines)
    out.print(f"{len(checked) - wrong} ok, {wrong} wrong, {len(lines) - len(checked)} skipped")
    return bad
