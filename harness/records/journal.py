"""The append-only journal: one uniquely named file per session, one write and flush per line."""

from __future__ import annotations

import contextlib
import gc
import json
import lzma
import os
import re
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Self

from harness.errors import UsageError
from harness.records.schema import KINDS, SCHEMA, fault

SEALED = "sealed"
"""In a session's first line: each of its lines ends with a checksum of what stands before it."""
_SEAL = re.compile(rb',"checksum":"([0-9a-f]{8})"}')
_SEAL_BYTES = len(b',"checksum":"01234567"}')


def _sealed(line: bytes) -> bytes:
    """A JSON object with the CRC-32 of its text as last entry."""
    return line[:-1] + b',"checksum":"%08x"}' % zlib.crc32(line)


@dataclass
class Journal:
    """What a journal folder holds."""

    # All records but the sessions' first lines, each with its ``session``, in the order of files
    # and lines; of several with one key the first that is ok is kept, else the last that is no
    # crash.
    records: list[dict[str, Any]] = field(default_factory=list)
    # First line of each session, by id.
    sessions: dict[str, dict[str, Any]] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)  # one line for everything that was skipped

    def finished(self) -> dict[str, dict[str, Any]]:
        """Records by key."""
        return {r["key"]: r for r in self.records if "key" in r}


class Writer:
    """Appends the records of one session.

    Parameters
    ----------
    folder : path
        Created if missing.
    session : mapping
        Fingerprint and environment; they stand once, in the first line.

    Raises
    ------
    UsageError
        If the folder can't be written.
    """

    def __init__(self, folder: Path, session: Mapping[str, Any]) -> None:
        self.session = uuid.uuid4().hex
        self._torn = False
        # To the microsecond: files are read by name, and two sessions can begin in one second.
        stamp = datetime.now(UTC).strftime("%Y%m%dT%H%M%S%f")
        self.path = folder / f"{stamp}-{self.session[:8]}.jsonl"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            self._descriptor = os.open(
                self.path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND, 0o644
            )
        except OSError as error:
            raise UsageError(
                f"can't write the journal in {folder}: {error.strerror}; give another --journal"
            ) from None
        try:
            self.append({"kind": "session", "schema": SCHEMA, SEALED: True, **session})
        except BaseException:
            self.close()
            raise

    def append(self, record: Mapping[str, Any]) -> dict[str, Any]:
        """Write one record in one write, and return it as written.

        Raises
        ------
        UsageError
            If the disk refuses; what was written before stays readable.
        """
        stamped = {**record, "session": self.session}
        stamped["at"] = datetime.now(UTC).isoformat(timespec="milliseconds")
        line = _sealed(json.dumps(stamped, separators=(",", ":")).encode()) + b"\n"
        if self._torn:
            line = b"\n" + line  # or the piece before it would spoil this record too
        try:
            left = line
            while left:
                # A full disk can take part of a line; finish or fail, never leave it unnoticed.
                left = left[os.write(self._descriptor, left) :]
                self._torn = bool(left)
        except OSError as error:
            raise UsageError(
                f"can't write to {self.path}: {error.strerror}; "
                "free some space and start again: finished measurements are kept"
            ) from None
        return stamped

    def close(self) -> None:
        """Close the file."""
        os.close(self._descriptor)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()


PACKED = ".jsonl.xz"
"""Behind the name of a journal: all its sessions in one file (`harness.records.published`)."""


OF_CODE = ("time", "anchor", "memory", "margin", "verify", "determinism", "exact", "accuracy")
"""Kinds of which only what the newest code gave is told."""


def packed(folder: Path) -> Path:
    """The packed file that stands for a journal folder; published records have only that."""
    return Path(f"{folder}{PACKED}")  # "." has no name


def exists(folder: Path) -> bool:
    """Whether there is such a journal, if only an empty folder."""
    return folder.is_dir() or packed(folder).is_file()


def files(folder: Path) -> list[Path]:
    """What a journal consists of: its packed file, if there is one, and its sessions in order.

    Raises
    ------
    UsageError
        If the folder can't be read.
    """
    with _reading(folder):
        inside = folder.iterdir() if folder.is_dir() else ()
        sessions = sorted(path for path in inside if path.suffix == ".jsonl")
    return [*filter(Path.is_file, [packed(folder)]), *sessions]


def stamp(folder: Path) -> tuple[tuple[str, int, int], ...]:
    """What changes when anything is appended: name, bytes and time of each file.

    Raises
    ------
    UsageError
        If one can't be read.
    """
    with _reading(folder):
        return tuple((str(f), f.stat().st_size, f.stat().st_mtime_ns) for f in files(folder))


@contextlib.contextmanager
def _reading(folder: Path) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise UsageError(
            f"can't read the journal {error.filename or folder}: {error.strerror}"
        ) from None


def _content(path: Path) -> bytes:
    """What a file holds; of a packed one as much as can be unpacked."""
    content = path.read_bytes()
    if path.suffix != ".xz":
        return content
    decoder = lzma.LZMADecompressor()
    # One that is cut off gives what stands before, and what is added makes its last line a torn
    # one, so that it is reported; one whose own checksum is wrong gives nothing to rely on.
    try:
        unpacked = decoder.decompress(content)
    except lzma.LZMAError:
        return b"(altered)"
    if decoder.unused_data:
        return b"(altered)"
    return unpacked + (b"" if decoder.eof else b" (cut off)")


class _Lines:
    """Tells records from what is none, line after line of one file."""

    def __init__(self) -> None:
        self._sealed = False

    def record(self, line: bytes) -> dict[str, Any] | str:
        """The record, without its checksum; or what keeps a line from being one."""
        line = line.removesuffix(b"\r")
        if seal := _SEAL.fullmatch(line[-_SEAL_BYTES:]):
            line = line[:-_SEAL_BYTES] + b"}"
            if int(seal[1], 16) != zlib.crc32(line):
                return "altered since it was written"
        try:
            value = json.loads(line.decode("utf-8", errors="replace"))
        except (ValueError, RecursionError):
            value = None
        if not (isinstance(value, dict) and "kind" in value):
            return "torn or foreign line"
        if value["kind"] == "session":
            self._sealed = value.pop(SEALED, False) is True
        if self._sealed and not seal:
            return "altered since it was written"
        return fault(value) or (_printable(value) if b"\\ud" in line.lower() else value)


def _lines(path: Path, warnings: list[str]) -> Iterator[dict[str, Any]]:
    """Records of one file; a line that is no record is named in `warnings` and skipped."""
    lines = _Lines()
    for number, line in enumerate(_content(path).split(b"\n"), start=1):
        if not line.strip():
            continue
        record = lines.record(line)
        if isinstance(record, str):
            warnings.append(f"{path.name}:{number}: not a record ({record}); skipped")
        else:
            yield record


def _printable(value: Any) -> Any:
    r"""A value without half a surrogate pair (``\ud800``): no page or terminal could show it."""
    text = json.dumps(value, ensure_ascii=False)
    return json.loads(text.encode("utf-8", "replace"))


def _rank(record: Mapping[str, Any]) -> int:
    """How much a record says: a crash may be chance, what is ok is settled."""
    return {"ok": 2, "crash": 0}.get(str(record.get("status")), 1)


def read(folder: Path) -> Journal:
    """Read all sessions of a journal: a folder, or what is packed under its name.

    Nothing in a record is ever executed. A torn or foreign line, or a file that does not begin
    with a session, is skipped and reported in `Journal.warnings`.

    Raises
    ------
    UsageError
        If a session was written by a newer attnbench, or the folder can't be read.
    """
    journal = Journal()
    found: dict[Any, dict[str, Any]] = {}
    with _reading(folder), _uncollected():
        for path in files(folder):
            _read_file(path, journal, found)
    journal.records = list(found.values())
    return journal


@contextlib.contextmanager
def _uncollected() -> Iterator[None]:
    """Without the search for cycles: JSON has none, and it takes a third of the time."""
    before = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if before:
            gc.enable()


def _read_file(path: Path, journal: Journal, found: dict[Any, dict[str, Any]]) -> None:
    """Add a file's sessions and warnings to the journal, its records to those found, by key."""
    session: str | None = None
    for record in _lines(path, journal.warnings):
        if record["kind"] == "session":
            version = record.get("schema")
            if not isinstance(version, int) or version > SCHEMA:
                raise UsageError(
                    f"{path} was written with schema {version}, we read up to {SCHEMA}; "
                    "update attnbench or give another --journal"
                )
            session = str(record.get("session"))
            journal.sessions[session] = {**record, "file": str(path)}
        elif session is None:
            journal.warnings.append(f"{path.name}: does not begin with a session; skipped")
            return
        elif record["kind"] not in KINDS:
            journal.warnings.append(f"{path.name}: unknown kind {record['kind']!r}; skipped")
        else:
            key = record.get("key", object())  # one without a key is the same as no other
            before = found.get(key)
            # Tried again after a crash, say, it stands where it was written. Of two that are ok
            # (two sessions at once) the first stands.
            if before is None or (_rank(before) < 2 and _rank(record) >= _rank(before)):
                found.pop(key, None)
                found[key] = {**record, "session": session}


def newest_code(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Records without measurements of a case by other code than its newest on that machine.

    Older code is another subject.
    """

    def subject(record: Mapping[str, Any]) -> tuple[str, ...]:
        kind = "time" if record["kind"] == "anchor" else record["kind"]
        return kind, str(record.get("fingerprint")), str(record.get("case"))

    records = list(records)
    measured = [r for r in records if r["kind"] in OF_CODE]
    code = {subject(r): r.get("code") for r in sorted(measured, key=lambda r: str(r.get("at")))}
    return [r for r in records if subject(r) not in code or code[subject(r)] == r.get("code")]


class Follower:
    """Reads the records of one kind, and then those that are appended.

    Only whole lines count; what is torn or foreign is passed over (`read` reports it). Packed
    files are left out: nobody appends to them.

    Parameters
    ----------
    folder : Path
        The journal.
    kind : str
    but : Path
        A file that is not read: the own one.
    """

    def __init__(self, folder: Path, kind: str, but: Path) -> None:
        self._folder, self._kind, self._but = folder, kind, but
        self._needles = f'"{kind}"'.encode(), b'"kind":"session"'
        self._read: dict[Path, int] = {}
        self._lines: dict[Path, _Lines] = {}

    def new(self) -> list[dict[str, Any]]:
        """Records since the last call; the first time all there are."""
        found = []
        for path in sorted(self._folder.glob("*.jsonl")):
            before = self._read.get(path, 0)
            if path == self._but or path.stat().st_size <= before:
                continue
            with path.open("rb") as file:
                file.seek(before)
                content = file.read()
            whole = content[: content.rfind(b"\n") + 1]
            self._read[path] = before + len(whole)
            lines = self._lines.setdefault(path, _Lines())
            for line in whole.split(b"\n"):
                # Reading every line would take time, and most are of another kind.
                if any(needle in line for needle in self._needles):
                    record = lines.record(line)
                    if isinstance(record, dict) and record["kind"] == self._kind:
                        found.append(record)
        return found
