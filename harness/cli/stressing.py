"""``attnbench verify --stress``: error over magnitudes, as records for the report."""

from __future__ import annotations

from typing import Any

from rich.console import Console
from rich.table import Table

from harness.case import DTYPES, parse_options
from harness.cli.output import check_json, console, write_json
from harness.cli.verifying import progress_bar
from harness.errors import UsageError
from harness.isolate import Interpreter, Limits
from harness.measure.device import environment
from harness.records import journal, schema
from harness.registry import Registry, code_hash
from harness.verify.run import case_name

CALL = "harness.verify.stress:stress"
LIMIT_SECONDS = 300.0
NAMES = ("multi_head", "mtsa")
DEFAULT_DTYPES = ("f32", "bf16", "f16")


def run_stress(
    names: list[str], dtypes: str, device: str, given: list[str], option: list[str], jobs: int,
    journal_text: str, json_file: str | None,
) -> int:  # fmt: skip
    """Sweep the default implementation of every named mechanism; 1 if a child crashed.

    An error beyond its budget is a finding here, not a failure: that is what is looked for.
    """
    from suites.bench.options import journal_folder
    from suites.bench.setup import device_fingerprint

    check_json(json_file)
    if jobs not in (0, 1):
        raise UsageError(f"--jobs: given {jobs}; --stress runs one child at a time, leave it out")
    kinds = tuple(d.strip() for d in dtypes.split(",") if d.strip()) or DEFAULT_DTYPES
    for dtype in kinds:
        if dtype not in DTYPES:
            raise UsageError(f"unknown dtype {dtype!r}; use one of {', '.join(DTYPES)}")
    registry, options = Registry(given), parse_options(option)
    folder = journal_folder(journal_text)
    fingerprint = device_fingerprint(device)
    wanted = []
    for name in names or [*registry.given_names, *NAMES]:
        mechanism, implementation = registry.find(name)
        wanted += [(f"{mechanism.name}.{implementation.name}", dtype) for dtype in kinds]
    known = journal.read(folder).finished()
    out, records = console(), []
    writer = None
    try:
        with progress_bar(out) as bar, Interpreter("fork") as interpreter:
            task = bar.add_task("stress", total=len(wanted))
            for name, dtype in wanted:
                case = case_name(name, options, dtype, str(fingerprint["device"]))
                code = code_hash(registry.find(name)[0], "verify")
                key = schema.key("stress", case, 0, code, fingerprint)
                if key in known:
                    records.append(known[key])
                    bar.advance(task)
                    continue
                arguments = {"name": name, "dtype": dtype, "device": fingerprint["device"],
                             "given": given, "options": dict(options)}  # fmt: skip
                outcome = interpreter.run(CALL, arguments, Limits(seconds=LIMIT_SECONDS))
                value = outcome.value if outcome.status == "ok" else {"points": []}
                if writer is None:
                    session = {"environment": environment(), "purpose": "stress"}
                    writer = journal.Writer(folder, {**session, "fingerprint": dict(fingerprint)})
                records.append(writer.append({
                    "kind": "stress", "key": key, "case": case, "block": 0, "code": code,
                    "fingerprint": schema.digest(dict(fingerprint)), "name": name, "dtype": dtype,
                    "options": dict(options), "device": fingerprint["device"],
                    "status": outcome.status, "detail": outcome.detail, **value,
                }))  # fmt: skip
                bar.advance(task)
    finally:
        if writer is not None:
            writer.close()
    _show(out, records)
    out.print(f"journal {folder}; attnbench report draws it", markup=False, highlight=False)
    write_json(json_file, {"fingerprint": fingerprint, "rows": records})
    return int(any(r["status"] not in ("ok", "unsupported") for r in records))


def _show(out: Console, records: list[dict[str, Any]]) -> None:
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in ("implementation", "dtype", "magnified", "within budget", "not"):
        table.add_column(column)
    for r in records:
        if r["status"] != "ok":
            table.add_row(r["name"], r["dtype"], r["status"], r.get("detail") or "", "")
        for kind in dict.fromkeys(p["kind"] for p in r["points"]):
            mine = [p for p in r["points"] if p["kind"] == kind]
            good = [f"{p['scale']:g}" for p in mine if p["ok"] and p["gradient_ok"]]
            bad = [f"{p['scale']:g}" for p in mine if not (p["ok"] and p["gradient_ok"])]
            table.add_row(r["name"], r["dtype"], kind, " ".join(good), " ".join(bad))
    out.print(table)
