"""What machine a record was made on: two machines must not pass for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.measure import device

SHORTENED = "processor\t: 0\nmodel name\t: AMD EPYC\ncpu family\t: {family}\nmodel\t\t: {model}\n"


def told(folder: Path, text: str, monkeypatch: pytest.MonkeyPatch) -> str:
    file = folder / "cpuinfo"
    file.write_text(text)
    monkeypatch.setattr(device, "CPUINFO", file)
    return device.cpu_model()


def test_processors_of_two_generations_have_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    older = told(tmp_path, SHORTENED.format(family=25, model=17), monkeypatch)
    newer = told(tmp_path, SHORTENED.format(family=26, model=2), monkeypatch)
    assert older == "AMD EPYC family 25 model 17"
    assert newer == "AMD EPYC family 26 model 2"


def test_a_processor_without_numbers_keeps_its_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert told(tmp_path, "model name\t: Made up\n", monkeypatch) == "Made up"
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "none")
    assert device.cpu_model()
    assert device.cpu_clock_mhz() is None


def test_the_fingerprint_knows_what_changes_times(monkeypatch: pytest.MonkeyPatch) -> None:
    before = device.fingerprint("cpu")
    assert before["vectors"]
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    after = device.fingerprint("cpu")
    assert after["variables"] == {**before["variables"], "ONEDNN_MAX_CPU_ISA": "AVX2"}
