"""``attnbench verify --stress`` and ``--determinism``: told beside verdicts, recorded once."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from harness.records import journal
from harness.verify import run
from harness.verify.beside import SCALES, stress
from suites.support.command_line import here


def test_points_cover_inputs_and_scores() -> None:
    points = stress("mtsa.algorithm1", "f64", "cpu")["points"]
    assert [(p["kind"], p["scale"]) for p in points] == [
        (kind, scale) for kind in ("inputs", "scores") for scale in SCALES
    ]
    one = next(p for p in points if p["kind"] == "inputs" and p["scale"] == 1)
    assert one["ok"]
    assert one["gradient_ok"]
    assert 0 <= one["error"] < one["budget"] < 1e-9


def test_a_mechanism_without_such_weights_has_no_scores_to_magnify() -> None:
    points = stress("multi_cnn.conv", "f32", "cpu")["points"]
    assert {p["kind"] for p in points} == {"inputs"}


def test_half_precision_breaks_where_single_does_not() -> None:
    half, single = (stress("multi_head.sdpa", dtype, "cpu")["points"] for dtype in ("f16", "f32"))

    def largest(points: list[dict]) -> float:
        return max(p["error"] for p in points if p["error"] is not None and p["scale"] <= 1)

    assert largest(half) > 100 * largest(single)


def test_the_sweep_is_recorded_and_not_done_again(tmp_path: Path) -> None:
    line = "verify multi_cnn --stress --dtypes f32 --journal j --device cpu"
    done = here(line, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "multi_cnn.conv" in done.stdout
    (record,) = [r for r in journal.read(tmp_path / "j").records if r["kind"] == "stress"]
    assert (record["name"], record["dtype"], record["status"]) == ("multi_cnn.conv", "f32", "ok")
    assert len(record["points"]) == len(SCALES)
    before = sorted((tmp_path / "j").iterdir())
    assert here(line, cwd=tmp_path).stdout == done.stdout
    assert sorted((tmp_path / "j").iterdir()) == before


def test_what_gives_the_same_bits_stands_beside_the_verdict(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(run, "COMPILE_SECONDS", 0.01)
    line = "verify none.fused --determinism --dtypes f64,f32 --journal j --device cpu --json o.json"
    done = here(line, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert "same bits" in done.stdout
    assert "compiled not told" in done.stdout
    double, single = json.loads((tmp_path / "o.json").read_text())["rows"]
    assert "determinism" not in double
    told = single["determinism"]
    assert (told["again"], told["repeats"], told["compiled"]) == (0.0, 30, None)
    assert told["compiled_reason"].startswith("timeout")
    (record,) = [r for r in journal.read(tmp_path / "j").records if r["kind"] == "determinism"]
    assert record["price"] == told["price"] > 0
