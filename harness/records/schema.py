"""What a record is, and the key by which a finished one is known again."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from harness.case import parse
from harness.errors import UsageError

SCHEMA = 1
"""Version of the journal; a reader refuses newer ones, because it can't know what they mean."""

KINDS = (
    "session", "block", "verify", "time", "anchor", "memory", "margin", "design", "run", "verdict",
)  # fmt: skip

MEASURED = ("time", "anchor", "memory", "margin")
"""Kinds that belong to a case and a block."""

FIELDS: Mapping[str, Mapping[str, type]] = {
    **{kind: {"key": str, "case": str, "block": int, "status": str} for kind in MEASURED},
    "verify": {"key": str, "case": str, "verdict": str},
    "design": {"key": str, "question": str, "models": list, "task": str, "runs": list,
               "seeds": list, "recipes": list, "metric": str},
    "run": {"key": str, "model": str, "seed": int, "status": str},
}  # fmt: skip
"""Without these a record means nothing."""

NUMBERS = (
    "median", "error", "budget", "margin", "peak_bytes", "transient_bytes", "limit_seconds",
)  # fmt: skip
"""Fields of a measurement that are a number, null or not there."""


def fault(record: Mapping[str, Any]) -> str:
    """What keeps a line with a kind from being a record; empty if nothing does.

    A journal is a file that anyone may have edited: what passes here can be counted with.
    """
    kind = record["kind"]
    if kind == "session":
        for name in ("fingerprint", "environment"):
            if not _is(record.get(name, {}), dict):
                return f"{name} is no dict"
        packages = record.get("environment", {}).get("packages") or {}
        return "" if _is(packages, dict) else "packages is no dict"
    for name, wanted in FIELDS.get(kind, {}).items():
        if not _is(record.get(name), wanted):
            return f"{name} is no {wanted.__name__}"
    if not _is(record.get("key", ""), str):
        return "key is no str"
    return _measured_fault(record) if kind in MEASURED else ""


def _is(value: Any, wanted: type) -> bool:
    return isinstance(value, wanted) and not (wanted is int and isinstance(value, bool))


def _measured_fault(record: Mapping[str, Any]) -> str:
    for name in NUMBERS:
        value = record.get(name)
        if value is not None and (isinstance(value, bool) or not isinstance(value, int | float)):
            return f"{name} is no number"
    if not _is(record.get("samples", []), list):
        return "samples is no list"
    if record["kind"] in ("time", "anchor") and record["status"] == "ok":
        median = record.get("median")
        if median is None or not 0 < median < math.inf:
            return f"ok, but the time is {median}"
    return _case_fault(record["case"])


@lru_cache(maxsize=4096)
def _case_fault(case: str) -> str:
    try:
        parse(case)
    except UsageError as error:
        return str(error)
    return ""


def digest(value: Any) -> str:
    """Short hash of a JSON value, independent of the order of its keys."""
    text = json.dumps(value, sort_keys=True, separators=(",", ":"))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def key(kind: str, case: str, block: int, code: str, fingerprint: Mapping[str, Any]) -> str:
    """Key of a finished measurement: the same key is never measured twice.

    Parameters
    ----------
    kind : str
        What was done: ``time``, ``memory``, ``margin`` or ``verify``.
    case : str
        Case id.
    block : int
    code : str
        Hash of the mechanism's and the harness's source.
    fingerprint : mapping
        Device, driver, CUDA, torch, python, threads, allocator.
    """
    return digest([kind, case, block, code, dict(fingerprint)])
