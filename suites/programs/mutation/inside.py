"""In the child: run the checks on the code as it is, or on a mutant up to the first that fails."""

from __future__ import annotations

import itertools
import os
import time
from collections.abc import Sequence
from typing import Any

import torch

from harness.build import set_tf32
from reference_impls.mechanism import Unsupported
from suites.programs.mutation import steps, tests
from suites.programs.mutation.relevance import TEST, traced
from suites.programs.mutation.units import ROOT, module_name, short, units
from suites.support.planting import Planted


def _settle(interpreted: bool = False) -> None:
    if interpreted:
        os.environ["TRITON_INTERPRET"] = "1"
    torch.set_num_threads(1)
    set_tf32(False)


def _said(error: BaseException) -> str:
    first = (str(error).splitlines() or [""])[0]
    return f"{type(error).__name__}: {first}"[:300]


def _files() -> dict[str, str]:
    return {str(path): short(path) for unit in units().values() for path in unit.files}


def baseline_steps(unit: str) -> dict[str, Any]:
    """Run the verifier's checks of a unit on the code as it is.

    Returns
    -------
    dict
        ``ran``: check, seconds and lines of each; ``failed``: those that fail without any mutation.
    """
    _settle()
    ran, failed, files = [], [], _files()
    for step in steps.steps(units()[unit]):
        began = time.perf_counter()
        with traced(files) as lines:
            try:
                steps.perform(step)
            except Unsupported:
                continue
            except Exception as error:
                failed.append([" ".join(step), _said(error)])
                continue
        seconds = time.perf_counter() - began
        told = {name: sorted(rows) for name, rows in lines.items()}
        ran.append({"check": list(step), "seconds": seconds, "lines": told})
    return {"ran": ran, "failed": failed}


def baseline_tests(file: str) -> dict[str, Any]:
    """Run the tests of one file on the code as it is; see `baseline_steps`."""
    _settle(file == tests.INTERPRETED)
    plugin = tests.run([file], None, _files())
    ran = [
        {
            "check": [TEST, file, test["id"]],
            **{key: test[key] for key in ("seconds", "lines", "compiles")},
        }
        for test in plugin.ran
        if test["id"] in plugin.passed and test["lines"]
    ]
    return {"ran": ran, "failed": [list(f) for f in plugin.failed]}


def mutant(path: str, source: str, checks: Sequence[Sequence[str]]) -> dict[str, str]:
    """Run checks on a mutant, in their order, up to the first that fails.

    Parameters
    ----------
    path : str
        Of the changed file, below `reference_impls`.
    source : str
        Its changed text.
    checks : sequence of checks
        Steps and tests; neighbouring tests share one run of pytest. Those that are interpreted
        by themselves.

    Returns
    -------
    dict
        ``verdict`` (killed, incompetent, survived), ``by`` which check, ``detail``.

    Raises
    ------
    NotPlanted
        If what ran was not the changed text.
    """
    _settle(checks[0][:2] == [TEST, tests.INTERPRETED])
    file = ROOT / path
    planted = Planted(module_name(file), file, source)
    try:
        planted.plant()
    except BaseException as error:
        return {"verdict": "incompetent", "by": "its import", "detail": _said(error)}
    found = _first_failure(checks)
    planted.confirm()
    return found


def _first_failure(checks: Sequence[Sequence[str]]) -> dict[str, str]:
    for are_tests, group in itertools.groupby(checks, key=lambda check: check[0] == TEST):
        some = list(group)
        found = _failed_test(some) if are_tests else _failed_step(some)
        if found is not None:
            by, detail = found
            return {"verdict": "killed", "by": by, "detail": detail[:300]}
    return {"verdict": "survived", "by": "", "detail": f"{len(checks)} checks passed"}


def _failed_step(checks: Sequence[Sequence[str]]) -> tuple[str, str] | None:
    for check in checks:
        try:
            steps.perform(tuple(check))
        except BaseException as error:
            return " ".join(check), _said(error)
    return None


def _failed_test(checks: Sequence[Sequence[str]]) -> tuple[str, str] | None:
    chosen = [id for *_, id in checks]
    plugin = tests.run(sorted({file for _, file, _ in checks}), chosen, {})
    if not plugin.failed and plugin.finished < len(chosen):
        return "the tests", f"{plugin.finished} of {len(chosen)} tests were run"
    return plugin.failed[0] if plugin.failed else None
