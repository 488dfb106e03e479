"""The journal of mutants, and of what the checks run on the unchanged code.

All of it counts as long as neither the code nor the checks change.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness.records import journal, schema
from suites.programs.mutation.draw import Mutant
from suites.programs.mutation.units import short, state

KIND = "mutant"
FOLDER = Path("results") / "mutants"


class Store:
    """Results in one journal, which is begun when something is written."""

    def __init__(self, folder: Path = FOLDER) -> None:
        self._folder = folder
        self._found = journal.read(folder).finished()
        self._writer: journal.Writer | None = None

    def find(self, id: str) -> dict[str, Any] | None:
        """What an earlier run found of a mutant, or of a part of the checks."""
        return self._found.get(_key(id))

    def add(self, id: str, told: Mapping[str, Any]) -> dict[str, Any]:
        """Write one record, and return it."""
        self._writer = self._writer or journal.Writer(self._folder, {"purpose": "mutants"})
        row = self._writer.append({"kind": KIND, "key": _key(id), "id": id, **told})
        self._found[row["key"]] = row
        return row

    def add_mutant(self, mutant: Mutant, outcome: Mapping[str, Any]) -> dict[str, Any]:
        """Write what became of a mutant."""
        gone, come = mutant.change
        site = mutant.site
        place = {"file": short(site.path), "row": site.row, "operator": site.operator}
        return self.add(mutant.id, {**place, "line": gone, "becomes": come, **outcome})


def _key(id: str) -> str:
    return schema.digest([KIND, id, state()])
