"""The authors' own numbers: every golden file with every implementation, float64 and float32."""

from __future__ import annotations

import json
import math
import re
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

from harness.cli.verify import golden_files
from harness.registry import builtins
from harness.verify.golden import check_path
from reference_impls.golden_rows import added_by_padded_rows, without_padded_rows
from suites.support.command_line import here

torch.set_num_threads(1)

FOLDER = Path(__file__).with_name("golden")
FILES = [f"{p.parent.name}/{p.name}" for p in golden_files(FOLDER)]


def contents(path: Path) -> dict[str, Any]:
    """Arrays of a golden, and its configuration."""
    with np.load(path) as z:
        arrays: dict[str, Any] = {name: z[name] for name in z.files}
    return {**arrays, "config": json.loads(str(arrays["config"]))}


def written(path: Path, arrays: Mapping[str, Any]) -> Path:
    """A golden file of these contents."""
    np.savez(path, **{**arrays, "config": np.array(json.dumps(arrays["config"]))})
    return path


def checked(path: Path) -> dict[str, Any]:
    """What is said of a golden file."""
    told = check_path(str(path))
    assert told is not None
    return told


@pytest.mark.parametrize("path", FILES)
def test_golden(path: str) -> None:
    told = checked(FOLDER / path)
    assert told["verdict"] == "ok", told
    assert {r["dtype"] for r in told["rows"]} == {"f64", "f32"}
    assert all(r["verdict"] == "ok" for r in told["rows"])
    assert not any("not comparable" in r["detail"] for r in told["rows"])


def test_every_golden_belongs_to_a_record() -> None:
    named = [k for m in builtins().values() for k in (*m.goldens, *m.part_goldens)]
    assert {path.partition("/")[0] for path in FILES} == set(named)


def test_a_folder_is_checked_one_line_each(tmp_path: Path) -> None:
    """Right ones, a changed number, what is no golden, and one of no mechanism of ours."""
    right = ["disa/forward", "rss/policy", "snli_model/tiny"]
    for name in (*right, "changed/forward", "foreign/policy", "broken/x"):
        (tmp_path / name).parent.mkdir()
    for name in right:
        shutil.copy(FOLDER / f"{name}.npz", tmp_path / f"{name}.npz")
    arrays = contents(FOLDER / "disa" / "forward.npz")
    arrays["output_f64"] = arrays["output_f64"] + 1e-4
    written(tmp_path / "changed" / "forward.npz", arrays)
    arrays["config"]["mechanism"] = "other"
    written(tmp_path / "foreign" / "policy.npz", arrays)
    (tmp_path / "broken" / "x.npz").write_bytes(b"no archive")
    done = here("verify --golden . --json out.json", cwd=tmp_path, code=1)
    said = done.stdout
    lines = [s.split(":")[0].split() for s in said.splitlines() if ": " in s]
    assert lines == [
        ["crash", "broken/x"],
        ["wrong", "changed/forward"],
        ["ok", "disa/forward"],
        ["skipped", "foreign/policy"],
        ["ok", "rss/policy"],
        ["ok", "snli_model/tiny"],
    ]
    assert "3 ok, 2 wrong, 1 skipped" in said
    assert "not a golden file" in said
    assert "'other' belongs to no mechanism" in said
    assert "Traceback" not in done.stderr + said
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert [r["verdict"] for r in rows] == [v for v, _ in lines]


def test_a_name_chooses_and_nothing_checked_is_exit_2(tmp_path: Path) -> None:
    one = ("verify resa.masked --json out.json --golden", str(FOLDER / "rss"))
    here(*one, cwd=tmp_path, code=0)
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert {r["name"] for row in rows for r in row["rows"]} == {"resa.masked"}
    for names, whose in ((["mtsa"], "1 golden files at .*, none of mtsa"), ([], "0 golden files")):
        place = next((FOLDER / "rss").glob("*.npz")) if names else tmp_path
        done = here("verify", *names, "--golden", str(place), cwd=tmp_path, code=2)
        assert re.search(f"nothing was checked: {whose}", done.stderr)


@pytest.mark.parametrize(
    ("path", "name", "change"),
    [
        ("rss/policy.npz", "actions", 1),
        ("rss/policy.npz", "logp", 1e-4),
        ("snli_model/tiny.npz", "loss_f64", 1e-8),
        ("snli_model/tiny.npz", "rep2", 1e-4),
        ("disa/forward.npz", "grad_x_f64", 1e-8),
    ],
)
def test_every_array_counts(path: str, name: str, change: float, tmp_path: Path) -> None:
    arrays = contents(FOLDER / path)
    arrays[name] = arrays[name].copy()
    arrays[name].flat[0] += change
    told = checked(written(tmp_path / "x.npz", arrays))
    assert told["verdict"] == "wrong"
    assert name in told["detail"]


@pytest.mark.parametrize("valid", [True, False])
def test_a_programs_float32_may_be_the_worse_of_the_two(valid: bool, tmp_path: Path) -> None:
    """At large magnitudes it is: the truth is the program in float64."""
    arrays = contents(FOLDER / "disa" / "forward.npz")
    arrays["config"]["reference_float32_valid"] = valid
    for name in ("output", "grad_x"):
        arrays[name] = arrays[name] + 1e-3 if valid else np.full_like(arrays[name], np.nan)
    path = tmp_path / "forward.npz"
    told = checked(written(path, arrays))
    assert told["verdict"] == "ok", told
    assert all("_f64" in row["detail"] for row in told["rows"])
    arrays["grad_x_f64"] = arrays["grad_x_f64"] + 1e-3
    assert {r["verdict"] for r in checked(written(path, arrays))["rows"]} == {"wrong"}


@pytest.mark.parametrize("path", ["source2token/elu.npz", "kim_cnn/k345_maxpool.npz"])
def test_what_is_pooled_of_nothing_is_undefined(path: str, tmp_path: Path) -> None:
    arrays = contents(FOLDER / path)
    arrays["mask"][0] = False
    for name in ("output", "output_f64", "grad_x", "grad_x_f64"):
        arrays[name][0] = 7.0
    assert checked(written(tmp_path / "x.npz", arrays))["verdict"] == "ok"
    arrays["output_f64"][1] += 1e-3
    assert checked(written(tmp_path / "x.npz", arrays))["verdict"] == "wrong"


def softmax(e: Tensor, allowed: Tensor, axis: int) -> Tensor:
    """Over what is allowed; zero elsewhere, and where nothing is."""
    p = e.masked_fill(~allowed, -math.inf).softmax(axis)
    return p.masked_fill(~allowed, 0).nan_to_num(0.0)


def disa_of(h: Tensor, w: Mapping[str, Tensor], ok: Tensor, c: float) -> tuple[Tensor, Tensor]:
    """Tokens mapped, and attended [n, d], of the section "disa" of the goldens' page."""
    h = torch.relu(h @ w["map_w"] + w["map_b"])
    e = c * torch.tanh((h @ w["dep_w"] + (h @ w["head_w"])[:, None] + w["f_b"]) / c)
    return h, (softmax(e, ok[..., None], 1) * h).sum(1)


def biblosa_program(x: Tensor, real: Tensor, w: Mapping[str, Tensor], r: int, fw: bool) -> Tensor:
    """One direction of the section "biblosa", one sample, padded rows and blocks included."""
    n, c = len(x), 5.0
    x = torch.nn.functional.pad(x, (0, 0, 0, -n % r))
    real = torch.nn.functional.pad(real, (0, -n % r))
    h = torch.relu(x @ w["map_w"] + w["map_b"])
    d = h.shape[1]
    one = torch.ones(len(x), len(x), dtype=torch.bool)
    towards = one.tril(-1) if fw else one.triu(1)
    place = torch.arange(len(x)) // r
    dh = h @ w["dh_w"]
    e = c * torch.tanh((dh[:, :d] + dh[:, None, d:] + w["f_b"]) / c)
    near = towards & (place == place[:, None]) & real & real[:, None]
    a = (softmax(e, near[..., None], 1) * h).sum(1)
    z = a @ w["s2t_w"] + w["s2t_b"]
    o = torch.stack(
        [
            (softmax(z[b : b + r], real[b : b + r, None], 0) * a[b : b + r]).sum(0)
            for b in range(0, len(x), r)
        ]
    )
    blk = {name[4:]: value for name, value in w.items() if name.startswith("blk_")}
    m, att = disa_of(o, blk, towards[: len(o), : len(o)], c)
    bias = blk["fi_b"] + blk["fa_b"] + blk["o_b"]
    gate = torch.sigmoid(m @ blk["fi_w"] + att @ blk["fa_w"] + bias)
    G = (gate * m + (1 - gate) * att)[place]
    cq = torch.cat([h, a, G], 1) @ w["comb_w"] + w["comb_b"]
    gate = torch.sigmoid(cq[:, d:])
    return (gate * torch.relu(cq[:, :d]) + (1 - gate) * h)[:n]


@pytest.mark.parametrize("lengths", [(12, 4), (10, 1), (3, 0)], ids=str)
def test_padded_blocks_and_their_cotangents_are_taken_out(
    lengths: tuple[int, int], tmp_path: Path
) -> None:
    """Whole padded blocks, random numbers at padding, a sample of padding alone."""
    arrays = contents(FOLDER / "biblosa" / "block3_padded_tail.npz")
    arrays["config"] |= {"activation": "relu", "tanh_scale": 5.0}
    r, d_in, n = arrays["config"]["block_len"], arrays["x"].shape[2], 12
    rng = np.random.default_rng(3)
    weights = {
        way: {k[3:]: torch.from_numpy(v).double() for k, v in arrays.items() if k[:2] == way}
        for way in ("fw", "bw")
    }
    x = torch.from_numpy(rng.standard_normal((2, n, d_in)).astype(np.float32).astype(float))
    x.requires_grad_()
    real = torch.arange(n) < torch.tensor(lengths)[:, None]
    both = [
        [biblosa_program(x[b], real[b], w, r, way == "fw") for way, w in weights.items()]
        for b in range(2)
    ]
    out = torch.stack([torch.cat(ways, 1) for ways in both])
    grad_out = torch.from_numpy(rng.standard_normal(out.shape))
    (out * grad_out).sum().backward()
    assert out[1, lengths[1] :].abs().max() > 0
    assert x.grad is not None
    numbers = {"output": out, "output_f64": out, "grad_x": x.grad, "grad_x_f64": x.grad}
    found = {name: t.detach().numpy() for name, t in numbers.items()}
    inputs = {"x": x.detach().float().numpy(), "mask": real.numpy(), "grad_out": grad_out.numpy()}
    path = written(tmp_path / "blocks.npz", {**arrays, **found, **inputs})
    told = checked(path)
    assert told["verdict"] == "ok", told
    assert not any("not comparable" in row["detail"] for row in told["rows"])


def test_of_a_case_without_gradients_nothing_is_taken_out() -> None:
    case = {"x": np.ones((2, 3, 4)), "mask": np.array([[True, True, False], [True, False, False]])}
    assert without_padded_rows(case) == {}
    assert not added_by_padded_rows(case, lambda x, n, rows, g: x + 1).any()
    whole = {**case, "grad_out": np.ones((2, 3, 4))}
    assert added_by_padded_rows(whole, lambda x, n, rows, g: x[:n]).sum() == 4 * 3
