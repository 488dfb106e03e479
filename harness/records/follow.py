"""What other sessions add to a journal while this one runs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from harness.records.schema import fault


class Follower:
    """Reads the records of one kind, and then those that are appended.

    Only whole lines count; what is torn or foreign is passed over (`harness.records.journal.read`
    reports it). Packed files are left out: nobody appends to them.

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
        self._needle = f'"{kind}"'.encode()
        self._read: dict[Path, int] = {}

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
            found += [r for line in whole.split(b"\n") if (r := self._record(line)) is not None]
        return found

    def _record(self, line: bytes) -> dict[str, Any] | None:
        if self._needle not in line:  # most lines: reading them would take time
            return None
        try:
            value = json.loads(line)
        except (ValueError, RecursionError):
            return None
        ours = isinstance(value, dict) and value.get("kind") == self._kind and not fault(value)
        return value if ours else None
