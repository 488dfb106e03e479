"""Run the exact checks, each in a child, and write a record for each."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeAlias

from harness.isolate import Interpreter, Limits
from harness.records import journal, schema
from harness.registry import builtins, code_hash
from suites.exact.checks import Check

LIMIT_SECONDS = 300.0

Result: TypeAlias = Mapping[str, Any]
"""What a check returns: ``verdict`` ("ok" or "wrong"), ``detail``, ``comparisons``; ``value`` where
there is a number, and ``parts``, each with a verdict and detail of its own."""


def code_of(check: Check) -> str:
    """Hash of the mechanisms' source and of the checks'."""
    own = hashlib.sha256()
    for file in sorted(Path(__file__).parent.glob("*.py")):
        own.update(file.name.encode() + file.read_bytes())
    known = builtins()
    parts = [code_hash(known[name], "verify") for name in check.mechanisms]
    return schema.digest([*parts, own.hexdigest()])


def run(
    checks: Sequence[Check],
    fingerprint: Mapping[str, Any],
    on_record: Callable[[Mapping[str, Any]], None] = lambda record: None,
    writer: journal.Writer | None = None,
) -> list[dict[str, Any]]:
    """Run checks and return their records; they compute on the CPU whatever the device.

    Parameters
    ----------
    fingerprint : mapping
        Of the device under which the records stand.
    on_record : callable
        Called with each record as it is known.
    writer : journal.Writer, optional
        Where records are written.
    """
    records = []
    with Interpreter("fork") as interpreter:
        for check in checks:
            outcome = interpreter.run(
                check.call, dict(check.arguments), Limits(seconds=LIMIT_SECONDS)
            )
            code = code_of(check)
            record: dict[str, Any] = {
                "kind": "exact",
                "key": schema.key("exact", check.name, 0, code, fingerprint),
                "check": check.name,
                "case": check.name,
                "summary": check.summary,
                "exact": check.exact,
                "code": code,
                "fingerprint": schema.digest(dict(fingerprint)),
                "status": outcome.status,
                "task_seconds": outcome.seconds,
            }
            if outcome.status == "ok":
                record |= dict(outcome.value)
            else:
                record |= {"verdict": outcome.status, "detail": outcome.detail}
            if record["verdict"] == "wrong":
                record["status"] = "wrong"
            records.append(writer.append(record) if writer else record)
            on_record(records[-1])
    return records
