"""How large the error of an implementation gets when all scores grow.

The batches, the oracle and the measure of error are those of ``attnbench verify``; only the factors
on the scores are more. One length fills a tile and one goes over several.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
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
from suites.programs.goals.plan import Goal

KIND = "accuracy"
LENGTHS = (65, 257)
_CRASHED = {"status": "crash"}
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
    other = mechanism.variants.get(OTHER_SCALE)
    configurations = [{}, other] if other else [{}]
    by_scale: list[list[float]] = []
    everything = []
    for scale in scales:
        found = []
        for options, n in product(configurations, LENGTHS):
            label = f"scores times {scale:g}, {dict(options) or 'as it is'}, N={n}"
            trial = Batch(label, options, ragged(n), score_scale=scale)
            found += check_drawn(mechanism, implementation, trial, dtype, device)
        by_scale.append([scale, max(d.error for d in found if not d.gradient)])
        everything += found
    least = worst(everything)
    return {
        "by_scale": by_scale,
        "gradient_error": max(d.error for d in everything if d.gradient),
        "margin": least.margin,
        "what": least.what,
    }


def case_of(goal: Goal) -> str:
    """How a record names the implementation and the factors."""
    scales = ";".join(f"{scale:g}" for scale in goal.score_scales)
    return f"{goal.measured}-{goal.dtype}-{goal.device}-scores {scales}"


@dataclass(frozen=True)
class Accuracies:
    """The goals of accuracy on the fingerprint's device, and what a journal holds of them."""

    goals: Sequence[Goal]
    known: Registry
    folder: Path
    fingerprint: Mapping[str, Any]

    def _code(self, goal: Goal) -> str:
        own = schema.digest(Path(__file__).read_text("utf-8"))
        return code_hash(self.known.find(goal.measured)[0], "verify") + own

    def _key(self, goal: Goal) -> str:
        return schema.key(KIND, case_of(goal), 0, self._code(goal), self.fingerprint)

    def records(self) -> dict[str, dict[str, Any]]:
        """What is finished, by case."""
        known = journal.read(self.folder).finished()
        return {case_of(g): known[key] for g in self.goals if (key := self._key(g)) in known}

    def missing(self) -> list[Goal]:
        """Those that no earlier run has finished; a crash is tried again."""
        known = self.records()
        return [g for g in self.goals if known.get(case_of(g), _CRASHED)["status"] == "crash"]

    def run(
        self, head: Mapping[str, Any], limit_seconds: float, on_step: Callable[[], None]
    ) -> None:
        """Look at what is missing, each in a child of its own, and write a record of each."""
        calls = []
        for goal in self.missing():
            arguments = {
                "name": goal.measured,
                "dtype": goal.dtype,
                "device": goal.device,
                "scales": list(goal.score_scales),
                "given": list(self.known.extra),
            }
            call_ = Call(f"{__name__}:{errors.__name__}", arguments, Limits(seconds=limit_seconds))
            calls.append((goal, call_))
        if not calls:
            return
        mode: Mode = "fork" if self.fingerprint["device"] == "cpu" else "persistent"
        with journal.Writer(self.folder, {**head, "fingerprint": self.fingerprint}) as writer:
            for goal, outcome in run_all(calls, 1, mode):
                writer.append(
                    {
                        "kind": KIND,
                        "key": self._key(goal),
                        "case": case_of(goal),
                        "code": self._code(goal),
                        "fingerprint": schema.digest(self.fingerprint),
                        **call.record(outcome),
                    }
                )
                on_step()
