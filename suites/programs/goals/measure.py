"""Measure what is missing: sessions of the harness, and errors under growing scores."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.isolate import USAGE, Interpreter, Limits
from harness.measure import blocks
from harness.measure import device as devices
from harness.measure.session import Session
from harness.records import journal, schema
from harness.registry import Registry, code_hash
from suites.programs.goals.goal import Goal

KIND = "accuracy"
CALL = "suites.programs.goals.accuracy:errors"
PURPOSE = "goals"

OnStep = Callable[[str], None]
"""Called with a few words after everything that was measured."""


@dataclass(frozen=True)
class Accuracy:
    """One implementation whose error is looked at, and the key of its record."""

    goal: Goal
    key: str
    code: str

    @property
    def case(self) -> str:
        """How a record names it."""
        goal = self.goal
        scales = ";".join(f"{scale:g}" for scale in goal.score_scales)
        return f"{goal.measured}-{goal.dtype}-{goal.device}-scores {scales}"


def accuracies(
    goals: Sequence[Goal], known: Registry, fingerprint: Mapping[str, Any]
) -> list[Accuracy]:
    """What is to be looked at on the fingerprint's device, with keys."""
    found = []
    for goal in goals:
        if goal.kind == KIND and goal.device == fingerprint["device"]:
            ours = schema.digest(Path(__file__).with_name("accuracy.py").read_text("utf-8"))
            code = code_hash(known.find(goal.measured)[0], "verify") + ours
            case = Accuracy(goal, "", code).case
            found.append(Accuracy(goal, schema.key(KIND, case, 0, code, fingerprint), code))
    return found


def accuracies_missing(todo: Sequence[Accuracy], folder: Path) -> list[Accuracy]:
    """Those that no earlier run has finished; a crash is tried again."""
    known = journal.read(folder).finished()
    return [a for a in todo if known.get(a.key, {}).get("status", "crash") == "crash"]


def run(session: Session, on_step: OnStep) -> None:
    """Do what is missing of a session, in fresh interpreters, as ``attnbench bench`` does."""
    blocks.run(
        session,
        lambda step, record: on_step(f"{record['case']} block {step.block + 1}"),
        {"environment": devices.environment(), "purpose": PURPOSE},
    )


def run_accuracies(
    todo: Sequence[Accuracy],
    known: Registry,
    folder: Path,
    fingerprint: Mapping[str, Any],
    limit_seconds: float,
    on_step: OnStep,
) -> None:
    """Look at errors, each implementation in a child of its own, and write a record of each."""
    if not todo:
        return
    head = {
        "environment": devices.environment(),
        "purpose": PURPOSE,
        "fingerprint": dict(fingerprint),
    }
    writer = journal.Writer(folder, head)
    try:
        with Interpreter("fork" if fingerprint["device"] == "cpu" else "persistent") as interpreter:
            for one in todo:
                goal = one.goal
                arguments = {
                    "name": goal.measured,
                    "dtype": goal.dtype,
                    "device": goal.device,
                    "scales": list(goal.score_scales),
                    "given": list(known.extra),
                }
                outcome = interpreter.run(CALL, arguments, Limits(seconds=limit_seconds))
                value = outcome.value if isinstance(outcome.value, dict) else {}
                record = {
                    "kind": KIND,
                    "key": one.key,
                    "case": one.case,
                    "code": one.code,
                    "fingerprint": schema.digest(dict(fingerprint)),
                    "status": "unsupported" if outcome.error == USAGE else outcome.status,
                    "detail": outcome.detail,
                    "task_seconds": outcome.seconds,
                    **value,
                }
                writer.append(record)
                on_step(one.case)
    finally:
        writer.close()
