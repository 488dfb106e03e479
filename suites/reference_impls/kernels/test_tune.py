"""Which tile wins, why others may not: told without a device."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from reference_impls.kernels.triton import device, tiles, trial, tune
from reference_impls.kernels.triton.tiles import KINDS, Tile
from suites.support.attending import defined
from suites.support.batches import error

pytest.importorskip("triton", reason="the CPU build of torch is without triton")
NOW, BEST, SLOW, WRONG = (Tile(rows, 64, 8, 2) for rows in (128, 64, 32, 16))


@pytest.fixture
def played(monkeypatch: pytest.MonkeyPatch) -> None:
    """A device that is not there."""
    monkeypatch.setattr(device, "usable", lambda: "")
    monkeypatch.setattr(device, "interpreted", lambda: False)
    monkeypatch.setattr(device, "architecture", lambda *_: 90)
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "none")


@pytest.fixture
def four_tiles(played: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One cell, of which one tile is wrong."""
    monkeypatch.setattr(tune, "table_of", lambda _: {"forward": {"half": {64: NOW}}})
    monkeypatch.setattr(tune, "candidates", lambda *_: [NOW, BEST, SLOW, WRONG])
    monkeypatch.setattr(tune, "asked", partial(answered, {WRONG: "wrong: dk is off by 9.0e-01"}))
    monkeypatch.setattr(
        tune, "launches", lambda kind, tiles, call, g: dict.fromkeys(tiles, call.q.shape)
    )


def answered(
    wrong: Mapping[Tile, str], what: str, kind: str, numbers: str, width: int, tiles: Sequence[Tile]
) -> dict[Tile, str]:
    """What children would say: all run, these are wrong."""
    return {tile: wrong.get(tile, "") if what == "check" else "" for tile in tiles}


def times(kernels: Mapping[Tile, Any]) -> dict[Tile, Sequence[float]]:
    """The wrong tile would be the fastest; one is the best on average, and not on all problems."""
    long = next(iter(kernels.values()))[2] > 16
    of_each = {NOW: 2.0, BEST: 2.2 if long else 1.0, SLOW: 3.0, WRONG: 0.1}
    return {tile: [9.0, of_each[tile], of_each[tile] - 1e-3] for tile in kernels}


@pytest.mark.usefixtures("four_tiles")
def test_the_best_is_right_and_fast_on_average_over_the_problems() -> None:
    found = tune.cell("forward", "half", 64, [16, 32], "cpu", times)
    assert found["best"] == "64x64 8w 2s"
    assert found["now"] == "128x64 8w 2s"
    assert found["dropped"] == {"16x64 8w 2s": "wrong: dk is off by 9.0e-01"}
    assert found["tile"] == (64, 64, 8, 2)
    assert found["checked"] == 3, "the three fastest, the table's among them"
    assert found["repeats"] >= 30
    assert found["milliseconds"].keys() == {
        f"{masks} N{length}" for masks in tune.MASKS for length in (16, 32)
    }
    assert found["milliseconds"]["all N16"] == {"best": 1.0, "now": 2.0}  # medians


@pytest.mark.usefixtures("four_tiles")
def test_where_none_is_right_there_is_no_best(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tune, "asked", lambda *given: dict.fromkeys(given[-1], "does not run: no"))
    found = tune.cell("forward", "half", 64, [16], "cpu", times)
    assert found["best"] is None
    assert len(found["dropped"]) == 4


@pytest.mark.usefixtures("four_tiles")
def test_what_is_found_is_printed_and_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tune, "cell", partial(tune.cell, on="cpu", timed=times))
    out = tmp_path / "tiles.json"
    assert tune.main(["--out", str(out), "--lengths", "16", "32"]) == 0
    told = capsys.readouterr().out.splitlines()
    assert told[0] == "forward half 64: 64x64 8w 2s, now 128x64 8w 2s"
    assert told[1] == "  16x64 8w 2s wrong: dk is off by 9.0e-01"
    assert json.loads(out.read_text())["forward half 64"]["best"] == "64x64 8w 2s"


@pytest.mark.usefixtures("four_tiles")
def test_what_is_written_counts_in_place_of_what_was_predicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    predicted = tiles.read(tiles.TABLE, 90)
    measured = tmp_path / "measured.toml"
    measured.write_text("[sm_80.forward.half]\n64 = [16, 16, 1, 2]\n")
    monkeypatch.setattr(tiles, "MEASURED", measured)
    monkeypatch.setattr(tune, "MEASURED", measured)
    monkeypatch.setattr(tune, "cell", partial(tune.cell, on="cpu", timed=times))
    line = ["--out", str(tmp_path / "tiles.json"), "--lengths", "16", "32", "--write"]
    monkeypatch.setattr(tune.table_of, "cache_clear", lambda: None, raising=False)
    tiles.tiles.cache_clear()
    try:
        assert tune.main([*line, "--only", "forward half 64"]) == 0
        found = tiles.tiles(90)
        assert found["forward"]["half"][64] == BEST != predicted["forward"]["half"][64]
        assert found["forward"]["half"][128] == predicted["forward"]["half"][128]
        assert found["key_gradient"] == predicted["key_gradient"]
        assert tiles.tiles(80)["forward"]["half"][64] == Tile(16, 16, 1, 2), "others stay"
    finally:
        tiles.tiles.cache_clear()
    text = measured.read_text()
    assert "\n# fastest on none, torch" in text
    assert "[sm_90.forward.half]\n64 = [64, 64, 8, 2]\n" in text


@pytest.fixture
def child(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where the program lies that answers in a child's place; one child is asked at a time."""
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    monkeypatch.setattr(trial, "__spec__", SimpleNamespace(name="played"))
    monkeypatch.setattr("os.cpu_count", lambda: 1)
    return tmp_path / "played.py"


CHILD = """
import os, sys
what, kind, numbers, width, *tiles = sys.argv[1:]
for tile in tiles:
    if tile == "16,64,8,2":
        print("Triton Error [CUDA]: an illegal memory access", file=sys.stderr)
        os._exit(1)
    print(f'[[{tile}], "{"wrong" if tile == "32,64,8,2" else ""}"]', flush=True)
"""


def test_a_tile_that_ends_its_process_takes_no_other_with_it(child: Path) -> None:
    child.write_text(CHILD)
    found = trial.asked("run", "forward", "half", 64, [NOW, WRONG, SLOW, BEST])
    died = "does not run: Triton Error [CUDA]: an illegal memory access"
    assert found == {NOW: "", WRONG: died, SLOW: "wrong", BEST: ""}


def test_behind_a_check_that_told_of_a_crash_nothing_is_asked(child: Path) -> None:
    child.write_text(
        "import sys\nfor n, t in enumerate(sys.argv[5:]): print(f'[[{t}], \"{n}\"]')\n"
    )
    three = [NOW, SLOW, BEST]
    assert trial.asked("check", "forward", "half", 64, three) == dict.fromkeys(three, "0")
    assert trial.asked("run", "forward", "half", 64, three)[BEST] == "2", "one child for all"


def test_a_child_answers_for_each_tile(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = {"run": lambda *_: "", "check": lambda *given: f"wrong on {given[-1]}"}
    monkeypatch.setattr(trial, "QUESTIONS", answer)
    assert trial.main(["check", "forward", "half", "64", "64,64,4,3", "16,16,1,2"]) == 0
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert lines == [[[64, 64, 4, 3], "wrong on cuda"], [[16, 16, 1, 2], "wrong on cuda"]]


def test_no_tile_of_float32_has_warps_without_rows_on_hopper() -> None:
    """What Triton 3.6 makes of such tiles stopped an H200."""
    for table in (tiles.TABLE, tiles.MEASURED):
        for kind, by_numbers in tiles.read(table, 90).items():
            for width, tile in by_numbers["single"].items():
                assert not tiles.beyond("single", tile.rows, tile.warps, 90), (kind, width)
    offered = [t for k in KINDS for w in tiles.WIDTHS for t in tiles.candidates(k, "single", w)]
    assert len(offered) > 100
    assert not [t for t in offered if 64 <= t.rows < 16 * t.warps]
    assert tiles.beyond("single", 64, 8, 90)
    assert not tiles.beyond("half", 64, 8, 90)


@pytest.fixture
def device_here(played: None, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Two cells; the widths of those that are measured."""
    done: list[str] = []
    cells = {"forward": {"half": {64: NOW, 80: NOW}}}
    monkeypatch.setattr(tune, "table_of", lambda _: cells)

    def cell(kind: str, numbers: str, width: int, lengths: Sequence[int]) -> dict[str, Any]:
        done.append(str(width))
        return {"now": str(NOW), "best": str(BEST), "dropped": {}}

    monkeypatch.setattr(tune, "cell", cell)
    return done


def test_a_cell_that_is_known_is_not_measured_again(
    device_here: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = ["--out", str(tmp_path / "tiles.json")]
    assert tune.main([*line, "--only", "half 80", "--only", "single"]) == 0
    assert device_here == ["80"]
    assert tune.main(line) == 0
    assert device_here == ["80", "64"]
    monkeypatch.setattr(tune, "_code", lambda: "other")
    assert tune.main(line) == 0
    assert device_here == ["80", "64", "64", "80"]


@pytest.mark.usefixtures("device_here")
def test_a_tile_of_the_table_that_is_wrong_fails_the_command(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = {"now": str(NOW), "best": str(BEST), "dropped": {str(NOW): "wrong: dk is off by 1"}}
    monkeypatch.setattr(tune, "cell", lambda *_: found)
    line = ["--out", str(tmp_path / "tiles.json")]
    assert (tune.main(line), tune.main(line)) == (1, 1)
    found["dropped"] = {str(SLOW): "wrong: dk is off by 1"}
    (tmp_path / "tiles.json").unlink()
    assert tune.main(line) == 0


@pytest.mark.parametrize(
    ("width", "checked"), [(64, {64}), (80, {80, 75}), (128, {128}), (320, {320, 300})]
)
def test_a_tile_is_checked_at_the_widths_that_it_is_for(
    width: int, checked: set[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: set[int] = set()

    def pose(numbers: str, width: int, *_: object) -> tuple[int, None]:
        asked.add(width)
        return width, None

    def compute(kind: str, tile: Tile, call: int, g: None) -> dict[str, torch.Tensor]:
        return {"a": torch.tensor([2.0 if call == broken else 1.0])}

    broken = 0
    monkeypatch.setattr(trial, "problem", pose)
    monkeypatch.setattr(trial, "computed", compute)
    monkeypatch.setattr(trial, "_references", lambda *_: {"a": torch.ones(1)})
    assert not trial.why_not("forward", "half", width, NOW, "cpu")
    assert asked == checked
    broken = min(checked)
    told = f"wrong: a is off by 1.0e+00 of its largest (heads of {broken}, directional)"
    assert trial.why_not("forward", "half", width, NOW, "cpu") == told


@pytest.mark.parametrize("masks", tune.MASKS)
@pytest.mark.parametrize("padded", [False, True])
def test_the_reference_is_the_definition(masks: str, padded: bool) -> None:
    call, g = trial.problem("single", 4, 33, masks, padded, "cpu", "checked")
    if call.mask is not None:
        g = g * call.mask[None, :, :, None]
    own = call._replace(**{name: getattr(call, name).requires_grad_() for name in "qkvs"})
    found, wanted = trial.reference(call, g), defined(own, g.double())
    assert all(error(found[name], wanted[name]) < 1e-12 for name in wanted)


def test_launches_differ_in_their_tiles_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    from reference_impls.kernels.triton.launch import Launch

    ran: list[str] = []
    monkeypatch.setattr(Launch, "run", lambda one: ran.append(one.kernel.fn.__name__))
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.large_tiles", lambda _: True)
    monkeypatch.setattr("reference_impls.kernels.triton.inputs.architecture", lambda _: 90)
    call, g = trial.problem("half", 64, 200, "window", False, "cpu", "timed")
    heads = call.q.shape[0]
    assert heads == 8
    for kind in KINDS:
        found = tune.launches(kind, [NOW, WRONG], call, g)
        assert [one.kernel.fn.__name__ for one in found.values()] == [f"{kind}_kernel"] * 2
        assert [one.programs for one in found.values()] == [heads * 2 * 2, heads * 2 * 13]
        assert [one.constants["ROWS"] for one in found.values()] == [128, 16]
        assert found[NOW].tile == NOW
        assert found[NOW].arguments is found[WRONG].arguments
    assert "cotangent_kernel" in ran


@pytest.mark.skipif(torch.cuda.is_available(), reason="a device is here to tune for")
def test_tuning_needs_a_device(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert tune.main([]) == 1
    told = capsys.readouterr().err
    assert told.startswith("nothing to tune: ")
    assert told.count("\n") == 1
    assert not list(tmp_path.iterdir())
