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
    "peaks", "frontier", "stress", "attention", "calibration", "diff", "diff-block", "accuracy",
    "family", "simulation", "sweep", "exact",
)  # fmt: skip

MEASURED = ("time", "anchor", "memory", "margin", "peaks")
"""Kinds that belong to a case and a block."""

FIELDS: Mapping[str, Mapping[str, type]] = {
    **{kind: {"key": str, "case": str, "block": int, "status": str} for kind in MEASURED},
    "verify": {"key": str, "case": str, "verdict": str},
    "accuracy": {"key": str, "case": str, "status": str, "fingerprint": str},
    "design": {"key": str, "question": str, "models": list, "task": str, "runs": list,
               "seeds": list, "recipes": list, "metric": str},
    "family": {"key": str, "baseline": str, "models": list, "tasks": list, "designs": list},
    "run": {"key": str, "model": str, "seed": int, "status": str},
    "sweep": {"key": str, "models": list, "tasks": list, "runs": list},
    "frontier": {"key": str, "case": str, "status": str},
    "stress": {"key": str, "name": str, "dtype": str, "status": str, "points": list},
    "attention": {"key": str, "model": str, "task": str, "sentences": list},
    "exact": {"key": str, "check": str, "verdict": str},
}  # fmt: skip
"""Without these a record means nothing."""

OPTIONAL: Mapping[str, Mapping[str, type]] = {"design": {"folds": int}, "run": {"fold": int}}
"""Of this type, null, or not there."""

NUMBERS = (
    "median", "seconds", "ratio", "waited_seconds", "error", "budget", "margin", "peak_bytes",
    "transient_bytes", "limit_seconds", "memory_limit_bytes", "seconds_limit", "pass_seconds",
)  # fmt: skip
"""Fields of a measurement that are a number, null or not there."""

CEILINGS = (
    "gemm_operations_per_second", "copy_bytes_per_second", "read_bytes_per_second",
    "launch_seconds",
)  # fmt: skip
"""Numbers without which a ``peaks`` record that says ok can't be one."""

_KEY: Mapping[str, type] = {"key": str}
_NUMERIC = (float, int, type(None))


def fault(record: Mapping[str, Any]) -> str:
    """What keeps a line with a kind from being a record; empty if nothing does.

    A journal is a file that anyone may have edited: what passes here can be counted with.
    """
    kind = record["kind"]
    if type(kind) is not str:
        return "kind is no str"
    if kind == "session":
        return _session_fault(record)
    # Values of JSON are of exactly these types, and true is then no int.
    for name, wanted in FIELDS.get(kind, _KEY).items():
        if type(record.get(name)) is not wanted and (name in record or kind in FIELDS):
            return f"{name} is no {wanted.__name__}"
    for name, wanted in OPTIONAL.get(kind, {}).items():
        if type(record.get(name)) not in (wanted, type(None)):
            return f"{name} is no {wanted.__name__}"
    if kind == "family":
        return _family_fault(record)
    return _measured_fault(record) if kind in (*MEASURED, "frontier") else ""


def _family_fault(record: Mapping[str, Any]) -> str:
    for design in record["designs"]:
        if type(design) is not dict or design.get("kind") != "design":
            return "it holds something that is no design"
        if why := fault(design):
            return f"of a design in it {why}"
    return "" if record["designs"] else "it holds no design"


def _session_fault(record: Mapping[str, Any]) -> str:
    for name in ("fingerprint", "environment"):
        if type(record.get(name, {})) is not dict:
            return f"{name} is no dict"
    packages = record.get("environment", {}).get("packages") or {}
    return "" if type(packages) is dict else "packages is no dict"


def _measured_fault(record: Mapping[str, Any]) -> str:
    for name in NUMBERS:
        if name in record and type(record[name]) not in _NUMERIC:
            return f"{name} is no number"
    if type(record.get("samples", [])) is not list:
        return "samples is no list"
    if record["kind"] in ("time", "anchor") and record["status"] == "ok":
        median = record.get("median")
        if median is None or not 0 < median < math.inf:
            return f"ok, but the time is {median}"
        ratio = record.get("ratio", 1.0)
        if ratio is None or not 0 < ratio < math.inf:
            return f"ok, but the ratio is {ratio}"
    if record["kind"] == "peaks" and record["status"] == "ok":
        for name in CEILINGS:
            if type(record.get(name)) not in (float, int) or not 0 < record[name] < math.inf:
                return f"ok, but {name} is {record.get(name)}"
        for name in ("cache_bytes", "graph_launch_seconds"):
            if type(record.get(name)) not in _NUMERIC:
                return f"{name} is no number"
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


def short_commit(environment: Mapping[str, Any]) -> str:
    """Ten letters of a session's commit; ``+`` behind them where files had been changed."""
    commit = str(environment.get("commit") or "unknown")[:10]
    return commit + ("+" if environment.get("dirty") else "")
