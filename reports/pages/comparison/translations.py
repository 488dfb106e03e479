"""What models wrote: parts of their BLEU, what the swap costs, and translations side by side."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from harness.experiments.conclusion import Comparison
from harness.experiments.replicates import Record
from harness.records.predictions import Predictions
from harness.stats import SUMMED
from harness.stats.sums import ORDERS
from harness.train.data.parallel import Parallel
from reports.core.page import Output, Shown, remark, says, together
from reports.core.tables import under
from reports.pages.comparison.arms import Arm, both_said, loader_of, pairs_of, table_of
from reports.pages.comparison.tables import over_baseline

COLUMNS = SUMMED["chrf"].last


def are_translated(arms: Sequence[Arm]) -> bool:
    """Whether all wrote texts, whose counts are kept."""
    return all(
        one.lengths.size
        and not one.truth.size
        and one.said.dtype.kind == "u"
        and one.counts.ndim == 2
        and one.counts.shape[1] >= COLUMNS
        for arm in arms
        for one in arm.said.values()
    )


def show(place: Output, some: Sequence[Comparison], name: str, arms: Sequence[Arm]) -> Shown:
    """All of it, of one task."""
    parts = [_scores(place, f"{name}scores", some, arms)]
    for c, first, second, suffix, most in pairs_of(some, arms):
        label = f"{name}translations{suffix}"
        parts.append(_sentences(place, label, first, second, c.task, most))
    return together(*parts)


def training_seconds(*runs: Record) -> float:
    """Of an epoch's training, dev's translation left out: the median, nan where none tells."""
    told = [
        epoch["seconds"] - epoch["judging"]
        for run in runs
        for epoch in run["epochs"]
        if "seconds" in epoch and "judging" in epoch
    ]
    return statistics.median(told) if told else math.nan


def sentences_a_second(*runs: Record) -> float:
    """Of beam search over the test sets: the median over runs, nan where none tells."""
    told = [run.get("decoding") or {} for run in runs]
    rates = [
        one["sentences"] / one["seconds"]
        for one in told
        if one.get("seconds", 0) > 0 and "sentences" in one
    ]
    return statistics.median(rates) if rates else math.nan


def _scores(place: Output, name: str, some: Sequence[Comparison], arms: Sequence[Arm]) -> Shown:
    """Precisions and lengths of all runs together, and what training and translating take."""
    rows, numbers = [], []
    over = {c.first: over_baseline(c, training_seconds, sentences_a_second) for c in some}
    for arm in arms:
        said, true, *grams = np.sum(
            [one.counts[:, : 2 + 2 * ORDERS].sum(0) for one in arm.said.values()], axis=0
        ).tolist()
        shares = [a / max(b, 1) for a, b in zip(grams[:ORDERS], grams[ORDERS:], strict=True)]
        epoch, rate = training_seconds(*arm.runs), sentences_a_second(*arm.runs)
        ratio = said / max(true, 1)
        cells = [f"{100 * share:.1f}" for share in shares]
        times = [f"{v:.1f}" if v == v else "unknown" for v in (epoch, rate)]
        rows.append([arm.model, *cells, f"{ratio:.3f}", *times, *over.get(arm.model, ("1", "1"))])
        known = {f"precision_{n}": share for n, share in enumerate(shares, start=1)}
        costs = {"training_seconds_an_epoch": epoch, "sentences_a_second": rate}
        numbers.append({"model": arm.model, **known, "length_ratio": ratio, **costs})
    orders = [f"{n} words in a row (%)" for n in range(1, ORDERS + 1)]
    base = f"over {some[0].second}'s"
    columns = ["model", *orders, "length", "training, s an epoch", "sentences a second"]
    columns += [f"training {base}", f"sentences a second {base}"]
    what = (
        "What of each model's words, and of two, three and four in a row, the references have; its "
        "length over theirs; the whole model's training, and beam search over the test sets, and "
        "what each is of the baseline's in the same seed, with its 95 % interval."
    )
    return together(remark(what), place.table(name, numbers, under(columns, rows)))


@dataclass(frozen=True)
class Version:
    """One test sentence, by its place in the corpus' table, as both models translate it.

    `ahead`: mean over seeds of its chrF by the first model less that by the second; `first` and
    `second`: what the pair of runs wrote that is furthest apart in that direction.
    """

    item: int
    ahead: float
    first: str
    second: str


def apart(first: Arm, second: Arm) -> list[Version]:
    """Sentences that both models were given, those first on which they are furthest apart."""
    chrf, found = SUMMED["chrf"], dict[int, list[tuple[float, str, str]]]()

    def scored(one: Predictions) -> Iterable[tuple[float, str]]:
        scores = chrf.of(one.counts[:, chrf.first : chrf.last].astype(float))
        wrote = (bytes(text).decode(errors="replace") for text in one.sequences("said"))
        return zip(scores.tolist(), wrote, strict=True)

    for item, (a, mine), (b, other) in both_said(first, second, scored):
        found.setdefault(item, []).append((a - b, mine, other))
    out = []
    for item, each in found.items():
        ahead = statistics.fmean(difference for difference, _, _ in each)
        _, mine, other = max(each, key=lambda one: one[0] * (1 if ahead >= 0 else -1))
        out.append(Version(item, ahead, mine, other))
    return sorted(out, key=lambda one: (-abs(one.ahead), one.item))


def _sentences(place: Output, name: str, first: Arm, second: Arm, of: str, most: int) -> Shown:
    """Translations side by side where two models are furthest apart."""
    everything = apart(first, second)
    chosen = [one for one in everything[:most] if one.first != one.second]
    if not chosen:
        return remark(f"{first.model} and {second.model} wrote the same of every test sentence.")
    texts, why = _texts(of, chosen)
    rows = []
    for one in chosen:
        source, reference = texts.get(one.item, ("", ""))
        apart_by = f"{one.ahead:+.1f}"
        rows.append([f"row {one.item + 1}", source, reference, one.first, one.second, apart_by])
    columns = ["place", "source", "reference", first.model, second.model, "chrF, apart"]
    differ = sum(one.first != one.second for one in everything)
    heads = [
        f"Where {first.model} and {second.model} are furthest apart by chrF, in the mean over "
        f"seeds; {differ:,} of {len(everything):,} test sentences are translated differently."
    ]
    known = ("place", "source", "reference", "first", "second", "chrf_apart")
    numbers = [
        {**row, "chrf_apart": one.ahead}
        for row, one in zip(under(known, rows), chosen, strict=True)
    ]
    shown = place.table(name, numbers, under(columns, rows), (0, 1, 2, 3, 4))
    return together(says([*heads, *([why] if why else [])]), shown)


def _texts(of: str, chosen: Sequence[Version]) -> tuple[dict[int, tuple[str, str]], str]:
    """Sources and references by place; or none, and why."""
    load = loader_of(of, Parallel)
    if load is None:
        return {}, "This version does not know the corpus, so sources are not shown."
    path, table, why = table_of(load.files[2], load.read, "sources and references")
    if table is None:
        return {}, why
    sources, references = table
    if any(not 0 <= one.item < len(sources) for one in chosen):
        return {}, f"Sources can't be shown: {path} is not the table that was tested on."
    return {one.item: (sources[one.item], references[one.item]) for one in chosen}, ""
