"""What a page of kept predictions is made of: models, pairs of them, and the corpus, if given."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

import numpy as np

from harness.errors import UsageError
from harness.experiments.conclusion import Comparison
from harness.experiments.replicates import Record, is_ok
from harness.records.predictions import Predictions, PredictionsLost
from harness.registry import resolve
from harness.train.data.directory import VARIABLE
from harness.train.task import task
from reports.core.source import DeviceRecords

MOST = 10
"""Examples shown of a comparison; of one of several fewer."""

Loader = TypeVar("Loader")
Table = TypeVar("Table")
T = TypeVar("T")


@dataclass(frozen=True)
class Arm:
    """One model on one task: its predictions by seed and fold, and its finished runs."""

    model: str
    said: Mapping[tuple[int, int | None], Predictions]
    runs: Sequence[Record] = ()

    def pooled(self, name: str) -> np.ndarray:
        """An array of the predictions of all runs, one behind the other."""
        return np.concatenate([getattr(one, name) for one in self.said.values()])


def arms_of(
    comparisons: Sequence[Comparison], device: DeviceRecords
) -> tuple[list[Arm], list[str]]:
    """Every model whose predictions are kept, the baseline last; and what is lost, by name."""
    sides = [(c.first, c.sides[0]) for c in comparisons]
    found, lost = [], []
    for model, some in [*sides, (comparisons[0].second, comparisons[0].sides[1])]:
        said: dict[tuple[int, int | None], Predictions] = {}
        finished = [*filter(is_ok, some)]
        for run in finished:
            try:
                one = device.said(run)
            except PredictionsLost as error:
                lost.append(str(error))
                continue
            if one is not None and one.said.size:
                said[run["seed"], run.get("fold")] = one
        if said:
            found.append(Arm(model, said, finished))
    return found, lost


def pairs_of(
    comparisons: Sequence[Comparison], arms: Sequence[Arm]
) -> Iterator[tuple[Comparison, Arm, Arm, str, int]]:
    """Comparisons of models that are both kept; what ends a table's name, examples to show."""
    several = len(comparisons) > 1
    for number, c in enumerate(comparisons):
        first, second = (next((a for a in arms if a.model == m), None) for m in (c.first, c.second))
        if first is not None and second is not None:
            yield c, first, second, str(number) if several else "", MOST // 2 if several else MOST


def both_said(
    first: Arm, second: Arm, of: Callable[[Predictions], Iterable[T]]
) -> Iterator[tuple[int, T, T]]:
    """By pair of runs, what there is `of` each test item that both models were given."""
    for key in sorted(first.said.keys() & second.said.keys(), key=str):
        mine, theirs = (
            dict(zip(p.items.tolist(), of(p), strict=True))
            for p in (first.said[key], second.said[key])
        )
        for item in mine.keys() & theirs.keys():
            yield item, mine[item], theirs[item]


def loader_of(name: str, kind: type[Loader]) -> Loader | None:
    """How the corpus of a task is read; None if not so, or by no task that this version knows."""
    try:
        load = resolve(task(name).load)
    except UsageError:
        return None
    return load if isinstance(load, kind) else None


def table_of(file: str, read: Callable[[Path], Table], what: str) -> tuple[Path, Table | None, str]:
    """A table (its file without ending) of the data directory: where it is, what is read of it; or
    why nothing is. `what` is what a reader would see of it: ``the texts``.
    """
    folder = os.environ.get(VARIABLE, "")
    path = Path(folder) / f"{file}.gz"
    if not folder:
        return path, None, f"Set {VARIABLE} to the data directory to see {what}."
    try:
        return path, read(path), ""
    except UsageError as error:
        return path, None, f"{what[0].upper()}{what[1:]} can't be shown: {error}."
