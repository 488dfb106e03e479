"""What ``comparison.ipynb`` calls: trained models against a baseline, on one device."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Sequence
from functools import wraps

from harness.experiments.conclusion import Comparison, Conclusion, costs_over
from harness.experiments.costs import epoch_seconds, workload
from harness.experiments.over_tasks import (
    OVER_TASKS,
    beside_tests,
    counted_tasks,
    overall_rows,
)
from harness.experiments.replicates import BEST_ON_TEST
from harness.experiments.tables import (
    COSTS,
    asked,
    columns,
    cost_rows,
    headed,
    of_examples,
    reading,
    statistics_rows,
    task_rows,
    tied,
    tied_on,
    value_columns,
    value_rows,
)
from harness.train.task import gathered
from reports.core.forest import ties_shown
from reports.core.page import (
    DevicePage,
    Output,
    Shown,
    folded,
    heading,
    remark,
    says,
    table,
    together,
    warns,
)
from reports.core.source import DeviceRecords, Source, by_key
from reports.core.tables import under
from reports.pages.comparison import disagreement, families, figures, learning
from reports.pages.comparison.tables import (
    cost_numbers,
    numbers,
    over_baseline,
    peak_bytes,
    run_cells,
    run_numbers,
)
from reports.pages.corpora.edges import known_beside

OVER_BASELINE = ("epoch, over the baseline's", "memory, over the baseline's")
BELOW = "Every replicate of every model is a point in the figures below."
MOST_OPEN = 6
"""Tasks that are shown one below the other; of more each stands folded behind its name."""


def by_task(
    show: Callable[[Compared, Sequence[Comparison], str], Shown],
) -> Callable[[Compared], Shown]:
    """A piece that shows a task's comparisons under a name, of every task.

    Where there are several, each stands below its own name, or behind it.
    """

    @wraps(show)
    def every(page: Compared) -> Shown:
        found = page.conclusion

        def pieces() -> Iterator[Shown]:
            several = len(found.tasks) > 1
            for number, task in enumerate(found.tasks):
                name = f"task{number}-" if several else ""
                piece = show(page, found.of_task(task), name)
                if len(found.tasks) > MOST_OPEN:
                    yield folded(task, piece)
                else:
                    yield together(*([heading(task)] if several else []), piece)

        return together(*pieces())

    return every


class Compared(DevicePage):
    """A family of comparisons; every method shows one piece of the page, task by task."""

    kinds = ("design", "family")
    footed = ("run",)
    none = (
        "There is no comparison in this journal: attnbench compare mtsa multi_head makes one, "
        "attnbench compare --all multi_head one of many models."
    )
    of_record = True

    def __init__(
        self, source: Source, device: DeviceRecords, place: Output, design: str = ""
    ) -> None:
        super().__init__(source, device, place)
        found = {c.key: c for c in device.conclusions}
        key = str(design) or next(reversed(found), "")
        self.chosen = by_key("design", key, found, lambda c: c.title) if key else None

    @property
    def empty(self) -> bool:
        """Whether nothing was compared."""
        return self.chosen is None

    @property
    def conclusion(self) -> Conclusion:
        """That of the key; the newest without one."""
        assert self.chosen is not None
        return self.chosen

    def about(self) -> Shown:
        """Which records these are, and what was compared."""
        c = self.conclusion
        what = f"{', '.join(c.models)} against {c.baseline}, on {', '.join(gathered(c.tasks))}."
        if len(c.comparisons) > 1:
            what += (
                f" {len(c.comparisons)} comparisons, declared and judged together; what had been "
                "trained before, and not by a sweep that asked for it, stands under the verdicts."
            )
        made = f"Trained {self.device.dates_of('run')} on {self.device.made_on(c.runs)}."
        origin = f"{self.source.says} {made}"
        declared: dict[str, list[str]] = {}
        for task in c.tasks:
            declared.setdefault(_declared(c.of_task(task)), []).append(task)
        said = [
            f"Task{'s' * (len(tasks) > 1)} {', '.join(gathered(tasks))}: {text}"
            for text, tasks in declared.items()
        ]
        read = {task: _read(c.of_task(task)) for task in c.tasks}
        rows = [{"task": task, **words} for task, words in read.items() if any(words.values())]
        if len(c.tasks) == 1:
            told = filter(None, read[c.tasks[0]].values())
            said += [f"{text[0].upper()}{text[1:]}." for text in told]
        pieces = [heading(c.title, 2), says([origin, what, *asked(c), *said])]
        if len(c.tasks) > 1 and rows:
            pieces.append(folded("Word vectors and batches of every task", table(rows, (0, 1, 2))))
        return together(*pieces)

    def verdicts(self) -> Shown:
        """What is decided, and what must be known beside it."""
        c = self.conclusion
        first, *others = map(_ended, c.sentences)
        warnings = map(_ended, [*c.warnings, *known_beside(self.source)(c)])
        over = [self.over_tasks()] if len(c.tasks) > 1 else []
        return together(says([first], main=True), *over, says(others), warns(warnings))

    def seeds(self) -> Shown:
        """Two models: a line per seed or fold, unpaired a point per run; more: see the forest."""
        found = self.conclusion
        if all(len(found.of_task(task)) > 1 for task in found.tasks):
            return remark(BELOW)  # once, not under the name of every task
        return self._seeds()

    @by_task
    def _seeds(self, some: Sequence[Comparison], name: str) -> Shown:
        c = some[0]
        if len(some) > 1:
            return remark(BELOW)
        if not c.values:
            return _nothing(c)
        ahead = sum((a > b) == c.higher_is_better and a != b for _, a, b in c.values)
        caption = (
            f"{c.first} did better than {c.second} with {ahead} of {len(c.values)} {c.replicate}s."
        )
        said = caption if c.paired else _means(c)
        return self.place.figure(f"{name}seeds", figures.every_seed(c), said)

    @by_task
    def differences(self, some: Sequence[Comparison], name: str) -> Shown:
        """Differences to the baseline with their intervals."""
        c = some[0]
        if len(some) == 1:
            return _nothing(c) if c.difference is None else self._one_difference(c, name)
        if not any(c.difference and not math.isnan(c.difference.low) for c in some):
            return _nothing(c)
        caption = f"{c.task}: difference to {c.second}, with 95 % t-intervals."
        return self.place.figure(f"{name}differences", figures.forest(some), caption)

    def _one_difference(self, c: Comparison, name: str) -> Shown:
        unit, d = c.unit, c.difference
        assert d is not None
        of = "mean difference" if d.paired else "difference of the means, unpaired,"
        caption = f"The {of} is {unit.difference(d.difference)}{unit.of_differences}"
        if math.isnan(d.low):
            caption += ", of one, which has no interval."
        else:
            beside = "excludes" if d.low > 0 or d.high < 0 else "includes"
            caption += f"; its 95 % t-interval {unit.bounds(d)} {beside} zero."
        flat = [
            {
                c.replicate: number,
                "first": c.first,
                f"first_{c.metric}": a,
                "second": c.second,
                f"second_{c.metric}": b,
                **({f"difference_{c.metric}": a - b} if c.paired else {}),
            }
            for number, a, b in c.values
        ]
        return together(
            self.place.figure(f"{name}differences", figures.differences(c), caption),
            self.place.table(f"{name}seeds", flat, under(value_columns(c), value_rows(c))),
        )

    def statistics(self) -> Shown:
        """Interval first, then the tests: of one comparison row by row, of several a row each."""
        return together(self._statistics(), says(reading(self.conclusion)))

    @by_task
    def _statistics(self, some: Sequence[Comparison], name: str) -> Shown:
        flat = map(numbers, some)
        if len(some) > 1:
            rows = under(columns(some), task_rows(some))
            ends = (0, len(rows[0]) - 1)
            shown = self.place.table(f"{name}statistics", flat, rows, ends)
            return together(remark(headed(some)), shown)
        if not (tests := statistics_rows(some[0])):
            return _nothing(some[0])
        rows = under(["", "value", "how to read it"], tests)
        return self.place.table(f"{name}statistics", flat, rows, (0, 2))

    def over_tasks(self) -> Shown:
        """The tests over tasks."""
        c = self.conclusion
        if c.overall is None:
            return remark("Fewer than two tasks with runs of every model: nothing over tasks.")
        rows = under(OVER_TASKS, overall_rows(c.baseline, c.overall))
        pieces = [
            heading("Over tasks"),
            remark(counted_tasks(c.overall)),
            self.place.table("tasks", rows, rows, (0, len(OVER_TASKS) - 1)),
            says(map(_ended, beside_tests(c))),
        ]
        if (ties := c.overall.ties) is not None:
            said = tied(ties, "tasks")
            pieces.append(ties_shown(self.place, "ties", ties, "over tasks", "tasks", said))
        return together(*pieces, families.shown(self.place, c))

    @by_task
    def ties(self, some: Sequence[Comparison], name: str) -> Shown:
        """Of more than two models those that can't be told apart on a task."""
        found, task = self.conclusion, some[0].task
        said = tied_on(found, task) or ["Ties are of three models or more, with runs of all."]
        if task not in found.ties:
            return remark(" ".join(map(_ended, said)))
        return ties_shown(self.place, f"{name}ties", found.ties[task], task, "seeds", said)

    @by_task
    def power(self, some: Sequence[Comparison], name: str) -> Shown:
        """What how many seeds would find, at the spread that was seen here."""
        c = some[0]
        if len(some) > 1:
            return remark(
                "What could have been found stands beside each verdict; attnbench plan "
                f"--comparisons {c.together} says what more seeds would find."
            )
        spread = figures.spread_of(c)
        if spread is None:
            return remark(_no_power(c))
        found = figures.power_curves(c, spread.value)
        needed = "; ".join(f"{one.name}: {one.needed} seeds" for one in found)
        ends = f"[{c.unit.size(spread.low)}, {c.unit.size(spread.high)}]"
        caption = (
            "Differences between seeds have a standard deviation of "
            f"{c.unit.size(spread.value)} {ends}; taken as it is, 80 % power needs, for a true "
            f"difference of {needed}. That spread is itself an estimate, and the curves are no "
            "statement about the difference found here."
        )
        return self.place.figure(f"{name}power", figures.power(c, found), caption)

    @by_task
    def disagreement(self, some: Sequence[Comparison], name: str) -> Shown:
        """What kept predictions say: without what was trained on, over examples, and where."""
        told = says(map(_ended, of_examples(some)))
        return together(told, disagreement.show(self.place, some, name, self.device))

    @by_task
    def curves(self, some: Sequence[Comparison], name: str) -> Shown:
        """Learning curves on dev."""
        figure = learning.learning_curves(some)
        if figure is None:
            return _nothing(some[0])
        where = "dev" if some[0].choose == "dev" else "the test set"
        parts = [
            f"{model} is best on {where} after {cost.chosen_epoch:g} of {cost.epochs:g} epochs"
            for model, cost in costs_over(some).items()
        ]
        ends = {
            one.model: f"{one.model} ({len(one.runs)} run{'s' * (len(one.runs) != 1)}, "
            f"all to epoch {one.whole})"
            for c in some
            for one in learning.dev_curves(c)
        }
        caption = (
            f"Dev {some[0].metric} by epoch, median and interquartile range, as far as every "
            f"run of a model goes on: {', '.join(ends.values())}. Dotted: the median of those "
            "that go on longer, while they are half or more, without a band, for patience ends "
            "some runs before others. Dots: the epoch that counts, of every run; the median "
            f"run of {', of '.join(parts)}."
        )
        return self.place.figure(f"{name}curves", figure, caption)

    def costs(self) -> Shown:
        """Parameters, time and memory of every model."""
        how = (
            "Medians over the runs of each model; peak memory is that of the whole training run "
            "beyond data, libraries and weights, on the code and machine of those runs."
        )
        return together(self._costs(), remark(how))

    @by_task
    def _costs(self, some: Sequence[Comparison], name: str) -> Shown:
        if not (costs := costs_over(some)):
            return _nothing(some[0])
        over = {c.first: over_baseline(c, epoch_seconds, peak_bytes) for c in some}
        base = some[0].second
        rows = [
            {**row, **dict(zip(OVER_BASELINE, over.get(row["model"], ("1", "1")), strict=True))}
            for row in under(COSTS, cost_rows(some))
        ]
        shown = self.place.table(f"{name}costs", cost_numbers(costs), rows)
        return together(shown, remark(f"Over {base}'s: pairs of runs, with 95 % t-intervals."))

    @by_task
    def runs(self, some: Sequence[Comparison], name: str) -> Shown:
        """Every run, those that failed too."""
        flat = run_numbers(some)
        rows = [run_cells(some[0], row) for row in flat]
        return self.place.table(f"{name}runs", flat, rows, (0, 1))


def _declared(comparisons: Sequence[Comparison]) -> str:
    """Seeds or folds, pairing, test set and split of a task."""
    c = comparisons[0]
    seeds = f"({', '.join(map(str, c.seeds))})"
    counted = f"{len(c.seeds)} seeds {seeds}"
    if c.units != "seeds":
        counted = f"{len(c.values)} folds of one corpus, each once per seed {seeds}"
    how = {"dev": "the epoch that was best on dev, looked at once"}.get(
        c.choose, f"{BEST_ON_TEST}, the papers' way"
    )
    paired = "paired" if c.paired else "declared unpaired: two independent groups"
    return f"{counted}, {paired}. Test: {how}. Split: {c.design.get('split', 'not recorded')}."


def _read(comparisons: Sequence[Comparison]) -> dict[str, str]:
    """What is told of a task's word vectors, and of its batches; empty where no run tells."""
    return {
        "word vectors": next((one.coverage for one in comparisons if one.coverage), ""),
        "batches": workload(run for one in comparisons for run in one.runs),
    }


def _means(c: Comparison) -> str:
    d, unit = c.difference, c.unit
    said = f"Every run of {c.first} and {c.second}, declared unpaired."
    if d is None:
        return said
    return f"{said} Their means are {unit.value(d.mean_first)} and {unit.value(d.mean_second)}."


def _no_power(c: Comparison) -> str:
    if c.units != "seeds":
        return (
            "Folds share training examples, so that more of them find less than a t-test says: no "
            "power curve."
        )
    if not c.paired:
        return "Unpaired: attnbench plan --unpaired says what how many seeds would find."
    return "Two pairs or more are needed to say what more would find."


def _nothing(c: Comparison) -> Shown:
    what = "No pair of runs" if c.paired else "Not a run of each"
    return remark(f"{what} is finished yet: the same attnbench compare goes on.")


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
