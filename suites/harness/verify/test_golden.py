"""The authors' own numbers: every golden file with every implementation, float64 and float32."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import torch

from harness.registry import builtins
from harness.verify.golden import check_path
from harness.verify.golden_files import find
from suites.support.command_line import attnbench

torch.set_num_threads(1)

FOLDER = Path(__file__).with_name("golden")
BUILT = {folder for mechanism in builtins().values() for folder in mechanism.goldens}
ELSEWHERE = {"rss", "snli_model"}
"""Parts and whole models, no mechanisms: test_resa.py and test_pair_models.py hold them."""


@pytest.mark.parametrize("path", [f"{p.parent.name}/{p.name}" for p in find(FOLDER)])
def test_golden(path: str) -> None:
    told = check_path(str(FOLDER / path))
    assert told is not None
    if path.partition("/")[0] in BUILT:
        assert told["verdict"] == "ok", told
        assert {r["dtype"] for r in told["rows"]} == {"f64", "f32"}
        assert all(r["verdict"] == "ok" for r in told["rows"])
        assert "not comparable" not in told["detail"]
    else:
        assert path.partition("/")[0] in ELSEWHERE
        assert told["verdict"] == "skipped"
        assert "belongs to no mechanism" in told["detail"]


def test_the_folder_is_checked_one_line_each(tmp_path: Path) -> None:
    """One file of every folder: all of them are checked above."""
    of_folders = {path.parent.name: path for path in find(FOLDER)}
    assert len(of_folders) > 5
    for folder, path in of_folders.items():
        (tmp_path / "golden" / folder).mkdir(parents=True)
        for file in path.parent.glob(f"{path.stem}*"):
            shutil.copy(file, tmp_path / "golden" / folder)
    chosen = find(tmp_path / "golden")
    assert {p.parent.name for p in chosen} == of_folders.keys()
    done = attnbench("verify", "--golden", "golden", "--json", "out.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    lines = [s for s in done.stdout.splitlines() if s.startswith(("ok ", "skipped "))]
    assert len(lines) == len(chosen)
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert sum(r["verdict"] == "ok" for r in rows) == sum(p.parent.name in BUILT for p in chosen)


def test_a_changed_number_is_found(tmp_path: Path) -> None:
    source = FOLDER / "disa" / "forward.npz"
    with np.load(source) as z:
        arrays = {k: z[k] for k in z.files}
    arrays["output"] = arrays["output"] + 1e-4
    arrays["output_f64"] = arrays["output_f64"] + 1e-4
    np.savez(tmp_path / "forward.npz", **arrays)
    done = attnbench("verify", "--golden", ".", cwd=tmp_path)
    assert done.returncode == 1
    assert "wrong" in done.stdout


def test_nothing_checked_is_exit_2(tmp_path: Path) -> None:
    shutil.copy(FOLDER / "rss" / "policy.npz", tmp_path)
    done = attnbench("verify", "--golden", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "nothing was checked" in done.stderr
    assert "skipped" in done.stdout


def test_an_empty_folder_is_exit_2(tmp_path: Path) -> None:
    done = attnbench("verify", "--golden", ".", cwd=tmp_path)
    assert done.returncode == 2
    assert "nothing was checked" in done.stderr


def test_a_file_that_is_no_golden_fails_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "x.npz").write_bytes(b"no archive")
    done = attnbench("verify", "--golden", ".", cwd=tmp_path)
    assert done.returncode == 1
    assert "not a golden file" in done.stdout
    assert "Traceback" not in done.stderr + done.stdout


def test_where_the_authors_float32_is_invalid_ours_is_held_against_float64(tmp_path: Path) -> None:
    with np.load(FOLDER / "disa" / "forward.npz") as z:
        arrays = {k: z[k] for k in z.files}
    config = {**json.loads(str(arrays["config"])), "reference_float32_valid": False}
    arrays["config"] = np.array(json.dumps(config))
    arrays["output"] = np.full_like(arrays["output"], np.nan)
    arrays["grad_x"] = np.full_like(arrays["grad_x"], np.nan)
    np.savez(tmp_path / "forward.npz", **arrays)
    told = check_path(str(tmp_path / "forward.npz"))
    assert told is not None
    assert told["verdict"] == "ok", told
    assert all("_f64" in row["detail"] for row in told["rows"])
    arrays["output_f64"] = arrays["output_f64"] + 1e-4
    np.savez(tmp_path / "forward.npz", **arrays)
    wrong = check_path(str(tmp_path / "forward.npz"))
    assert wrong is not None
    assert {r["verdict"] for r in wrong["rows"]} == {"wrong"}
