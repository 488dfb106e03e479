"""Compilation: none of it in the timed region, and its time apart from the warm-up's."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from harness.isolate import Interpreter, Limits, Outcome

TASK = "suites.support.clocked:time_compiled"


@pytest.fixture(scope="module")
def interpreter() -> Iterator[Interpreter]:
    """Imports dynamo once for all."""
    with Interpreter(preload=("torch", "torch._dynamo", "suites.support.clocked")) as one:
        yield one


def _timed(interpreter: Interpreter, name: str, **more: bool | str) -> Outcome:
    return interpreter.run(TASK, {"name": name, **more}, Limits(seconds=300))


def test_recompiling_in_the_timed_region_is_wrong(interpreter: Interpreter) -> None:
    outcome = _timed(interpreter, "Changing")
    assert outcome.status == "wrong", outcome
    assert "recompilations in the timed region" in outcome.detail
    assert outcome.value["recompiles"] >= 2
    assert "samples" not in outcome.value
    assert "median" not in outcome.value


def test_recompiling_once_is_wrong_as_well(interpreter: Interpreter) -> None:
    outcome = interpreter.run("suites.support.clocked:time_compiled_once_more", {})
    assert (outcome.status, outcome.value) == ("wrong", {"recompiles": 1})
    assert outcome.detail == "1 recompilation in the timed region"


def test_what_settles_while_warming_up_is_timed(interpreter: Interpreter) -> None:
    outcome = _timed(interpreter, "Settling")
    assert outcome.status == "ok", outcome
    assert outcome.value["recompiles"] == 0
    assert len(outcome.value["samples"]) >= 5


def test_going_on_eager_where_compiling_gave_up_is_not_taken_for_compiled(
    interpreter: Interpreter,
) -> None:
    outcome = _timed(interpreter, "Forgetful")
    assert outcome.status == "unsupported", outcome
    assert "torch.compile gives up" in outcome.detail


def test_compiling_is_recorded_apart_from_warming_up(interpreter: Interpreter) -> None:
    outcome = _timed(interpreter, "Plain", slow=True)
    assert outcome.status == "ok", outcome
    # The compiler sleeps for a second; the calls take microseconds.
    assert outcome.value["compile_seconds"] >= 1.0
    assert 0 < outcome.value["warmup_seconds"] < 1.0


@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("beside", ["Plain", "Scaled"])
def test_two_that_are_timed_in_turn_are_compiled_once_each(
    interpreter: Interpreter, beside: str, first: bool
) -> None:
    """Whichever is made first: the other must not throw its code away."""
    outcome = _timed(interpreter, "Plain", beside=beside, beside_first=first)
    assert outcome.status == "ok", outcome
    assert outcome.value["recompiles"] == 0
    assert outcome.value["ratio"] > 0
    assert outcome.value["beside"].startswith(beside)


def test_eager_has_a_warm_up_and_no_compilation(interpreter: Interpreter) -> None:
    arguments = {
        "case": "Sleepy.module-B2-N4-D8-f32-forward-cpu",
        "given": ["suites.support.clocked:Sleepy"],
    }
    outcome = interpreter.run("harness.measure.clock:time_case", arguments)
    assert outcome.status == "ok", outcome
    assert outcome.value["compile_seconds"] == 0
    assert outcome.value["warmup_seconds"] >= 0.3
    assert outcome.value["recompiles"] == 0
    assert max(outcome.value["samples"]) < 0.3
