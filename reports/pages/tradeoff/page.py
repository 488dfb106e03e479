"""What ``tradeoff.ipynb`` calls: memory, time and accuracy of trained models (MTSA, figure 1 c)."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import Any

import pandas as pd

from harness.stats import MeanInterval
from reports.core.page import DevicePage, Shown, heading, remark, says, together
from reports.core.trained import TaskRuns, trained_tasks
from reports.core.words import bytes_text, file_name, time_text
from reports.pages.tradeoff import figures
from reports.pages.tradeoff.tables import Standing, TrainingCosts, costs_of, standings

KINDS = ("run",)
VARIANT = "variant, not ranked"
"""Standing of an ablation, say, of a mechanism that is ranked itself."""
NONE = (
    "Nothing was trained yet, so there is no accuracy to weigh costs against: attnbench compare "
    "--all multi_head --task trec --seeds 5"
)


class Tradeoff(DevicePage):
    """TrainingCosts against accuracy; every method shows one piece of the page."""

    kinds = KINDS
    none = NONE
    verb = "Trained"

    @cached_property
    def tasks(self) -> list[TaskRuns]:
        """Tasks with two models or more."""
        found = trained_tasks(self.device.records) if self.device else []
        return [task for task in found if len(task.models) > 1]

    @cached_property
    def costs(self) -> dict[str, list[TrainingCosts]]:
        """Every model's costs, by task."""
        return {task.name: [costs_of(m) for m in task.models] for task in self.tasks}

    def ranked(self, task: str) -> list[TrainingCosts]:
        """Without variants of a mechanism that is there itself: they would hide the others."""
        whole = {c.model.mechanism for c in self.costs[task] if not c.model.variant}
        return [
            c for c in self.costs[task] if not c.model.variant or c.model.mechanism not in whole
        ]

    def standings(self, task: str) -> dict[str, Standing]:
        """Who is on the front of memory, time and metric."""
        return standings({c.model.model: c.spent for c in self.ranked(task)})

    def about(self) -> Shown:
        """Which records these are, if any run of them is finished."""
        return super().about() if self.tasks else together(says([self.source.says]), says([NONE]))

    def fronts(self) -> Shown:
        """Per task: accuracy against time and against memory, and who is on the front."""
        pieces = []
        for task in self.tasks:
            found, stand = self.ranked(task.name), self.standings(task.name)
            pieces.append(heading(task.name))
            pieces.append(says([self._sentence(task, stand)], main=True))
            if any(not math.isnan(c.seconds.mean) for c in found):
                figure = figures.front(task.name, found, stand)
                name, caption = f"front-{file_name(task.name)}", self._caption(task)
                pieces.append(self.place.figure(name, figure, caption))
        return together(*pieces)

    def table(self) -> Shown:
        """All numbers."""
        columns = ["", "metric (sd)", "an epoch", "peak memory", "parameters", "over", "standing"]
        rows, flat = [], []
        for task in self.tasks:
            stand = self.standings(task.name)
            for c in self.costs[task.name]:
                m = c.model
                rows.append(
                    [
                        f"{task.name}: {m.model}",
                        f"{m.text}{m.unit.of_values}",
                        _estimate(c.seconds, time_text),
                        _estimate(c.peak_bytes, bytes_text),
                        f"{c.parameters:,}",
                        m.counted,
                        stand.get(m.model, VARIANT),
                    ]
                )
                flat.append(
                    {
                        "task": task.name,
                        "model": m.model,
                        "metric": m.metric,
                        "mean": c.metric.mean,
                        "low": c.metric.low,
                        "high": c.metric.high,
                        "epoch_seconds": c.seconds.mean,
                        "epoch_seconds_low": c.seconds.low,
                        "epoch_seconds_high": c.seconds.high,
                        "peak_memory_bytes": c.peak_bytes.mean,
                        "peak_memory_bytes_low": c.peak_bytes.low,
                        "peak_memory_bytes_high": c.peak_bytes.high,
                        "parameters": c.parameters,
                        "runs_at_a_time": " ".join(map(str, c.workers)),
                        "standing": stand.get(m.model, VARIANT),
                    }
                )
        if not rows:
            return remark(NONE)
        return together(
            self.place.table("costs", pd.DataFrame(flat), columns, rows, (0, 5, 6)),
            remark(
                "An epoch is wall time with as many runs at a time as the machine has cores, and "
                "its interval is over seeds or folds; models were not timed side by side, so for a "
                "ratio of times see the page on cost. Memory is the peak of the whole training run "
                "beyond data, libraries and weights."
            ),
        )

    def _sentence(self, task: TaskRuns, stand: Mapping[str, Standing]) -> str:
        on = [name for name, where in stand.items() if where == "on the front"]
        behind = [name for name, where in stand.items() if where == "behind"]
        rest = [name for name, where in stand.items() if where == "open"]
        text = (
            f"{task.name}: no other model is at least as accurate, fast and small as "
            f"{', '.join(on)}"
        )
        if behind:
            text += f"; shown to be beaten in all three: {', '.join(behind)}"
        if rest:
            text += f"; beaten in the means, not beyond chance: {', '.join(rest)}"
        return text + "."

    def _caption(self, task: TaskRuns) -> str:
        metric = task.models[0].metric
        better = "upper" if task.models[0].higher_is_better else "lower"
        return (
            f"Test {metric} against time of an epoch and peak memory of training, {task.name}: the "
            f"{better} left is best. Filled: on the Pareto front of all three; hollow: not. Bars "
            "are 95 % t-intervals over seeds or folds."
        )


begin = Tradeoff.begin


def _estimate(e: MeanInterval, text: Any) -> str:
    if math.isnan(e.mean):
        return "unknown"
    if math.isnan(e.low) or e.low <= 0:
        return str(text(e.mean))
    return f"{text(e.mean)} [{text(e.low)}, {text(e.high)}]"
