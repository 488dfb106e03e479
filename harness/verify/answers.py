"""What oracles answered: kept while implementations of one mechanism are asked the same."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from harness.verify.compare import Computed, Question

PARTS = ("values", "gradients")


@dataclass(frozen=True)
class Answers:
    """A folder of answers.

    Attributes
    ----------
    folder : Path
    code : str
        Of the oracle and of what asks it: another code never reads these answers.
    """

    folder: Path
    code: str

    def of(self, asked: Question) -> Computed:
        """The answer, read where it is there, else computed and written."""
        path = self.folder / f"{self.code}-{asked.digest}.npz"
        if path.exists():
            with np.load(path, allow_pickle=False) as held:
                arrays = dict(held)
            parts = (_of_part(part, arrays) for part in PARTS)
            return Computed(*parts)
        answer = asked.answer()
        arrays = {
            f"{part} {name}": array
            for part in PARTS
            for name, array in getattr(answer, part).items()
        }
        self.folder.mkdir(parents=True, exist_ok=True)
        temporary = path.with_suffix(f".{os.getpid()}")
        with temporary.open("wb") as file:
            np.savez(file, allow_pickle=False, **arrays)
        temporary.replace(path)
        return answer


def _of_part(part: str, arrays: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    begin = f"{part} "
    return {name.removeprefix(begin): a for name, a in arrays.items() if name.startswith(begin)}
