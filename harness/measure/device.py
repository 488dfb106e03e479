"""What is measured on: fingerprint (part of a record's key) and environment (provenance)."""

from __future__ import annotations

import importlib.metadata
import os
import platform
import socket
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.isolate import Limits, run
from harness.measure import gpu

PACKAGES = (
    "torch", "triton", "numpy", "scipy", "pandas", "statsmodels", "pytest", "pytest-benchmark",
)  # fmt: skip
VARIABLES = (
    "PYTORCH_", "TORCH", "OMP_", "MKL_", "KMP_", "GOMP_", "LD_PRELOAD", "ATEN_", "CUDA_",
    "NVIDIA_TF32", "MALLOC_", "CUBLAS_", "ONEDNN_", "DNNL_",
)  # fmt: skip
"""Environment variables (by their beginning) that can change a measurement."""
TIME_ALLOCATOR = {"M_MMAP_MAX": 0, "M_TRIM_THRESHOLD": -1, "M_TOP_PAD": 64 * 2**20}
"""mallopt settings under which CPU time is measured, alike for all: large temporaries stay in the
heap, so that their page faults are paid once, in the warm-up, and not in every call."""
MEMORY_ALLOCATOR = {"M_MMAP_THRESHOLD": 64 * 1024, "M_TRIM_THRESHOLD": 64 * 1024, "M_TOP_PAD": 0}
"""mallopt settings under which the high-water mark of memory can be trusted."""
CPUINFO, CGROUP = Path("/proc/cpuinfo"), Path("/sys/fs/cgroup")
LEAST_MEMORY = 512 * 2**20


def cpu_model() -> str:
    """Name of the processor; with the numbers of its generation where they are told.

    Virtual machines shorten the name (``AMD EPYC`` is any of five generations).
    """
    found: dict[str, str] = {}
    for line in _lines(CPUINFO):
        what, _, value = line.partition(":")
        found.setdefault(what.strip(), value.strip())
    name = found.get("model name") or platform.processor() or platform.machine()
    if "cpu family" in found and "model" in found:
        name += f" family {found['cpu family']} model {found['model']}"
    return name


def _lines(file: Path) -> list[str]:
    """Of one of the kernel's files; none where it is not there, as where there is no Linux."""
    try:
        return file.read_text().splitlines()
    except OSError:
        return []


def cpu_clock_mhz() -> list[float] | None:
    """Current clock of each core, where it is readable."""
    told = (line.partition(":") for line in _lines(CPUINFO))
    return [float(value) for what, _, value in told if what.startswith("cpu MHz")] or None


def gpu_state() -> dict[str, Any] | None:
    """Clocks (MHz), temperature (degrees C), power (W), throttle reasons, use (per cent) and number
    of processes of the GPU that CUDA sees first; None without one, or without NVML.
    """
    import pynvml

    with gpu.handle() as handle:
        if handle is None:
            return None
        readings = {
            "sm_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "memory_mhz": lambda: pynvml.nvmlDeviceGetClockInfo(handle, pynvml.NVML_CLOCK_MEM),
            "celsius": lambda: pynvml.nvmlDeviceGetTemperature(handle, pynvml.NVML_TEMPERATURE_GPU),
            "watts": lambda: pynvml.nvmlDeviceGetPowerUsage(handle) / 1000,
            "throttle_reasons": lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(handle),
            "most_sm_mhz": lambda: pynvml.nvmlDeviceGetMaxClockInfo(handle, pynvml.NVML_CLOCK_SM),
            "busy_percent": lambda: pynvml.nvmlDeviceGetUtilizationRates(handle).gpu,
            "processes": lambda: len(pynvml.nvmlDeviceGetComputeRunningProcesses(handle)),
        }
        state: dict[str, Any] = {}
        for name, reading in readings.items():
            try:
                state[name] = reading()
            except pynvml.NVMLError as error:
                state[name] = f"not readable: {error}"
        return state


def machine_state() -> dict[str, Any]:
    """Load, clocks and temperature now: provenance, read before and after every block."""
    load = list(os.getloadavg()) if hasattr(os, "getloadavg") else None
    return {"load": load, "cpu_mhz": cpu_clock_mhz(), "gpu": gpu_state()}


def git(folder: Path, *arguments: str) -> str | None:
    """What git prints in a folder; None where it fails, or there is none."""
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *arguments], capture_output=True, text=True, timeout=10
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def versions() -> dict[str, str]:
    """Of those of `PACKAGES` that are installed."""
    found = {}
    for package in PACKAGES:
        with suppress(importlib.metadata.PackageNotFoundError):
            found[package] = importlib.metadata.version(package)
    return found


def environment() -> dict[str, Any]:
    """Commit, dirty flag, host, platform, package versions, memory."""
    root = Path(__file__).resolve().parents[2]
    dirty = git(root, "status", "--porcelain")
    return {
        "commit": git(root, "rev-parse", "HEAD"),
        "dirty": None if dirty is None else bool(dirty),
        "host": socket.gethostname(),
        "platform": platform.platform(),
        "cpu": cpu_model(),
        "cores": os.cpu_count(),
        "memory_bytes": machine_memory(),
        "packages": versions(),
        "argv": [Path(sys.argv[0]).name, *sys.argv[1:]],
        "state": machine_state(),
    }


def _refuse_unseen(version: str, built: str | None) -> None:
    """Measuring the CPU of a GPU box would answer another question."""
    found = gpu.Driver() if gpu.all_hidden() else gpu.driver()
    if found.version:
        what = f"{found.gpus[0]} is here" if found.gpus else "it lists no GPU (was one lost?)"
        raise UsageError(
            f"NVIDIA's driver {found.version}: {what}, and torch {version} (built "
            f"{built or 'without CUDA'}) sees none; attnbench doctor says what to do, "
            "--device cpu measures the CPU"
        )


def fingerprint(device: str) -> dict[str, Any]:
    """What must be equal for two measurements to be of one kind. Runs in a child (imports torch).

    Parameters
    ----------
    device : {"cpu", "cuda", "auto"}
        ``auto`` is a GPU if there is one; not the CPU where NVIDIA's driver is and torch sees none.

    Returns
    -------
    dict
        ``device``, ``model``, ``vectors`` (the instructions that torch uses: the same processor
        may offer fewer inside a virtual machine), ``driver``, ``cuda``, ``torch``, ``python``,
        ``threads``, ``allocator``, ``variables`` (of the environment).

    Raises
    ------
    UsageError
        If CUDA is asked for and not there; or for ``auto``, where NVIDIA's driver is there, its
        GPUs not hidden by CUDA_VISIBLE_DEVICES, and torch sees none.
    """
    import torch

    from harness.build import threads_available

    available = torch.cuda.is_available()
    if device == "auto":
        device = "cuda" if available else "cpu"
        if not available:
            _refuse_unseen(torch.__version__, torch.version.cuda)
    if device == "cuda" and not available:
        built = torch.version.cuda or "without CUDA"
        raise UsageError(
            f"device cuda given, but torch {torch.__version__} (built {built}) sees no GPU; "
            "use --device cpu, or install a driver and a CUDA build of torch"
        )
    cuda = device == "cuda"
    allocator: Any = TIME_ALLOCATOR if sys.platform == "linux" else {"cpu": "default"}
    variables = sorted(item for item in os.environ.items() if item[0].startswith(VARIABLES))
    return {
        "device": device,
        "model": torch.cuda.get_device_name(0) if cuda else cpu_model(),
        "vectors": None if cuda else torch.backends.cpu.get_cpu_capability(),
        "driver": gpu.driver().version if cuda else None,
        "cuda": torch.version.cuda if cuda else None,
        "torch": torch.__version__,
        "python": platform.python_version(),
        "threads": threads_available(),
        "variables": dict(variables),
        "allocator": {"cuda": torch.cuda.get_allocator_backend()} if cuda else allocator,
    }


FINGERPRINT = "harness.measure.device:fingerprint"


def device_fingerprint(device: str) -> dict[str, Any]:
    """Ask a child what is there: the driver itself never touches CUDA.

    `UsageError` if the device is unknown or not there.
    """
    if device not in ("auto", "cpu", "cuda"):
        raise UsageError(f"unknown device {device!r}; use cpu, cuda or auto")
    outcome = run(FINGERPRINT, {"device": device}, Limits(seconds=120))
    if outcome.status != "ok":
        raise UsageError(outcome.detail)
    return dict(outcome.value)


def machine_memory() -> int | None:
    """Bytes that the machine has; None where the system does not tell."""
    if not (hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names):
        return None
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")


def available_memory() -> int | None:
    """Bytes that can be taken without swapping, within the container's limit; None if unknown."""
    told = (line.split() for line in _lines(Path("/proc/meminfo")))
    free = next((int(word[1]) * 1024 for word in told if word[0] == "MemAvailable:"), None)
    (limit, *_), (used, *_) = (_lines(CGROUP / f"memory.{n}") or [""] for n in ("max", "current"))
    if free is None or not used.isdigit():
        return free
    if limit.isdigit():
        # File cache that the container's count includes and the kernel gives back.
        stat = (line.split() for line in _lines(CGROUP / "memory.stat"))
        cached = sum(int(count) for what, count in stat if what == "inactive_file")
        free = min(free, int(limit) - int(used) + cached)
    return max(free, LEAST_MEMORY)
