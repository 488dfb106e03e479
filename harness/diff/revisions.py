"""Revisions of the repository that attnbench is installed from: worktrees and environments.

Of a revision only its mechanisms (``reference_impls``) are taken. Clock, plan and statistics are
those of the attnbench that runs, for both: one ruler, two things to measure.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
import tomllib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import harness
from harness.errors import UsageError
from harness.isolate import search_path

MECHANISMS = "reference_impls"
CONSTRAINTS = ".ci/constraints.txt"
PROBE = (
    "import harness.isolate.worker, harness.diff.inside as inside;"
    "from harness.registry import Registry; Registry()"
)
"""What must work before anything of a revision is measured."""


@dataclass(frozen=True)
class Revision:
    """One side of a comparison."""

    label: str  # {"base", "head"}
    given: str  # given, commit: as the user wrote it; its full hash
    commit: str
    # Dependencies and constraints, as the revision declares them.
    requirements: tuple[tuple[str, ...], tuple[str, ...]]
    tree: Path = Path()  # worktree with the revision's mechanisms
    python: str | None = None  # Python of the revision's own environment; None is the current one

    @property
    def short(self) -> str:
        """``main (1a2b3c4d)``."""
        short = self.commit[:8]
        return short if self.commit.startswith(self.given) else f"{self.given} ({short})"

    @property
    def says(self) -> str:
        """``revision main (1a2b3c4d)``, for messages."""
        return f"revision {self.short}"

    def unfit(self, why: object) -> UsageError:
        """What to raise where its mechanisms don't run under ours."""
        return UsageError(f"{self.says} does not work with this harness: {why}")


def repository() -> Path:
    """Root of the git checkout that attnbench runs from.

    Raises
    ------
    UsageError
        If there is no git, or attnbench is not installed from a clone.
    """
    root = Path(harness.__path__[0]).resolve().parent
    if shutil.which("git") is None:
        raise UsageError("git is not there; install it, or give two journals")
    done = _git(root, "rev-parse", "--show-toplevel")
    if done.returncode != 0 or Path(done.stdout.strip()).resolve() != root:
        raise UsageError(
            f"attnbench runs from {root}, which is no git checkout; clone the repository, install "
            "it with pip install -e ., or give two journals"
        )
    return root


def find(root: Path, label: str, given: str) -> Revision:
    """Resolve what the user gave; `UsageError` if there is no such revision."""
    done = _git(root, "rev-parse", "--verify", "--quiet", "--end-of-options", given + "^{commit}")
    if done.returncode != 0 or not given:
        raise UsageError(
            f"unknown revision {given!r} in {root}; expected a commit, branch or tag (git log), "
            "or two journal folders"
        )
    commit = done.stdout.strip()
    return Revision(label, given, commit, _requirements(root, given, commit))


def _requirements(root: Path, given: str, commit: str) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Dependencies of ``pyproject.toml`` and lines of the constraints file; empty without them."""
    project = _git(root, "show", f"{commit}:pyproject.toml")
    try:
        table: dict[str, Any] = tomllib.loads(project.stdout) if project.returncode == 0 else {}
    except tomllib.TOMLDecodeError as error:
        raise UsageError(f"revision {given}: its pyproject.toml can't be read: {error}") from None
    dependencies = table.get("project", {}).get("dependencies", [])
    constraints = _git(root, "show", f"{commit}:{CONSTRAINTS}")
    lines = constraints.stdout.splitlines() if constraints.returncode == 0 else []
    wanted = (line.partition("#")[0].strip() for line in lines)
    return tuple(sorted(dependencies)), tuple(sorted(filter(None, wanted)))


@contextlib.contextmanager
def checked_out(root: Path, base: Revision, head: Revision) -> Iterator[tuple[Revision, Revision]]:
    """Worktrees of two revisions, and environments where their constraints differ.

    Everything is removed in the end, whatever ends it.

    Raises
    ------
    UsageError
        If git or an installation fails, or a revision does not work with this harness.
    """
    place = Path(tempfile.mkdtemp(prefix="attnbench-diff-"))
    try:
        # Paths of one length: the size of the environment moves the stack, and that moves times.
        sides = [replace(r, tree=place / r.label) for r in (base, head)]
        for side in sides:
            _add_worktree(root, side)
        if base.requirements != head.requirements:
            sides = [replace(s, python=_environment(place / f"{s.label}-env", s)) for s in sides]
        for side in sides:
            _probe(side)
        yield sides[0], sides[1]
    finally:
        try:
            shutil.rmtree(place)
        except OSError as error:
            raise UsageError(f"can't remove {place}: {error.strerror}; remove it by hand") from None
        finally:
            _git(root, "worktree", "prune")


def _add_worktree(root: Path, side: Revision) -> None:
    # Only the mechanisms are written out, so that nothing else of the revision can be imported.
    # The user's hooks are not ours to run.
    quiet = ("-c", "core.hooksPath=/dev/null")
    done = _git(
        root, *quiet, "worktree", "add", "--detach", "--no-checkout", str(side.tree), side.commit
    )
    if done.returncode != 0:
        raise UsageError(f"{side.says}: git can't make a worktree: {_last(done.stderr)}")
    done = _git(side.tree, *quiet, "checkout", side.commit, "--", MECHANISMS)
    if done.returncode != 0:
        raise UsageError(f"{side.says} has no {MECHANISMS}: {_last(done.stderr)}")


def _environment(folder: Path, side: Revision) -> str:
    """A virtual environment with what the revision declares; its Python.

    It sees the packages of the current environment; pip installs what the revision wants
    otherwise. `UsageError` if anything can't be installed.
    """
    # Without pip, and so without the setuptools that comes along and hides a newer one.
    _install(side, [sys.executable, "-m", "venv", "--without-pip", str(folder)])
    python = folder / "bin" / "python"
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    site = _install(side, [str(python), "-c", code]).strip()
    outer = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
    (Path(site) / "outer.pth").write_text("".join(f"{path}\n" for path in sorted(outer)))
    dependencies, lines = side.requirements
    constraints = folder / "constraints.txt"
    constraints.write_text("".join(f"{line}\n" for line in lines))
    if dependencies:
        pip = [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet"]
        options = ["--disable-pip-version-check", "-c", str(constraints)]
        _install(side, [*pip, *options, *dependencies])
    return str(python)


def _install(side: Revision, command: Sequence[str]) -> str:
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONPATH"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        # Of several errors of pip the first names the package.
        errors = [s for s in done.stderr.splitlines() if s.startswith("ERROR: ")]
        why = errors[0].removeprefix("ERROR: ") if errors else _last(done.stderr or done.stdout)
        raise UsageError(f"{side.says} can't be installed: {why[:300]}")
    return done.stdout


def _probe(side: Revision) -> None:
    """Import the mechanisms under our harness once, before an interpreter is kept for it."""
    environment = {**os.environ, "PYTHONPATH": search_path([side.tree], own=side.python is None)}
    command = [side.python or sys.executable, "-P", "-c", PROBE]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    if done.returncode != 0:
        raise side.unfit(_last(done.stderr))


def _git(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["git", "-C", str(folder), *arguments], capture_output=True, text=True)


def _last(text: str) -> str:
    """Last line with something in it."""
    return next((s.strip() for s in reversed(text.splitlines()) if s.strip()), "no reason given")
