"""What attnbench is used by: nox -s bench | verify | compare | report | gpu | tests | lint.

And for who changes the checks or the fast paths: `goals`, `calibrate`, `mutants`, and `nightly`,
which is a smaller form of these three and the tests that are too long for every change.
"""

from __future__ import annotations

import hashlib
import importlib.metadata
import os
import shutil
import sys
import sysconfig
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
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
AUDITED_TRITON = ("3.7.1", "3.6.0")
"""Releases that torch 2.13 and 2.11 come with for CUDA."""
CALIBRATIONS = {
    "timing": "suites.programs.calibration",
    "statistics": "suites.programs.calibration.statistics",
}


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
    """Run a program of the shared environment, with these environment variables besides.

    What it imports is compiled once, whatever the outer environment says: pip did not, and each
    interpreter of a measurement would need 3 to 7 s more to import torch.
    """
    command = (str(BIN / program), *arguments)
    session.run(*command, env={**env, "PYTHONDONTWRITEBYTECODE": None}, external=True)


@contextmanager
def part(session: nox.Session, name: str) -> Iterator[None]:
    """Print how long a part took, also when it failed."""
    begun = time.monotonic()
    try:
        yield
    finally:
        session.log(f"part {name}: {time.monotonic() - begun:.0f} s")


@contextmanager
def tried(session: nox.Session, name: str, failed: list[str]) -> Iterator[None]:
    """The same of a part after which others are run all the same; note it where it failed."""
    try:
        with part(session, name):
            yield
    except CommandFailed:
        failed.append(name)


def pip(session: nox.Session, *arguments: str) -> None:
    """Install into the shared environment; what is never imported is not compiled either."""
    run_in_shared(session, "python", "-m", "pip", "install", "--quiet", "--no-compile", *arguments)


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
    with part(session, "environment"):
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
def gpu(session: nox.Session) -> None:
    """Run all that only a GPU can tell, in parts of under ten minutes; it goes on where it was."""
    prepare(session)
    run_in_shared(session, "python", "-m", "suites.programs.gpu", *session.posargs)


@nox.session(venv_backend="none")
def report(session: nox.Session) -> None:
    """Execute the notebooks on what was measured; one folder to open in a browser."""
    prepare(session)
    run_in_shared(session, "attnbench", "report", *session.posargs)


def in_parallel(session: nox.Session, marker: str) -> None:
    """Run the tests that a marker expression chooses on all cores."""
    workers = min(8, len(os.sched_getaffinity(0)) if LINUX else os.cpu_count() or 1)
    # A worker that is done takes tests from another: some take a minute. One thread each: workers
    # whose threads wait for each other's cores take twice as long.
    parallel = ("-n", str(workers), "--dist", "worksteal", "--durations", "25")
    run_in_shared(session, "pytest", "-m", marker, *parallel, OMP_NUM_THREADS="1")


def by_themselves(session: nox.Session, marker: str) -> None:
    """Run the tests that a marker expression chooses of those marked alone, one after another."""
    # To collect every module takes as long as two of these tests.
    modules = (ROOT / "suites").rglob("test_*.py")
    timing = sorted(str(path) for path in modules if "mark.alone" in path.read_text("utf-8"))
    run_in_shared(session, "pytest", "-m", marker, "--durations", "10", *timing)


@nox.session(venv_backend="none")
def tests(session: nox.Session) -> None:
    """Run the test suite on all cores; what measures real times by itself afterwards."""
    prepare(session)
    if session.posargs:
        run_in_shared(session, "pytest", *session.posargs)
        return
    with part(session, "tests"):
        in_parallel(session, "not alone and not nightly")
    with part(session, "tests that measure real times"):
        by_themselves(session, "alone and not nightly")


def programs(session: nox.Session) -> list[tuple[str, tuple[str, ...]]]:
    """The side programs in the sizes of a night, or, with ``-- --full``, in their own."""
    full = session.posargs == ["--full"]
    if session.posargs and not full:
        session.error(f"given {' '.join(session.posargs)!r}; expected nothing, or --full")
    few = ("a-f32-forward", "a-f32-training", "a-bf16-forward", "a-bf16-training", "accuracy")
    sizes: tuple[tuple[str, str, tuple[str, ...]], ...] = (
        ("mutants", "suites.programs.mutation", ("--sample", "5")),
        ("calibration of the statistics", CALIBRATIONS["statistics"], ("--draws", "2000")),
        ("calibration of the timing", CALIBRATIONS["timing"], ("--quick",)),
        ("goals", "suites.programs.goals", ("--blocks", "3", *(f"--only={goal}" for goal in few))),
    )
    return [(name, ("-m", module, *(() if full else size))) for name, module, size in sizes]


@nox.session(venv_backend="none")
def nightly(session: nox.Session) -> None:
    """Run what is too long for every change: the full matrix, mutants, calibration, goals.

    About an hour on two cores; ``-- --full`` takes each program in its own size, a night.
    Every part runs, whatever another one says; each is resumable where its program is.
    """
    chosen = programs(session)
    prepare(session)
    failed: list[str] = []
    with tried(session, "the full matrix", failed):
        in_parallel(session, "nightly and not alone")
        by_themselves(session, "nightly and alone")
    for name, arguments in chosen:
        with tried(session, name, failed):
            run_in_shared(session, "python", *arguments)
    for release in AUDITED_TRITON:
        with tried(session, f"audit of the Triton kernels by {release}", failed):
            audit_other_triton(session, release)
    if failed:
        session.error(f"failed: {', '.join(failed)}")


def audit_other_triton(session: nox.Session, release: str) -> None:
    """Audit with another release than the environment's, which is the newest."""
    place = ROOT / ".nox" / f"triton-{release}"
    if not place.exists():
        pip(session, "--no-deps", "--target", str(place), f"triton=={release}")
    module = "reference_impls.kernels.triton.audit"
    run_in_shared(session, "python", "-m", module, PYTHONPATH=str(place))


@nox.session(venv_backend="none")
def mutants(session: nox.Session) -> None:
    """Put small faults into the mechanisms and count those that the checks notice: an hour."""
    prepare(session)
    run_in_shared(session, "python", "-m", "suites.programs.mutation", *session.posargs)


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
    failed: list[str] = []  # goals not met, perhaps: the other part is worth knowing all the same
    for name, given in (("timing", options), ("statistics", quick)):
        with tried(session, name, failed):
            run_in_shared(session, "python", "-m", CALIBRATIONS[name], *given)
    if failed:
        session.error(f"failed: {', '.join(failed)}")


@nox.session(venv_backend="none")
def goals(session: nox.Session) -> None:
    """Measure the goals of performance on one thread: met, missed or undecided; an hour."""
    prepare(session)
    run_in_shared(session, "python", "-m", "suites.programs.goals", *session.posargs)


def types(session: nox.Session) -> None:
    """Check types with a worker for each core; alone if that fails.

    Workers have three seconds to start: on a busy machine they may not, which is no finding.
    """
    try:
        run_in_shared(session, "mypy", "--num-workers", "auto")
    except CommandFailed:
        run_in_shared(session, "mypy")


@nox.session(venv_backend="none")
def lint(session: nox.Session) -> None:
    """Lint: ruff, mypy, import-linter, and no outputs in notebooks."""
    prepare(session)
    run_in_shared(session, "ruff", "check", ".", *session.posargs)
    run_in_shared(session, "ruff", "format", "--check", ".")
    types(session)
    run_in_shared(session, "lint-imports")
    notebooks = [str(path) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    if notebooks:
        run_in_shared(session, "nbstripout", "--verify", *notebooks)
