"""What attnbench is used by: nox -s bench | verify | tests | lint."""

from __future__ import annotations

import hashlib
import importlib.metadata
import shutil
import sys
import sysconfig
import urllib.request
from pathlib import Path

import nox

nox.needs_version = ">=2024.10.9"
nox.options.sessions = ["lint", "tests"]
nox.options.reuse_existing_virtualenvs = True
nox.options.default_venv_backend = "venv"

ROOT = Path(__file__).parent
CONSTRAINTS = ROOT / ".ci" / "constraints.txt"
SHARED = ".nox/attnbench"
"""One environment for all sessions: torch is installed once."""
TORCH = "2.13.0"
"""The version where we choose it."""
OLDEST_TORCH = (2, 8)
CPU_WHEELS = "https://download.pytorch.org/whl/cpu"


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


def site_packages(session: nox.Session) -> Path:
    """Where the session's environment keeps its packages."""
    code = "import sysconfig; print(sysconfig.get_path('purelib'))"
    found = session.run("python", "-c", code, silent=True, log=False)
    return Path(str(found).strip())


def install_torch(session: nox.Session) -> None:
    """Use the outer Python's torch; else the CPU build without a GPU; else plain torch."""
    if version := outer_torch():
        # A virtual environment made from another one does not see its packages, so the folders
        # are named in a .pth file (which is what --system-site-packages comes down to).
        paths = {sysconfig.get_path("purelib"), sysconfig.get_path("platlib")}
        pth = site_packages(session) / "outer_torch.pth"
        pth.write_text("".join(f"{path}\n" for path in sorted(paths)))
        session.log(f"using torch {version} of {sys.executable}")
        return
    arguments = [f"torch=={TORCH}"]
    if sys.platform == "linux" and not nvidia_driver():
        if reachable(CPU_WHEELS):
            arguments = [f"torch=={TORCH}+cpu", "--extra-index-url", CPU_WHEELS]
        else:
            session.log(f"{CPU_WHEELS} can't be reached: torch comes from the default index")
    session.install(*arguments)


def prepare(session: nox.Session) -> None:
    """Install attnbench and what it needs, once per change of what decides it."""
    deciding = [ROOT / "pyproject.toml", CONSTRAINTS, ROOT / "noxfile.py"]
    text = b"".join(path.read_bytes() for path in deciding) + (outer_torch() or "").encode()
    digest = hashlib.sha256(text + str(ROOT).encode()).hexdigest()
    stamp = Path(session.virtualenv.location) / "attnbench-installed"
    if stamp.exists() and stamp.read_text() == digest:
        return
    install_torch(session)
    session.install("-c", str(CONSTRAINTS), "-e", ".[dev]")
    stamp.write_text(digest)


@nox.session(venv_location=SHARED)
def bench(session: nox.Session) -> None:
    """Verify, then measure time and memory on whatever device is there."""
    prepare(session)
    session.run("attnbench", "bench", *session.posargs)


@nox.session(venv_location=SHARED)
def verify(session: nox.Session) -> None:
    """Check every implementation against its oracle."""
    prepare(session)
    session.run("attnbench", "verify", *session.posargs)


@nox.session(venv_location=SHARED)
def tests(session: nox.Session) -> None:
    """Run the test suite."""
    prepare(session)
    session.run("pytest", *session.posargs)


@nox.session(venv_location=SHARED)
def lint(session: nox.Session) -> None:
    """Lint: ruff, mypy, import-linter, and no outputs in notebooks."""
    prepare(session)
    session.run("ruff", "check", ".")
    session.run("ruff", "format", "--check", ".")
    session.run("mypy")
    session.run("lint-imports")
    notebooks = [str(path) for path in sorted((ROOT / "notebooks").glob("*.ipynb"))]
    if notebooks:
        session.run("nbstripout", "--verify", *notebooks)
