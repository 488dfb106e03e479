"""Where models disagree: confusion, calibration and real examples, from kept predictions."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from textwrap import shorten

import numpy as np
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from harness.experiments.conclusion import Comparison
from harness.records.predictions import CERTAIN
from harness.train.data.directory import read_table
from harness.train.data.texts import Texts
from reports.core.axes import End, bare, label_ends, panel, titled
from reports.core.page import Output, Shown, remark, says, together, warns
from reports.core.source import DeviceRecords
from reports.core.style import colour, mechanism_of, pair, text_colour
from reports.core.tables import under
from reports.pages.comparison import tags, translations
from reports.pages.comparison.arms import Arm, arms_of, both_said, loader_of, pairs_of, table_of

BINS = 10
"""Of confidence, equally wide."""
FEW = 20
"""Test examples in a bin, over all runs, below which it is no point of the curve."""
SHOWN = 600
"""Letters of a text, at most: a review may have thousands."""
NOTHING = (
    "No predictions of these runs are here: a run of this version keeps them beside the journal, "
    "of corpora, not of data drawn for each seed; of some that were published, numbers alone."
)
HOW_CALIBRATED = (
    "Expected calibration error (ECE): the mean distance of confidence and accuracy over ten bins "
    "of confidence, weighed by their numbers (Guo et al. 2017)."
)


def show(place: Output, some: Sequence[Comparison], name: str, device: DeviceRecords) -> Shown:
    """All of it, of one task."""
    arms, lost = arms_of(some, device)
    parts = [warns(lost)] if lost else []
    parts += [_unseen(place, f"{name}unseen", some)] if any(map(_is_told, some)) else []
    if not arms:
        return together(*parts, remark(NOTHING))
    if tags.are_tagged(arms):
        return together(*parts, tags.show(place, some, name, arms))
    if translations.are_translated(arms):
        return together(*parts, translations.show(place, some, name, arms))
    corpus = loader_of(some[0].task, Texts)
    if all(arm.pooled("confidence").size for arm in arms):
        classes = _classes(arms, corpus)
        parts.append(_confusion(place, f"{name}confusion", arms, classes))
        parts += [_calibration(place, f"{name}calibration", some[0].task, arms)]
    for c, first, second, suffix, most in pairs_of(some, arms):
        label = f"{name}examples{suffix}"
        parts.append(_examples(place, label, c, first, second, corpus, most))
    return together(*parts)


def _is_told(c: Comparison) -> bool:
    return c.examples is not None and bool(c.examples.values)


def _unseen(place: Output, name: str, some: Sequence[Comparison]) -> Shown:
    """Every seed or fold without the test examples that stand in the training set."""
    by, rows, numbers = some[0].replicate, [], []
    for c in filter(_is_told, some):
        assert c.examples is not None
        p = {seed if fold is None else fold: p for seed, fold, p in c.examples.pairs}
        once = len(p) == len(c.examples.pairs)  # with several seeds a fold has several pairs
        for number, first, second in c.examples.values:
            own = p.get(number, float("nan")) if once else float("nan")
            rows.append(
                {
                    "model": c.first,
                    "against": c.second,
                    by: str(number),
                    "without: model": c.unit.value(first),
                    "without: against": c.unit.value(second),
                    "difference": c.unit.difference(first - second),
                    "p, pair": f"{own:.2g}" if own == own else "",
                }
            )
            known = {"first": c.first, "second": c.second, "replicate": number}
            values = {f"first_{c.metric}": first, f"second_{c.metric}": second}
            numbers.append({**known, **values, "p_of_the_pair_on_all_examples": own})
    what = (
        f"Test {some[0].metric} of every {by} without test examples that stand in the training "
        "set; p: of the pair of runs, on all test examples."
    )
    return together(remark(what), place.table(name, numbers, rows, (0, 1)))


def _classes(arms: Sequence[Arm], corpus: Texts | None) -> list[str]:
    most = 1 + max(int(max(arm.pooled("truth").max(), arm.pooled("said").max())) for arm in arms)
    names = corpus.classes if corpus is not None and len(corpus.classes) >= most else ()
    return list(names) or [f"class {number}" for number in range(most)]


def confusion(arm: Arm, classes: int) -> np.ndarray:
    """How often which class (column) was said of which (row), over all runs of a model."""
    counts = np.zeros((classes, classes), int)
    np.add.at(counts, (arm.pooled("truth"), arm.pooled("said")), 1)
    return counts


def _confusion(place: Output, name: str, arms: Sequence[Arm], classes: Sequence[str]) -> Shown:
    rows, numbers = [], []
    for arm in arms:
        counts = confusion(arm, len(classes))
        for truth, line in zip(classes, counts, strict=True):
            total = int(line.sum())
            head = {"model": arm.model, "is": truth, "examples a run": f"{total / len(arm.said):g}"}
            shares = [f"{100 * n / total:.1f}" if total else "" for n in line]
            names = [f"said {c} (%)" for c in classes]
            rows.append(head | dict(zip(names, shares, strict=True)))
            said = {f"said_{c}": int(n) for c, n in zip(classes, line, strict=True)}
            numbers.append({"model": arm.model, "truth": truth, "runs": len(arm.said), **said})
    how = "Confusion: of the test examples of each class, how many were said to be of which, in %."
    shown = place.table(name, numbers, rows, (0, 1))
    return together(remark(f"{how} Over all seeds and folds."), shown)


@dataclass(frozen=True)
class Bins:
    """Mean confidence and accuracy of a model, both of shape [BINS], nan of an empty bin; and the
    expected calibration error.
    """

    confidence: np.ndarray
    accuracy: np.ndarray
    counts: np.ndarray
    error: float


def calibration(arm: Arm) -> Bins:
    """Of all runs together, in bins of equal width."""
    sure = arm.pooled("confidence") / CERTAIN
    right = (arm.pooled("truth") == arm.pooled("said")).astype(float)
    where = np.minimum((sure * BINS).astype(int), BINS - 1)
    counts = np.bincount(where, minlength=BINS)
    sums = [np.bincount(where, weights=v, minlength=BINS) for v in (sure, right)]
    with np.errstate(invalid="ignore"):
        confidence, accuracy = (total / counts for total in sums)
    error = float(np.abs(sums[0] - sums[1]).sum() / counts.sum())
    return Bins(confidence, accuracy, counts, error)


def calibration_curves(title: str, found: Sequence[tuple[Arm, Bins]]) -> Figure:
    """Accuracy by confidence, a line per model; below the diagonal a model is too sure."""
    figure, axes = panel(margins={"left": 0.1, "right": 0.78, "bottom": 0.13, "top": 0.84})
    inks = [colour(mechanism_of(arm.model)) for arm, _ in found]
    if len(found) == 2:
        inks = list(pair(found[0][0].model, found[1][0].model))
    axes.plot([0, 1], [0, 1], color="0.7", linewidth=1, linestyle=":")
    ends: list[End] = []
    for (arm, bins), ink in zip(found, inks, strict=True):
        shown = bins.counts >= FEW
        x, y = bins.confidence[shown], bins.accuracy[shown]
        axes.plot(x, y, "o-", color=ink, markersize=4, label=arm.model, clip_on=False)
        if len(x):
            ends.append((1.0, float(y[-1]), arm.model, text_colour(ink)))
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(FuncFormatter(lambda v, _: f"{100 * v:.0f} %"))
    said = "confidence: probability of the class that was said"
    axes.set(xlim=(0, 1), ylim=(0, 1), xlabel=said, ylabel="accuracy")
    bare(axes)
    label_ends(axes, ends, 7.5)
    titled(
        axes,
        title,
        f"dots: bins of {FEW} examples or more, all runs; below the dotted line: too sure",
    )
    return figure


def _calibration(place: Output, name: str, of: str, arms: Sequence[Arm]) -> Shown:
    found = [(arm, calibration(arm)) for arm in arms]
    rows, numbers = [], []
    for arm, bins in found:
        right = float((arm.pooled("truth") == arm.pooled("said")).mean())
        sure = float(arm.pooled("confidence").mean() / CERTAIN)
        cells = [f"{100 * value:.1f}" for value in (sure, right, bins.error)]
        rows.append([arm.model, *cells, *(f"{n:,}" for n in bins.counts)])
        counts = {f"examples_in_bin_{b}": int(n) for b, n in enumerate(bins.counts)}
        known = {"confidence": sure, "accuracy": right, "calibration_error": bins.error}
        numbers.append({"model": arm.model, **known, **counts})
    edges = [f"to {100 * (b + 1) // BINS} %" for b in range(BINS)]
    columns = ["model", "confidence (%)", "accuracy (%)", "ECE (points)", *edges]
    least = min(found, key=lambda one: one[1].error)
    caption = (
        f"{least[0].model} is calibrated best: its confidence and accuracy are "
        f"{100 * least[1].error:.1f} points apart in the mean (ECE)."
    )
    figure = calibration_curves(f"{of}: calibration on the test set", found)
    table = place.table(f"{name}-bins", numbers, under(columns, rows))
    return together(place.figure(name, figure, caption), remark(HOW_CALIBRATED), table)


@dataclass(frozen=True)
class Disputed:
    """One test example, as both models see it.

    Attributes
    ----------
    item : int
        Its place in the corpus' table.
    first, second : tuple of float
        What was said, by pair of runs.
    """

    item: int
    truth: float
    first: tuple[float, ...]
    second: tuple[float, ...]

    @property
    def apart(self) -> int:
        """In how many pairs of runs both said something else."""
        return sum(a != b for a, b in zip(self.first, self.second, strict=True))

    @property
    def ahead(self) -> int:
        """In how many runs more the one model was right than the other."""
        right = [sum(v == self.truth for v in side) for side in (self.first, self.second)]
        return abs(right[0] - right[1])

    @property
    def distance(self) -> float:
        """Mean distance of what both said."""
        return float(np.mean(np.abs(np.subtract(self.first, self.second))))


def cases(first: Arm, second: Arm) -> list[Disputed]:
    """All test examples that both models were given, in the order of the table."""
    found: dict[int, list[tuple[float, float, float]]] = {}
    for item, (truth, one), (_, other) in both_said(
        first, second, lambda p: zip(p.truth.tolist(), p.said.tolist(), strict=True)
    ):
        found.setdefault(item, []).append((truth, one, other))
    return [
        Disputed(item, each[0][0], tuple(a for _, a, _ in each), tuple(b for *_, b in each))
        for item, each in sorted(found.items())
    ]


def _examples(
    place: Output,
    name: str,
    c: Comparison,
    first: Arm,
    second: Arm,
    corpus: Texts | None,
    most: int,
) -> Shown:
    """The examples on which two models disagree most, with their texts where data are given."""
    everything, classes = cases(first, second), bool(first.pooled("confidence").size)
    ranked = sorted(
        everything, key=lambda o: (-o.apart if classes else -o.distance, -o.ahead, o.item)
    )
    chosen = [one for one in ranked[:most] if one.apart]
    if not chosen:
        return remark(f"{c.first} and {c.second} said the same of every test example.")
    texts, why = _texts(corpus, chosen)
    table = corpus.files[-1] if corpus is not None else "row"
    names = corpus.classes if corpus is not None else ()
    rows = []
    for one in chosen:
        said = [_said(side, names, classes) for side in (one.first, one.second)]
        where, text = f"{table} row {one.item + 1}", texts.get(one.item, "")
        how = f"{one.apart} of {len(one.first)}" if classes else f"{one.distance:.2f}"
        truth = _said((one.truth,), names, classes)
        rows.append([where, truth, *said, how, text])
    columns = ["place", "is", c.first, c.second, "apart in runs" if classes else "apart", "text"]
    total = sum(one.apart > 0 for one in everything)
    of = f", of {total:,} of {len(everything):,} test examples that they differ on" * classes
    heads = [f"Where {c.first} and {c.second} are furthest apart{of}."]
    if why:
        heads.append(why)
    numbers = under(("place", "truth", "first", "second", "apart", "text"), rows)
    shown = place.table(name, numbers, under(columns, rows), (0, 1, 2, 3, 5))
    return together(says(heads), shown)


def _said(values: Sequence[float], names: Sequence[str], classes: bool) -> str:
    """``LOC``, ``LOC 4, NUM 1`` (runs), or the mean degree."""
    if not classes:
        return f"{np.mean(values):.2f}"
    numbers, counts = np.unique(np.array(values, int), return_counts=True)
    order = np.argsort(-counts, kind="stable")
    said = [names[n] if n < len(names) else f"class {n}" for n in numbers[order]]
    if len(said) == 1:
        return said[0]
    return ", ".join(f"{name} {count}" for name, count in zip(said, counts[order], strict=True))


def _texts(corpus: Texts | None, chosen: Sequence[Disputed]) -> tuple[dict[int, str], str]:
    """Their texts by place; or none, and why."""
    if corpus is None:
        return {}, "This version does not know the task, so no texts are shown."
    columns = (corpus.target, *corpus.columns)
    path, rows, why = table_of(corpus.files[-1], lambda at: read_table(at, columns), "the texts")
    if rows is None:
        return {}, why
    other = f"The texts can't be shown: {path} is not the table that was tested on."
    found = {}
    for one in chosen:
        row = rows[one.item] if 0 <= one.item < len(rows) else {}
        target = row.get(corpus.target)
        names = corpus.classes
        if not row or (names and (int(one.truth) >= len(names) or target != names[int(one.truth)])):
            return {}, other
        sides = (shorten(row[column], SHOWN, placeholder=" ...") for column in corpus.columns)
        found[one.item] = " | ".join(sides)
    return found, ""
