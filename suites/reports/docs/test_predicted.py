"""Predictions in the docs, and what was measured of them below."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from reports.core.predicted import BOARDS
from reports.core.predicted import predicted as prediction
from reports.docs import predicted
from suites.support.made_up_records import reading


def device(model: str, *seconds: float, width: int = 64) -> Any:
    case = f"core_mtsa.fused-B4-N4096-D{32 * width}x{8 * width}-H8-bf16-forward-cuda"
    records = [reading(case, block, value) for block, value in enumerate(seconds)]
    return SimpleNamespace(fingerprint={"model": model}, records=records)


def lines(*devices: Any) -> list[str]:
    return [line for line in predicted.table(devices).splitlines() if "H100, forward" in line]


def test_what_was_measured_stands_below_what_was_predicted() -> None:
    assert not any("measured" in line for line in lines())
    assert not any("measured" in line for line in lines(device("NVIDIA A10", 1.0)))
    expected = prediction(BOARDS[1], 64, 4096, 4, 8, "forward").seconds
    found = lines(device("NVIDIA H100 80GB HBM3", *(2 * expected, 3 * expected, 9 * expected)))
    (row,) = [line for line in found if "measured" in line]
    assert row.split("|")[1:3] == [" H100, forward, measured ", " 64 "]
    assert f"{3e3 * expected:.3g} ms (3.00x of predicted)" in row
    assert found.index(row) == 1, "below the row of its width"


def test_every_goal_is_told_for_every_board() -> None:
    said = predicted.sentence()
    for phase in ("forward at most 0.85x", "training at most 0.9x"):
        assert phase in said
    for board in ("H200", "H100", "A100"):
        assert all(said.count(f"{board} {width}") == 2 for width in (64, 75, 128))
