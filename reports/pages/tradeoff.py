"""Memory, time and accuracy of trained models (MTSA, figure 1 c): ``tradeoff.ipynb``."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, get_args

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter, LogLocator, MaxNLocator, NullFormatter

from harness.experiments.costs import epoch_seconds
from harness.stats import MeanInterval, mean_interval
from reports.core.axes import bare, label_ends, note, titled
from reports.core.page import DevicePage, Shown, heading, remark, says, together
from reports.core.style import look, text_colour
from reports.core.trained import ModelRuns, TaskRuns, per_unit, trained_tasks
from reports.core.words import bytes_text, file_name, time_text

VARIANT = "variant, not ranked"
"""Standing of an ablation, say, of a mechanism that is ranked itself."""
Standing = Literal["on the front", "behind", "open"]


@dataclass(frozen=True)
class TrainingCosts:
    """What one model costs on one task, with 95 % t-intervals over seeds or folds.

    `metric` is in its unit; `seconds` of training an epoch: the median epoch of each run;
    `peak_bytes` beyond data, libraries and weights, nan where it can't be measured; `parameters`
    without word vectors; `workers` are runs at a time, in those that are shown: they slow each
    other.
    """

    model: ModelRuns
    metric: MeanInterval
    seconds: MeanInterval
    peak_bytes: MeanInterval
    parameters: int
    workers: tuple[int, ...]

    @property
    def spent(self) -> tuple[MeanInterval, ...]:
        """Metric, time and memory, of each of which less is better."""
        m = self.metric
        better = MeanInterval(-m.mean, -m.high, -m.low) if self.model.higher_is_better else m
        return better, self.seconds, self.peak_bytes


def costs_of(model: ModelRuns) -> TrainingCosts:
    """Costs of training a model from its run records."""

    def estimate(value: Any, scale: float = 1.0) -> MeanInterval:
        numbers = [scale * v for v in per_unit(model.runs, value)]
        return mean_interval(numbers) if numbers else MeanInterval(*[math.nan] * 3)

    return TrainingCosts(
        model,
        estimate(lambda r: r["test"][model.metric], model.unit.scale),
        estimate(epoch_seconds),
        estimate(lambda r: r.get("peak_bytes")),
        int(model.runs[-1].get("parameters") or 0),
        tuple(sorted({int(r.get("workers") or 1) for r in model.runs})),
    )


def standings(spent: Mapping[str, Sequence[MeanInterval]]) -> dict[str, Standing]:
    """Where each stands on the Pareto front.

    *on the front*: no other is at least as good in every mean. *behind*: another is better in
    everything and no intervals meet. *open*: another's means are better, but chance may be why.

    Parameters
    ----------
    spent : mapping
        By name, of each of which less is better; what is nan is not known, and decides nothing.
    """
    found: dict[str, Standing] = {}
    for name, mine in spent.items():
        against = [
            [(a, b) for a, b in zip(theirs, mine, strict=True) if not math.isnan(a.mean - b.mean)]
            for other, theirs in spent.items()
            if other != name
        ]
        if any(all(a.high < b.low for a, b in pairs) for pairs in against):
            found[name] = "behind"
        elif any(
            all(a.mean <= b.mean for a, b in pairs) and any(a.mean < b.mean for a, b in pairs)
            for pairs in against
        ):
            found[name] = "open"
        else:
            found[name] = "on the front"
    return found


def front(task: str, found: Sequence[TrainingCosts], standing: Mapping[str, str]) -> Figure:
    """Two panels with one metric axis; filled markers are on the front of all three.

    Names stand at the right, each at the height of its metric in both panels.
    """
    figure = Figure(figsize=(9.2, 4.2))
    time, memory = figure.subplots(1, 2, sharey=True)
    figure.subplots_adjust(left=0.075, right=0.79, bottom=0.125, top=0.85, wspace=0.06)
    _panel(time, found, standing, lambda c: c.seconds, 1.0)
    _panel(memory, found, standing, lambda c: c.peak_bytes, 2.0**20)
    edge, ends = memory.get_xlim()[1], []
    for c in found:
        ink, x, y = text_colour(look(c.model.mechanism).colour), c.peak_bytes.mean, c.metric.mean
        ends.append((edge, y, c.model.model, ink))
        memory.plot([x / 2**20, edge], [y, y], color=ink, linewidth=0.6, linestyle=":", zorder=1)
    memory.set_xlim(right=edge)
    label_ends(memory, ends, 7.5)
    first = found[0].model
    better = "higher" if first.higher_is_better else "lower"
    time.set_ylabel(f"test {first.unit.named(first.metric)}, {better} is better", fontsize=8.5)
    time.set_xlabel("time of a training epoch (s)", fontsize=8.5)
    memory.set_xlabel("peak memory of training (MiB)", fontsize=8.5)
    short = task.partition("[")[0]  # the caption has it in full; here it would reach the next panel
    titled(time, f"{short}: {first.metric}, time", "filled: on the Pareto front of all three")
    titled(memory, f"{first.metric}, memory", "bars: 95 % t-intervals over seeds or folds")
    return figure


def _panel(
    axes: Axes,
    found: Sequence[TrainingCosts],
    standing: Mapping[str, str],
    cost: Callable[[TrainingCosts], MeanInterval],
    unit: float,
) -> None:
    shown = [c for c in found if not math.isnan(cost(c).mean)]
    for c in shown:
        style, x, y = look(c.model.mechanism), cost(c), c.metric
        filled = standing[c.model.model] == "on the front"
        axes.errorbar(
            [x.mean / unit],
            [y.mean],
            xerr=_reach(x, unit),
            yerr=_reach(y, 1.0),
            color=style.colour,
            marker=style.marker,
            markersize=7.5,
            linestyle="none",
            markerfacecolor=style.colour if filled else "white",
            capsize=2,
            linewidth=1.2,
            label=c.model.model,
        )
    axes.set_xscale("log")
    axes.margins(x=0.08, y=0.08)
    low, high = axes.get_xlim()
    narrow = high < 5 * low  # too few powers for ticks at 1, 2 and 5 of each
    axes.xaxis.set_major_locator(MaxNLocator(4) if narrow else LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda v, _: f"{v:,.4g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    bare(axes)
    if not shown:
        where = "axes fraction"
        text, at = "not measured on this platform", (0.5, 0.5)
        note(axes, text, at, size=9, align="center center", within=where)


def _reach(e: MeanInterval, unit: float) -> list[list[float]] | None:
    """How far an interval goes to both sides; None without one, or with one that reaches zero."""
    if math.isnan(e.low):
        return None
    return [[max(0.0, e.mean - e.low) / unit], [max(0.0, e.high - e.mean) / unit]]


class Tradeoff(DevicePage):
    """TrainingCosts against accuracy; every method shows one piece of the page."""

    kinds = ("run",)
    none = (
        "Nothing was trained yet, so there is no accuracy to weigh costs against: attnbench "
        "compare --all multi_head --task trec --seeds 5"
    )
    verb = "Trained"

    @cached_property
    def tasks(self) -> list[TaskRuns]:
        """Tasks with two models or more."""
        return [task for task in trained_tasks(self.device.records) if len(task.models) > 1]

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

    @property
    def empty(self) -> bool:
        """Whether no two models were trained on a task."""
        return not self.tasks

    def fronts(self) -> Shown:
        """Per task: accuracy against time and against memory, and who is on the front."""
        pieces = []
        for task in self.tasks:
            found, stand = self.ranked(task.name), self.standings(task.name)
            pieces.append(heading(task.name))
            pieces.append(says([self._sentence(task, stand)], main=True))
            if any(not math.isnan(c.seconds.mean) for c in found):
                figure = front(task.name, found, stand)
                name, caption = f"front-{file_name(task.name)}", self._caption(task)
                pieces.append(self.place.figure(name, figure, caption))
        return together(*pieces)

    def table(self) -> Shown:
        """All numbers."""
        rows, flat = [], []
        for task in self.tasks:
            stand = self.standings(task.name)
            for c in self.costs[task.name]:
                m, standing = c.model, stand.get(c.model.model, VARIANT)
                rows.append(
                    {
                        "": f"{task.name}: {m.model}",
                        "metric (sd)": f"{m.text}{m.unit.of_values}",
                        "an epoch": _estimate(c.seconds, time_text),
                        "peak memory": _estimate(c.peak_bytes, bytes_text),
                        "parameters": f"{c.parameters:,}",
                        "over": m.counted,
                        "standing": standing,
                    }
                )
                flat.append(
                    {
                        "task": task.name,
                        "model": m.model,
                        "metric": m.metric,
                        **c.metric._asdict(),
                        **_ends("epoch_seconds", c.seconds),
                        **_ends("peak_memory_bytes", c.peak_bytes),
                        "parameters": c.parameters,
                        "runs_at_a_time": " ".join(map(str, c.workers)),
                        "standing": standing,
                    }
                )
        return together(
            self.place.table("costs", flat, rows, (0, 5, 6)),
            remark(
                "An epoch is wall time with as many runs at a time as the machine has cores, and "
                "its interval is over seeds or folds; models were not timed side by side, so for a "
                "ratio of times see the page on cost. Memory is the peak of the whole training run "
                "beyond data, libraries and weights."
            ),
        )

    def _sentence(self, task: TaskRuns, stand: Mapping[str, Standing]) -> str:
        on, behind, rest = (
            ", ".join(name for name, where in stand.items() if where == one)
            for one in get_args(Standing)
        )
        text = f"{task.name}: no other model is at least as accurate, fast and small as {on}"
        if behind:
            text += f"; shown to be beaten in all three: {behind}"
        if rest:
            text += f"; beaten in the means, not beyond chance: {rest}"
        return text + "."

    def _caption(self, task: TaskRuns) -> str:
        metric = task.models[0].metric
        better = "upper" if task.models[0].higher_is_better else "lower"
        return (
            f"Test {metric} against time of an epoch and peak memory of training, {task.name}: the "
            f"{better} left is best. Filled: on the Pareto front of all three; hollow: not. Bars "
            "are 95 % t-intervals over seeds or folds."
        )


def _ends(name: str, e: MeanInterval) -> dict[str, float]:
    return {name: e.mean, f"{name}_low": e.low, f"{name}_high": e.high}


def _estimate(e: MeanInterval, text: Any) -> str:
    if math.isnan(e.mean):
        return "unknown"
    if math.isnan(e.low) or e.low <= 0:
        return str(text(e.mean))
    return f"{text(e.mean)} [{text(e.low)}, {text(e.high)}]"
