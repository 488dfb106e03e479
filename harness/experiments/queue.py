"""Which run is next, when other sessions may be at work on the same journal.

Two sessions on one journal never do the same run. It is reserved by a lock on one byte of a file in
the journal's folder; the byte's place is a hash of the run's key, the file stays empty. The kernel
gives a lock back when the process ends, however it ends, so nothing stale is left behind a killed
session.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Self

from harness.errors import UsageError
from harness.experiments.design import Run
from harness.records.journal import Follower

FILE = ".running"
SETTLED = ("ok", "diverged", "unsupported")
"""Statuses that are results. A crash is tried again by the next command, and so is oom: how much
memory a run may take depends on what is free, and on how many run at a time. One whose time was up
goes on from its checkpoint."""


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


class OtherSessions:
    """What other sessions on the same journal do and have done.

    Parameters
    ----------
    own : Path
        The file of this session, in the folder of the journal.
    """

    def __init__(self, own: Path) -> None:
        self._reserved = Reservations(own.parent)
        self._follower = Follower(own.parent, "run", own)
        # What failed long ago is tried again; what fails from now on in another session is not.
        self._done = {r["key"]: r for r in self._follower.new() if r["status"] in SETTLED}

    def __enter__(self) -> OtherSessions:
        return self

    def __exit__(self, *error: Any) -> None:
        self._reserved.close()

    def look(self) -> dict[str, dict[str, Any]]:
        """Runs that others have done, by key."""
        self._done |= {r["key"]: r for r in self._follower.new()}
        return self._done

    def reserve(self, run: Run) -> bool:
        """Whether nobody else has the run under way; then it is reserved."""
        return self._reserved.take(run.key)

    def give_back(self, run: Run) -> None:
        """End a reservation."""
        self._reserved.give_back(run.key)


class Queue:
    """Runs in their order, each handed out when it is asked for and nobody else does it.

    Iterating gives the next run; None when all that are left are under way elsewhere.

    Attributes
    ----------
    waiting : list of Run
    running : dict
        Runs that were handed out and have not ended, by key.
    elsewhere : int
        How many of those that wait are under way in another session, when last looked at.
    """

    def __init__(self, todo: Sequence[Run], others: OtherSessions | None) -> None:
        self.waiting, self.running = list(todo), dict[str, Run]()
        self.elsewhere = 0
        self._others = others
        self._found: list[dict[str, Any]] = []

    def __iter__(self) -> Iterator[Run | None]:
        while self.waiting:
            run = self._next()
            if run is not None:
                self.waiting.remove(run)
                self.running[run.key] = run
            yield run

    def ended(self, run: Run) -> None:
        """A run that was handed out has its record."""
        del self.running[run.key]
        if self._others is not None:
            self._others.give_back(run)

    def found_elsewhere(self) -> list[dict[str, Any]]:
        """Records of other sessions that made runs needless, each once."""
        found, self._found = self._found, []
        return found

    def _next(self) -> Run | None:
        if self._others is None:
            return self.waiting[0]
        self.elsewhere = 0
        for run in list(self.waiting):
            if not self._others.reserve(run):
                self.elsewhere += 1
                continue
            # In this order: whoever had it wrote its record before giving it back.
            if (record := self._others.look().get(run.key)) is None:
                return run
            self._others.give_back(run)
            self.waiting.remove(run)
            self._found.append(record)
        return None
