"""What ``many.ipynb`` calls: models against a baseline, judged together, on one device."""

from __future__ import annotations

import math
from dataclasses import asdict

import pandas as pd

from harness.errors import UsageError
from harness.experiments.many import Many, families
from harness.experiments.many_wording import (
    OVER_TASKS,
    columns,
    counted_tasks,
    exact_tests,
    headed,
    omnibus,
    overall_rows,
    reading,
    task_rows,
)
from reports.comparison_figures import forest
from reports.core.page import Output, Shown, heading, opened, remark, says, table, together, warns
from reports.core.parameters import opens
from reports.core.source import DeviceRecords, Source, facts

KINDS = ("family",)
NONE = (
    "There is no comparison of many models in this journal: attnbench compare --all multi_head "
    "makes one."
)
SAVED = (
    "difference", "low", "high", "p", "hedges_g", "detectable", "sign_flip_p", "mean_first",
    "sd_first", "mean_second", "sd_second", "count_first", "test",
)  # fmt: skip


@opens
def begin(journal: str, device: str, family: str, out: str, page: str) -> Judged:
    """Open the notebook.

    Parameters
    ----------
    journal : str
        Folder of the records; the published ones if it is empty or holds none.
    device : str
        Key of a fingerprint; the newest that has such a comparison if empty.
    family : str
        Key of the comparisons declared together; the newest if empty.
    out : str
        Folder for figures and tables; empty writes none.
    page : str
        What their names begin with.
    """
    source, chosen, place = opened(journal, device, out, page, KINDS, ("run",))
    return Judged(source, chosen, choose(chosen, str(family)), place)


def choose(device: DeviceRecords | None, key: str) -> Many | None:
    """The comparisons of a key; the newest without one.

    Raises
    ------
    UsageError
        If there is none of that key.
    """
    found = families(device.records) if device else []
    if not key:
        return found[-1] if found else None
    for one in found:
        if one.key == key:
            return one
    known = ", ".join(f"{m.key} ({m.title})" for m in found) or "none"
    raise UsageError(f"given family {key!r}; the records have {known}")


class Judged:
    """Comparisons declared together; every method shows one piece of the page."""

    def __init__(
        self, source: Source, device: DeviceRecords | None, many: Many | None, place: Output
    ) -> None:
        self.source, self.device, self.many, self.place = source, device, many, place

    def about(self) -> Shown:
        """Which records these are, and what was compared."""
        if self.many is None or self.device is None:
            return together(says([self.source.says]), says([NONE]))
        m = self.many
        return together(
            heading(m.title, 2),
            says([
                f"{self.source.says} Trained {self.device.dates} on {self.device.title}.",
                f"{', '.join(m.models)}: each against {m.baseline}, on {', '.join(m.tasks)}. "
                f"{len(m.comparisons)} comparisons, declared and judged together; what had been "
                "trained before, and not by a sweep that asked for it, stands under the verdicts.",
            ]),
        )  # fmt: skip

    def verdicts(self) -> Shown:
        """What is decided, and what must be known beside it."""
        if self.many is None:
            return says([])
        first, *others = (f"{said}." for said in self.many.sentences)
        return together(says([first], main=True), says(others), warns(self.many.warnings))

    def comparisons(self) -> Shown:
        """A table and a figure per task."""
        if self.many is None:
            return says([])
        pieces = []
        for number, task in enumerate(self.many.tasks):
            some = self.many.of_task(task)
            name = f"task{number}"
            frame = pd.DataFrame([
                {
                    "task": c.task, "metric": c.metric, "model": c.first, "baseline": c.second,
                    "verdict": c.verdict, "p_holm": c.adjusted_p, "margin": c.margin,
                    "equivalence_p_holm": c.adjusted_equivalence_p,
                    **({} if c.difference is None else
                       {k: v for k, v in asdict(c.difference).items() if k in SAVED}
                       | {"detectable_together": c.difference.detectable_among(c.together)}),
                }
                for c in some
            ])  # fmt: skip
            names, rows = columns(some), task_rows(some)
            pieces += [
                heading(task),
                remark(headed(some)),
                self.place.table(f"{name}-comparisons", frame, names, rows, (0, len(names) - 1)),
            ]
            if any(c.difference and not math.isnan(c.difference.low) for c in some):
                caption = f"{task}: difference to {self.many.baseline}, with 95 % t-intervals."
                pieces.append(self.place.figure(f"{name}-differences", forest(some), caption))
        return together(*pieces, says(reading(self.many)))

    def over_tasks(self) -> Shown:
        """The tests over tasks."""
        if self.many is None:
            return says([])
        overall = self.many.overall
        if overall is None:
            return remark("One task, or one with runs of every model: nothing over tasks.")
        said = [] if overall.omnibus is None else [omnibus(overall.omnibus)]
        rows = overall_rows(self.many.baseline, overall)
        frame = pd.DataFrame(rows, columns=list(OVER_TASKS))
        return together(
            remark(counted_tasks(overall)),
            says(f"{one}." for one in said),
            self.place.table("tasks", frame, OVER_TASKS, rows, (0, len(OVER_TASKS) - 1)),
            says(f"{one}." for one in exact_tests(overall)),
        )

    def machine(self) -> Shown:
        """Where this was trained."""
        if self.device is None or self.many is None:
            return says([])
        known = facts(self.device.fingerprint, self.device.sessions_of("run"))
        return table(["", ""], [[k, v] for k, v in known.items()], (0, 1))
