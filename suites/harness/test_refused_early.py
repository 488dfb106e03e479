"""What can't be done is refused before anything is trained; and help texts are shown whole."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.text import Text

from harness.cli import app
from harness.cli import run as cli

TASK = "mirrored_summation[length=4,width=4,k=2,train=200,test=100]"


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("train", "mtsa", "--task", TASK, "--json", "no/such.json"),
         "can't write --json no/such.json"),
        (("train", "mtsa", "--task", TASK, "--recipe", "paper"),
         f"given 'paper'; expected NAME=VALUE or MODEL:NAME=VALUE; {TASK} has no recipe with a"),
        (("sweep", "--models", "none", "--tasks", TASK, "--vectors", "/no/such/file", "--dry-run"),
         "--vectors: "),
        (("sweep", "--models", "mtsa[foo=1]", "--tasks", TASK, "--dry-run"),
         f"mtsa.fused[foo=1] on {TASK} can't be built: "),
    ],
)  # fmt: skip
def test_a_mistake_is_told_before_anything_is_done(
    arguments: tuple[str, ...], says: str, tmp_path: Path, capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:  # fmt: skip
    monkeypatch.chdir(tmp_path)
    assert cli([*arguments, "--device", "cpu"]) == 2
    assert says in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def _helps(command: Any, path: str) -> Iterator[tuple[str, str]]:
    for text in (command.help, *(getattr(p, "help", None) for p in command.params)):
        if text:
            yield path, text
    for name, one in getattr(command, "commands", {}).items():
        yield from _helps(one, f"{path} {name}")


def test_no_example_in_a_help_text_is_taken_for_markup() -> None:
    helps = list(_helps(typer.main.get_command(app), "attnbench"))
    assert len(helps) > 100
    for path, text in helps:
        shown = Text.from_markup(text).plain
        written = re.sub(r"\[/?(bold)?\]", "", text).replace("\\[", "[")
        assert shown == written, path
