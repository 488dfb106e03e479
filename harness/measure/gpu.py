"""What NVML says of the GPU that this process uses: which it is, and how it fares at work."""

from __future__ import annotations

import os
import re
import statistics
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

VISIBLE = "CUDA_VISIBLE_DEVICES"
KERNEL = Path("/proc/driver/nvidia")
"""What the driver's kernel module tells, with or without its library."""
REASONS = {
    0x04: "power cap",
    0x08: "hardware slowdown",
    0x10: "clocks of several GPUs kept alike",
    0x20: "temperature",
    0x40: "temperature, by the hardware",
    0x80: "power brake",
}
"""Bits of NVML's clock event reasons that slow work down. Others: it is idle (0x01), its clock was
set (0x02, 0x100), which is alike for all that is measured."""


def named(reasons: int) -> list[str]:
    """Those of `REASONS` that are among some bits."""
    return [name for bit, name in REASONS.items() if reasons & bit]


@dataclass(frozen=True)
class Driver:
    """NVIDIA's driver on this machine, empty without one.

    Its version; the newest CUDA that it can do, (12, 8), if it tells; names of all GPUs that it
    knows, whether CUDA may see them or not.
    """

    version: str = ""
    cuda: tuple[int, ...] = ()
    gpus: tuple[str, ...] = ()


def driver() -> Driver:
    """The driver: what NVML says; what its kernel module says where NVML can't be begun."""
    import pynvml

    try:
        pynvml.nvmlInit()
        try:
            cuda = pynvml.nvmlSystemGetCudaDriverVersion()
            each = map(pynvml.nvmlDeviceGetHandleByIndex, range(pynvml.nvmlDeviceGetCount()))
            return Driver(
                str(pynvml.nvmlSystemGetDriverVersion()),
                (cuda // 1000, cuda % 1000 // 10),
                tuple(str(pynvml.nvmlDeviceGetName(one)) for one in each),
            )
        finally:
            pynvml.nvmlShutdown()
    except pynvml.NVMLError:
        return _of_kernel()


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
    """Which GPU is CUDA's number `position`: NVML's index, a UUID or its beginning; None if none.

    CUDA_VISIBLE_DEVICES holds indices or (beginnings of) UUIDs, joined by commas. CUDA ends the
    list at the first entry that is neither.
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
        yield _find(_known_to_torch(position)) or _find(chosen(os.environ.get(VISIBLE), position))
    finally:
        pynvml.nvmlShutdown()


def _known_to_torch(position: int) -> str | None:
    """UUID of CUDA's device, where torch is at work on a GPU: CUDA's order need not be NVML's.

    A MIG instance has one that no card has: its position, or its own entry, tells which it is.
    """
    torch = sys.modules.get("torch")
    if torch is None or not torch.cuda.is_initialized():
        return None
    return f"GPU-{torch.cuda.get_device_properties(position).uuid}"


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


def process_bytes() -> int | None:
    """What the driver counts for this process on its GPU: CUDA's context too.

    None where it is not listed (in a container the driver may know it by another pid) or the
    driver does not say how much it holds.
    """
    with sensor() as one:
        listed = [] if one is None else one.read("nvmlDeviceGetComputeRunningProcesses") or []
        return next((p.usedGpuMemory for p in listed if p.pid == os.getpid()), None)


def growth(before: tuple[int | None, int], now: tuple[int | None, int]) -> dict[str, Any]:
    """What the driver counts more than before: a cross-check of torch's own numbers.

    ``driver_bytes``: the growth; ``driver_method``; ``driver_process_bytes``, if known. Of bytes in
    use by this process, or None, and on the whole device.
    """
    (own_before, used_before), (own, used) = before, now
    if own is not None and own_before is not None:
        return {
            "driver_method": "NVML, this process",
            "driver_bytes": own - own_before,
            "driver_process_bytes": own,
        }
    return {
        "driver_method": "mem_get_info, the whole device: NVML does not list this process",
        "driver_bytes": used - used_before,
    }


class Sensor:
    """A GPU's own readings, by NVML's handle; None is one that it does not give."""

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def read(self, function: str, *more: str) -> Any:
        """What a function of NVML says of it; `more` are names of NVML's constants."""
        import pynvml

        try:
            return getattr(pynvml, function)(self._handle, *(getattr(pynvml, m) for m in more))
        except pynvml.NVMLError:
            return None

    def mhz(self) -> float | None:
        """Clock of its multiprocessors."""
        return self.read("nvmlDeviceGetClockInfo", "NVML_CLOCK_SM")

    def reasons(self) -> int | None:
        """Why that clock is lowered, bits."""
        return self.read("nvmlDeviceGetCurrentClocksThrottleReasons")

    def millijoules(self) -> int | None:
        """What it has spent since its driver was loaded."""
        return self.read("nvmlDeviceGetTotalEnergyConsumption")


@contextmanager
def sensor() -> Iterator[Sensor | None]:
    """That of the GPU which CUDA sees first; None without NVML."""
    with handle() as device:
        yield None if device is None else Sensor(device)


@dataclass
class Sensed:
    """What was read while samples were taken: clocks, and the bits of all reasons together.

    So many samples were taken, some of them throttled: while a reason of `REASONS` held. `mhz` is
    of the others, `lowered_mhz` of those.
    """

    mhz: list[float] = field(default_factory=list)
    lowered_mhz: list[float] = field(default_factory=list)
    reasons: int = 0
    taken: int = 0
    throttled: int = 0

    def look(self, sensor: Sensor | None, samples: int) -> bool:
        """Read now, beside so many samples; whether they are slowed down."""
        mhz = None if sensor is None else sensor.mhz()
        bits = 0 if sensor is None else sensor.reasons() or 0
        bits &= sum(REASONS)
        if mhz is not None:
            (self.lowered_mhz if bits else self.mhz).append(float(mhz))
        self.reasons |= bits
        self.taken += samples
        self.throttled += samples if bits else 0
        return bool(bits)

    @property
    def all_throttled(self) -> bool:
        """Whether nothing was taken but while the clock was lowered: then all of it counts."""
        return 0 < self.taken == self.throttled

    def record(self) -> dict[str, Any]:
        """As a time's record says it; the clock is that of the samples that count."""
        found: dict[str, Any] = {"taken": self.taken, "throttled": self.throttled}
        if mhz := self.lowered_mhz if self.all_throttled else self.mhz:
            found["sm_mhz"] = statistics.median(mhz)
        if self.reasons:
            found["throttle_reasons"] = named(self.reasons)
        return found
