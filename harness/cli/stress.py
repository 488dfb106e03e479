"""``attnbench verify --stress``: error over magnitudes, as records for the report."""

from __future__ import annotations

from typing import Any

from rich.console import Console

from harness.cli.output import bare_table, console, say, steps, write_json
from harness.isolate import Interpreter, Limits
from harness.measure.device import device_fingerprint, environment
from harness.options import VerifyOptions
from harness.records import journal, schema
from harness.registry import Registry, code_hash
from harness.verify.run import case_name

CALL = "harness.verify.stress:stress"
LIMIT_SECONDS = 300.0
NAMES = ("multi_head", "mtsa")
DEFAULT_DTYPES = ("f32", "bf16", "f16")


def run_stress(options: VerifyOptions) -> int:
    """Sweep the default implementation of every named mechanism; 1 if a child crashed.

    An error beyond its budget is a finding here, not a failure: that is what is looked for.
    """
    kinds = options.dtypes or DEFAULT_DTYPES
    registry, folder = Registry(options.given), options.journal
    fingerprint = device_fingerprint(options.device)
    wanted = []
    for name in options.names or [*registry.given_names, *NAMES]:
        mechanism, implementation = registry.find(name)
        wanted += [(f"{mechanism.name}.{implementation.name}", dtype) for dtype in kinds]
    known = journal.read(folder).finished()
    out, records = console(), []
    writer = None
    try:
        with steps(out, "stress", len(wanted)) as step, Interpreter("fork") as interpreter:
            for name, dtype in wanted:
                case = case_name(name, options.option, dtype, str(fingerprint["device"]))
                code = code_hash(registry.find(name)[0], "verify")
                key = schema.key("stress", case, 0, code, fingerprint)
                if key in known:
                    records.append(known[key])
                    step()
                    continue
                arguments = {
                    "name": name,
                    "dtype": dtype,
                    "device": fingerprint["device"],
                    "given": list(options.given),
                    "options": dict(options.option),
                }
                outcome = interpreter.run(CALL, arguments, Limits(seconds=LIMIT_SECONDS))
                value = outcome.value if outcome.status == "ok" else {"points": []}
                if writer is None:
                    session = {"environment": environment(), "purpose": "stress"}
                    writer = journal.Writer(folder, {**session, "fingerprint": dict(fingerprint)})
                records.append(
                    writer.append(
                        {
                            "kind": "stress",
                            "key": key,
                            "case": case,
                            "block": 0,
                            "code": code,
                            "fingerprint": schema.digest(dict(fingerprint)),
                            "name": name,
                            "dtype": dtype,
                            "options": dict(options.option),
                            "device": fingerprint["device"],
                            "status": outcome.status,
                            "detail": outcome.detail,
                            **value,
                        }
                    )
                )
                step()
    finally:
        if writer is not None:
            writer.close()
    _show(out, records)
    say(out, f"journal {folder}; attnbench report draws it")
    write_json(options.json_file, {"fingerprint": fingerprint, "rows": records})
    return int(any(r["status"] not in ("ok", "unsupported") for r in records))


def _show(out: Console, records: list[dict[str, Any]]) -> None:
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
