"""Modules of other people, well and badly made, to win or by mistake: each gets the right word."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.isolate import Interpreter
from harness.registry import Registry
from harness.verify.unaided import history
from harness.verify.unaided.judge import CHECKS, check_properties
from suites.support.misbehaving.table import (
    BEGIN,
    END,
    FAMILY,
    Noticed,
    honest,
    markdown,
    without_numbers,
)

PAGE = Path(__file__).parents[3] / "docs" / "verify.md"
VERIFIED = [one for one in FAMILY if one.command == "verify"]

torch.set_num_threads(1)


@pytest.fixture(scope="module", autouse=True)
def _another_process_is_forked() -> Iterator[None]:
    """From one that has loaded torch once for all; its addresses and its hashes are others too."""
    with (
        Interpreter(preload=("torch", history.__name__)) as loaded,
        pytest.MonkeyPatch.context() as patch,
    ):
        patch.setattr(history, "run", loaded.run)
        yield


def judged(one: Noticed, *skip: str) -> dict[str, Any]:
    """What verify says of a module, without some of its checks."""
    mechanism, implementation = Registry(one.given).find(one.name)
    return check_properties(mechanism, implementation, one.dtype, "cpu", skip)


@pytest.mark.parametrize("one", VERIFIED, ids=str)
def test_a_mistake_is_told_by_what_was_changed_and_what_moved(one: Noticed) -> None:
    row = judged(one)
    assert row["verdict"] in ("wrong", "void"), row
    checks = one.check.split(" or ")
    assert row["found_by"] in checks, row["detail"]
    if len(checks) == 1:
        assert without_numbers(row["detail"]) == without_numbers(one.reason)


@pytest.mark.parametrize("dtype", ["f64", pytest.param("f32", marks=pytest.mark.nightly)])
@pytest.mark.parametrize("module", honest())
def test_what_only_looks_suspicious_passes(module: str, dtype: str) -> None:
    # As in a process of its own: what is timed compiled may not be compiled anew without end.
    with torch._dynamo.config.patch(fail_on_recompile_limit_hit=False):
        row = judged(Noticed(module, "verify", "", "", dtype))
    assert row["verdict"] == "ok", row["detail"]


@pytest.mark.parametrize("check", CHECKS)
def test_without_a_check_somebody_passes(check: str) -> None:
    """No check is there that others could stand in for."""
    rows = []
    for one in (one for one in VERIFIED if one.check == check):
        rows.append(judged(one, check))
        if rows[-1]["verdict"] == "ok":
            break
    assert rows[-1]["verdict"] == "ok", rows


def test_the_table_of_the_page_is_the_generated_one() -> None:
    assert f"{BEGIN}\n{markdown()}\n{END}" in PAGE.read_text(encoding="utf-8"), (
        "run: python -m suites.support.misbehaving.table, and put it into docs/verify.md"
    )
