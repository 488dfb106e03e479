"""The verify suite's tests inside one process: which to run, how long each takes, what it ran."""

from __future__ import annotations

import contextlib
import io
import random
import time
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pytest
import torch

from suites.programs.mutation.relevance import traced
from suites.programs.mutation.units import REPOSITORY

SUITES = Path(__file__).parents[2]
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
        self.ran: list[dict[str, Any]] = []
        self.failed: list[tuple[str, str]] = []
        self.passed: set[str] = set()
        self.finished = 0

    def pytest_configure(self) -> None:
        """The same examples each time, and no time for a smaller one."""
        with contextlib.suppress(ImportError):
            from hypothesis import Phase, settings

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
        self.ran.append(
            {
                "id": item.nodeid,
                "seconds": time.perf_counter() - began,
                "lines": {name: sorted(rows) for name, rows in lines.items()},
                "compiles": compile_.called,
            }
        )
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


def run(
    files: Collection[str], chosen: Collection[str] | None, traced_files: Mapping[str, str]
) -> _Plugin:
    """Run tests of some files.

    Parameters
    ----------
    files : collection of str
        From the repository's root.
    chosen : collection of str or None
        Ids, in the order in which they are to be run up to the first that fails; None runs all
        but the slow ones, traced.
    traced_files : mapping
        See `suites.programs.mutation.relevance.traced`.
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
