"""One made-up journal for all tests of the reports, and one report built from it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.experiments.conclusion import Comparison
from harness.records.predictions import Predictions
from reports.core.costs import Costs
from reports.core.source import DeviceRecords, Source, find
from reports.pages.comparison.arms import Arm
from suites.support.command_line import attnbench
from suites.support.comparisons import A, B, design, judged, run
from suites.support.report_records import write_everything


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with everything that a page shows, in a folder whose name is no ASCII."""
    return write_everything(tmp_path_factory.mktemp("das ist ☃") / "journal")


@pytest.fixture(scope="session")
def source(folder: Path) -> Source:
    """What is read of it."""
    return find(str(folder))


@pytest.fixture(scope="session")
def device(source: Source) -> DeviceRecords:
    """The machine that everything was made on."""
    return next(d for d in source.devices if d.fingerprint["model"] == "Made up")


@pytest.fixture(scope="session")
def measured(device: DeviceRecords) -> Costs:
    """What was measured on it."""
    return Costs(device)


@pytest.fixture(scope="session")
def site(folder: Path) -> Path:
    """A whole report of it, by the command itself."""
    files = ("--journal", "journal", "--out", "out", "--json", "out.json")
    done = attnbench("report", *files, cwd=folder.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stderr == ""
    assert f"report: {Path('out') / 'index.html'}" in done.stdout
    return folder.parent / "out"


def arm(*some: Predictions, model: str = A) -> Arm:
    """A model with a run for each of these predictions."""
    return Arm(model, {(seed, None): one for seed, one in enumerate(some)})


def told(say: Callable[[Mapping[str, Any]], Predictions | None]) -> DeviceRecords:
    """A device whose runs said something."""

    class Told(DeviceRecords):
        def said(self, run: Mapping[str, Any]) -> Predictions | None:
            return say(run)

    return Told("k", {"device": "cpu"}, (), ())


def on(source: Source, *records: Iterable[Mapping[str, Any]]) -> Source:
    """A source with one device that has these records."""
    every = tuple(r for some in records for r in some)
    return replace(source, devices=(replace(source.devices[0], records=every),))


def of_five_seeds(task: str, metric: str, level: float, gain: float) -> Comparison:
    """Two models on a task, the first of which is better."""
    runs = [
        run(m, seed, 0.8, task, data="d", test={metric: level + gain * (m == A)})
        for m in (A, B)
        for seed in range(5)
    ]
    return judged(design(task=task, metric=metric, metrics=[metric]), runs)
