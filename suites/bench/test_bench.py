"""Time of every case of the profile; the numbers were measured in blocks beforehand."""

from __future__ import annotations

from typing import Any

from harness.case import Case
from suites.bench.conftest import Replay


def test_cost(case: Case, replay: Replay, benchmark: Any) -> None:
    """Replay the samples of one case."""
    benchmark.extra_info["case"] = case.id
    benchmark.pedantic(replay, setup=replay.rewind, rounds=len(replay.samples))
    assert replay.samples, f"{case.id} has no samples"
