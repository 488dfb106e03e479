"""Eq. 11-12 of the Multi-Scale paper: heads per scale, layer by layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from reference_impls.msmsa.scales import heads_per_scale


def check(alpha: float, heads: int, layers: Sequence[Sequence[int]]) -> dict[str, Any]:
    """Compare with the paper's example."""
    found = heads_per_scale(len(layers[0]), alpha, heads, len(layers))
    parts = {
        f"layer {number}": {
            "verdict": "ok" if list(mine) == list(wanted) else "wrong",
            "detail": f"layer {number}: {list(mine)}, printed {list(wanted)}",
        }
        for number, (mine, wanted) in enumerate(zip(found, layers, strict=True), start=1)
    }
    fine = all(part["verdict"] == "ok" for part in parts.values())
    return {
        "verdict": "ok" if fine else "wrong", "parts": parts, "comparisons": len(layers),
        "detail": "; ".join(part["detail"] for part in parts.values()),
    }  # fmt: skip
