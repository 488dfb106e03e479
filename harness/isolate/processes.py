"""Processes as the system knows them, where it is Linux; and lines of JSON through their pipes."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import signal
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from reference_impls.mechanism import Unsupported

MARKER = "ATTNBENCH_INTERPRETER"
"""Environment variable by which what a killed server left behind is found."""
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_READS = 64
_READ_BYTES = 1 << 16


def adopt_orphans() -> None:
    """Become the parent of what a dead descendant leaves behind, however it detached itself."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def tie_to(parent: int) -> None:
    """Be killed when the parent ends, and be the first whom the kernel's OOM killer picks."""
    if sys.platform != "linux":
        return
    ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
    if os.getppid() != parent:
        os._exit(1)  # the parent ended before the line above
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")


def children(parent: int | None = None) -> Iterator[int]:
    """Process ids of the direct children of a process, this one by default."""
    own = str(parent or os.getpid())
    for path in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # The name, in brackets, may itself hold blanks and brackets.
            if path.read_text(errors="replace").rpartition(")")[2].split()[1] == own:
                yield int(path.parent.name)


def elsewhere() -> float:
    """Seconds of processor time of the processes that this one started, and theirs that run on."""
    seconds, above = 0.0, [os.getpid()]
    while above:
        below = [pid for parent in above for pid in children(parent)]
        for pid in below:
            with contextlib.suppress(OSError):
                seconds += int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) * 1e-9
        above = below
    return seconds


def kill_marked(marker: str) -> None:
    """Kill every process that has this `MARKER` in its environment."""
    needle = f"{MARKER}={marker}".encode()
    # Again until none is found: they may be forking.
    for _ in range(100):
        found = False
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if needle in path.read_bytes().split(b"\0"):
                    os.kill(int(path.parent.name), signal.SIGKILL)
                    found = True
        if not found:
            return
        time.sleep(0.01)


def oom_kills() -> int:
    """How many processes the kernel has killed for lack of memory; 0 where it does not say."""
    with contextlib.suppress(OSError):
        for line in Path("/proc/vmstat").read_text().splitlines():
            if line.startswith("oom_kill "):
                return int(line.split()[1])
    return 0


def _status(field: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise Unsupported(f"the kernel does not report {field}")


def reset_peak() -> int:
    """Give freed memory back, reset the mark, and return the resident bytes now.

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


def peak() -> int:
    """The highest number of resident bytes since the last `reset_peak`."""
    return _status("VmHWM")


class Stream:
    """Read end of a pipe, never blocking; keeps the last bytes alone, if said how many."""

    def __init__(self, descriptor: int, keep: int | None = None) -> None:
        os.set_blocking(descriptor, False)
        self.descriptor = descriptor
        self.open = True
        self._keep = keep
        self._data = bytearray()
        self._searched = 0

    def drain(self) -> None:
        """Take what is there, up to 4 MiB: more than a pipe holds, yet a flood can't hold us."""
        for _ in range(_READS):
            if not self.open:
                return
            try:
                chunk = os.read(self.descriptor, _READ_BYTES)
            except BlockingIOError:
                return
            if not chunk:
                self.close()
            self._data += chunk
            if self._keep is not None:
                del self._data[: -self._keep]

    def line(self) -> bytes | None:
        """Take the first whole line, or None."""
        end = self._data.find(b"\n", self._searched) + 1
        if not end:
            self._searched = len(self._data)
            return None
        line = bytes(self._data[:end])
        del self._data[:end]
        self._searched = 0
        return line

    def text(self) -> str:
        """All that is held, as text."""
        return self._data.decode(errors="replace")

    def clear(self) -> None:
        """Forget what is held."""
        self._data.clear()
        self._searched = 0

    def close(self) -> None:
        """Close the descriptor; what was read stays."""
        if self.open:
            self.open = False
            os.close(self.descriptor)


def write_all(descriptor: int, data: bytes) -> None:
    """Write all of it, however little the pipe takes at a time."""
    view = memoryview(data)
    while view:
        view = view[os.write(descriptor, view) :]


def send(descriptor: int, value: Any) -> None:
    """Write one line of JSON."""
    write_all(descriptor, json.dumps(value).encode() + b"\n")
