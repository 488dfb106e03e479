"""Who is at work on a journal: one session that measures alone, or several that share runs.

All rests on locks of the kernel, which end with their process, however it ends: nothing stale is
left behind a killed session. They are POSIX locks, since a child that was forked would keep the
other kind alive.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import json
import os
import socket
import struct
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path
from typing import Any

from harness.errors import UsageError
from harness.records import journal

RUNNING = ".running"
SESSIONS = ".sessions"
VERIFYING = ".verifying"
OWNER = ".owner"
"""Ends the name of the file in which a session says who it is."""
_BOOT = Path("/proc/sys/kernel/random/boot_id")
_FLOCK = "hhqqi4x"
"""``struct flock`` of Linux: kind, whence, start, length, process."""


@contextlib.contextmanager
def at_work(folder: Path, command: str, *, alone: bool) -> Iterator[None]:
    """Be at work on a journal.

    A process may be so once at a time for a folder: closing any descriptor of a file gives all its
    POSIX locks back. Nothing is locked where nothing can be written: the `journal.Writer` says so.

    Parameters
    ----------
    folder : Path
        The journal; made if there is none.
    command : str
        Who says so, for others that are refused.
    alone : bool
        Whether nothing may run beside, since times are measured. Sessions that train share a
        journal and its runs.

    Raises
    ------
    UsageError
        While another session is in the way, here or perhaps on another machine; or if nothing
        can be locked where something can be written.
    """
    path = folder / SESSIONS
    try:
        if not journal.exists(folder):
            folder.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError as error:
        if folder.is_dir() and os.access(folder, os.W_OK):
            raise _no_locks(path, error) from None
        yield
        return
    own = folder / f".{os.getpid()}-{socket.gethostname()}{OWNER}"
    try:
        if not _locked(descriptor, path, fcntl.LOCK_EX if alone else fcntl.LOCK_SH):
            raise UsageError(
                f"{folder} is in use: {_holder(descriptor, folder)}; wait until it has ended, or "
                "give another --journal"
            )
        if alone:
            _refuse_other_machines(folder)
        since = datetime.now().astimezone().isoformat(" ", "seconds")
        with contextlib.suppress(OSError):  # a full disk; the kernel knows the process anyway
            own.write_text(json.dumps({"command": command, "since": since, **_here()}))
        yield
    finally:
        own.unlink(missing_ok=True)
        os.close(descriptor)


@contextlib.contextmanager
def in_turn(folder: Path) -> Iterator[None]:
    """Verify one session after the other, so that rows of another one are taken over."""
    try:
        descriptor = os.open(folder / VERIFYING, os.O_RDWR | os.O_CREAT, 0o644)
    except OSError:  # where nothing can be written nothing is verified: the writer says so
        yield
        return
    try:
        fcntl.lockf(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def _here() -> dict[str, Any]:
    boot = _BOOT.read_text().strip() if _BOOT.exists() else ""
    return {"process": os.getpid(), "host": socket.gethostname(), "boot": boot}


def _owners(folder: Path) -> dict[Path, dict[str, Any]]:
    """What sessions say of themselves, the newest last; some of them may have been killed."""
    found = {}
    for path in folder.glob(f".*{OWNER}"):
        with contextlib.suppress(OSError, ValueError):  # gone, or being written
            found[path] = {"command": "", "since": "", **_here(), **json.loads(path.read_text())}
    return dict(sorted(found.items(), key=lambda item: str(item[1]["since"])))


def _said(owner: dict[str, Any]) -> str:
    return (
        f"attnbench {owner['command']}, process {owner['process']} on {owner['host']} "
        f"since {owner['since']}"
    )


def _holder(descriptor: int, folder: Path) -> str:
    """Who is in the way, as the kernel knows it; on another machine the newest is named."""
    asked = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    process = struct.unpack(_FLOCK, fcntl.fcntl(descriptor, fcntl.F_GETLK, asked))[-1]
    owners = list(_owners(folder).values())
    named = [owner for owner in owners if owner["process"] == process] or owners
    return _said(named[-1]) if named else f"process {process}"


def _refuse_other_machines(folder: Path) -> None:
    """Clear away what sessions left that were killed on this machine, and refuse any other one's.

    A network folder may have no locks that reach other machines, so that it can't be told whether
    a session there has ended.
    """
    here = _here()
    for path, owner in _owners(folder).items():
        if owner["boot"] != here["boot"] and owner["host"] != here["host"]:
            raise UsageError(
                f"{folder} may be in use on another machine: {_said(owner)}; wait until it has "
                f"ended; if it was killed, remove {path}"
            )
        path.unlink(missing_ok=True)


def _locked(descriptor: int, path: Path, kind: int, *place: int) -> bool:
    """Take a lock; False if another process is in the way."""
    try:
        fcntl.lockf(descriptor, kind | fcntl.LOCK_NB, *place)
    except (BlockingIOError, PermissionError):  # POSIX leaves it open which
        return False
    except OSError as error:
        raise _no_locks(path, error) from None
    return True


def _no_locks(path: Path, error: OSError) -> UsageError:
    return UsageError(
        f"can't lock {path}: {error.strerror}; give a --journal on a file system with "
        "locks that can be written"
    )


class Reservations:
    """The runs that this process has reserved.

    Two sessions on one journal never do the same run. It is reserved by a lock on one byte of a
    file in the journal's folder; the byte's place is a hash of the run's key, the file stays empty.
    A process may have one of these per folder at a time.

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
        self.path = folder / RUNNING
        try:
            self._descriptor = os.open(self.path, os.O_RDWR | os.O_CREAT, 0o644)
        except OSError as error:
            raise _no_locks(self.path, error) from None

    def take(self, key: str) -> bool:
        """Reserve a run; False if another process has it.

        Raises
        ------
        UsageError
            If the file system has no locks.
        """
        return _locked(self._descriptor, self.path, fcntl.LOCK_EX, 1, _place(key))

    def give_back(self, key: str) -> None:
        """Let others have a run."""
        fcntl.lockf(self._descriptor, fcntl.LOCK_UN, 1, _place(key))

    def close(self) -> None:
        """Give all back."""
        os.close(self._descriptor)


def _place(key: str) -> int:
    """The byte of a key: 62 bits, so that two keys never meet in practice."""
    return int.from_bytes(hashlib.sha256(key.encode()).digest()[:8], "big") >> 2
