"""What is there: gathered once, judged by `harness.doctor.checks`."""

from __future__ import annotations

import contextlib
import importlib.util
import os
import platform
import re
import shutil
import subprocess
import sysconfig
import tempfile
import time
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.isolate import Limits, Outcome, run
from harness.measure import device as devices
from harness.measure import gpu
from harness.train.data.corpora import corpora, findings
from harness.train.data.directory import VARIABLE, data_directory

SECONDS = 300.0
"""Within which a child must have answered; the first import and compilation take long."""
LAUNCHED = {"cpu": "mtsa.fused", "cuda": "mtsa.fused_triton"}
"""What is verified as a checked launch."""
STAT = Path("/proc/stat")


@dataclass(frozen=True)
class Attempt:
    """Something that was done to see whether it works; its error is empty if it does."""

    seconds: float
    error: str = ""


@dataclass(frozen=True)
class Facts:
    """Of one machine; empty or None is what is not there, or was not looked at."""

    device: str  # {"cpu", "cuda", "auto"}: what was asked for
    python: str
    headers: bool  # whether Python.h is there, which Triton compiles with
    torch: Mapping[str, Any]  # see `harness.doctor.child.seen`
    driver: str = ""  # driver, driver_cuda, gpus: see `harness.measure.gpu.Driver`
    driver_cuda: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()
    hidden: bool = False  # whether CUDA_VISIBLE_DEVICES hides all of them
    state: Mapping[str, Any] = field(default_factory=dict)  # of the first one; see `gpu_state`
    c: str = ""  # c, cxx: compilers that are called, with their versions
    cxx: str = ""
    triton: str = ""
    ptxas: str = ""
    data: str = ""  # data, files: the data directory, and its files of corpora by status
    data_error: str = ""
    files: Mapping[str, int] = field(default_factory=dict)
    # journal, journal_error: where results go, and why nothing can be written there.
    journal: str = ""
    journal_error: str = ""
    memory: int | None = None  # memory, disk: bytes that are free: of memory, and where results go
    disk: int | None = None
    # Share of all cores that others used, or the hypervisor kept, in the last second.
    busy: float | None = None
    compiled: Attempt | None = None
    launched: Attempt | None = None

    @property
    def on_gpu(self) -> bool:
        """Whether a GPU is what would be measured, or should be."""
        return self.device == "cuda" or (
            self.device == "auto" and not self.hidden and bool(self.gpus or self.torch["gpus"])
        )

    @property
    def works_on(self) -> str:
        """Where it is compiled and launched: "cuda" if there is one for torch, else "cpu"."""
        return "cuda" if self.on_gpu and self.torch["gpus"] else "cpu"


def _version_of(*command: str, line: int = 0) -> str:
    """A line of what a compiler says of itself, behind its path; empty if it does not run."""
    path = shutil.which(command[0])
    if path is None:
        return ""
    try:
        done = subprocess.run(
            [path, *command[1:], "--version"], capture_output=True, text=True, timeout=20
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    lines = done.stdout.strip().splitlines()
    return f"{path} ({lines[line]})" if done.returncode == 0 and len(lines) > abs(line) else ""


def c_compiler() -> str:
    """The one that Triton takes: $CC, gcc or clang."""
    named = os.environ.get("CC")
    candidates = (named.split(),) if named else (["gcc"], ["clang"])
    return next(filter(None, (_version_of(*words) for words in candidates if words)), "")


def cxx_compiler() -> str:
    """The one that torch takes: $CXX or c++."""
    return _version_of(*(os.environ.get("CXX") or "c++").split())


def _ptxas() -> str:
    """``ptxas 12.9``, the assembler that Triton calls; empty without Triton or without one."""
    found = importlib.util.find_spec("triton")
    if found is None or found.origin is None:
        return ""
    bundled = Path(found.origin).parent / "backends" / "nvidia" / "bin" / "ptxas"
    told = _version_of(os.environ.get("TRITON_PTXAS_PATH") or str(bundled), line=-2)
    release = re.search(r"release ([\d.]+)", told)
    return f"ptxas {release[1]}" if release else ""


def _writable(folder: Path) -> str:
    """Why no file can be made in a folder, or where it would be made; empty if one can."""
    place = _nearest(folder)
    try:
        with tempfile.NamedTemporaryFile(dir=place):
            return ""
    except OSError as error:
        return f"{place}: {error.strerror}"


def _ticks() -> tuple[float, float, float]:
    """Seconds since the start, over all cores: used or kept by anything, idle; and by us."""
    numbers = [int(n) for n in STAT.read_text().splitlines()[0].split()[1:9]]
    per_second = os.sysconf("SC_CLK_TCK")
    idle = numbers[3] + numbers[4]
    own = sum(os.times()[:4])
    return (sum(numbers) - idle) / per_second, idle / per_second, own


def busy_share(seconds: float = 1.0) -> float | None:
    """Share of all cores that others used, or the hypervisor kept; None where nothing tells."""
    try:
        used, idle, own = _ticks()
        time.sleep(seconds)
        later = _ticks()
    except (OSError, ValueError, IndexError):
        return None
    others = max(0.0, later[0] - used - (later[2] - own))
    total = others + later[1] - idle
    return others / total if total > 0 else None


def _asked(what: str, **arguments: Any) -> Outcome:
    return run(f"harness.doctor.child:{what}", arguments, Limits(seconds=SECONDS))


def _tried(what: str, **arguments: Any) -> Attempt:
    began, outcome = time.monotonic(), _asked(what, **arguments)
    wrong = "" if outcome.status == "ok" else f"{outcome.status}: {outcome.detail}"
    return Attempt(time.monotonic() - began, wrong)


def _corpora(given: str | None) -> dict[str, Any]:
    named = given or os.environ.get(VARIABLE, "")
    if not named:
        return {}
    try:
        folder = data_directory(given)
    except UsageError as error:
        return {"data": named, "data_error": str(error)}
    states = Counter(
        one.status for corpus in corpora().values() for one in findings(folder, corpus)
    )
    return {"data": str(folder), "files": dict(states)}


def gather(device: str, journal: Path, data: str | None = None, *, quick: bool = False) -> Facts:
    """Look at this machine; `quick` leaves out corpora, quiet, a compilation, a launch.

    Results go to the journal; where no data directory is given the environment variable counts.

    Raises
    ------
    UsageError
        If torch can't even be asked.
    """
    outcome = _asked("seen")
    if outcome.status != "ok":
        raise UsageError(f"torch can't be asked what it sees: {outcome.status}: {outcome.detail}")
    told = gpu.driver()
    disk = None
    with contextlib.suppress(OSError):
        disk = shutil.disk_usage(_nearest(journal)).free
    facts = Facts(
        device=device,
        python=platform.python_version(),
        headers=(Path(sysconfig.get_path("include")) / "Python.h").is_file(),
        torch=outcome.value,
        driver=told.version,
        driver_cuda=told.cuda,
        gpus=told.gpus,
        hidden=gpu.all_hidden(),
        state=devices.gpu_state() or {},
        c=c_compiler(),
        cxx=cxx_compiler(),
        triton=devices.versions().get("triton", ""),
        ptxas=_ptxas(),
        journal=str(journal),
        journal_error=_writable(journal),
        memory=devices.available_memory(),
        disk=disk,
    )
    if quick:
        return facts
    which = facts.works_on
    busy = busy_share()  # before anything of ours runs
    compiled = _tried("compiled", device=which)
    launched = _tried("launched", device=which, name=LAUNCHED[which])
    found = replace(facts, busy=busy, compiled=compiled, launched=launched)
    return replace(found, **_corpora(data))


def _nearest(folder: Path) -> Path:
    """The folder, or the first above it that is there."""
    return next((one for one in (folder, *folder.absolute().parents) if one.exists()), Path("/"))
