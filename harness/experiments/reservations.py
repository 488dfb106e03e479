"""Which runs are under way: two sessions on one journal never do the same one.

A run is reserved by a lock on one byte of a file in the journal's folder; the byte's place is a
hash of the run's key, the file stays empty. The kernel gives a lock back when the process ends,
however it ends, so nothing stale is left behind a killed session.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from pathlib import Path
from typing import Any, Self

from harness.errors import UsageError

FILE = ".running"


class Reservations:
    """The runs that this process has reserved.

    A process may have one of these per folder at a time: POSIX locks belong to the process, and
    all of them go when any descriptor of their file is closed.

    Parameters
    ----------
    folder : Path
        The journal; it exists.

    Raises
    ------
    UsageError
        If the file can't be opened.
    """

    def __init__(self, folder: Path) -> None:
        self.path = folder / FILE
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise self._refused(error) from None

    def take(self, key: str) -> bool:
        """Reserve a run; False if another process has it.

        Raises
        ------
        UsageError
            If the file system has no locks.
        """
        try:
            fcntl.lockf(self._descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, _place(key))
        except (BlockingIOError, PermissionError):  # POSIX leaves it open which
            return False
        except OSError as error:
            raise self._refused(error) from None
        return True

    def give_back(self, key: str) -> None:
        """Let others have a run."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _place(key))

    def close(self) -> None:
        """Give all back."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: Any) -> None:
        self.close()

    def _refused(self, error: OSError) -> UsageError:
        return UsageError(
            f"can't lock {self.path}: {error.strerror}; give a --journal on a file system with "
            "locks that can be written"
        )


def _place(key: str) -> int:
    """The byte of a key: 62 bits, so that two keys never meet in practice."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 2
