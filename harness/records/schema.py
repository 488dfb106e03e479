"""What a record is, and the key by which a finished one is known again."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, TypeAlias

from harness.case import parse
from harness.errors import UsageError

LARGEST = 1e100
"""Numbers beyond this are no result: float32 ends at 3e38, and squares of theirs overflow."""

Shape: TypeAlias = "type | tuple[type, ...] | Number | Listed | Mapped | Fields"
"""A type stands for exactly that type: values of JSON have no other, and true is then no int."""


@dataclass(frozen=True)
class Number:
    """A finite number of at least `least`; above it where `above`."""

    least: float = -LARGEST
    above: bool = False


@dataclass(frozen=True)
class Listed:
    """A list of so many values (any number if `count` is None), each of one shape."""

    of: Shape
    count: int | None = None
    empty: bool = True


@dataclass(frozen=True)
class Mapped:
    """A mapping with any names, whose values are of one shape."""

    of: Shape
    empty: bool = True


@dataclass(frozen=True)
class Fields:
    """A mapping with these names, and others that don't matter; optional ones may be null."""

    needed: Mapping[str, Shape]
    optional: Mapping[str, Shape] = field(default_factory=dict)


def mismatch(value: Any, shape: Shape, name: str) -> str:
    """What is wrong with a value, its name before it; empty if nothing is."""
    if isinstance(shape, type):
        return "" if type(value) is shape else f"{name} is no {shape.__name__}"
    if isinstance(shape, tuple):
        wanted = " or ".join(one.__name__ for one in shape)
        return "" if type(value) in shape else f"{name} is no {wanted}"
    if isinstance(shape, Number):
        return "" if _is_number(value, shape) else f"{name} is no {_said(shape)}"
    if isinstance(shape, Listed):
        return _of_list(value, shape, name)
    return _of_mapping(value, shape, name)


def _is_number(value: Any, shape: Number) -> bool:
    if type(value) not in (int, float) or not -LARGEST <= value <= LARGEST:
        return False
    return bool(value > shape.least if shape.above else value >= shape.least)


def _said(shape: Number) -> str:
    if shape.least == -LARGEST:
        return "finite number"
    return "finite number " + (
        f"above {shape.least:g}" if shape.above else f"of {shape.least:g} or more"
    )


def _of_list(value: Any, shape: Listed, name: str) -> str:
    if type(value) is not list:
        return f"{name} is no list"
    if shape.count is not None and len(value) != shape.count:
        return f"{name} is no list of {shape.count}"
    if not (value or shape.empty):
        return f"{name} is empty"
    found = (mismatch(one, shape.of, f"{name}[{i}]") for i, one in enumerate(value))
    return next(filter(None, found), "")


def _of_mapping(value: Any, shape: Mapped | Fields, name: str) -> str:
    if type(value) is not dict:
        return f"{name} is no dict"
    if isinstance(shape, Mapped):
        if not (value or shape.empty):
            return f"{name} is empty"
        found = (mismatch(one, shape.of, f"{name}.{key}") for key, one in value.items())
        return next(filter(None, found), "")
    inside = f"{name}." if name else ""
    for key, wanted in shape.needed.items():
        if why := mismatch(value.get(key), wanted, inside + key):
            return why
    for key, wanted in shape.optional.items():
        if value.get(key) is not None and (why := mismatch(value[key], wanted, inside + key)):
            return why
    return ""


SCHEMA = 1
"""Version of the journal; a reader refuses newer ones, because it can't know what they mean."""

KINDS = (
    "session", "block", "verify", "time", "anchor", "memory", "margin", "design", "run", "verdict",
    "peaks", "frontier", "stress", "determinism", "attention", "calibration", "diff", "diff-block",
    "accuracy", "family", "simulation", "sweep", "exact", "mutant", "withdrawn",
)  # fmt: skip

MEASURED = ("time", "anchor", "memory", "margin", "peaks")
"""Kinds that belong to a case and a block."""

_SCALAR = (str, int, float, bool, type(None))
_RECIPE = Fields({"choose": str, "tuning_trials": Number()})
_METRICS = Mapped(Number(), empty=False)
_SELECTED = Fields({"heads": Number(), "dependents": Number()})
_EPOCH = Fields(
    {"epoch": int, "seconds": Number(0)},
    {"loss": (int, float), "dev": Mapped((int, float)), "test": Mapped((int, float)), "stage": str,
     "steps": Number(0), "judging": Number(0), "passes": Number(0)},
)  # fmt: skip
_FILE = dict.fromkeys(("file", "sha256", "committed"), str)
_PLAN = Fields(
    {**_FILE, **dict.fromkeys(("question", "family", "stopping"), str),
     "hours": Number(0, above=True), "void": Listed(str)}
)  # fmt: skip
_COVERAGE = Fields(
    {"vectors": str,
     **dict.fromkeys(("vocabulary", "covered", "running_words", "covered_running"), Number(0))}
)  # fmt: skip

_RUN: Mapping[str, Shape] = {"key": str, "model": str, "seed": int, "status": str}

FIELDS: Mapping[str, Mapping[str, Shape]] = {
    **{kind: {"key": str, "case": str, "block": int, "status": str} for kind in MEASURED},
    "verify": {"key": str, "case": str, "verdict": str},
    "accuracy": {"key": str, "case": str, "status": str, "fingerprint": str},
    "design": {"key": str, "question": str, "models": Listed(str, 2), "task": str,
               "runs": Listed(Listed(str, 2)), "seeds": Listed(int, empty=False),
               "recipes": Listed(_RECIPE, 2), "metric": str, "higher_is_better": bool,
               "split": str, "one_test_set": bool, "match": str},
    "family": {"key": str, "baseline": str, "models": Listed(str), "tasks": Listed(str),
               "designs": Listed(dict, empty=False)},
    "run": _RUN,
    "withdrawn": _RUN,
    "sweep": {"key": str, "models": Listed(str), "tasks": Listed(str), "runs": Listed(str)},
    "frontier": {"key": str, "case": str, "status": str},
    "stress": {"key": str, "name": str, "dtype": str, "status": str, "points": list},
    "determinism": {"key": str, "name": str, "dtype": str, "status": str},
    "attention": {"key": str, "model": str, "task": str, "sentences": list},
    "exact": {"key": str, "check": str, "verdict": str},
    "verdict": {"key": str},
}  # fmt: skip
"""Without these a record means nothing."""

_TIMED = {"gpu": Fields(
    {},
    {**dict.fromkeys(("taken", "throttled"), Number(0)), "throttle_reasons": Listed(str),
     **dict.fromkeys(("hot_lowered", "device_lowered", "energy_lowered"), Listed(str)),
     **dict.fromkeys(("sm_mhz", "hot_seconds", "device_seconds"), Number(0, above=True)),
     **dict.fromkeys(("joules", "beside_joules", "energy_ratio"), Number(0, above=True)),
     **dict.fromkeys(("device_detail", "energy_detail"), str)},
)}  # fmt: skip

OPTIONAL: Mapping[str, Mapping[str, Shape]] = {
    "time": _TIMED,
    "anchor": _TIMED,
    "design": {"folds": int, "margin": Number(0, above=True), "paired": bool,
               "paired_question": str, "one_sided": Listed(str), "plan": _PLAN},
    "family": {"plan": _PLAN},
    "sweep": {"plan": Fields(_FILE)},
    "run": {
        "task": str, "case": str, "fold": int, "code": str, "fingerprint": str,
        "vectors": str, "data": str, "detail": str, "workers": int, "resumed": int,
        "recipe": Mapped(_SCALAR), "test": _METRICS, "test_sampled": _METRICS,
        "selected": _SELECTED, "selected_sampled": _SELECTED, "seconds": Number(0),
        "task_seconds": Number(0), "test_seconds": Number(0), "test_tokens": Number(0),
        "epochs": Listed(_EPOCH), "chosen_epoch": int, "parameters": Number(0),
        "parameters_with_words": Number(0), "peak_bytes": Number(), "memory_method": str,
        "examples": Mapped(Number(0)), "coverage": _COVERAGE,
        "predictions": Fields({"file": str, "sha256": str}), "plan": str, "padding": Number(0),
        "decoding": Mapped((int, float)), "signatures": Mapped(str),
        "unseen": Fields({"examples": int, "seen": int, "test": Mapped(Number())}),
    },
    "verdict": {"design": str, "designs": Listed(str)},
}  # fmt: skip
"""Like this, null, or not there."""

NEEDED_IF_OK: Mapping[str, tuple[str, ...]] = {
    "run": ("test", "seconds", "epochs", "chosen_epoch", "parameters", "parameters_with_words")
}
"""Optional fields without which a record that says ok has no result."""

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
    needed = FIELDS.get(kind, _KEY if "key" in record else {})
    if why := _of_mapping(record, Fields(needed, OPTIONAL.get(kind, {})), ""):
        return why
    if record.get("status") == "ok":
        for name in NEEDED_IF_OK.get(kind, ()):
            if record.get(name) is None:
                return f"ok, but {name} is missing"
    if kind == "family":
        return _family_fault(record)
    if kind == "design":
        return _design_fault(record)
    return _measured_fault(record) if kind in (*MEASURED, "frontier") else ""


def _design_fault(record: Mapping[str, Any]) -> str:
    if "margin" not in record:  # null says that none was declared
        return "margin is missing"
    return "folds is 1 or less" if (record.get("folds") or 2) < 2 else ""


def _family_fault(record: Mapping[str, Any]) -> str:
    for design in record["designs"]:
        if type(design) is not dict or design.get("kind") != "design":
            return "it holds something that is no design"
        if why := fault(design):
            return f"of a design in it {why}"
    return ""


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


def run_keys(record: Mapping[str, Any]) -> set[str]:
    """Keys of all runs that a record of a design, of a family or of a sweep asks for."""
    inside = record["designs"] if record["kind"] == "family" else ()
    runs = [one for asking in (record, *inside) for one in asking.get("runs") or ()]
    return {key for one in runs for key in ([one] if isinstance(one, str) else one)}


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


def head(kind: str, case: str, code: str, fingerprint: Mapping[str, Any]) -> dict[str, Any]:
    """What tells a record of something that has no blocks from any other, its key included."""
    return {
        "kind": kind,
        "key": key(kind, case, 0, code, fingerprint),
        "case": case,
        "code": code,
        "fingerprint": digest(dict(fingerprint)),
    }


def cpu_threads(fingerprint: Mapping[str, Any]) -> str:
    """``2 CPU threads``, as many as a device's records were made with."""
    count = fingerprint.get("threads")
    return f"{count} CPU thread{'s' * (count != 1)}"


def short_commit(environment: Mapping[str, Any]) -> str:
    """Ten letters of a session's commit; ``+`` behind them where files had been changed."""
    commit = str(environment.get("commit") or "unknown")[:10]
    return commit + ("+" if environment.get("dirty") else "")
