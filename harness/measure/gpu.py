"""What NVML says of the GPU that this process uses."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

VISIBLE = "CUDA_VISIBLE_DEVICES"
KERNEL = Path("/proc/driver/nvidia")
"""What the driver's kernel module tells, with or without its library."""


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver on this machine.

    Attributes
    ----------
    version : str
        Empty without a driver.
    cuda : tuple of int
        The newest CUDA that it can do, (12, 8); empty if it does not tell.
    gpus : tuple of str
        Names of all that it knows, whether CUDA may see them or not.
    """

    version: str = ""
    cuda: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()


def driver() -> Driver:
    """The driver: what NVML says; what its kernel module says where NVML can't be begun."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        return _of_kernel()
    try:
        cuda = pynvml.nvmlSystemGetCudaDriverVersion()
        each = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
        return Driver(
            str(pynvml.nvmlSystemGetDriverVersion()),
            (cuda // 1000, cuda % 1000 // 10),
            tuple(str(pynvml.nvmlDeviceGetName(one)) for one in each),
        )
    except pynvml.NVMLError:
        return _of_kernel()
    finally:
        pynvml.nvmlShutdown()


def _of_kernel() -> Driver:
    try:
        text = (KERNEL / "version").read_text()
        files = sorted((KERNEL / "gpus").glob("*/information"))
        models = [re.search(r"^Model:\s*(.+)$", one.read_text(), re.MULTILINE) for one in files]
    except OSError:
        return Driver()
    version = re.search(r"\b\d{3,}\.\d+(\.\d+)?\b", text)
    names = tuple(m[1].strip() if m else "a GPU" for m in models)
    return Driver(version[0] if version else "unknown", (), names)


def all_hidden() -> bool:
    """Whether CUDA_VISIBLE_DEVICES hides every GPU."""
    given = os.environ.get(VISIBLE)
    return given is not None and chosen(given) is None


def chosen(visible: str | None, position: int = 0) -> int | str | None:
    """Which of the machine's GPUs is CUDA's device number `position`.

    Parameters
    ----------
    visible : str or None
        CUDA_VISIBLE_DEVICES: indices or (beginnings of) UUIDs, joined by commas. CUDA ends the
        list at the first entry that is neither.

    Returns
    -------
    int, str or None
        NVML's index, a UUID or its beginning; None if CUDA sees no such device.
    """
    if visible is None:
        return position
    found: list[int | str] = []
    for entry in (part.strip() for part in visible.split(",")):
        if entry.isdigit():
            found.append(int(entry))
        elif entry.startswith(("GPU-", "MIG-")):
            found.append(entry)
        else:
            break
    return found[position] if position < len(found) else None


def by_beginning(beginning: str, uuids: Iterable[str]) -> int | None:
    """Index of the one UUID that begins so; None if there is none, or more than one."""
    found = [index for index, uuid in enumerate(uuids) if uuid.startswith(beginning)]
    return found[0] if len(found) == 1 else None


@contextmanager
def handle(position: int = 0) -> Iterator[Any]:
    """NVML's handle of CUDA's device number `position`; None without NVML or such a device."""
    import pynvml

    try:
        pynvml.nvmlInit()
    except pynvml.NVMLError:
        yield None
        return
    try:
        yield _find(chosen(os.environ.get(VISIBLE), position))
    finally:
        pynvml.nvmlShutdown()


def visible() -> list[tuple[str, str]]:
    """CUDA's devices: what selects each of them in CUDA_VISIBLE_DEVICES, and its name."""
    import pynvml

    found: list[tuple[str, str]] = []
    given = os.environ.get(VISIBLE)
    while True:
        with handle(len(found)) as device:
            if device is None:
                return found
            found.append((str(chosen(given, len(found))), str(pynvml.nvmlDeviceGetName(device))))


def _find(which: int | str | None) -> Any:
    import pynvml

    try:
        if isinstance(which, str) and which.startswith("GPU-"):
            by_index = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            which = by_beginning(which, map(pynvml.nvmlDeviceGetUUID, by_index))
        if isinstance(which, str):  # a MIG instance, which has no index
            return pynvml.nvmlDeviceGetHandleByUUID(which)
        return None if which is None else pynvml.nvmlDeviceGetHandleByIndex(which)
    except pynvml.NVMLError:
        return None


def of_process(processes: Iterable[tuple[int, int | None]], pid: int) -> int | None:
    """Bytes that the driver counts for one process.

    Parameters
    ----------
    processes : iterable of (pid, bytes or None)

    Returns
    -------
    int or None
        None where the process is not listed (in a container the driver may know it by another
        pid) or the driver does not say how much it holds.
    """
    return next((held for number, held in processes if number == pid), None)


def process_bytes() -> int | None:
    """What the driver counts for this process on its GPU: CUDA's context too; None if unknown."""
    import pynvml

    with handle() as device:
        if device is None:
            return None
        try:
            listed = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        except pynvml.NVMLError:
            return None
        return of_process(((p.pid, p.usedGpuMemory) for p in listed), os.getpid())


class DriverReading:
    """Growth of what the driver counts, from now on: a cross-check of torch's own numbers.

    Parameters
    ----------
    used : callable
        Bytes in use on the whole device.
    own : callable
        Bytes in use by this process, or None.
    """

    def __init__(
        self, used: Callable[[], int], own: Callable[[], int | None] = process_bytes
    ) -> None:
        self._used, self._own = used, own
        self._own_before, self._used_before = own(), used()

    def growth(self) -> dict[str, Any]:
        """``driver_bytes``: the growth; ``driver_method``; ``driver_process_bytes``, if known."""
        own, used = self._own(), self._used()
        if own is not None and self._own_before is not None:
            return {
                "driver_method": "NVML, this process",
                "driver_bytes": own - self._own_before,
                "driver_process_bytes": own,
            }
        return {
            "driver_method": "mem_get_info, the whole device: NVML does not list this process",
            "driver_bytes": used - self._used_before,
        }
