"""Run the command line, here or in a process of its own, and begin journals for it."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import subprocess
import sys
import tempfile
from functools import cache
from pathlib import Path

from harness.measure import device
from harness.measure.device import device_fingerprint
from harness.registry import Registry
from harness.verify.run import jobs, verify, workers_for

ROOT = Path(__file__).resolve().parents[2]

SMALL = (
    "--only",
    "multi_cnn.conv",
    "--lengths",
    "4",
    "--batch",
    "2",
    "--width",
    "24",
    "--device",
    "cpu",
)
"""A selection that takes seconds: the baseline, its control and one more, two passes."""


def environment(**more: str) -> dict[str, str]:
    """The environment with our root importable, as after an editable install."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    # A pytest of its own is no worker of the pytest that runs these tests.
    outer = {name: v for name, v in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return {**outer, "PYTHONPATH": path, "COLUMNS": "200", "NO_COLOR": "1", **more}


def attnbench(
    *arguments: str, cwd: Path, timeout: float = 300, **more: str
) -> subprocess.CompletedProcess[str]:
    """Run ``python -m harness`` with arguments, and more environment variables."""
    return subprocess.run(
        [sys.executable, "-m", "harness", *arguments],
        cwd=cwd,
        env=environment(**more),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def here(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """The same in this process: what a command says and does, without a start of Python."""
    from harness.cli import run

    out, error = io.StringIO(), io.StringIO()
    with (
        contextlib.chdir(cwd),
        contextlib.redirect_stdout(out),
        contextlib.redirect_stderr(error),
    ):
        code = run(list(arguments))
    return subprocess.CompletedProcess(arguments, code, out.getvalue(), error.getvalue())


@cache
def _verified() -> Path:
    """A journal in which what most tests train is verified; made once in each process."""
    folder = Path(tempfile.mkdtemp(prefix="attnbench-verified-"))
    names = ("mtsa.fused", "multi_head.sdpa", "bi_lstm.packed", "none.fused")
    known, fingerprint = Registry(), device_fingerprint("cpu")
    todo = jobs([(name, "f32", ()) for name in names], known, fingerprint)
    session = {"environment": device.environment(), "purpose": "verify"}
    rows = verify(
        todo, known, fingerprint, lambda _: None, folder, session, workers_for(fingerprint)
    )
    assert [row["verdict"] for row in rows] == ["ok"] * len(names), rows
    return folder


def verified_before(journal: Path) -> None:
    """Begin a journal in which the usual models are verified: the tests train, seconds sooner."""
    shutil.copytree(_verified(), journal, dirs_exist_ok=True)


def pytest_bench(
    *arguments: str, cwd: Path, timeout: float = 300
) -> subprocess.CompletedProcess[str]:
    """Run plain ``pytest suites/bench`` with arguments."""
    return subprocess.run(
        [sys.executable, "-m", "pytest", str(ROOT / "suites" / "bench"), *arguments],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def between_marks(readme: str, begin: str, end: str) -> str:
    """The generated part that a README holds between two marks.

    Raises
    ------
    ValueError
        If its marks are missing.
    """
    _, found, rest = readme.partition(begin)
    table, closed, _ = rest.partition(end)
    if not (found and closed):
        raise ValueError(f"the README has no table between {begin!r} and {end!r}")
    return table.strip()
