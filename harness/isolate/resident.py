"""The kernel's high-water mark of resident memory: reset it, read it. Linux."""

from __future__ import annotations

import ctypes
import gc
import sys
from pathlib import Path

from reference_impls.mechanism import Unsupported


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise Unsupported(f"the kernel does not report {field}")


def reset() -> int:
    """Give freed memory back, reset the mark, and return the resident bytes now.

    ``ru_maxrss`` can't be reset, so it is of no use for this.

    Raises
    ------
    Unsupported
        Where the kernel has no resettable high-water mark (anything but Linux).
    """
    if sys.platform != "linux":
        raise Unsupported("CPU peak memory needs Linux")
    gc.collect()
    # Pages that were freed before must not hide what is taken from now on.
    ctypes.CDLL(None).malloc_trim(0)
    before = _status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    return before


def read() -> int:
    """The highest number of resident bytes since the last `reset`."""
    return _status("VmHWM")
