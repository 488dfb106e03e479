"""What a terminal says of a finished run: how long it took, all its pieces together."""

from __future__ import annotations

import io
from types import SimpleNamespace
from typing import Any, cast

from rich.console import Console

from harness.cli.running import _Bar
from harness.cli.sweep_text import print_table
from harness.experiments.sweep import Sweep
from suites.support.fake_training import fake_run
from suites.support.made_up_records import RESULT

RESUMED: dict[str, Any] = {
    "kind": "run",
    "key": "k",
    "case": "mtsa trec seed 0",
    "model": "mtsa",
    "seed": 0,
    "status": "ok",
    **RESULT,
    "task_seconds": 40.0,
    "seconds": 3640.0,
    "resumed": 1,
}


def _said(record: dict[str, Any]) -> str:
    out = Console(file=io.StringIO(), width=200)
    with _Bar(out, {}) as bar:
        bar.finished(record)
    return cast(io.StringIO, out.file).getvalue()


def test_a_resumed_run_took_the_time_of_all_its_pieces(tmp_path: Any) -> None:
    assert "mtsa trec seed 0: ok in 60.7 min, 1 epochs" in _said(RESUMED)
    run = fake_run(tmp_path, 0)
    sweep = SimpleNamespace(entries=[SimpleNamespace(run=run)], recipes={run.key: ""})
    out = Console(file=io.StringIO(), width=200)
    print_table(out, cast(Sweep, sweep), {run.key: RESUMED})
    assert "3640.0" in cast(io.StringIO, out.file).getvalue()


def test_a_run_of_which_no_time_is_known_is_shown_without_one(tmp_path: Any) -> None:
    record = {k: v for k, v in RESUMED.items() if k not in ("task_seconds", "seconds", "case")}
    assert _said({**record, "status": "crash"}) == "mtsa seed 0: crash\n"
