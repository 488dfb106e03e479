"""What the doctor gathers: from this machine, and from made-up files of others."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli import bench, run
from harness.cli import doctor as command
from harness.doctor import facts
from harness.doctor.child import compiled, launched, seen
from harness.doctor.facts import Attempt, busy_share, c_compiler, cxx_compiler, gather
from harness.errors import UsageError
from harness.measure import device, gpu
from harness.verify.budget import CAP
from suites.harness.doctor.test_checks import BOX, LAPTOP

INFORMATION = "Model: \t\t NVIDIA H200\nIRQ:   \t\t 16\n"
VERSION = "NVRM version: NVIDIA UNIX Open Kernel Module for x86_64  570.86.15  Release Build\n"


@pytest.fixture
def kernel(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A machine whose kernel module knows one GPU, without NVML."""
    (tmp_path / "gpus" / "0000:01:00.0").mkdir(parents=True)
    (tmp_path / "version").write_text(VERSION)
    (tmp_path / "gpus" / "0000:01:00.0" / "information").write_text(INFORMATION)
    monkeypatch.setattr(gpu, "KERNEL", tmp_path)
    monkeypatch.delenv(gpu.VISIBLE, raising=False)
    return tmp_path


@pytest.mark.parametrize(("results", "fault"), [("results", ""), ("file/results", "file")])
def test_this_machine_is_looked_at_quickly(tmp_path: Path, results: str, fault: str) -> None:
    (tmp_path / "file").write_text("")
    found = gather("cpu", tmp_path / results, quick=True)
    assert found.torch == seen()
    assert bool(fault) == bool(found.journal_error)
    assert fault in found.journal_error
    assert not (tmp_path / "results").exists(), "looking makes no folder"
    assert found.memory is not None
    assert found.memory > 2**28
    assert found.compiled is None
    assert not found.on_gpu


def test_a_driver_without_its_library_is_known_by_the_kernel(kernel: Path) -> None:
    assert gpu.driver() == gpu.Driver("570.86.15", (), ("NVIDIA H200",))


def test_auto_refuses_to_measure_the_cpu_where_torch_does_not_see_the_gpu(
    kernel: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given = r"driver 570.86.15: NVIDIA H200 is here, and torch .* sees none; attnbench doctor says"
    with pytest.raises(UsageError, match=given):
        device.fingerprint("auto")
    (kernel / "gpus" / "0000:01:00.0" / "information").unlink()
    with pytest.raises(UsageError, match=r"driver 570.86.15: it lists no GPU .*--device cpu"):
        device.fingerprint("auto")
    assert device.fingerprint("cpu")["device"] == "cpu"
    for hidden in ("", "-1", "none"):  # on purpose
        monkeypatch.setenv(gpu.VISIBLE, hidden)
        assert device.fingerprint("auto")["device"] == "cpu"


def stat(path: Path, used: int, idle: int) -> None:
    path.write_text(f"cpu {used} 0 0 {idle} 0 0 0 0 0 0\n")


@pytest.mark.parametrize(("others", "share"), [(0, 0.0), (50, 0.25), (200, 1.0)])
def test_the_share_of_others_is_that_of_all_cores(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, others: int, share: float
) -> None:
    path = tmp_path / "stat"
    stat(path, 1000, 1000)
    monkeypatch.setattr(facts, "STAT", path)
    own = iter([10.0, 10.5])  # half a second of ours, which is 50 ticks
    monkeypatch.setattr(os, "times", lambda: (next(own), 0.0, 0.0, 0.0, 0.0))
    monkeypatch.setattr(os, "sysconf", lambda name: 100)
    later = SimpleNamespace(
        sleep=lambda seconds: stat(path, 1000 + 50 + others, 1000 + 200 - others)
    )
    monkeypatch.setattr(facts, "time", later)
    assert busy_share() == pytest.approx(share)


def test_where_nothing_tells_the_share_is_unknown(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(facts, "STAT", tmp_path / "none")
    assert busy_share(0.0) is None


def test_compilers_are_those_that_triton_and_torch_call(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "mycc"
    fake.write_text("#!/bin/sh\necho mycc 1.0\n")
    fake.chmod(0o755)
    monkeypatch.setenv("CC", str(fake))
    monkeypatch.setenv("CXX", f"{fake} -O2")
    assert c_compiler() == f"{fake} (mycc 1.0)"
    assert cxx_compiler() == f"{fake} (mycc 1.0)"
    fake.write_text("#!/bin/sh\nexit 1\n")
    assert c_compiler() == ""
    monkeypatch.setenv("CC", "nowhere-cc")
    assert c_compiler() == ""


def test_the_assembler_is_that_of_triton_or_of_its_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("TRITON_PTXAS_PATH", raising=False)
    assert bool(facts._ptxas()) == ("triton" in device.versions())
    fake = tmp_path / "ptxas"
    says = "ptxas: NVIDIA\nCuda compilation tools, release 11.1, V11.1.9\nBuild cuda_11.1"
    fake.write_text(f"#!/bin/sh\necho '{says}'\n")
    fake.chmod(0o755)
    monkeypatch.setenv("TRITON_PTXAS_PATH", str(fake))
    assert facts._ptxas() == ("ptxas 11.1" if "triton" in device.versions() else "")


def test_bench_tells_of_faults_before_it_measures(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    def measured(*_: Any) -> int:
        print("measured")
        return 0

    monkeypatch.setattr(bench, "gather", lambda *_, quick: replace(BOX, c="", busy=None))
    monkeypatch.setattr(bench, "_bench", measured)
    folder = str(tmp_path / "results")
    assert run(["bench", "--only", "none", "--journal", folder, "--device", "cpu"]) == 0
    before, found, _ = capsys.readouterr().out.partition("measured")
    assert found
    assert "C compiler: none: install gcc or set CC" in before
    assert "C++" not in before


def test_a_wrong_compilation_is_an_error(monkeypatch: pytest.MonkeyPatch) -> None:
    import torch

    monkeypatch.setattr(torch, "compile", lambda function: lambda x: 1.01 * function(x))
    with pytest.raises(UsageError, match="compiled code is off by"):
        compiled("cpu")
    monkeypatch.setattr(torch, "compile", lambda function: function)
    assert compiled("cpu")["apart"] == 0.0


@pytest.mark.parametrize(
    ("machine", "code", "says"),
    [
        (BOX, 0, "Ready to measure the GPU."),
        (LAPTOP, 0, "Ready to measure the CPU."),
        (replace(BOX, c="", compiled=Attempt(1, "crash: x")), 1, "C compiler, one compilation."),
    ],
    ids=["GPU box", "laptop", "no compiler"],
)
def test_the_command_ends_with_a_sentence_and_a_code(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    machine: Any,
    code: int,
    says: str,
) -> None:
    asked: list[Any] = []

    def gathered(*given: Any) -> Any:
        asked.append(given)
        return machine

    monkeypatch.setattr(command, "gather", gathered)
    file = tmp_path / "out.json"
    arguments = ["doctor", "--device", "auto", "--data", "D", "--json", str(file)]
    assert run([*arguments, "--journal", "J"]) == code
    assert asked == [("auto", Path("J"), "D")]
    out = capsys.readouterr().out
    assert says in out
    told = json.loads(file.read_text())
    assert told["ready"] == (code == 0)
    assert {f["what"] for f in told["findings"]} >= {"torch", "driver", "results", "memory"}
    assert told["facts"]["python"] == machine.python


def test_a_launch_is_checked_and_a_wrong_one_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    assert launched("mtsa.fused_tiled", "cpu")["comparisons"] > 5
    monkeypatch.setitem(CAP, "f32", 1e-12)
    with pytest.raises(UsageError, match=r"mtsa.fused_tiled: \d+ of \d+ results are wrong, "):
        launched("mtsa.fused_tiled", "cpu")
