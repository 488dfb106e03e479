"""What machine a record was made on: two machines must not pass for one."""

from __future__ import annotations

from pathlib import Path

import pytest

from harness.measure import device

SHORTENED = "processor\t: 0\nmodel name\t: AMD EPYC\ncpu family\t: {family}\nmodel\t\t: {model}\n"


@pytest.mark.parametrize(
    ("text", "name"),
    [
        (SHORTENED.format(family=25, model=17), "AMD EPYC family 25 model 17"),
        (SHORTENED.format(family=26, model=2), "AMD EPYC family 26 model 2"),
        ("model name\t: Made up\n", "Made up"),
    ],
)
def test_processors_of_two_generations_have_two_names(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, name: str
) -> None:
    monkeypatch.setattr(device, "CPUINFO", tmp_path / "cpuinfo")
    assert device.cpu_model()
    assert device.cpu_clock_mhz() is None
    (tmp_path / "cpuinfo").write_text(text)
    assert device.cpu_model() == name


def test_the_fingerprint_knows_what_changes_times(monkeypatch: pytest.MonkeyPatch) -> None:
    before = device.fingerprint("cpu")
    assert before["vectors"]
    monkeypatch.setenv("ONEDNN_MAX_CPU_ISA", "AVX2")
    after = device.fingerprint("cpu")
    assert after["variables"] == {**before["variables"], "ONEDNN_MAX_CPU_ISA": "AVX2"}
