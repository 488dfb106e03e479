"""Exact claims: the checks hold, notice what is wrong, and become records."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch

from harness.records import journal
from harness.verify.exact import (
    CHECKS,
    MODELS,
    algorithm1,
    code_of,
    concerning,
    counts,
    run,
    scales,
)
from reference_impls.mtsa.optimized import Algorithm1MTSA
from suites.support.command_line import here
from suites.support.misbehaving.core import ScaledBackward

torch.set_num_threads(1)

PRINT = {"device": "cpu", "model": "made up", "threads": 1}


def test_algorithm1_is_equation_13() -> None:
    found = algorithm1.check()
    assert found["verdict"] == "ok", found
    # 3 sets of masks x 2 x 2 scale functions x 2 activations x 4 lengths, printed and ours.
    assert found["comparisons"] == 3 * 2 * 2 * 2 * 4 * 2 * (1 + 9)
    assert 0 < found["parts"]["output"]["value"] < 1e-13
    assert 0 < found["parts"]["gradients"]["value"] < 1e-12
    used = {m.partition(":")[0] for masks in algorithm1.MASKS for m in masks}
    assert used == {
        "forward",
        "backward",
        "none",
        "diagonal",
        "forward_inclusive",
        "backward_inclusive",
        "window",
        "distance",
    }


@pytest.fixture
def _short(monkeypatch: pytest.MonkeyPatch) -> None:
    """One length and one set of masks, which show a fault as all of them do."""
    monkeypatch.setattr(algorithm1, "LENGTHS", (7,))
    monkeypatch.setattr(algorithm1, "MASKS", algorithm1.MASKS[:1])


HEAD, OURS = algorithm1.head, Algorithm1MTSA.forward
WRONG = {
    # not applied: the oracle keeps it
    "mask": (algorithm1, "head", lambda r, s, v, m, t, u: HEAD(r, s, v, 0 * r, t, u)),
    "scale": (algorithm1, "scaled", lambda score, name: score),
    "denominator": (algorithm1, "head", lambda *a: HEAD(*a) * (1 + 1e-10)),
    "ours": (Algorithm1MTSA, "forward", lambda self, x, mask: OURS(self, x, mask) + 1e-9),
}


@pytest.mark.usefixtures("_short")
@pytest.mark.parametrize("what", WRONG)
def test_a_wrong_algorithm_is_noticed(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(*WRONG[what])
    found = algorithm1.check()
    assert found["verdict"] == "wrong"
    assert found["parts"]["output"]["verdict"] == "wrong"


@pytest.mark.usefixtures("_short")
def test_the_last_step_alone_decides_the_gradients(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(algorithm1, "head", lambda *a: ScaledBackward.apply(HEAD(*a), 2.0))
    found = algorithm1.check()
    assert found["parts"]["output"]["verdict"] == "ok"
    assert found["parts"]["gradients"]["verdict"] == "wrong"


def test_heads_per_scale() -> None:
    (example,) = (check.arguments for check in CHECKS if check.name == "heads per scale")
    assert counts.heads(**example)["verdict"] == "ok"
    other = counts.heads(
        **{**example, "layers": [[5, 2, 2, 1, 0], [4, 2, 2, 2, 0], [2, 2, 2, 2, 2]]}
    )
    assert other["verdict"] == "wrong"
    assert [part["verdict"] for part in other["parts"].values()] == ["ok", "wrong", "ok"]


@pytest.mark.parametrize("row", MODELS)
def test_published_numbers_of_weights(row: str) -> None:
    found = counts.row(**MODELS[row])
    assert found["verdict"] == "ok", found
    assert found["value"] == MODELS[row]["weights"]


def test_a_wrong_number_of_weights_is_noticed() -> None:
    model = dict(MODELS["Multi-head"])
    assert counts.row(**{**model, "weights": model["weights"] + 1})["verdict"] == "wrong"
    assert counts.row(**{**model, "highway": True})["value"] == model["weights"] + 180_600
    wanted = {"multi_head": 61_378_560, "mtsa_nmt": 61_378_560 + 199_680}
    assert counts.translation(33_708, 32, wanted)["verdict"] == "ok"
    twice = counts.translation(33_708, 32, {**wanted, "mtsa_nmt": 61_378_560 + 2 * 199_680})
    assert twice["verdict"] == "wrong"
    assert [part["verdict"] for part in twice["parts"].values()] == ["ok", "wrong"]


def test_log_sigmoid_bounds_scores_from_above_only() -> None:
    found = scales.check()
    large, negative = found["parts"]["large"], found["parts"]["very negative"]
    assert large["verdict"] == "ok"
    assert large["value"] == scales.LEVELS[-1]
    assert 60 <= large["identity"] <= 88  # exp overflows float32 at 88.7
    assert negative["verdict"] == "wrong"
    assert -110 <= negative["value"] <= -60  # and underflows at -104


def test_a_check_that_fails_or_breaks_is_recorded() -> None:
    wrong, broken = (
        next(c for c in CHECKS if c.name == name) for name in ("weights: DiSA", "weights: MTSA")
    )
    few = [
        replace(wrong, arguments={**wrong.arguments, "weights": 1}),
        replace(broken, arguments={**broken.arguments, "width": 601}),
    ]
    found = run(few, PRINT)
    assert [r["verdict"] for r in found] == ["wrong", "crash"]
    assert found[0]["status"] == "wrong"
    assert "2,345,403 weights, wanted 1" in found[0]["detail"]


def test_checks_go_with_their_mechanism() -> None:
    assert {c.name for c in concerning({"msmsa"})} == {"heads per scale"}
    assert {c.name for c in concerning({"mtsa"})} == {"algorithm1", "scale functions"}
    assert concerning({"source2token"}) == []
    assert len({c.name for c in CHECKS}) == len(CHECKS)


def test_verify_records_what_it_checks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("harness.cli.verify.device_fingerprint", lambda _: {**PRINT, "torch": "2"})
    folder, file = tmp_path / "journal", tmp_path / "out.json"

    def verify(line: str, code: int = 0) -> str:
        told = "--device cpu --journal journal --json out.json"
        done = here(f"verify {line} {told}", cwd=tmp_path, code=code)
        return done.stderr if code else done.stdout

    checked = "kim_cnn_released.plain --dtypes f64 --jobs 1"
    assert "weights: Kim CNN" in verify(checked)
    records = journal.read(folder).records
    (exact,) = (r for r in records if r["kind"] == "exact")
    (check,) = concerning({"kim_cnn_released"})
    assert (exact["check"], exact["code"]) == (check.name, code_of(check))
    assert exact["verdict"] == exact["status"] == "ok"
    assert exact["detail"]
    rows = json.loads(file.read_text())["rows"]
    assert [r["kind"] for r in records].count("verify") == len(rows) > 0
    verify(checked)  # again: done again, not looked up
    assert len(list(folder.glob("*.jsonl"))) == 4
    verify("kim_cnn_released.plain --exact")
    assert json.loads(file.read_text())["rows"] == []
    assert len(list(folder.glob("*.jsonl"))) == 5
    assert "no paper claims anything exact" in verify("source2token --exact", 2)
    changed = verify("mtsa --exact --option heads=2", 2)
    assert "--exact: what --option changes is not what" in changed
