"""Measure what is missing: a fresh interpreter per block, every arm in a fork, in random order."""

from __future__ import annotations

import contextlib
import os
import random
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import groupby, product
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.isolate import Interpreter, Limits
from harness.measure import device as devices
from harness.measure.call import PRELOAD
from harness.records import journal, schema
from harness.registry import harness_hash
from suites.programs.calibration.plan import (
    ARMS,
    BASE_CALLS,
    Arm,
    Plan,
    Problem,
    from_description,
)

KIND = "calibration"
CALL = "suites.programs.calibration.arms:time_arm"
LIMIT_SECONDS = 60.0
SPIN = (
    "import os, sys\n"
    "from harness.isolate.processes import tie_to\n"
    "tie_to(int(sys.argv[1]))\n"
    "print(flush=True)\n"
    "while True: pass\n"
)
DIGITS = 4
"""Significant digits of a sample on disk: half a thousandth at worst, and a third of the bytes."""

TimeArm = Callable[[Interpreter, Problem, Arm], Mapping[str, Any]]


@dataclass(frozen=True)
class Passage:
    """What is measured and recorded at a time: the problems once, in one block."""

    condition: str
    repeat: int
    block: int
    key: str


def missing(
    plan: Plan, conditions: list[str], folder: Path, fingerprint: Mapping[str, Any]
) -> list[Passage]:
    """Passages that no earlier run has finished, block by block under each condition."""
    done = {k for k, r in journal.read(folder).finished().items() if r.get("status") == "ok"}
    code = harness_hash("measure") + schema.digest(Path(__file__).with_name("arms.py").read_text())
    found = []
    for condition, block, repeat in product(conditions, range(plan.blocks), range(plan.repeats)):
        key = schema.key(KIND, f"{plan.id}-{condition}-{repeat}", block, code, fingerprint)
        if key not in done:
            found.append(Passage(condition, repeat, block, key))
    return found


def load(folder: Path, plan_id: str = "") -> tuple[Plan, list[dict[str, Any]], str, list[str]]:
    """Plan, finished records, where and when they were made, and warnings of a folder.

    Raises
    ------
    UsageError
        If there is no calibration in the folder, or more than one and none is named.
    """
    found = journal.read(folder)
    plans = {s["plan_id"]: s["plan"] for s in found.sessions.values() if s.get("purpose") == KIND}
    if not plan_id and len(plans) != 1:
        raise UsageError(
            f"{folder} holds {len(plans)} different calibrations; expected one: give a folder of "
            "its own to each"
        )
    plan_id = plan_id or next(iter(plans))
    if plan_id not in plans:
        raise UsageError(f"{folder} holds no record of this calibration")
    records = [
        r
        for r in found.records
        if r["kind"] == KIND and r["plan_id"] == plan_id and r["status"] == "ok"
    ]
    if len({(r["condition"], r["repeat"], r["block"]) for r in records}) < len(records):
        raise UsageError(
            f"{folder} holds this calibration twice (of other code or another machine); give a "
            "folder of its own to each"
        )
    of_plan = [s for s in found.sessions.values() if s.get("plan_id") == plan_id]
    return from_description(plans[plan_id]), records, _made(of_plan), found.warnings


def _made(sessions: Sequence[Mapping[str, Any]]) -> str:
    """``AMD EPYC, torch 2.13.0+cpu; commits 6013e4735f; begun 2026-11-21.``"""
    prints = [s.get("fingerprint") or {} for s in sessions]
    machines = [f"{f.get('model', '?')}, torch {f.get('torch', '?')}" for f in prints]
    commits = [schema.short_commit(s.get("environment") or {}) for s in sessions]
    first = min(str(s.get("at")) for s in sessions)[:10]
    where, of = ("; ".join(dict.fromkeys(one)) for one in (machines, commits))
    return f"{where}; commits {of}; begun {first}."


@contextlib.contextmanager
def kept_busy(condition: str) -> Iterator[int | None]:
    """Keep one core busy while the condition says so; the process, whose id is given, dies with us.

    Raises
    ------
    RuntimeError
        If it did not start, or ended by itself.
    """
    if condition != "busy":
        yield None
        return
    arguments = [sys.executable, "-c", SPIN, str(os.getpid())]
    with subprocess.Popen(arguments, stdout=subprocess.PIPE) as spinner:
        try:
            assert spinner.stdout is not None
            if not spinner.stdout.readline():
                raise RuntimeError("the process that keeps a core busy did not start")
            yield spinner.pid
            if spinner.poll() is not None:
                raise RuntimeError("the process that keeps a core busy has ended")
        finally:
            spinner.kill()


def run(
    plan: Plan,
    todo: list[Passage],
    folder: Path,
    fingerprint: Mapping[str, Any],
    on_passage: Callable[[Mapping[str, Any]], None],
    time_arm: TimeArm | None = None,
) -> None:
    """Measure passages, those of one condition and block together, and write a record of each.

    ``on_passage`` gets every record; ``time_arm`` times one arm: a test gives made-up samples.
    """
    time_arm = time_arm or partial(_time_arm, plan)
    environment = {
        "environment": devices.environment(),
        "fingerprint": dict(fingerprint),
        "purpose": KIND,
        "plan": plan.described(),
        "plan_id": plan.id,
    }
    with journal.Writer(folder, environment) as writer:
        for condition, of_condition in groupby(todo, key=lambda p: p.condition):
            with kept_busy(condition):
                for _, of_block in groupby(of_condition, key=lambda p: p.block):
                    with Interpreter("fork", preload=(*PRELOAD, "harness.registry")) as interpreter:
                        for passage in of_block:
                            record = _measure(plan, passage, interpreter, time_arm)
                            on_passage(writer.append(record))


def _measure(
    plan: Plan, passage: Passage, interpreter: Interpreter, time_arm: TimeArm
) -> dict[str, Any]:
    """Time all arms of a passage in random order."""
    before = devices.machine_state()
    todo = [(problem, arm) for problem in plan.of_repeat(passage.repeat) for arm in ARMS]
    random.Random(passage.key).shuffle(todo)
    arms: dict[str, dict[str, Mapping[str, Any]]] = {}
    for problem, arm in todo:
        arms.setdefault(problem.name, {})[arm.name] = time_arm(interpreter, problem, arm)
    failed = [
        f"{problem}, {arm}: {value['detail']}"
        for problem, by_arm in arms.items()
        for arm, value in by_arm.items()
        if "detail" in value
    ]
    return {
        "kind": KIND,
        "key": passage.key,
        "plan_id": plan.id,
        "condition": passage.condition,
        "repeat": passage.repeat,
        "block": passage.block,
        "interpreter": interpreter.id,
        "status": "crash" if failed else "ok",
        "before": before,
        "after": devices.machine_state(),
        "arms": arms,
        **({"detail": failed[0]} if failed else {}),
    }


def _time_arm(plan: Plan, interpreter: Interpreter, problem: Problem, arm: Arm) -> dict[str, Any]:
    """An arm timed in a fork, under the allocator that bench's times are taken with."""
    arguments = {
        "work": problem.work,
        "sizes": list(problem.sizes),
        "calls": arm.calls,
        "base_calls": BASE_CALLS,
        "rounds": plan.rounds,
        "seconds": plan.seconds,
    }
    mallopt = devices.TIME_ALLOCATOR if sys.platform == "linux" else None
    outcome = interpreter.run(CALL, arguments, Limits(seconds=LIMIT_SECONDS), mallopt)
    if outcome.status != "ok":
        return {"detail": f"{outcome.status}: {outcome.detail}"}
    return compact(outcome.value)


def compact(value: Mapping[str, Any]) -> dict[str, Any]:
    """An arm as recorded: microseconds to four digits, and only waiting that there was."""
    return {
        "ratio": value["ratio"],
        "mine": _compact(value["mine"]),
        "base": _compact(value["base"]),
    }


def _compact(side: Mapping[str, Any]) -> dict[str, Any]:
    return {
        "inner": side["inner"],
        "us": [_rounded(s * 1e6) for s in side["samples"]],
        "waited_us": {str(i): _rounded(w * 1e6) for i, w in enumerate(side["waited"]) if w > 0},
    }


def _rounded(value: float) -> float:
    rounded = float(f"{value:.{DIGITS}g}")
    return int(rounded) if rounded.is_integer() else rounded
