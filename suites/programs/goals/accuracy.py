"""How large the error of an implementation gets when all scores grow.

The batches, the oracle and the measure of error are those of ``attnbench verify``; only the factors
on the scores are more. One length fills a tile and one goes over several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

from harness.build import set_tf32
from harness.isolate import Call, Limits, Mode, run_all
from harness.measure import call
from harness.records import journal, schema
from harness.registry import Registry, code_hash
from harness.verify.batches import Batch, ragged
from harness.verify.budget import worst
from harness.verify.check import check_drawn
from reference_impls.mechanism import BadOption
from suites.programs.goals.goal import Goal

KIND = "accuracy"
LENGTHS = (65, 257)
OTHER_SCALE = "identity"
"""The variant with the other scale function, where a mechanism has one."""


def errors(
    name: str, dtype: str, device: str, scales: Sequence[float], given: Sequence[str] = ()
) -> dict[str, Any]:
    """Largest error of the output at each factor on the scores. Runs in a child.

    Returns
    -------
    dict
        ``by_scale``, a list of [factor, largest error relative to max(1, max|expected|)] (infinite
        where anything is not finite); ``gradient_error``, the largest of all gradients;
        ``margin``, the smallest of budget over error among all of them; ``what`` is meant by it.

    Raises
    ------
    BadOption
        If the mechanism names no weights that scale its scores.
    Unsupported
        From the implementation.
    """
    if device == "cpu":
        torch.set_num_threads(1)
    set_tf32(False)
    mechanism, implementation = Registry(given).find(name)
    if not mechanism.score_weights:
        raise BadOption(f"{mechanism.name} names no weights that scale its scores: not tested")
    configurations = [{}, mechanism.variants.get(OTHER_SCALE, {})]
    by_scale: list[list[float]] = []
    gradients, everything = [0.0], []
    for scale in scales:
        found = [0.0]
        for options in configurations[: 2 if configurations[1] else 1]:
            for n in LENGTHS:
                label = f"scores times {scale:g}, {dict(options) or 'as it is'}, N={n}"
                trial = Batch(label, options, ragged(n), score_scale=scale)
                deviations = check_drawn(mechanism, implementation, trial, dtype, device)
                found += [d.error for d in deviations if not d.gradient]
                gradients += [d.error for d in deviations if d.gradient]
                everything += deviations
        by_scale.append([scale, max(found)])
    least = worst(everything)
    return {
        "by_scale": by_scale,
        "gradient_error": max(gradients),
        "margin": least.margin,
        "what": least.what,
    }


def case_of(goal: Goal) -> str:
    """How a record names the implementation and the factors."""
    scales = ";".join(f"{scale:g}" for scale in goal.score_scales)
    return f"{goal.measured}-{goal.dtype}-{goal.device}-scores {scales}"


@dataclass(frozen=True)
class Accuracy:
    """One implementation whose error is looked at, and the key of its record."""

    goal: Goal
    key: str
    code: str


def accuracies(
    goals: Sequence[Goal], known: Registry, fingerprint: Mapping[str, Any]
) -> list[Accuracy]:
    """What is to be looked at on the fingerprint's device, with keys."""
    found = []
    ours = schema.digest(Path(__file__).read_text("utf-8"))
    for goal in goals:
        if goal.kind == KIND and goal.device == fingerprint["device"]:
            code = code_hash(known.find(goal.measured)[0], "verify") + ours
            key = schema.key(KIND, case_of(goal), 0, code, fingerprint)
            found.append(Accuracy(goal, key, code))
    return found


def missing(wanted: Sequence[Accuracy], folder: Path) -> list[Accuracy]:
    """Those that no earlier run has finished; a crash is tried again."""
    known = journal.read(folder).finished()
    return [a for a in wanted if known.get(a.key, {}).get("status", "crash") == "crash"]


def run(
    todo: Sequence[Accuracy],
    known: Registry,
    folder: Path,
    head: Mapping[str, Any],
    limit_seconds: float,
    on_step: Callable[[], None],
) -> None:
    """Look at errors, each implementation in a child of its own, and write a record of each.

    Parameters
    ----------
    head : mapping
        Of the journal's session; names the ``fingerprint``.
    """
    if not todo:
        return
    fingerprint = head["fingerprint"]
    limits = Limits(seconds=limit_seconds)
    calls = [
        (
            one,
            Call(
                f"{__name__}:{errors.__name__}",
                {
                    "name": one.goal.measured,
                    "dtype": one.goal.dtype,
                    "device": one.goal.device,
                    "scales": list(one.goal.score_scales),
                    "given": list(known.extra),
                },
                limits,
            ),
        )
        for one in todo
    ]
    mode: Mode = "fork" if fingerprint["device"] == "cpu" else "persistent"
    with journal.Writer(folder, head) as writer:
        for one, outcome in run_all(calls, 1, mode):
            writer.append(
                {
                    "kind": KIND,
                    "key": one.key,
                    "case": case_of(one.goal),
                    "code": one.code,
                    "fingerprint": schema.digest(fingerprint),
                    **call.record(outcome),
                }
            )
            on_step()
