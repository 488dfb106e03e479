"""Run the command line, here or in a process of its own, and begin journals for it."""

from __future__ import annotations

import contextlib
import io
import os
import shlex
import subprocess
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from unittest import mock

import pytest
from rich.console import Console

from harness.isolate import Limits, Outcome, run
from harness.measure import device
from harness.records import journal, schema
from harness.registry import Registry
from harness.verify.run import jobs
from suites.support import warm

ROOT = Path(__file__).resolve().parents[2]
LITTLE = tuple(shlex.split("--lengths 4 --batch 2 --width 24 --device cpu"))
SMALL = ("--only", "multi_cnn.conv", *LITTLE)
TOY = "mirrored_summation[length=4,width=4,k=2,train=200,test=100]"
"""A task that needs no data and is trained at once."""


OWN = '''
import torch


class Mean(torch.nn.Module):
    """Every token plus the mean of its sentence."""

    def __init__(self, d_in, d_out, scale=1.0):
        super().__init__()
        self.scale = scale
        self.map = torch.nn.Linear(d_in, d_out)

    def forward(self, x, mask):
        x = x.masked_fill(~mask[..., None], 0)
        mean = x.sum(1, keepdim=True) / mask.sum(1).clamp(min=1)[:, None, None]
        return self.map(x + self.scale * mean).masked_fill(~mask[..., None], 0)


class Leaky(Mean):
    """Forgets that x at padding may be anything."""

    def forward(self, x, mask):
        return self.map(x + x.mean(1, keepdim=True)).masked_fill(~mask[..., None], 0)


not_a_module = lambda d_in, d_out: 3
'''
"""A file of a user's own, for ``--with``: one mechanism that is right, and what is none."""


def environment(**more: str) -> dict[str, str]:
    """The environment with our root importable, as after an editable install."""
    path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
    # A pytest of its own is no worker of the pytest that runs these tests.
    outer = {name: v for name, v in os.environ.items() if not name.startswith("PYTEST_XDIST")}
    return {**outer, "PYTHONPATH": path, "COLUMNS": "200", "NO_COLOR": "1", **more}


def words(arguments: tuple[str, ...]) -> list[str]:
    """Arguments as a shell has them: the first is split at its blanks, the others are whole."""
    return [*shlex.split(arguments[0]), *arguments[1:]]


def attnbench(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Run ``python -m harness`` with `words`."""
    return subprocess.run(
        [sys.executable, "-m", "harness", *words(arguments)],
        cwd=cwd,
        env=environment(),
        capture_output=True,
        text=True,
        timeout=300,
    )


def started(*arguments: object, cwd: Path = ROOT, **env: str) -> subprocess.Popen[str]:
    """Python with arguments, in a session of its own."""
    return subprocess.Popen(
        [sys.executable, *map(str, arguments)],
        cwd=cwd,
        env=environment(**env),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


@cache
def _device(name: str) -> Outcome:
    """What a child says of a device; asked once in each process."""
    return run(device.FINGERPRINT, {"device": name}, Limits(seconds=120))


def _captured(main: Callable[[], int], cwd: Path) -> subprocess.CompletedProcess[str]:
    """What a program says and does in a folder; what it imports from there is forgotten again."""
    out, error = io.StringIO(), io.StringIO()
    asked = mock.patch.object(device, "run", lambda _call, given, _limits: _device(given["device"]))
    path = sys.path[:]
    try:
        with (
            asked,
            warm.interpreters(),
            contextlib.chdir(cwd),
            contextlib.redirect_stdout(out),
            contextlib.redirect_stderr(error),
        ):
            code = main()
    finally:
        sys.path[:] = path
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", "")).startswith(f"{cwd}{os.sep}"):
                del sys.modules[name]
    return subprocess.CompletedProcess((), code, out.getvalue(), error.getvalue())


def here(*arguments: str, cwd: Path, code: int | None = None) -> subprocess.CompletedProcess[str]:
    """``attnbench`` with `words` in this process, which must end with `code` where one is given."""
    from harness import cli

    done = _captured(lambda: cli.run(words(arguments)), cwd)
    assert code in (None, done.returncode), done.stdout + done.stderr
    return done


def printed(show: Callable[[Console], object], width: int = 200) -> str:
    """What is printed on a console so wide."""
    out = Console(width=width)
    with out.capture() as said:
        show(out)
    return said.get()


def pytest_here(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """Plain ``pytest suites/bench`` with arguments, in this process."""
    bench = str(ROOT / "suites" / "bench")
    # As in `environment`; with it pytest-benchmark would write nothing.
    with mock.patch.dict(os.environ):
        os.environ.pop("PYTEST_XDIST_WORKER", None)
        return _captured(lambda: int(pytest.main([bench, *arguments])), cwd)


def verified_before(folder: Path) -> None:
    """Begin a journal as if all default implementations were verified in float32 on the CPU.

    That they are is tried elsewhere; what is trained here is trained at once.
    """
    known, fingerprint = Registry(), dict(_device("cpu").value)
    names = [".".join(n.name for n in known.find(name)) for name in known.mechanisms]
    writer = journal.Writer(folder, {"fingerprint": fingerprint})
    for job in jobs([(name, "f32", ()) for name in names], known, fingerprint):
        row = {"name": job.name, "dtype": job.dtype, "device": job.device, "code": job.code}
        verdict = {"status": "ok", "verdict": "ok", "detail": "made up"}
        about = {"kind": "verify", "key": job.key, "case": job.case, "block": 0}
        place = {"fingerprint": schema.digest(fingerprint)}
        writer.append({**about, **place, **row, **verdict})
    writer.close()
