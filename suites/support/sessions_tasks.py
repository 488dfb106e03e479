"""What the made-up sessions measure; loads nothing."""

from __future__ import annotations

import random
import time
from typing import Any


def time_case(
    case: str,
    given: Any,
    rounds: int,
    seconds: float,
    observe: bool,
    beside: str | None = None,
    beside_first: bool = False,
    evidence: bool = False,
) -> dict[str, Any]:
    """Three samples, after about as many milliseconds."""
    time.sleep(random.uniform(0.001, 0.005))
    found: dict[str, Any] = {"samples": [3e-3, 1e-3, 2e-3], "median": 2e-3, "inner": 1}
    if observe:
        found["dispatched"] = ["attnbench::made_up"]
    return found if beside is None else {**found, "beside": beside, "ratio": 1.0}


def memory_case(case: str, given: Any) -> dict[str, Any]:
    """A mebibyte."""
    return {"transient_bytes": 2**20, "peak_bytes": 2**20, "resident_bytes": 0}


def margin_case(case: str, given: Any) -> dict[str, Any]:
    """Within budget."""
    return {"verdict": "ok", "error": 1e-7, "budget": 1e-6, "margin": 10.0, "what": "output"}


def peaks_case(case: str, given: Any) -> dict[str, Any]:
    """Ceilings that nothing made up comes near."""
    rates = ("gemm_operations_per_second", "copy_bytes_per_second", "read_bytes_per_second")
    return {**dict.fromkeys(rates, 1e15), "cache_bytes": 2**20, "launch_seconds": 1e-9}
