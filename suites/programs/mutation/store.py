"""Results on disk: a line of JSON per mutant, and what the checks run on the unchanged code."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suites.programs.mutation.draw import Mutant
from suites.programs.mutation.units import ROOT, check_files, digest, read_by, runner_files, short

FOLDER = Path("results") / "mutants"


class Store:
    """Results below one folder.

    Parameters
    ----------
    folder : Path
        Made when something is written.
    """

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self._code: dict[str, str] = {}
        self._checks = digest(check_files())
        self._known: dict[str, dict[str, dict[str, Any]]] = {}

    def _keys(self, mutant: Mutant) -> dict[str, str]:
        unit = mutant.site.unit
        if unit not in self._code:
            self._code[unit] = digest([*read_by(unit), *runner_files()])
        return {"code": self._code[unit], "checks": self._checks}

    def find(self, mutant: Mutant) -> dict[str, Any] | None:
        """What an earlier run found, if code (and, where it survived, checks) are the same."""
        unit = mutant.site.unit
        if unit not in self._known:
            self._known[unit] = _read(self.folder / f"{unit}.jsonl")
        row = self._known[unit].get(mutant.id)
        if row is None or row["code"] != self._keys(mutant)["code"]:
            return None
        if row["verdict"] == "survived" and row["checks"] != self._checks:
            return None
        return row

    def add(self, mutant: Mutant, outcome: Mapping[str, Any]) -> dict[str, Any]:
        """Write one line, and return what it says."""
        gone, come = mutant.change
        row = {
            "id": mutant.id,
            "unit": mutant.site.unit,
            "file": short(mutant.site.path),
            "row": mutant.site.row,
            "operator": mutant.site.operator,
            "line": gone,
            "becomes": come,
            **outcome,
            **self._keys(mutant),
            "at": datetime.now(UTC).isoformat(timespec="seconds"),
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{mutant.site.unit}.jsonl").open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        return row


def _read(path: Path) -> dict[str, dict[str, Any]]:
    """The last line of each mutant; a torn line is passed over."""
    found = {}
    for line in path.read_text(encoding="utf-8").splitlines() if path.exists() else []:
        try:
            row = json.loads(line)
            found[row["id"]] = row
        except (ValueError, KeyError, TypeError):
            continue
    return found


class Kept:
    """What the checks ran on the unchanged code, kept as long as the code stays the same.

    Parameters
    ----------
    folder : Path
        Made when something is written.
    """

    def __init__(self, folder: Path = FOLDER / "unchanged") -> None:
        self.folder = folder
        self._key = digest([*ROOT.rglob("*.py"), *check_files(), *runner_files()])

    def _path(self, part: Mapping[str, str]) -> Path:
        [name] = part.values()
        return self.folder / f"{Path(name).stem}.json"

    def find(self, part: Mapping[str, str]) -> dict[str, Any] | None:
        """What a part (a unit or a file of tests) ran, if it is known."""
        path = self._path(part)
        try:
            found = json.loads(path.read_text(encoding="utf-8"))
        except (OSError, ValueError):
            return None
        return found["told"] if found["key"] == self._key else None

    def add(self, part: Mapping[str, str], told: Mapping[str, Any]) -> None:
        """Keep what a part ran."""
        self.folder.mkdir(parents=True, exist_ok=True)
        text = json.dumps({"key": self._key, "told": told})
        self._path(part).write_text(text, encoding="utf-8")
