"""What a GPU tells of itself while it works: its clock, why that is lowered, what it has spent."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Protocol

from harness.measure import gpu

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


class Sensor(Protocol):
    """A GPU's own readings; None is one that it does not give."""

    def mhz(self) -> float | None:
        """Clock of its multiprocessors."""

    def reasons(self) -> int | None:
        """Why that clock is lowered, bits."""

    def millijoules(self) -> int | None:
        """What it has spent since its driver was loaded."""


class Nvml:
    """By NVML.

    Parameters
    ----------
    handle : object
        NVML's, of a device.
    """

    def __init__(self, handle: Any) -> None:
        self._handle = handle

    def mhz(self) -> float | None:
        """See `Sensor`."""
        import pynvml

        return self._read(lambda: pynvml.nvmlDeviceGetClockInfo(self._handle, pynvml.NVML_CLOCK_SM))

    def reasons(self) -> int | None:
        """See `Sensor`."""
        import pynvml

        return self._read(lambda: pynvml.nvmlDeviceGetCurrentClocksThrottleReasons(self._handle))

    def millijoules(self) -> int | None:
        """See `Sensor`."""
        import pynvml

        return self._read(lambda: pynvml.nvmlDeviceGetTotalEnergyConsumption(self._handle))

    def _read(self, reading: Callable[[], Any]) -> Any:
        import pynvml

        try:
            return reading()
        except pynvml.NVMLError:
            return None


@contextmanager
def sensor() -> Iterator[Sensor | None]:
    """That of the GPU which CUDA sees first; None without NVML."""
    with gpu.handle() as handle:
        yield None if handle is None else Nvml(handle)


@dataclass
class Sensed:
    """What was read while samples were taken.

    Attributes
    ----------
    mhz : list of float
    reasons : int
        Bits of all readings together.
    taken, throttled : int
        Samples, and those of them that were taken while a reason of `REASONS` held.
    """

    mhz: list[float] = field(default_factory=list)
    reasons: int = 0
    taken: int = 0
    throttled: int = 0

    def look(self, sensor: Sensor | None, samples: int) -> bool:
        """Read now, beside so many samples; whether they are slowed down."""
        mhz = None if sensor is None else sensor.mhz()
        bits = 0 if sensor is None else sensor.reasons() or 0
        bits &= sum(REASONS)
        self.mhz += [] if mhz is None else [float(mhz)]
        self.reasons |= bits
        self.taken += samples
        self.throttled += samples if bits else 0
        return bool(bits)

    def record(self) -> dict[str, Any]:
        """As a time's record says it."""
        found: dict[str, Any] = {"taken": self.taken, "throttled": self.throttled}
        if self.mhz:
            found["sm_mhz"] = statistics.median(self.mhz)
        if self.reasons:
            found["throttle_reasons"] = [t for bit, t in REASONS.items() if self.reasons & bit]
        return found
