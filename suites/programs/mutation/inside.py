"""In the child: run checks on the code as it is, or on a mutant up to the first that fails.

Checks are the verifier's own, one by one (a golden file or a batch against the oracle each: a
step), and the tests of the verify suite.
"""

from __future__ import annotations

import contextlib
import io
import itertools
import os
import random
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch
from hypothesis import Phase, settings

from harness.build import set_tf32
from harness.registry import builtins
from harness.verify.batches import Batch, batches
from harness.verify.check import check_drawn
from harness.verify.golden import check_one, load
from reference_impls.mechanism import Implementation, Mechanism, Unsupported
from suites.programs.mutation.draw import REPOSITORY, ROOT, Unit, short, units
from suites.programs.mutation.relevance import TEST, traced
from suites.support.patching import Planted

SUITES = Path(__file__).parents[2]
GOLDENS = SUITES / "harness" / "verify" / "golden"
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


LEFT_OUT = ("test_family", "test_golden", "test_implementations", "test_mutants", "test_oracle")
"""Beginnings of files' names. The first tries modules that are no mechanisms; the steps do the next
two, one check at a time; the fourth has mutants of its own; the last ones look at the oracles
alone."""

INTERPRETED = "suites/reference_impls/kernels/test_triton.py"
"""Is run in Triton's interpreter, which is chosen for a process before anything imports triton."""


def test_files() -> list[str]:
    """Files whose tests are run, from the repository's root."""
    folders = (SUITES / "reference_impls", SUITES / "harness" / "verify")
    files = sorted(path for folder in folders for path in folder.rglob("test_*.py"))
    found = [path for path in files if not path.stem.startswith(LEFT_OUT)]
    return [path.relative_to(REPOSITORY).as_posix() for path in found]


class _Plugin:
    """Run the chosen tests, or time and trace all of them."""

    def __init__(self, chosen: Collection[str] | None, files: Mapping[str, str]) -> None:
        places = None if chosen is None else {_bare(id): n for n, id in enumerate(chosen)}
        self.chosen = places
        self.files = files
        self.ran: dict[str, dict[str, Any]] = {}
        self.failed: list[tuple[str, str]] = []
        self.passed: set[str] = set()
        self.finished = 0

    def pytest_configure(self) -> None:
        """The same examples each time, and no time for a smaller one."""
        phases = (Phase.explicit, Phase.generate)
        settings.register_profile(
            "mutants", database=None, derandomize=True, deadline=None, phases=phases
        )
        settings.load_profile("mutants")

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.chosen is not None:
            items[:] = [item for item in items if _bare(item.nodeid) in self.chosen]
            items.sort(key=lambda item: self.chosen[_bare(item.nodeid)])  # type: ignore[index]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failed.append((report.nodeid, _last_line(report.longreprtext)))

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        # A test that draws without a seed must not depend on those that run before it.
        random.seed(0)
        np.random.seed(0)
        torch.manual_seed(0)
        if self.chosen is not None:
            return (yield)
        began = time.perf_counter()
        # What is compiled is not seen line by line.
        noted = mock.patch.object(torch, "compile", wraps=torch.compile)
        with traced(self.files) as lines, noted as compile_:
            result = yield
        self.ran[item.nodeid] = {
            "seconds": time.perf_counter() - began,
            "lines": {name: sorted(rows) for name, rows in lines.items()},
            "compiles": compile_.called,
        }
        return result

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call" and report.passed:
            self.passed.add(report.nodeid)
        if report.failed:
            self.failed.append((report.nodeid, _last_line(report.longreprtext)))

    def pytest_runtest_logfinish(self) -> None:
        self.finished += 1


def _bare(id: str) -> str:
    """An id by which a test is found again: pytest escapes its backslashes anew in each run."""
    return id.replace("\\", "")


def _last_line(text: str) -> str:
    errors = [line[1:].strip() for line in text.splitlines() if line.startswith("E ")]
    return (errors or text.splitlines() or [""])[0]


def run_tests(
    files: Collection[str], chosen: Collection[str] | None, traced_files: Mapping[str, str]
) -> _Plugin:
    """Run tests of some files: those chosen, in that order up to the first that fails.

    None runs all but the slow ones, traced (see `suites.programs.mutation.relevance.traced`).
    """
    plugin = _Plugin(chosen, traced_files)
    arguments = [
        *("-q", "-m", "not slow", "-p", "no:cacheprovider", "-p", "no:benchmark"),
        *("-o", "addopts=", f"--rootdir={REPOSITORY}", *(str(REPOSITORY / file) for file in files)),
    ]
    if chosen is not None:
        arguments.insert(0, "-x")
    with contextlib.redirect_stdout(io.StringIO()):
        pytest.main(arguments, plugins=[plugin])
    return plugin


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

    Returns check, seconds and lines of each (``ran``), and those that fail without any mutation.
    """
    _settle()
    ran, failed, files = [], [], _files()
    for step in steps(units()[unit]):
        began = time.perf_counter()
        with traced(files) as lines:
            try:
                perform(step)
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
    _settle(file == INTERPRETED)
    plugin = run_tests([file], None, _files())
    ran = [
        {"check": [TEST, file, id], **told}
        for id, told in plugin.ran.items()
        if id in plugin.passed and told["lines"]
    ]
    return {"ran": ran, "failed": [list(f) for f in plugin.failed]}


def mutant(path: str, source: str, checks: Sequence[Sequence[str]]) -> dict[str, str]:
    """Run checks on a mutant, in their order, up to the first that fails.

    ``path`` is below `reference_impls`; neighbouring tests share one run of pytest, those that are
    interpreted come by themselves. Returns ``verdict`` (killed, incompetent, survived), ``by``
    which check, and ``detail``.

    Raises
    ------
    NotPlanted
        If what ran was not the changed text.
    """
    _settle(checks[0][:2] == [TEST, INTERPRETED])
    planted = Planted(path, source)
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
            perform(tuple(check))
        except BaseException as error:
            return " ".join(check), _said(error)
    return None


def _failed_test(checks: Sequence[Sequence[str]]) -> tuple[str, str] | None:
    chosen = [id for *_, id in checks]
    plugin = run_tests(sorted({file for _, file, _ in checks}), chosen, {})
    if not plugin.failed and plugin.finished < len(chosen):
        return "the tests", f"{plugin.finished} of {len(chosen)} tests were run"
    return plugin.failed[0] if plugin.failed else None
