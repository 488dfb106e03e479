"""Results on disk: a line of JSON per mutant, and what the checks run on the unchanged code.

All of it counts as long as neither the code nor the checks change.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from suites.programs.mutation.draw import Mutant
from suites.programs.mutation.units import short, state

FOLDER = Path("results") / "mutants"


class Store:
    """Results below one folder, which is made when something is written."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self.folder = folder
        self._found: dict[str, dict[str, Any]] = {}
        for path in folder.glob("*.jsonl"):
            for line in path.read_text(encoding="utf-8").splitlines():
                try:
                    row = json.loads(line)
                    if row["state"] == state():
                        self._found[row["id"]] = row
                except (ValueError, KeyError, TypeError):  # torn, or of another form: run again
                    continue

    def find(self, id: str) -> dict[str, Any] | None:
        """What an earlier run found of a mutant, or of a part of the checks."""
        return self._found.get(id)

    def add(self, id: str, file: str, told: Mapping[str, Any]) -> dict[str, Any]:
        """Write one line into a file, and return what it says."""
        at = datetime.now(UTC).isoformat(timespec="seconds")
        row = {"id": id, **told, "state": state(), "at": at}
        self.folder.mkdir(parents=True, exist_ok=True)
        with (self.folder / f"{file}.jsonl").open("a", encoding="utf-8") as lines:
            lines.write(json.dumps(row) + "\n")
        self._found[id] = row
        return row

    def add_mutant(self, mutant: Mutant, outcome: Mapping[str, Any]) -> dict[str, Any]:
        """Write what became of a mutant."""
        gone, come = mutant.change
        site = mutant.site
        place = {"file": short(site.path), "row": site.row, "operator": site.operator}
        told = {**place, "line": gone, "becomes": come, **outcome}
        return self.add(mutant.id, site.unit, told)
