"""``attnbench verify``: errors and budgets, exact claims, golden vectors, errors of magnitudes."""

from __future__ import annotations

import shutil
from collections.abc import Collection, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from harness.cli.output import bare_table, console, say, steps
from harness.errors import UsageError
from harness.isolate import Call, Limits, run_all
from harness.json_file import write_json
from harness.measure.device import device_fingerprint, environment
from harness.options.measure import VerifyOptions
from harness.records.journal import Writer
from harness.records.sharing import at_work, in_turn
from harness.registry import Registry
from harness.verify.batches import telling
from harness.verify.run import (
    ANSWERS,
    IN_PARTS,
    SETTLED,
    beside,
    broken,
    jobs,
    price,
    same_bits,
    verify,
    workers_for,
)

DEFAULT_DTYPES = ("f64", "f32", "bf16")
LARGE_DTYPES = ("f32", "bf16")
BITS_DTYPES = {"cpu": ("f32",), "cuda": ("f32", "bf16")}
"""In which the same bits are looked for, where they are among those asked for."""
COLOURS = {"ok": "green", "unsupported": "dim", "skipped": "dim"}
GOLDEN_CALL = "harness.verify.golden:check_path"
STRESSED = ("multi_head", "mtsa")
STRESS_DTYPES = ("f32", "bf16", "f16")


def verify_table(rows: Sequence[Mapping[str, Any]]) -> Table:
    """Error, budget, margin and verdict of each implementation and dtype."""
    known = any("determinism" in row for row in rows)
    numbers = ("error", "budget", "margin", "grad error", "budget", "margin")
    table = bare_table("implementation", "dtype", numbers=numbers)
    table.columns[0].no_wrap = True
    for column in ("verdict", *(("same bits", "deterministic") if known else ()), ""):
        table.add_column(column)
    for row in rows:
        cells = []
        for part in ("value", "gradient"):
            for name, form in (("error", ".1e"), ("budget", ".1e"), ("margin", ".3g")):
                value = row.get(f"{part}_{name}")
                cells.append("" if value is None else f"{value:{form}}")
        colour = COLOURS.get(row["verdict"], "bold red")
        bits = row.get("determinism")
        told = ("", "") if bits is None else (same_bits(bits), price(bits))
        table.add_row(
            escape(_named(row)),
            row["dtype"],
            *cells,
            f"[{colour}]{row['verdict']}[/]",
            *(told if known else ()),
            escape(str(row.get("detail") or "")) if row["verdict"] == "ok" else "",
        )
    return table


def _named(row: Mapping[str, Any]) -> str:
    """The implementation, with the options by which one differs from another."""
    case, of = str(row.get("case") or ""), f"-{row['dtype']}-{row.get('device')}"
    return case.removesuffix(of) if case.endswith(of) else str(row["name"])


def print_verified(out: Console, rows: Sequence[Mapping[str, Any]]) -> None:
    """The table, and below it a line for everything that is not ok or does not keep its promise."""
    out.print(verify_table(rows))
    for row in rows:
        if row["verdict"] != "ok":
            found_by = f"{row['found_by']}: " if row.get("found_by") else ""
            say(out, f"{_named(row)} {row['dtype']}: {row['verdict']}: {found_by}{row['detail']}")
        if told := _broken(row):
            say(out, f"{_named(row)} {row['dtype']}: declared deterministic: {told}")


def _broken(row: Mapping[str, Any]) -> str:
    return str(row.get("determinism", {}).get("broken", ""))


def exit_code(rows: Sequence[Mapping[str, Any]]) -> int:
    """1 if anything is wrong, crashed or ran out of time or memory, or breaks its promise."""
    fine = ("ok", "unsupported", "skipped")
    return int(any(r["verdict"] not in fine or _broken(r) for r in rows))


def run_verify(options: VerifyOptions) -> int:
    """Check what was asked for; returns the exit code."""
    if options.stress:
        return verify_stress(options)
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
    settled: Collection[str] = SETTLED,
    large: bool = False,
    bits: Mapping[tuple[str, str], Mapping[str, Any]] | None = None,
) -> list[dict[str, Any]]:
    """Verify (name, dtype, options) with a bar and a table; the rows are recorded.

    Parameters
    ----------
    workers : int
        At a time; 0: one per core.
    settled : collection of str
        Verdicts with which the journal's rows are taken; none: all is done.
    large : bool
        Of large shapes.
    bits : mapping, optional
        What is known of determinism, by name and dtype.
    """
    todo = jobs(wanted, registry, fingerprint, large)
    with in_turn(folder), steps(out, "verifying", len(todo)) as step:
        rows = verify(
            todo,
            registry,
            fingerprint,
            lambda _: step(),
            folder,
            {"environment": environment(), "purpose": "verify"},
            workers_for(fingerprint, workers),
            settled=settled,
        )
    for row in rows:
        if found := (bits or {}).get((row["name"], row["dtype"])):
            row["determinism"] = found
    print_verified(out, rows)
    return rows


def verify_oracles(options: VerifyOptions) -> int:
    """Check implementations against their oracles, then the exact claims; both are recorded.

    At large shapes instead those of which they say something. What takes long goes on, these and
    determinism: what the journal knows is not done again.
    """
    registry, folder, out = Registry(options.given), options.journal, console()
    registry.refuse_unnamed(options.names)
    fingerprint = device_fingerprint(options.device)
    named = options.names or (() if options.large else registry.given_names)
    pairs = registry.select(named or list(registry.mechanisms))
    if options.large:
        device = str(fingerprint["device"])
        pairs = [pair for pair in pairs if telling(*pair, device)]
        if not pairs:
            raise UsageError(
                f"--large: large shapes say nothing of these on {device}; expected e.g. "
                "mtsa.fused_tiled"
            )
    kinds = options.dtypes or (LARGE_DTYPES if options.large else DEFAULT_DTYPES)
    todo = [(f"{m.name}.{i.name}", dtype, options.option) for m, i in pairs for dtype in kinds]
    rows: list[dict[str, Any]] = []
    found: dict[str, Any] = {"fingerprint": fingerprint, "rows": rows}
    with at_work(folder, "verify", alone=False):
        if not options.exact:
            more: dict[str, Any] = {"large": options.large, "workers": options.jobs}
            if options.determinism:
                more["bits"] = determinism(todo, options, registry, fingerprint)
                more["settled"] = IN_PARTS
            elif not (options.large or options.resume):
                more["settled"] = ()
            rows += verified(todo, registry, fingerprint, folder, out, **more)
            out.print(_counted(rows, fingerprint))
        if options.large:
            shutil.rmtree(folder / ANSWERS, ignore_errors=True)
        else:
            # What options or one's own mechanisms change is not what the papers claim.
            papers = set() if options.option else {m.name for m, _ in pairs}
            found["exact"] = verify_exact(papers, fingerprint, folder, out)
    if options.exact and not found["exact"]:
        why = "no paper claims anything exact of these; leave the names out"
        if options.option:
            why = "what --option changes is not what the papers claim; leave it out"
        raise UsageError(f"--exact: {why}")
    write_json(options.json_file, found)
    return max(exit_code(rows), exit_code(found.get("exact", ())))


def determinism(
    todo: Sequence[tuple[str, str, tuple[tuple[str, str], ...]]],
    options: VerifyOptions,
    registry: Registry,
    fingerprint: Mapping[str, Any],
) -> dict[tuple[str, str], dict[str, Any]]:
    """Whether the same bits come again, by name and dtype, one child at a time; recorded.

    In the dtypes of `BITS_DTYPES`, else in the first one asked for: compiling takes up to a minute
    each. Of those declared deterministic ``broken`` says what they do not keep; it is not recorded.
    """
    dtypes = [dtype for _, dtype, _ in todo]
    usual = BITS_DTYPES[str(fingerprint["device"])]
    only = [dtype for dtype in usual if dtype in dtypes] or dtypes[:1]
    wanted = [
        (name, dtype)
        for name, dtype, _ in todo
        if dtype in only and fingerprint["device"] in registry.find(name)[1].devices
    ]
    session = {"environment": environment(), "purpose": "determinism"}
    given = (options.option, registry, fingerprint, options.journal, session)
    with steps(console(), "determinism", len(wanted)) as step:
        records = beside("determinism", wanted, *given, step)
    declared = {r["name"] for r in records if registry.find(r["name"])[1].deterministic}
    return {
        (r["name"], r["dtype"]): {**r, "broken": broken(r)} if r["name"] in declared else r
        for r in records
    }


def _counted(rows: Sequence[Mapping[str, Any]], fingerprint: Mapping[str, Any]) -> str:
    bad = sum(exit_code([r]) for r in rows)
    checked = sum(r["verdict"] == "ok" and not exit_code([r]) for r in rows)
    comparisons = sum(int(r.get("comparisons", 0)) for r in rows)
    return (
        f"{checked} ok, {bad} wrong, {len(rows) - checked - bad} unsupported; "
        f"{comparisons:,} comparisons on {fingerprint['model']}, torch {fingerprint['torch']}"
    )


def verify_exact(
    mechanisms: set[str], fingerprint: Mapping[str, Any], folder: Path, out: Console
) -> list[dict[str, Any]]:
    """Check the exact claims about some mechanisms, one line each, and record them."""
    from harness.verify.exact import concerning, run

    checks = concerning(mechanisms)
    if not checks:
        return []
    first = {"environment": environment(), "purpose": "verify", "fingerprint": dict(fingerprint)}
    with Writer(folder, first) as writer, steps(out, "exact claims", len(checks)) as step:
        records = run(checks, fingerprint, lambda _: step(), writer)
    for record in records:
        _print_verdict(out, record["verdict"], f"{record['check']}: {record['detail']}")
    return records


def _print_verdict(out: Console, verdict: str, text: str) -> None:
    colour = COLOURS.get(verdict, "bold red")
    say(out, f"[{colour}]{verdict:8}[/] {escape(text)}", markup=True)


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

    asked = {"given": list(options.given), "names": list(options.names)}
    if options.names:
        Registry(options.given).select(options.names)
    paths = golden_files(place)
    out = console()
    lines = []
    limits = Limits(seconds=120)
    calls = [(path, Call(GOLDEN_CALL, {"path": str(path), **asked}, limits)) for path in paths]
    with steps(out, "golden vectors", len(paths)) as step:
        for path, outcome in run_all(calls, threads_available(), ordered=True):
            step()
            label = f"{path.parent.name}/{path.stem}"
            line = {"golden": label, "verdict": outcome.status, "detail": outcome.detail}
            if outcome.status == "ok":
                if outcome.value is None:
                    continue
                line = dict(outcome.value)
            lines.append(line)
            _print_verdict(out, line["verdict"], f"{line['golden']}: {line['detail']}")
    skipped = sum(line["verdict"] == "skipped" for line in lines)
    write_json(options.json_file, {"rows": lines})
    if len(lines) == skipped:
        whose = f"of {', '.join(options.names) or 'a mechanism that is built'}"
        raise UsageError(f"nothing was checked: {len(paths)} golden files at {place}, none {whose}")
    wrong = sum(exit_code([line]) for line in lines)
    out.print(f"{len(lines) - skipped - wrong} ok, {wrong} wrong, {skipped} skipped")
    return int(bool(wrong))


def verify_stress(options: VerifyOptions) -> int:
    """Sweep the default implementation of every named mechanism; 1 if a child crashed.

    An error beyond its budget is a finding here, not a failure: that is what is looked for.
    """
    registry, folder, out = Registry(options.given), options.journal, console()
    registry.refuse_unnamed(options.names)
    fingerprint = device_fingerprint(options.device)
    found = [registry.find(name) for name in options.names or [*registry.given_names, *STRESSED]]
    wanted = [
        (f"{mechanism.name}.{implementation.name}", dtype)
        for mechanism, implementation in found
        for dtype in options.dtypes or STRESS_DTYPES
    ]
    session = {"environment": environment(), "purpose": "stress"}
    with at_work(folder, "verify", alone=False), steps(out, "stress", len(wanted)) as step:
        records = beside(
            "stress", wanted, options.option, registry, fingerprint, folder, session, step
        )
    _print_stress(out, records)
    say(out, f"journal {folder}; attnbench report draws it")
    write_json(options.json_file, {"fingerprint": fingerprint, "rows": records})
    return int(any(r["status"] not in ("ok", "unsupported") for r in records))


def _print_stress(out: Console, records: list[dict[str, Any]]) -> None:
    table = bare_table("implementation", "dtype", "magnified", "within budget", "not")
    for r in records:
        if r["status"] != "ok":
            table.add_row(r["name"], r["dtype"], r["status"], r.get("detail") or "", "")
        for kind in dict.fromkeys(p["kind"] for p in r["points"]):
            mine = [p for p in r["points"] if p["kind"] == kind]
            good = [f"{p['scale']:g}" for p in mine if p["ok"] and p["gradient_ok"]]
            bad = [f"{p['scale']:g}" for p in mine if not (p["ok"] and p["gradient_ok"])]
            table.add_row(r["name"], r["dtype"], kind, " ".join(good), " ".join(bad))
    out.print(table)
