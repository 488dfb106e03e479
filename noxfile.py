"""What attnbench is used by: nox -s bench | verify | compare | report | tests | calibrate | lint.

And `goals` of performance, and `mutants` for who changes the checks.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import sys
import sysconfig
import urllib.request
from pathlib import Path

import nox
from nox.command import CommandFailed

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["lint", "tests"]

ROOT = Path(__file__).parent
CONSTRAINTS = ROOT / ".ci" / "constraints.txt"
SHARED = ROOT / ".nox" / "attnbench"
"""One environment for all sessions: torch is installed once."""
LINUX = sys.platform == "linux"
BIN = SHARED / ("Scripts" if sys.platform == "win32" else "bin")
TORCH = "2.13.0"
"""The version where we choose it."""
OLDEST_TORCH = (2, 8)
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"
EXTRAS = "dev,cluster,data" if os.environ.get("CI") else "dev"
"""Tests of a cluster need ray, those of the hub datasets; nobody else has to install them."""


def outer_torch() -> str | None:
    """Version of the torch that the Python running nox has, if it is new enough."""
    try:
        version = importlib.metadata.version("torch")
    except importlib.metadata.PackageNotFoundError:
        return None
    numbers = tuple(int(part) for part in version.split("+")[0].split(".")[:2])
    return version if numbers >= OLDEST_TORCH else None


def nvidia_driver() -> bool:
    """Whether this machine has an NVIDIA driver."""
    return Path("/proc/driver/nvidia/version").exists() or shutil.which("nvidia-smi") is not None


def reachable(address: str) -> bool:
    """Whether a package index answers at once."""
    try:
        with urllib.request.urlopen(address + "/torch/", timeout=5) as answer:
            return bool(answer.status == 200)
    except OSError:
        return False


def run_in_shared(session: nox.Session, program: str, *arguments: str, **env: str) -> None:
    """Run a program of the shared environment, with these environment variables besides."""
    session.run(str(BIN / program), *arguments, env=env, external=True)


def pip(session: nox.Session, *arguments: str) -> None:
    """Install into the shared environment."""
    run_in_shared(session, "python", "-m", "pip", "install", "--quiet", *arguments)


def install_torch(session: nox.Session) -> None:
    """Use the outer Python's torch; else the CPU build without a GPU; else plain torch."""
    if version := outer_torch():
        # Like --system-site-packages, which sees only the base Python: the outer one may itself
        # be a virtual environment, so its folders are named in a .pth file.
        code = "import sysconfig; print(sysconfig.get_path('purelib'))"
        found = session.run(str(BIN / "python"), "-c", code, silent=True, external=True)
        paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        pth = Path(str(found).strip()) / "outer_torch.pth"
        pth.write_text("".join(f"{path}\n" for path in sorted(paths)))
        session.log(f"using torch {version} of {sys.executable}")
        return
    arguments = [f"torch=={TORCH}"]
    if LINUX and not nvidia_driver():
        if reachable(CPU_WHEELS):
            arguments = [f"torch=={TORCH}+cpu", "--extra-index-url", CPU_WHEELS]
        else:
            session.log(f"{CPU_WHEELS} can't be reached: torch comes from the default index")
    pip(session, *arguments)


def prepare(session: nox.Session) -> None:
    """Make the shared environment, once per change of what decides it."""
    deciding = [ROOT / "pyproject.toml", CONSTRAINTS, ROOT / "noxfile.py"]
    text = b"".join(path.read_bytes() for path in deciding) + (outer_torch() or "").encode()
    digest = hashlib.sha256(text + f"{ROOT}{sys.version}{EXTRAS}".encode()).hexdigest()
    stamp = SHARED / "attnbench-installed"
    if stamp.exists() and stamp.read_text() == digest:
        return
    session.log("setting up .nox/attnbench, once: a few minutes")
    session.run(sys.executable, "-m", "venv", "--clear", str(SHARED), external=True)
    install_torch(session)
    pip(session, "-c", str(CONSTRAINTS), "-e", f".[{EXTRAS}]")
    stamp.write_text(digest)


@nox.session(venv_backend="none")
def bench(session: nox.Session) -> None:
    """Verify, then measure time and memory on whatever device is there."""
    prepare(session)
    run_in_shared(session, "attnbench", "bench", *session.posargs)


@nox.session(venv_backend="none")
def verify(session: nox.Session) -> None:
    """Check every implementation against its oracle."""
    prepare(session)
    run_in_shared(session, "attnbench", "verify", *session.posargs)


@nox.session(venv_backend="none")
def compare(session: nox.Session) -> None:
    """Train two models, paired by seed, and judge them: by default MTSA against multi-head."""
    prepare(session)
    run_in_shared(session, "attnbench", "compare", *session.posargs)


@nox.session(venv_backend="none")
def report(session: nox.Session) -> None:
    """Execute the notebooks on what was measured; one folder to open in a browser."""
    prepare(session)
    run_in_shared(session, "attnbench", "report", *session.posargs)


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run the test suite on all cores; what measures real times by itself afterwards."""
    prepare(session)
    if session.posargs:
        run_in_shared(session, "pytest", *session.posargs)
        return
    workers = min(8, len(os.sched_getaffinity(0)) if LINUX else os.cpu_count() or 1)
    # A worker that is done takes tests from another: some take a minute.
    parallel = ("-n", str(workers), "--dist", "worksteal")
    # One thread each: workers whose threads wait for each other's cores take twice as long.
    one = {"OMP_NUM_THREADS": "1"}
    for suite in ("suites/reference_impls", "suites/harness", "suites/reports", "suites/programs"):
        run_in_shared(session, "pytest", suite, "-m", "not alone and not nightly", *parallel, **one)
    run_in_shared(session, "pytest", "-m", "alone and not nightly")


@nox.session(venv_backend="none")
def mutants(session: nox.Session) -> None:
    """Put small faults into the mechanisms and count those that the checks notice: an hour."""
    prepare(session)
    run_in_shared(session, "python", "-m", "suites.programs.mutation", *session.posargs)


CALIBRATIONS = {
    "timing": "suites.programs.calibration",
    "statistics": "suites.programs.calibration.statistics",
}


@nox.session(venv_backend="none")
def calibrate(session: nox.Session) -> None:
    """Prove the measuring, then the statistics, by cases whose answer is known: over an hour.

    Options go to the timing; one of both, with its options: -- --only timing | statistics ...
    """
    prepare(session)
    options = list(session.posargs)
    if options[:1] == ["--only"]:
        if len(options) < 2 or options[1] not in CALIBRATIONS:
            session.error(f"--only: expected {' or '.join(CALIBRATIONS)}")
        run_in_shared(session, "python", "-m", CALIBRATIONS[options[1]], *options[2:])
        return
    quick = [option for option in options if option == "--quick"]
    failed = None
    try:
        run_in_shared(session, "python", "-m", CALIBRATIONS["timing"], *options)
    except CommandFailed as error:
        failed = error  # goals not met, perhaps: the other part is worth knowing all the same
    run_in_shared(session, "python", "-m", CALIBRATIONS["statistics"], *quick)
    if failed is not None:
        raise failed


@nox.session(venv_backend="none")
def goals(session: nox.Session) -> None:
    """Measure the goals of performance on one thread: met, missed or undecided; an hour."""
    prepare(session)
    run_in_shared(session, "python", "-m", "suites.programs.goals", *session.posargs)


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Lint: ruff, mypy, import-linter, and no outputs in notebooks."""
    prepare(session)
    run_in_shared(session, "ruff", "check", ".", *session.posargs)
    run_in_shared(session, "ruff", "format", "--check", ".")
    run_in_shared(session, "mypy")
    run_in_shared(session, "lint-imports")
    notebooks = [str(path) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    if notebooks:
        run_in_shared(session, "nbstripout", "--verify", *notebooks)
