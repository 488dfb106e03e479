"""Exact claims of the papers, checked by computing: Algorithm 1, numbers of weights and heads.

``attnbench verify`` runs them and writes a record for each; ``attnbench claims`` reads those. What
is checked stands in ``checks.toml``. Imports no torch: the checks run in children.
"""

from __future__ import annotations

import hashlib
import tomllib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeAlias

from harness.isolate import Call, Limits, run_all
from harness.records import journal, schema
from harness.registry import builtins, code_hash
from harness.verify.run import judged

HERE = Path(__file__).parent
LIMIT_SECONDS = 300.0

Result: TypeAlias = Mapping[str, Any]
"""What a check returns: ``verdict`` ("ok" or "wrong"), ``detail``, ``comparisons``; ``value`` where
there is a number, and ``parts``, each with a verdict and detail of its own."""


@dataclass(frozen=True)
class Check:
    """One exact check."""

    name: str  # as claims call it
    summary: str  # one line
    call: str  # dotted function that a child runs; see `Result`
    mechanisms: tuple[str, ...]  # whose code it depends on
    arguments: Mapping[str, Any] = field(default_factory=dict)
    # Whether a failure means that a claim of equality or of counts does not hold here; the others
    # only report.
    exact: bool = True


_DECLARED = tomllib.loads((HERE / "checks.toml").read_text(encoding="utf-8"))
MODELS: Mapping[str, Mapping[str, Any]] = _DECLARED["models"]
"""Row of a paper's table -> the model, and the weights that the authors' program has."""
CHECKS: tuple[Check, ...] = (
    *(
        Check(**{**declared, "mechanisms": tuple(declared["mechanisms"])})
        for declared in _DECLARED["check"]
    ),
    *(
        Check(
            f"weights: {row}",
            f"weights of the row {row}",
            "harness.verify.exact.counts:row",
            (model["mechanism"], "source2token"),
            model,
        )
        for row, model in MODELS.items()
    ),
)


def concerning(mechanisms: set[str]) -> list[Check]:
    """The checks of some mechanisms: those whose first one is among them."""
    return [check for check in CHECKS if check.mechanisms[0] in mechanisms]


def code_of(check: Check) -> str:
    """Hash of the mechanisms' source and of the checks'."""
    own = hashlib.sha256()
    for file in sorted([*HERE.glob("*.py"), *HERE.glob("*.toml")]):
        own.update(file.name.encode() + file.read_bytes())
    known = builtins()
    parts = [code_hash(known[name], "verify") for name in check.mechanisms]
    return schema.digest([*parts, own.hexdigest()])


def run(
    checks: Sequence[Check],
    fingerprint: Mapping[str, Any],
    on_record: Callable[[Mapping[str, Any]], None] = lambda record: None,
    writer: journal.Writer | None = None,
) -> list[dict[str, Any]]:
    """Run checks and return their records; they compute on the CPU whatever the device.

    Parameters
    ----------
    fingerprint : mapping
        Of the device under which the records stand.
    on_record : callable
        Called with each record as it is known.
    writer : journal.Writer, optional
        Where records are written.
    """
    limits = Limits(seconds=LIMIT_SECONDS)
    calls = [(check, Call(check.call, check.arguments, limits)) for check in checks]
    records = []
    for check, outcome in run_all(calls, 1):
        record: dict[str, Any] = {
            **schema.head("exact", check.name, code_of(check), fingerprint),
            **{"check": check.name, "summary": check.summary, "exact": check.exact},
            **judged(outcome),
        }
        records.append(writer.append(record) if writer else record)
        on_record(records[-1])
    return records
