"""A comparison over all tasks of a family: every task, their average, and what a batch takes."""

from __future__ import annotations

import math
import statistics
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from matplotlib.figure import Figure

from harness.experiments.conclusion import Conclusion
from harness.experiments.costs import batch_seconds
from harness.experiments.replicates import Record, is_ok
from harness.experiments.warnings import DECIDED
from harness.stats import Interval, mean_interval, ratio_interval
from harness.train.recipe import EVALUATION_BATCH
from harness.train.task import family_of, gathered, task, tasks_named
from reports.core import curves
from reports.core.axes import panel, ratio_axis, titled
from reports.core.forest import Line, Panel, forests
from reports.core.page import Output, Shown, remark, says, together
from reports.core.printed_values import printed_accuracy
from reports.core.style import LINES, look, mechanism_of
from reports.core.tables import under
from reports.core.trained import ModelRuns, mean_text, per_unit, replicate_of
from reports.core.words import time_text
from reports.pages.comparison.tables import ratio_by_pairs

AVERAGE, UNSEEN = "average", "average without those in training files"


@dataclass(frozen=True)
class FamilyArm:
    """One model on all tasks of a family, of the seeds with which it finished all of them.

    `unseen`: by seed the average without test examples that stand in a training file.
    """

    whole: ModelRuns
    unseen: tuple[float, ...]

    def on(self, name: str) -> ModelRuns:
        """Its runs on one task."""
        return replace(
            self.whole, task=name, runs=tuple(r for r in self.whole.runs if r["task"] == name)
        )

    def ratio(self, other: FamilyArm, name: str) -> Interval | None:
        """Times of a test batch over another's, paired by seed; None where they are not told."""
        mine, theirs = ({replicate_of(r): r for r in arm.on(name).runs} for arm in (self, other))
        pairs = [(mine[seed], theirs[seed]) for seed in mine if seed in theirs]
        return ratio_by_pairs(pairs, batch_seconds)


def arms_of(found: Conclusion, family: str) -> list[FamilyArm]:
    """The models of a conclusion, the baseline last, that finished a seed on every task."""
    runs: dict[str, dict[str, Record]] = {name: {} for name in (*found.models, found.baseline)}
    unseen: dict[str, dict[int, dict[str, float]]] = {name: {} for name in runs}
    comparisons = [c for c in found.comparisons if family_of(c.task) == family]
    for c in comparisons:
        for model, side in zip((c.first, c.second), c.sides, strict=True):
            runs[model] |= {r["key"]: r for r in side if is_ok(r) and r.get("task") == c.task}
        for seed, *both in c.examples.values if c.examples else ():
            for model, value in zip((c.first, c.second), both, strict=True):
                unseen[model].setdefault(seed, {})[c.task] = value
    names = {one.name for one in tasks_named(family)}
    arms = []
    for model, mine in runs.items():
        done = Counter(replicate_of(r) for r in mine.values())
        kept = tuple(r for r in mine.values() if done[replicate_of(r)] == len(names))
        each = [values for values in unseen[model].values() if values.keys() == names]
        without = tuple(statistics.fmean(values.values()) for values in each)
        if kept:
            whole = ModelRuns(model, family, comparisons[0].metric, kept)
            arms.append(FamilyArm(whole, tuple(filter(math.isfinite, without))))
    return arms


def shown(place: Output, found: Conclusion) -> Shown:
    """Of every family of which all tasks are compared; nothing without one."""
    families = [name for name in gathered(found.tasks) if name in map(family_of, found.tasks)]
    return together(*(_family(place, found, name) for name in families))


def _family(place: Output, found: Conclusion, family: str) -> Shown:
    arms = arms_of(found, family)
    if not arms:
        return remark(f"No model has finished a seed on every task of {family}.")
    pieces = [_differences(place, found, family), _values(place, arms, family)]
    base = next((arm for arm in arms if arm.whole.model == found.baseline), None)
    if base is not None and any(math.isfinite(batch_seconds(r)) for r in base.whole.runs):
        pieces.append(_costs(place, arms, base, family))
    return together(*pieces)


def _differences(place: Output, found: Conclusion, family: str) -> Shown:
    """Every model beside the baseline on every task, in a panel each."""
    every = {one.name: str(one.options[one.each]) for one in tasks_named(family)}
    lines: dict[str, dict[str, Line]] = {}
    for c in found.comparisons:
        if c.task in every and (d := c.difference) is not None:
            decided, name = c.said in DECIDED, every[c.task]
            row = Line.of(name, mechanism_of(c.first), d, c.unit.scale, decided=decided)
            lines.setdefault(c.first, {})[name] = row
    if not lines:
        return Shown("")
    one = next(c for c in found.comparisons if c.task in every)
    of = " (points)" if one.unit.of_differences else ""
    named = Counter(map(mechanism_of, lines))  # a panel has no room for more where that tells it
    panels = [
        Panel(
            mechanism_of(model) if named[mechanism_of(model)] == 1 else model,
            f"minus {found.baseline}{of}",
            mine,
        )
        for model, mine in lines.items()
    ]
    caption = (
        f"{family}: difference to {found.baseline} on every task, with 95 % t-intervals over "
        f"{one.units}; grey: nothing decided, as one of {one.together} comparisons."
    )
    under = f"{'right' if one.higher_is_better else 'left'} of zero: better"
    return place.figure("family-differences", forests(panels, under), caption)


def _tokens(arm: FamilyArm, name: str) -> float:
    """Mean tokens of a task's test examples, as they were read; nan where no run tells."""
    known = [r["test_tokens"] for r in arm.on(name).runs if r.get("test_tokens") is not None]
    return statistics.fmean(known) if known else math.nan


def _values(place: Output, arms: Sequence[FamilyArm], family: str) -> Shown:
    """A row for each task, then the average over them."""
    first, rows, flat = arms[0].whole, [], []
    every = {one.name: str(one.options[one.each]) for one in tasks_named(family)}
    for name, called in (*every.items(), (family, AVERAGE)):
        tokens = statistics.fmean(_tokens(arms[0], one) for one in every if name in (one, family))
        cells = [called, "" if math.isnan(tokens) else f"{tokens:.0f}"]
        for arm in arms:
            one = arm.whole if name == family else arm.on(name)
            printed = printed_accuracy(name, one.metric, one.mechanism)
            mean = mean_interval(one.values)
            cells.append(mean_text(one.unit, mean) + (f" ({printed.text})" if printed else ""))
            flat.append(
                {
                    "task": name,
                    "model": one.model,
                    "metric": one.metric,
                    "test_tokens": tokens,
                    **mean._asdict(),
                    "seeds": len(one.values),
                    "batch_seconds": statistics.fmean(map(batch_seconds, one.runs)),
                    "printed": printed.summary.mean if printed else math.nan,
                }
            )
        rows.append(cells)
    if any(arm.unseen for arm in arms):
        without = [
            mean_text(first.unit, mean_interval(arm.unseen)) if arm.unseen else "" for arm in arms
        ]
        rows.append([UNSEEN, "", *without])
    columns = [task(next(iter(every))).each, "tokens", *(arm.whole.model for arm in arms)]
    return together(
        place.table("family", flat, under(columns, rows)),
        remark(
            f"Test {first.unit.named(first.metric)} with 95 % t-intervals over seeds, of "
            f"{' and '.join(sorted({arm.whole.counted for arm in arms}))} with which a model was "
            "trained on all of them; an average is one of every seed. In parentheses: what a paper "
            "prints, of one run. Tokens: of a test text as it is read, on average."
        ),
    )


def _costs(place: Output, arms: Sequence[FamilyArm], base: FamilyArm, family: str) -> Shown:
    """Time of a test batch and accuracy of the same runs; and how the ratio goes with length."""
    tokens = {one.name: _tokens(base, one.name) for one in tasks_named(family)}
    by_length = sorted(tokens, key=lambda name: tokens[name])
    rows, flat, lines = [], [], {}
    for arm in arms:
        one = arm.whole
        ratios = {n: r for n in by_length if (r := arm.ratio(base, n)) is not None}
        over = ratio_interval([r.ratio for r in ratios.values()])
        seconds = mean_interval(per_unit(one.runs, batch_seconds))
        ends = (
            ""
            if math.isnan(seconds.low)
            else (f" [{time_text(max(0.0, seconds.low))}, {time_text(seconds.high)}]")
        )
        each = [str(ratios[n]) if n in ratios else "" for n in (by_length[0], by_length[-1])]
        told = ["1", "", ""] if arm is base else [str(over), *each]
        mean = mean_text(one.unit, mean_interval(one.values))
        rows.append([one.model, mean, f"{time_text(seconds.mean)}{ends}", *told])
        flat += [
            {"model": one.model, "task": n, "test_tokens": tokens[n], **vars(r)}
            for n, r in ratios.items()
        ]
        if arm is not base:
            lines[one.model] = [
                curves.Point(tokens[n], r.ratio, r.low, r.high) for n, r in ratios.items()
            ]
    over_base = f"over {base.whole.model}'s"
    columns = ["model", AVERAGE, "a batch", over_base, "shortest", "longest"]
    pieces = [
        place.table("batches", flat, under(columns, rows)),
        remark(
            f"A batch: {EVALUATION_BATCH} test texts, from one pass over the test set of each run "
            "whose accuracy stands here, as many runs at a time as the machine was given. Ratio: "
            f"geometric mean over the {len(tokens)} tasks with its 95 % t-interval; of the "
            "shortest and of the longest texts over seeds."
        ),
    ]
    if lines and all(map(math.isfinite, tokens.values())):
        name = base.whole.model
        caption = (
            f"Time of a test batch over that of {name}, by the length of a task's texts: below 1 "
            "is faster. Bars: 95 % t-intervals over seeds."
        )
        pieces.append(place.figure("batch-by-length", _against_length(lines, name), caption))
    said = [f"{row[0]}: {row[1]}, a batch in {row[2]}" for row in rows]
    return together(
        says([f"{family}, average and time of a test batch: {'; '.join(said)}."]), *pieces
    )


def _against_length(lines: Mapping[str, Sequence[curves.Point]], base: str) -> Figure:
    figure, axes = panel()
    ratio_axis(axes)
    axes.set_xlabel("tokens of a test text, on average")
    axes.set_ylabel(f"time of {EVALUATION_BATCH} texts, over {base}'s", fontsize=8.5)
    styles = {
        model: (look(mechanism_of(model)), LINES[number % len(LINES)])
        for number, model in enumerate(lines)
    }
    curves.named_lines(axes, lines, styles)
    titled(axes, "Time of a test batch by length", "bars: 95 % t-intervals over seeds")
    return figure
