"""One tidy frame of a journal: a row per case and block."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import pandas as pd

from harness.case import parse

COLUMNS = [
    "case", "name", "mechanism", "implementation", "batch", "length", "d_in", "d_out", "heads",
    "dtype", "phase", "device", "settings", "control", "block", "interpreter", "status", "detail",
    "seconds", "rounds", "beside", "ratio", "order", "kernels", "fingerprint", "session",
]  # fmt: skip

MEMORY_COLUMNS = ["case", "block", "status", "transient_bytes", "peak_bytes"]
MARGIN_COLUMNS = ["case", "status", "error", "budget", "margin", "detail"]


def _case_columns(case_id: str) -> dict[str, Any]:
    case = parse(case_id)
    p = case.problem
    return {
        "case": case_id, "name": case.name, "mechanism": case.mechanism,
        "implementation": case.implementation, "batch": p.batch, "length": p.length,
        "d_in": p.d_in, "d_out": p.d_out, "heads": p.heads, "dtype": p.dtype, "phase": p.phase,
        "device": p.device, "settings": "+".join(case.own_settings) or "eager",
        "control": case.is_control,
    }  # fmt: skip


def times(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Time per case and block: ``seconds`` is `harness.stats.block_time` of its samples.

    On CUDA, and in records that name no ``seconds``, it is their median. ``ratio`` is that to the
    case ``beside``, where both were timed in turn. ``kernels`` are the libraries' and our own that
    its calls went to, ``none`` of them, or None in a block where nobody looked.

    Parameters
    ----------
    records : iterable of mapping
        Records of a journal, of any kind.

    Returns
    -------
    DataFrame
        With `COLUMNS`; failed cases have a row as well, with their status and no seconds.
    """
    cases: dict[str, dict[str, Any]] = {}
    rows = []
    for r in records:
        # A case whose error is over budget is not timed: its margin is its row.
        timed = r["kind"] in ("time", "anchor")
        if not timed and not (r["kind"] == "margin" and r["status"] == "wrong"):
            continue
        columns = cases.get(r["case"])
        if columns is None:
            columns = cases[r["case"]] = _case_columns(r["case"])
        rows.append(
            {
                **columns,
                **{k: r.get(k) for k in ("block", "interpreter", "status", "detail", "order")},
                # Records before there was a rule of its own for the CPU have the median alone.
                "seconds": r.get("seconds", r.get("median")),
                "rounds": len(r.get("samples") or ()),
                "beside": r.get("beside"),
                "ratio": r.get("ratio"),
                "kernels": _kernels(r.get("dispatched")),
                "fingerprint": r.get("fingerprint"),
                "session": r.get("session"),
            }
        )
    frame = pd.DataFrame(rows, columns=COLUMNS)
    for column in ("seconds", "ratio"):
        frame[column] = frame[column].astype(float)
    return frame


def _kernels(dispatched: Any) -> str | None:
    """``native_backward, native_forward``; None in a block that was not observed."""
    if not isinstance(dispatched, list):
        return None
    names = (str(name).rpartition("::")[2].removeprefix("_") for name in dispatched)
    return ", ".join(dict.fromkeys(names)) or "none"


def memory(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Peak memory per case and block, in bytes.

    ``transient_bytes`` is what the pass needs beyond what was there before it; ``peak_bytes`` adds
    weights and input.
    """
    rows = [r for r in records if r["kind"] == "memory"]
    frame = pd.DataFrame(
        [{k: r.get(k) for k in MEMORY_COLUMNS} for r in rows], columns=MEMORY_COLUMNS
    )
    for column in ("transient_bytes", "peak_bytes"):
        frame[column] = frame[column].astype(float)
    return frame


def margins(records: Iterable[Mapping[str, Any]]) -> pd.DataFrame:
    """Error, budget and margin of each case at its own shape."""
    rows = [r for r in records if r["kind"] == "margin"]
    frame = pd.DataFrame(
        [{k: r.get(k) for k in MARGIN_COLUMNS} for r in rows], columns=MARGIN_COLUMNS
    )
    for column in ("error", "budget", "margin"):
        frame[column] = frame[column].astype(float)
    return frame
