"""The verifier's own checks, one by one: a golden file or a batch against the oracle each."""

from __future__ import annotations

from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from harness.registry import builtins
from harness.verify.batches import Batch, batches
from harness.verify.check import check_drawn
from harness.verify.golden import check_one, load
from reference_impls.mechanism import Implementation, Mechanism, Unsupported
from suites.programs.mutation.units import ROOT, Unit

GOLDENS = Path(__file__).parents[2] / "harness" / "verify" / "golden"
SHORT = 65
"""Longest batches in half precision; float64 and float32 see all."""
SHORT_SHARED = 7
"""Longest batches for a module that all mechanisms share."""

Step = tuple[str, ...]


class Failed(Exception):
    """A check found something wrong; the message says what."""


def _find(name: str) -> tuple[Mechanism, Implementation]:
    mechanism, _, implementation = name.partition(".")
    found = builtins()[mechanism]
    return found, found.implementation(implementation)


@cache
def _batches(name: str, dtype: str) -> dict[str, Batch]:
    return {batch.label: batch for batch in batches(*_find(name), dtype)}


def _mechanisms(unit: Unit) -> list[Mechanism]:
    """Those of the package; of a shared module, those whose package names it."""
    if unit.is_package:
        return [m for m in builtins().values() if m.folder == f"reference_impls.{unit.name}"]
    using = {
        f"reference_impls.{file.parent.name}"
        for file in ROOT.glob("*/*.py")
        if f"reference_impls.{unit.name}" in file.read_text(encoding="utf-8")
    }
    return [m for m in builtins().values() if m.folder in using]


def steps(unit: Unit) -> Iterator[Step]:
    """All of the verifier's checks that concern a unit."""
    for mechanism in _mechanisms(unit):
        goldens = [
            p
            for kind in (*mechanism.goldens, *mechanism.part_goldens)
            for p in sorted((GOLDENS / kind).glob("*.npz"))
        ]
        for implementation in mechanism.implementations:
            if "cpu" not in implementation.devices:
                continue
            name = f"{mechanism.name}.{implementation.name}"
            for path in goldens:
                yield "golden", f"{path.parent.name}/{path.name}", name, "f64"
            for dtype in ("f64", "f32", "bf16") if unit.is_package else ("f64",):
                longest = SHORT if dtype == "bf16" else 10**9
                longest = longest if unit.is_package else SHORT_SHARED
                for label, batch in _batches(name, dtype).items():
                    if max(batch.lengths) <= longest:
                        yield "trial", label, name, dtype


def perform(step: Step) -> None:
    """Run one check.

    Raises
    ------
    Failed
        If it finds anything wrong.
    """
    kind, what, name, dtype = step
    mechanism, implementation = _find(name)
    if kind == "trial":
        batch = _batches(name, dtype)[what]
        bad = [d for d in check_drawn(mechanism, implementation, batch, dtype, "cpu") if not d.ok]
        if bad:
            raise Failed(f"{bad[0].what}: error {bad[0].error:.1e}, budget {bad[0].budget:.1e}")
        return
    row: dict[str, Any] = check_one(load(GOLDENS / what), mechanism, implementation, dtype)
    if row["verdict"] == "unsupported":
        raise Unsupported(row["detail"])
    if row["verdict"] != "ok":
        raise Failed(f"{row['detail']}: error {row['error']:.1e}, at most {row['tolerance']:.1e}")
