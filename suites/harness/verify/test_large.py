"""Heads and lengths as kernels are written for: all rows, pieces of plain, answers kept."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import torch

from harness.registry import Registry
from harness.verify import batches, check
from harness.verify.compare import Computed, Question, computed
from harness.verify.run import jobs
from reference_impls.mtsa.fused import FusedMTSA
from reference_impls.mtsa.plain import PlainMTSA

FINGERPRINT = {"device": "cpu", "model": "one"}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two heads of 5 at 2 and 70 tokens; plain in pieces of 16 rows beyond 32."""
    monkeypatch.setattr(batches, "LARGE_WIDTHS", (5,))
    monkeypatch.setattr(batches, "LARGE_LENGTHS", (2, 70))
    monkeypatch.setattr(check, "AT_ONCE", 32)
    monkeypatch.setattr(check, "PIECE", 16)


def test_the_shapes_are_those_of_kernels() -> None:
    found = list(batches.large())
    assert {(b.head_width, max(b.lengths)) for b in found} == {
        (d, n) for d in (64, 75, 128) for n in (64, 65, 1000, 4097)
    }
    assert all(b.rows is None for b in found), "all rows, and so all of the gradients"
    assert {max(b.lengths) for b in found if b.masked} == {64, 65, 1000}


def test_kernels_of_a_gpu_meet_the_papers_heads_at_small_shapes_too() -> None:
    for name, meets in (("mtsa.fused_triton", True), ("mtsa.fused_tiled", False)):
        found = [b for b in batches.batches(*Registry().find(name), "bf16") if b.head_width]
        assert [(b.head_width, b.masked, b.lengths) for b in found] == [
            (width, True, (65, 32, 1, 0)) for width in (75, 300)
        ][: 2 * meets]


def test_weights_of_wide_heads_leave_gradients_to_be_compared() -> None:
    """With weights that grow with the width one key has all the attention, and q_w's are noise."""
    mechanism, implementation = Registry().find("msmsa_layer.fused_tiled")
    wide = next(b for b in batches.large() if b.label == "heads of 128, N=64")
    found, kink = check.check_batch(mechanism, implementation, wide, "f32", "cpu")
    assert not kink
    assert [str(one) for one in found if not one.ok] == []
    assert {d.gradient for d in found} >= {"q_w", "k_w", "v_w"}


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    "name",
    [
        "mtsa.fused_tiled",
        "mtsa_nmt.fused_tiled",
        "mtsa_released.fused_tiled",
        "mtsa_stack.fused_tiled",
        "msmsa_layer.fused_tiled",
        "multi_head.sdpa",
        "multi_head_relu.matmul",
    ],
)
def test_a_right_one_is_right_there(name: str) -> None:
    found = check.check(name, "f64", "cpu", large=True)
    assert found["verdict"] == "ok", found["detail"]
    assert "heads of 5, N=" in found["value_worst"]
    assert found["value_margin"] < 1e6, "plain is the yardstick, in pieces too"


@pytest.mark.usefixtures("small")
def test_what_is_wrong_in_one_row_of_long_sequences_alone_is_told(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    right = FusedMTSA.forward

    def wrong(self: FusedMTSA, x: torch.Tensor, mask: torch.Tensor | None = None) -> torch.Tensor:
        out: torch.Tensor = right(self, x, mask)
        factor = torch.ones_like(out)
        if x.shape[1] == 70:
            factor[:, 41] = 1 + 1e-6
        return out * factor

    monkeypatch.setattr(FusedMTSA, "forward", wrong)
    found = check.check("mtsa.fused_tiled", "f64", "cpu", large=True)
    assert found["verdict"] == "wrong"
    assert "heads of 5, N=70" in found["detail"]


def test_plain_in_pieces_says_what_it_says_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "PIECE", 16)
    torch.manual_seed(0)
    module = PlainMTSA(6, 10, heads=2).double()
    x, cotangent = torch.randn(2, 37, 6).double(), torch.randn(2, 37, 10).double()
    real = torch.arange(37)[None] < torch.tensor([37, 20])[:, None]
    whole = computed(module, x, real, cotangent)
    pieces = check._in_pieces(module, x, real, cotangent)
    np.testing.assert_allclose(pieces.output, whole.output, atol=1e-13)
    assert pieces.gradients.keys() == whole.gradients.keys()
    for name, gradient in whole.gradients.items():
        np.testing.assert_allclose(pieces.gradients[name], gradient, atol=1e-12, err_msg=name)


@pytest.mark.usefixtures("small")
def test_an_oracle_is_asked_once_for_all_implementations(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[Question] = []
    answer = Question.answer

    def counted(self: Question) -> Computed:
        asked.append(self)
        return answer(self)

    monkeypatch.setattr(Question, "answer", counted)
    folder = str(tmp_path / "answers")
    first = check.check("mtsa.fused_tiled", "f64", "cpu", large=True, answers=folder)
    count = len(asked)
    assert count == len(list(batches.large()))
    again = check.check("mtsa.fused", "f64", "cpu", large=True, answers=folder)
    assert len(asked) == count
    assert (again["verdict"], again["comparisons"]) == ("ok", first["comparisons"])
    check.check("mtsa.fused", "bf16", "cpu", large=True, answers=folder)
    assert len(asked) == 2 * count, "rounded numbers are another question"
    monkeypatch.setattr(check, "code_hash", lambda *_: "another code")
    check.check("mtsa.fused", "f64", "cpu", large=True, answers=folder)
    assert len(asked) == 3 * count


def test_large_shapes_are_cases_of_their_own() -> None:
    registry, wanted = Registry(), [("mtsa.fused_tiled", "f32", ())]
    (usual,), (large,) = (jobs(wanted, registry, FINGERPRINT, kind) for kind in (False, True))
    assert large.case == f"{usual.case}, large shapes"
    assert large.key != usual.key
