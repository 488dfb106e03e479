"""The parts of a GPU session: their order, what stops them, what goes on; without a GPU."""

from __future__ import annotations

import contextlib
import io
import json
import math
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from harness.cli.app import run as harness
from harness.errors import UsageError
from harness.isolate import Outcome
from harness.options.groups import selection_of
from harness.options.measure import FrontierOptions
from harness.plan import frontier_cases
from harness.records import journal
from harness.registry import Registry
from harness.verify.run import Verification
from reference_impls.kernels.triton import tune
from reference_impls.kernels.triton.tiles import KINDS
from suites.programs.command import console
from suites.programs.goals.__main__ import app as goals
from suites.programs.gpu import __main__ as gpu
from suites.programs.gpu.__main__ import Part, parts

SCRIPT = """
import pathlib, subprocess, sys, time

what, folder = sys.argv[1], pathlib.Path(sys.argv[sys.argv.index("--journal") + 1])
runs = folder / f"{what}.runs"
runs.write_text(runs.read_text() + "x" if runs.exists() else "x")
(folder / "order").open("a").write(what + " ")
if what == "fails":
    sys.exit(1)
if what == "slow" and runs.read_text() == "x":
    beats = "import sys, time\\nwhile 1: time.sleep(.05), open(sys.argv[1], 'a').write('.')"
    subprocess.Popen([sys.executable, "-c", beats, str(folder / "beat")])
    time.sleep(60)
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where parts run that a module `pretended` plays."""
    (tmp_path / "pretended.py").write_text(SCRIPT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return tmp_path / "gpu"


def pretended(*names: str) -> list[Part]:
    return [Part(name, "pretended", (name,)) for name in names]


def run(
    todo: Sequence[Part], place: Path, seconds: float = math.inf, **known: Any
) -> dict[str, Any]:
    folder = gpu.Folder(place, **{"commit": "a", **known})
    gpu.run_all(todo, folder, "cpu", seconds, console())
    return folder.parts


def order(place: Path) -> list[str]:
    return (place / "order").read_text().split()


def test_each_runs_once_in_its_order_until_the_code_changes(folder: Path) -> None:
    todo = pretended("doctor", "one", "two")
    found = run(todo, folder)
    assert {n: f["status"] for n, f in found.items()} == dict.fromkeys(
        ["doctor", "one", "two"], "ok"
    )
    run(todo, folder)
    assert order(folder) == ["doctor", "one", "two"]
    assert gpu.code(found, todo) == 0
    run(todo, folder, commit="b")
    assert order(folder) == ["doctor", "one", "two"] * 2


def test_what_takes_too_long_is_stopped_with_all_it_started_and_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "PART_SECONDS", 3.0)
    found = run(pretended("slow", "two"), folder)
    assert (found["slow"]["status"], found["slow"]["runs"]) == ("ok", 2)
    assert found["slow"]["seconds"] >= 3
    assert order(folder) == ["slow", "slow", "two"]
    beats = (folder / "beat").stat().st_size
    time.sleep(0.3)
    assert (folder / "beat").stat().st_size == beats, "a grandchild went on"


def test_a_part_that_never_ends_is_unfinished_and_the_next_time_goes_on(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(gpu, "PART_SECONDS", 3.0)
    monkeypatch.setattr(gpu, "TRIES", 1)
    todo = pretended("slow")
    assert gpu.code(run(todo, folder), todo) == 3
    found = run(todo, folder)
    assert (found["slow"]["status"], gpu.code(found, todo)) == ("ok", 0)


def test_a_failure_stops_nothing_and_is_run_again_if_it_is_named(folder: Path) -> None:
    todo = pretended("doctor", "fails", "two")
    found = run(todo, folder)
    assert (found["fails"]["status"], found["two"]["status"]) == ("failed", "ok")
    assert found["fails"]["detail"] == "exit code 1, see log.txt"
    assert gpu.code(found, todo) == 1
    run(todo, folder)
    assert order(folder).count("fails") == 1
    run(todo, folder, again=["fails"])
    assert order(folder).count("fails") == 2


def test_nothing_is_begun_where_the_doctor_says_no_and_it_is_asked_again(folder: Path) -> None:
    todo = [Part("doctor", "pretended", ("fails",)), *pretended("two")]
    for _ in range(2):
        with pytest.raises(UsageError, match=r"the doctor says that cpu can't be measured here"):
            run(todo, folder)
    assert order(folder) == ["fails", "fails"]


def test_no_part_begins_when_the_time_is_over(folder: Path) -> None:
    todo = pretended("one", "two")
    found = run(todo, folder, seconds=gpu.PATIENCE_SECONDS)
    assert (found, gpu.code(found, todo)) == ({}, 3)


def test_a_part_whose_program_is_not_installed_is_left_out_by_name(folder: Path) -> None:
    todo = [Part("sanitizer", "pretended", ("one",), ("no-such-program", "--all"))]
    found = run(todo, folder)
    assert found["sanitizer"]["status"] == "left out"
    assert found["sanitizer"]["detail"] == "no-such-program is not installed"
    assert gpu.code(found, todo) == 0


def test_a_state_that_can_not_be_read_is_told_and_kept(folder: Path) -> None:
    folder.mkdir()
    (folder / gpu.STATE).write_text("[1")
    with pytest.raises(UsageError, match=r"can't read .*parts.json .*remove it to begin anew"):
        gpu.Folder(folder, "a")
    assert (folder / gpu.STATE).read_text() == "[1"


def test_the_pack_is_a_journal_with_all_records(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    record = {"kind": "verify", "key": "1", "case": "a", "verdict": "ok", "block": 0}
    for number in range(2):
        with journal.Writer(tmp_path / "gpu", {"fingerprint": {"device": "cuda"}}) as writer:
            writer.append({**record, "key": str(number)})
    (tmp_path / "gpu" / gpu.STATE).write_text("{}")
    files = gpu.bundle(tmp_path / "gpu", tmp_path / "out")
    assert [path.name for path in files] == ["gpu.jsonl.xz", "parts.json"]
    found = journal.read(tmp_path / "out" / "gpu")
    assert found.records == journal.read(tmp_path / "gpu").records
    assert not found.warnings
    monkeypatch.setattr(gpu, "LOG_BYTES", 4)
    (tmp_path / "gpu" / gpu.LOG).write_text("much, and why")
    gpu.bundle(tmp_path / "gpu", tmp_path / "out")
    assert (tmp_path / "out" / gpu.LOG).read_text() == " why"
    monkeypatch.setattr(gpu, "MOST_BYTES", 10)
    with pytest.raises(UsageError, match=r"expected at most 10"):
        gpu.bundle(tmp_path / "gpu", tmp_path / "out")


def test_all_that_runs_on_a_gpu_is_verified_then_measured() -> None:
    names = [part.name for part in parts("cuda")]
    assert names[0] == "doctor"
    measured = ["bench", "goals", "frontier", "predicted"]
    assert names[1 : 2 + len(measured)] == ["verify", *measured]
    (first,) = [part for part in parts("cuda") if part.name == "verify"]
    timed = {name.partition(".")[0] for name in gpu.LONGEST}
    assert timed <= {*first.arguments}, "what is measured is verified before"
    assert names[-1] == "determinism", "the compiler takes longest"
    assert len(names) == len(set(names))
    large = {name.partition(" ")[2] for name in names if name.startswith("large ")}
    heads = {"mtsa", "mtsa_nmt", "mtsa_released", "mtsa_stack", "msmsa", "msmsa_layer"}
    assert large == heads | {"multi_head", "multi_head_released", "multi_head_relu"}
    assert not {"multi_head", "multi_head_relu"} & {
        part.name.partition(" ")[2] for part in parts("cpu") if part.name.startswith("large ")
    }


CARD = {"device": "cuda", "model": "a card that is not here", "threads": 1, "torch": "2"}


@pytest.fixture
def planned(monkeypatch: pytest.MonkeyPatch) -> dict[str, list[str]]:
    """A GPU that is played, and nothing that runs on it: what commands would do there."""
    found: dict[str, list[str]] = {"verify": [], "bits": [], "frontier": [], "tune": []}

    def verify(todo: Sequence[Verification], *_: object, **more: object) -> list[dict[str, Any]]:
        found["verify"] += [f"{job.name} {job.dtype}{' large' * job.large}" for job in todo]
        return []

    def beside(kind: str, wanted: Sequence[tuple[str, str]], *_: object) -> list[dict[str, Any]]:
        found["bits"] += [" ".join(one) for one in wanted]
        return []

    def frontier(options: FrontierOptions) -> int:
        cases = frontier_cases("cuda", Registry(), selection_of(options))
        found["frontier"] += [case.name for case in cases]
        return 0

    def cell(*given: Any) -> dict[str, Any]:
        found["tune"].append(" ".join(map(str, given[:3])))
        return {"now": "", "best": "", "dropped": {}}

    fakes = {
        "harness.measure.device.run": lambda *_: Outcome("ok", value=CARD),
        "harness.cli.verify.verify": verify,
        "harness.cli.verify.beside": beside,
        "harness.cli.verify.verify_exact": lambda *_: [],
        "harness.cli.frontier.run_frontier": frontier,
        "harness.cli.doctor.run_doctor": lambda _: 0,
        "reference_impls.kernels.triton.tune.cell": cell,
        "reference_impls.kernels.triton.device.usable": lambda: "",
        "reference_impls.kernels.triton.device.interpreted": lambda: False,
        "reference_impls.kernels.triton.device.architecture": lambda *_: 90,
        "torch.cuda.get_device_name": lambda: CARD["model"],
    }
    monkeypatch.setitem(sys.modules, "triton", SimpleNamespace(__version__="3"))
    for name, fake in fakes.items():
        monkeypatch.setattr(name, fake)
    return found


def would(part: Part, folder: Path, *more: str) -> str:
    """Run the arguments of a part in this process; what it prints. It must not be refused."""
    line = [*part.command("python", "cuda", str(folder)), *more]
    arguments = line[line.index(part.module) + 1 :]
    said = io.StringIO()
    with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
        if part.module == "harness":
            code = harness(arguments)
        elif part.module == "suites.programs.goals":
            done = CliRunner().invoke(goals, arguments)
            code = done.exit_code
            said.write(done.output)
        else:
            code = tune.main(arguments)
    assert code == 0, f"{part.name}: {said.getvalue()}"
    return said.getvalue()


def test_every_line_is_understood_and_says_what_it_would_do(
    planned: dict[str, list[str]], tmp_path: Path
) -> None:
    lines = {part.name: part for part in parts("cuda")}
    for name, part in lines.items():
        dry = name in ("bench", "energy", "goals", "predicted")
        said = would(part, tmp_path, *["--dry-run"] * dry)
        if name == "bench":
            for kernel in ("padded", "flash", "efficient", "cudnn"):
                assert f"multi_head.sdpa_{kernel}-B64-N64-D300x600-H8-bf16-training-cuda" in said
            for kernel in ("sdpa", "flash3", "flash4", "flex"):
                assert f"multi_head.{kernel}-B64-N64-D300x600-H8-bf16-forward-cuda" in said
        if name == "predicted":
            assert all(f"-N{n}-" in said for n in (512, 4096, 16384, 65536)), said
        if name == "energy":
            assert "mtsa.fused-B64-N64-D300x600-H8-bf16-training-cuda" in said
            assert "f32" not in said
    every = [
        f"{m.name}.{i.name}" for m in Registry().mechanisms.values() for i in m.implementations
    ]
    assert {f"{name} f32" for name in every} <= set(planned["verify"])
    assert {f"mtsa.{name} bf16" for name in ("fused", "fused_triton")} <= set(planned["bits"])
    large = {line for line in planned["verify"] if line.endswith(" large")}
    for name in ("sdpa", "sdpa_padded", "sdpa_flash", "matmul", "flash3"):
        assert f"multi_head.{name} bf16 large" in large
    assert {"mtsa.fused f32 large", "mtsa_stack.algorithm1 f32 large"} <= large
    assert not any(line.split()[0].endswith(".plain") for line in large)
    assert len(planned["frontier"]) == 4
    assert planned["tune"] == [f"{kind} half {width}" for width in (64, 80, 128) for kind in KINDS]


def test_here_without_a_gpu(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    few = [
        Part("doctor", "harness", ("doctor",)),
        Part("verify none", "harness", ("verify", "none.fused", "--dtypes", "f32")),
    ]
    monkeypatch.setattr(gpu, "parts", lambda _: few)
    refused = CliRunner().invoke(gpu.app, ["--folder", str(tmp_path / "no")])
    assert refused.exit_code == 2
    assert "sees no GPU" in refused.output
    place, out = tmp_path / "gpu", tmp_path / "out"
    line = ["--device", "cpu", "--only", "verify none", "--folder", str(place), "--out", str(out)]
    done = CliRunner().invoke(gpu.app, line)
    assert done.exit_code == 0, done.output + (place / gpu.LOG).read_text()
    state = json.loads((out / gpu.STATE).read_text())["parts"]["verify none"]
    assert (state["status"], state["runs"]) == ("ok", 1)
    assert "none.fused-f32-cpu" in {r.get("case") for r in journal.read(out / "gpu").records}
