"""Predicted times of the Triton kernels: arithmetic by hand, and counts of the table's tiles."""

from __future__ import annotations

import math
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from reference_impls.kernels.triton.tiles import choose
from reports.core import predicted as model
from reports.core.predicted import BOARDS, Board, board_of, counts, pairs, predicted, widths
from suites.support.made_up_records import reading

BOARD = Board("Made Up", 90, 10, 1e9, 1e15, 2e12, 8e12, launch_seconds=1e-12)
KERNEL = {
    "tile": [64, 32, 4, 2],
    "programs": 2,
    "predicted": 100.0,
    "cycles": {"tensor": 70.0, "exponentials": 60.0},
}


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Counts in which every kernel takes 100 cycles for 1,024 pairs."""
    kernels = {kind: {"40": KERNEL} for kind in ("forward", "query_gradient", "key_gradient")}
    monkeypatch.setattr(model, "counts", lambda: {"sm_90": kernels})


@pytest.mark.parametrize(
    ("tokens", "rows", "columns"), [(64, 64, 64), (1000, 128, 64), (65, 16, 32)]
)
def test_pairs_are_those_of_the_tiles_that_hold_a_pair(
    tokens: int, rows: int, columns: int
) -> None:
    touched = {(i // rows, j // columns) for i in range(tokens) for j in range(i + 1)}
    assert pairs(tokens, rows, columns) == rows * columns * len(touched)


@pytest.mark.usefixtures("made_up")
def test_a_pass_takes_its_pairs_at_the_boards_rate() -> None:
    tokens, sequences = 8192, 4 * 8
    thousands = pairs(tokens, 64, 32) * sequences / 1024
    found = predicted(BOARD, 40, tokens, 4, 8, "forward")
    assert found.seconds == pytest.approx(100 * thousands / (10 * 1e9), rel=1e-3)
    assert found.parts["tensor"] == pytest.approx(70 * thousands / 1e10)
    assert found.bound == "tensor"
    training = predicted(BOARD, 40, tokens, 4, 8, "training")
    assert training.seconds == pytest.approx(3 * found.seconds, rel=1e-3)
    twice = replace(BOARD, hertz=2e9)
    assert predicted(twice, 40, tokens, 4, 8, "forward").seconds < 0.51 * found.seconds


@pytest.mark.usefixtures("made_up")
def test_few_programs_wait_for_the_longest() -> None:
    # One sequence of 8 programs on 10 multiprocessors: the last one goes over all keys alone.
    found = predicted(BOARD, 40, 512, 1, 1, "forward")
    assert found.seconds == pytest.approx(100 * 64 * 512 / 1024 / 1e9, rel=1e-2)


@pytest.mark.usefixtures("made_up")
def test_memory_and_launches_bound_what_is_short() -> None:
    slow = replace(BOARD, bytes_per_second=1e6)
    found = predicted(slow, 40, 64, 1, 2, "forward")
    assert found.parts["memory"] == pytest.approx(18 * 2 * 64 * 40 / 1e6)
    assert found.bound == "memory"
    late = replace(BOARD, launch_seconds=1.0)
    assert predicted(late, 40, 64, 1, 2, "training").bound == "launch"
    assert predicted(late, 40, 64, 1, 2, "training").seconds == pytest.approx(11, rel=1e-3)


@pytest.mark.usefixtures("made_up")
def test_the_baseline_is_full_attention_with_heads_of_whole_32s() -> None:
    found = predicted(BOARD, 40, 1024, 2, 3, "forward")
    assert found.flash2 == pytest.approx(4 * 1024**2 * 64 * 6 / 2e12)
    assert found.flash3 == pytest.approx(found.flash2 / 4)
    training = predicted(BOARD, 40, 1024, 2, 3, "training")
    assert training.flash2 == pytest.approx(3.5 * found.flash2)


def test_what_was_counted_are_the_tiles_that_the_kernels_take() -> None:
    told: dict[str, Any] = dict(counts())
    assert sorted(told) == ["sm_80", "sm_90"]
    for name, kernels in told.items():
        for kind, by_width in kernels.items():
            assert list(map(int, by_width)) == [64, 75, 128]
            for width, one in by_width.items():
                tile = choose(kind, "half", int(width), 10**6, capability=int(name[3:]))
                assert one["tile"] == [tile.rows, tile.columns, tile.warps, tile.stages], (
                    "python -m reference_impls.kernels.triton.ranking --counts writes them anew"
                )
                assert one["predicted"] >= max(one["cycles"].values())


def test_boards_by_their_names() -> None:
    assert [board.name for board in BOARDS] == ["H200", "H100", "A100"]
    found = board_of("NVIDIA H100 80GB HBM3")
    assert found is BOARDS[1]
    assert board_of("NVIDIA A10") is None
    assert widths(found) == [64, 75, 128]
    assert math.isnan(BOARDS[2].flash3)


def device(model: str, *seconds: float, width: int = 64) -> Any:
    case = f"core_mtsa.fused-B4-N4096-D{32 * width}x{8 * width}-H8-bf16-forward-cuda"
    records = [reading(case, block, value) for block, value in enumerate(seconds)]
    return SimpleNamespace(fingerprint={"model": model}, records=records)


def lines(*devices: Any) -> list[str]:
    found = model.table(model.beside(devices))
    return [line for line in found.splitlines() if "H100, forward" in line]


def test_what_was_measured_stands_below_what_was_predicted() -> None:
    assert not any("measured" in line for line in lines())
    assert not any("measured" in line for line in lines(device("NVIDIA A10", 1.0)))
    expected = predicted(BOARDS[1], 64, 4096, 4, 8, "forward").seconds
    found = lines(device("NVIDIA H100 80GB HBM3", *(2 * expected, 3 * expected, 9 * expected)))
    (row,) = [line for line in found if "measured" in line]
    assert row.split("|")[1:3] == [" H100, forward, measured ", " 64 "]
    assert f"{3e3 * expected:.3g} ms (3.00x of predicted)" in row
    assert found.index(row) == 1, "below the row of its width"
    assert "alone" not in row
    graphed = device("NVIDIA H100 80GB HBM3", *(2 * expected, 3 * expected))
    graphed.records[0]["gpu"] = {"device_seconds": 1.1 * expected}
    (other,) = device("NVIDIA H100 80GB HBM3", expected, width=128).records
    graphed.records.append({**other, "gpu": {"device_seconds": 9 * expected}})
    row, _ = [line for line in lines(graphed) if "measured" in line]
    assert f"(2.50x of predicted); device alone {1.1e6 * expected:.3g} µs (1.10x)" in row


def test_what_the_device_takes_is_told_over_the_others_measured_beside_it() -> None:
    one = device("NVIDIA H100 80GB HBM3", 1.0)
    (record,) = one.records
    record["gpu"] = {"device_seconds": 0.5}
    flash = record["case"].replace("core_mtsa.fused", "core_dot.sdpa_flash")
    one.records.append({**record, "case": flash, "gpu": {"device_seconds": 0.4}})
    cudnn = {**record, "case": flash.replace("flash", "cudnn")}
    del cudnn["gpu"]
    one.records.append(cudnn)
    row, *_ = [line for line in lines(one) if "measured" in line]
    assert "; 1.25x of torch's flash)" in row
    assert "cuDNN" not in row, "nobody took the device's own time"


def test_every_cell_says_what_takes_longest_there() -> None:
    (row, *_) = lines()
    for n, cell in zip(model.SHOWN, row.split("|")[3:-1], strict=True):
        assert cell.rstrip().endswith(f"; {predicted(BOARDS[1], 64, n, 4, 8, 'forward').bound})")


def test_the_heading_says_which_gpus_have_run_it() -> None:
    assert "none of which" in model.heading(model.beside([device("NVIDIA A10", 1.0)]))
    found = model.beside([device("NVIDIA A100-SXM4-80GB", 1.0)])
    assert model.heading(found) == "Predicted for GPUs, and measured on A100"
    (measured,) = [one for one in model.numbers(found) if not math.isnan(one["measured_seconds"])]
    assert (measured["board"], measured["width"], measured["tokens"]) == ("A100", 64, 4096)
