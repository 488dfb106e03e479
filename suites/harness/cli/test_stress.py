"""``attnbench verify --stress`` and ``--determinism``: told beside verdicts, recorded once."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pytest

from harness.cli import verify as command
from harness.isolate import Outcome
from harness.records import journal
from harness.verify import run
from harness.verify.beside import SCALES, stress
from suites.support.command_line import here


def test_rows_of_one_implementation_are_told_apart_by_their_options() -> None:
    row = {"name": "mtsa.fused", "dtype": "f32", "device": "cpu", "verdict": "ok"}
    cases = ("mtsa.fused-f32-cpu", "mtsa.fused[scale_t=identity]-f32-cpu", "")
    table = command.verify_table([{**row, "case": case} for case in cases])
    assert list(table.columns[0].cells) == [
        "mtsa.fused",
        r"mtsa.fused\[scale_t=identity]",
        "mtsa.fused",
    ]


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
    done = here(line, cwd=tmp_path, code=0)
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
    done = here(line, cwd=tmp_path, code=0)
    assert "same bits" in done.stdout
    assert "compiled not told" in done.stdout
    double, single = json.loads((tmp_path / "o.json").read_text())["rows"]
    assert "determinism" not in double
    told = single["determinism"]
    assert (told["again"], told["repeats"], told["compiled"]) == (0.0, 30, None)
    assert told["compiled_reason"].startswith("timeout")
    (record,) = [r for r in journal.read(tmp_path / "j").records if r["kind"] == "determinism"]
    assert record["price"] == told["price"] > 0


def test_determinism_goes_on_where_it_was_stopped(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checked: list[str] = []

    def stopped(calls: Any, *_: object) -> Any:
        for job, _call in calls:
            if len(checked) == 1 and len(calls) == 3:
                raise KeyboardInterrupt
            checked.append(job.dtype)
            late = job.dtype == "f32"
            yield job, Outcome("timeout" if late else "ok", detail="", value={"verdict": "ok"})

    monkeypatch.setattr(run, "run_all", stopped)
    monkeypatch.setattr(command, "beside", lambda *_: [])
    line = "verify none.fused --determinism --dtypes f32,f64,bf16 --journal j --device cpu"
    assert here(line, cwd=tmp_path).returncode == 130
    assert checked == ["f32"]
    for _ in range(2):
        done = here(line, cwd=tmp_path, code=1)
        assert "none.fused f32: timeout" in done.stdout
        assert checked == ["f32", "f64", "bf16"]
    here(line.replace(" --determinism", ""), cwd=tmp_path)
    assert checked[3:] == ["f32", "f64", "bf16"], "without it all is checked anew"
    here(line.replace("determinism", "resume"), cwd=tmp_path, code=1)
    assert checked[6:] == ["f32"], "what ran out of time may do better"


SAME = {"status": "ok", "again": 0.0, "batch": 1e-7, "threads": None, "compiled": 1e-7}
GRAPH = {"graphed": None, "graphed_reason": "failed: no capture"}


@pytest.mark.parametrize(
    ("more", "told"),
    [
        ({"graphed": 0.0}, ""),
        ({"again": 1e-8}, "again differs by 1e-08"),
        ({"graphed": 2e-3}, "graphed differs by 2e-03"),
        ({"again": 1e-8, **GRAPH}, "again differs by 1e-08; graphed not told: failed: no capture"),
        ({"status": "crash", "detail": "killed"}, "crash: killed"),
        ({"status": "unsupported", "detail": "no bf16"}, ""),
    ],
)
def test_a_promise_that_is_broken_is_named(more: Mapping[str, Any], told: str) -> None:
    assert run.broken({**SAME, **more}) == told


@pytest.mark.parametrize(
    ("name", "code"), [("mtsa.fused_triton", 1), ("mtsa.fused", 1), ("mtsa.algorithm1", 0)]
)
def test_on_a_gpu_bf16_is_told_too_and_who_promised_the_same_bits_is_judged(
    name: str, code: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    card = {"device": "cuda", "model": "a card that is not here", "threads": 1, "torch": "2"}

    def rows(todo: Sequence[run.Verification], *_: object, **more: object) -> list[dict[str, Any]]:
        return [{"name": job.name, "dtype": job.dtype, "verdict": "ok"} for job in todo]

    def told(kind: str, wanted: Sequence[tuple[str, str]], *_: object) -> list[dict[str, Any]]:
        found = {"price": None, "graphed": 0.0, **SAME}
        return [{**found, "name": n, "dtype": d, "again": 1e-3 * (d == "bf16")} for n, d in wanted]

    monkeypatch.setattr(command, "device_fingerprint", lambda _: card)
    monkeypatch.setattr(command, "verify", rows)
    monkeypatch.setattr(command, "beside", told)
    monkeypatch.setattr(command, "verify_exact", lambda *_: [])
    done = here(f"verify {name} --determinism --journal j --json o.json", cwd=tmp_path)
    assert done.returncode == code, done.stderr
    line = f"{name} bf16: declared deterministic: again differs by 1e-03"
    assert done.stdout.splitlines().count(line) == code
    assert f"{3 - code} ok, {code} wrong, 0 unsupported" in done.stdout
    found = {
        r["dtype"]: r.get("determinism")
        for r in json.loads((tmp_path / "o.json").read_text())["rows"]
    }
    assert [bool(found[dtype]) for dtype in ("f64", "f32", "bf16")] == [False, True, True]
