"""Lines of JSON through pipes."""

from __future__ import annotations

import json
import os
from typing import Any

_READS = 64
_READ_BYTES = 1 << 16


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
