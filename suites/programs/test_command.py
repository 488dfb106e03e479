"""The side programs' commands: what each says to a mistake."""

from __future__ import annotations

import importlib
from pathlib import Path

import pytest
from typer.testing import CliRunner


@pytest.mark.parametrize(
    ("program", "arguments", "says"),
    [
        ("calibration", "--conditions hot", "expected some of idle,busy"),
        ("calibration", "--blocks 1", "two or more"),
        ("calibration", "--from nowhere", "0 different calibrations"),
        ("calibration.statistics", "--draws 0", "--draws: given 0; expected 1 or more"),
        ("goals", "--only nonsense", "there is no goal 'nonsense'"),
        ("goals", "--blocks 0", "--blocks: given 0"),
        ("goals", "--from nowhere", "holds no record"),
        ("goals", "--device tpu", "given 'tpu'"),
        ("gpu", "--only nothing", "--only: given nothing; expected doctor, verify"),
        ("mutation", "mtsaa", "no package or module 'mtsaa'; expected some of"),
        ("mutation", "--sample 0", "--sample: given 0; expected a number above 0"),
    ],
)
def test_a_mistake_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, arguments: str, says: str
) -> None:
    monkeypatch.chdir(tmp_path)
    app = importlib.import_module(f"suites.programs.{program}.__main__").app
    done = CliRunner().invoke(app, arguments)
    assert done.exit_code == 2
    assert says in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
