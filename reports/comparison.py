"""What ``comparison.ipynb`` calls: one comparison of two trained models, on one device."""

from __future__ import annotations

import math
from functools import cached_property
from typing import Any

import pandas as pd

from harness.errors import UsageError
from harness.experiments.conclusion import Comparison, comparisons
from harness.experiments.wording import exact_test, no_interval, replicates_of
from harness.stats import MeanDifference, too_few
from reports import comparison_figures as figures
from reports.core.page import Output, Shown, heading, opened, remark, says, table, together, warns
from reports.core.parameters import opens
from reports.core.source import DeviceRecords, Source, facts
from reports.power_figures import curves, power, spread_of

KINDS = ("design",)
NONE = "There is no comparison in this journal: attnbench compare mtsa multi_head makes one."


@opens
def begin(journal: str, device: str, design: str, out: str, page: str) -> Compared:
    """Open the notebook.

    Parameters
    ----------
    journal : str
        Folder of the records; the published ones if it is empty or holds none.
    device : str
        Key of a fingerprint; the newest that has a comparison if empty.
    design : str
        Key of a comparison; the newest if empty.
    out : str
        Folder for figures and tables; empty writes none.
    page : str
        What their names begin with.
    """
    source, chosen, place = opened(journal, device, out, page, KINDS, ("run",))
    return Compared(source, chosen, choose(chosen, str(design)), place)


def choose(device: DeviceRecords | None, key: str) -> Comparison | None:
    """The comparison of a key; the newest without one.

    Raises
    ------
    UsageError
        If there is none of that key.
    """
    found = comparisons(device.records) if device else []
    if not key:
        return found[-1] if found else None
    for one in found:
        if one.key == key:
            return one
    known = ", ".join(f"{c.key} ({c.title})" for c in found) or "none"
    raise UsageError(f"given design {key!r}; the records have {known}")


class Compared:
    """One comparison; every method shows one piece of the page."""

    def __init__(
        self,
        source: Source,
        device: DeviceRecords | None,
        comparison: Comparison | None,
        place: Output,
    ) -> None:
        self.source, self.device, self.place = source, device, place
        self.comparison = comparison

    @cached_property
    def _difference(self) -> Any:
        return self.comparison.difference if self.comparison else None

    def about(self) -> Shown:
        """Which records these are, and what was compared."""
        c = self.comparison
        if c is None or self.device is None:
            return together(says([self.source.says]), says([NONE]))
        how = {"dev": "the epoch that was best on dev, looked at once"}.get(
            c.choose, "best over time on the test set, the papers' way"
        )
        design = c.design
        return together(
            heading(c.title, 2),
            says([
                f"{self.source.says} Trained {self.device.dates} on {self.device.title}.",
                f"Task {c.task}: {c.first} against {c.second}, {_counted(c)}, {_paired(c)}. "
                f"Test: {how}. "
                f"Split: {design.get('split', 'not recorded')}."
                + (f" {c.coverage[0].upper()}{c.coverage[1:]}." if c.coverage else ""),
            ])
        )  # fmt: skip

    def verdict(self) -> Shown:
        """The verdict sentence, and what must be known beside it."""
        c = self.comparison
        if c is None:
            return says([])
        return together(says([_ended(c.sentence)], main=True), warns(map(_ended, c.warnings)))

    def seeds(self) -> Shown:
        """Slope chart: one line per seed or fold; unpaired a point per run."""
        c, d = self.comparison, self._difference
        if c is None or not c.values:
            return self._nothing()
        if not c.paired:
            means = "" if d is None else (
                f" Their means are {c.unit.value(d.mean_first)} and {c.unit.value(d.mean_second)}."
            )  # fmt: skip
            caption = f"Every run of {c.first} and {c.second}, declared unpaired.{means}"
            return self.place.figure("seeds", figures.groups(c), caption)
        ahead = sum((a > b) == c.higher_is_better and a != b for _, a, b in c.values)
        caption = (
            f"{c.first} did better than {c.second} with {ahead} of {len(c.values)} {c.replicate}s."
        )
        return self.place.figure("seeds", figures.slope_chart(c), caption)

    def differences(self) -> Shown:
        """Difference of every seed or fold, mean and interval."""
        c, d = self.comparison, self._difference
        if c is None or d is None:
            return self._nothing()
        unit = c.unit
        size = f"{unit.difference(d.difference)}{unit.of_differences}"
        if math.isnan(d.low):
            caption = f"A difference of {size}: {no_interval(d)}."
        else:
            beside = "excludes" if d.low > 0 or d.high < 0 else "includes"
            caption = (
                f"The {_mean_difference(d)} is {size}; its 95 % t-interval "
                f"[{unit.difference(d.low)}, {unit.difference(d.high)}] {beside} zero."
            )
        frame = pd.DataFrame(
            c.values, columns=[c.replicate, f"first_{c.metric}", f"second_{c.metric}"]
        )
        frame.insert(1, "first", c.first)
        frame.insert(3, "second", c.second)
        names = [c.replicate, c.first, c.second]
        rows = [
            [str(s), *("" if math.isnan(v) else unit.value(v) for v in both)]
            for s, *both in c.values
        ]
        if c.paired:
            frame[f"difference_{c.metric}"] = [a - b for _, a, b in c.values]
            names.append("difference")
            rows = [
                [*row, unit.difference(a - b)]
                for row, (_, a, b) in zip(rows, c.values, strict=True)
            ]
        return together(
            self.place.figure("differences", figures.differences(c), caption),
            self.place.table("seeds", frame, names, rows),
        )

    def statistics(self) -> Shown:
        """Interval first, then the tests."""
        c, d = self.comparison, self._difference
        if c is None or d is None:
            return self._nothing()
        unit = c.unit
        if math.isnan(d.low):
            rows = [[_mean_difference(d), unit.difference(d.difference), no_interval(d)]]
        else:
            interval = f"[{unit.difference(d.low)}, {unit.difference(d.high)}]"
            rows = [
                [f"{_mean_difference(d)}, 95 % t-interval",
                 f"{unit.difference(d.difference)} {interval}",
                 f"where the true difference is, over {c.replicate}s"],
            ]  # fmt: skip
        if not too_few(d):
            flips = f"{d.sign_flip_p:.3g}"
            if math.isnan(d.sign_flip_p):
                flips = "not enumerated" if c.units == "seeds" else "none: folds are dependent"
            rows += [
                [f"p ({d.test}, two-sided)", f"{d.p:.3g}",
                 "small: zero is not plausible; large: says nothing"],
                ["Hedges g", f"{d.hedges_g:+.2f}", f"difference over the spread of {c.replicate}s"],
                ["minimum detectable effect", unit.size(d.detectable),
                 f"found with 80 % power by {replicates_of(d)}; less may have been missed"],
                [f"p ({exact_test(d)})", flips,
                 "the same without assuming a normal distribution"],
            ]  # fmt: skip
            if c.equivalence_p is not None and c.margin is not None:
                rows.append([f"p (equal within {unit.size(c.margin)})", f"{c.equivalence_p:.3g}",
                             "two one-sided tests; small: practically equal"])  # fmt: skip
        frame = pd.DataFrame(
            [{
                "first": c.first, "second": c.second, "task": c.task, "metric": c.metric,
                "verdict": c.verdict, "paired": d.paired,
                **({"pairs": d.count_first} if d.paired else
                   {"seeds_first": d.count_first, "seeds_second": d.count_second}),
                "mean_first": d.mean_first,
                "sd_first": d.sd_first, "mean_second": d.mean_second, "sd_second": d.sd_second,
                "difference": d.difference, "low": d.low, "high": d.high, "test": d.test, "p": d.p,
                "hedges_g": d.hedges_g, "minimum_detectable_effect": d.detectable,
                "sign_flip_p": d.sign_flip_p, "margin": c.margin, "equivalence_p": c.equivalence_p,
            }]
        )  # fmt: skip
        return self.place.table("statistics", frame, ["", "value", "how to read it"], rows, (0, 2))

    def power(self) -> Shown:
        """What how many seeds would find, at the spread that was seen here."""
        c = self.comparison
        if c is None:
            return says([])
        found, spread = curves(c), spread_of(c)
        if not found or spread is None:
            why = (
                "Folds share training examples, so that more of them find less than a t-test says: "
                "no power curve."
                if c.units != "seeds"
                else "Unpaired: attnbench plan --unpaired says what how many seeds would find."
                if not c.paired
                else "Two pairs or more are needed to say what more would find."
            )
            return remark(why)
        needed = "; ".join(f"{one.name}: {one.needed} seeds" for one in found)
        caption = (
            f"Differences between seeds have a standard deviation of {c.unit.size(spread.value)} "
            f"[{c.unit.size(spread.low)}, {c.unit.size(spread.high)}]; taken as it is, 80 % power "
            f"needs, for a true difference of {needed}. That spread is itself an estimate, and the "
            "curves are no statement about the difference found here."
        )
        return self.place.figure("power", power(c, found), caption)

    def curves(self) -> Shown:
        """Learning curves on dev."""
        c = self.comparison
        figure = figures.learning_curves(c) if c else None
        if c is None or figure is None:
            return self._nothing()
        where = "dev" if c.choose == "dev" else "the test set"
        parts = [
            f"{model} is best on {where} after {cost.chosen_epoch:g} of {cost.epochs:g} epochs"
            for model, cost in c.costs.items()
        ]
        caption = f"Dev {c.metric} by epoch; the median run of {', of '.join(parts)}."
        return self.place.figure("curves", figure, caption)

    def costs(self) -> Shown:
        """Parameters, time and memory of both."""
        c = self.comparison
        if c is None or not c.costs:
            return self._nothing()
        columns = [
            "model",
            "parameters",
            "with word vectors",
            "training",
            "per epoch",
            "epochs",
            "peak memory",
        ]
        rows = [
            [model, f"{k.parameters:,}", f"{k.parameters_with_words:,}", f"{k.seconds:.1f} s",
             f"{k.seconds_per_epoch:.2f} s", f"{k.epochs:g}",
             "unknown" if math.isnan(k.peak_bytes) else f"{k.peak_bytes / 2**20:.0f} MiB"]
            for model, k in c.costs.items()
        ]  # fmt: skip
        frame = pd.DataFrame(
            {
                "model": model, "parameters": k.parameters,
                "parameters_with_words": k.parameters_with_words, "training_seconds": k.seconds,
                "epoch_seconds": k.seconds_per_epoch, "epochs": k.epochs,
                "chosen_epoch": k.chosen_epoch, "peak_memory_bytes": k.peak_bytes,
            }
            for model, k in c.costs.items()
        )  # fmt: skip
        how = (
            "Medians over the runs of each model; peak memory is that of the whole training run "
            "beyond data, libraries and weights, on the code and machine of those runs."
        )
        return together(self.place.table("costs", frame, columns, rows), remark(how))

    def runs(self) -> Shown:
        """Every run, those that failed too."""
        c = self.comparison
        if c is None:
            return says([])
        flat = [
            {
                "model": r.get("model"), "seed": r.get("seed"), "fold": r.get("fold"),
                "status": r.get("status"), "detail": r.get("detail"),
                f"test_{c.metric}": (r.get("test") or {}).get(c.metric),
                "chosen_epoch": r.get("chosen_epoch"), "epochs": len(r.get("epochs") or ()),
                "training_seconds": r.get("seconds"), "key": r.get("key"),
            }
            for r in c.runs
        ]  # fmt: skip
        rows = []
        for r in flat:
            value, seconds = r[f"test_{c.metric}"], r["training_seconds"]
            status = f"{r['status']}: {r['detail']}" if r["detail"] else str(r["status"])
            rows.append([
                f"{r['model']} seed {r['seed']}" + _fold(r["fold"]), status,
                c.unit.value(value) if isinstance(value, int | float) else "",
                str(r["chosen_epoch"] or ""), str(r["epochs"]),
                f"{seconds:.1f} s" if isinstance(seconds, int | float) else "",
            ])  # fmt: skip
        columns = ["run", "status", f"test {c.metric}", "tested epoch", "epochs", "training"]
        return self.place.table("runs", pd.DataFrame(flat), columns, rows, (0, 1))

    def machine(self) -> Shown:
        """Where this was trained."""
        if self.device is None or self.comparison is None:
            return says([])
        known = facts(self.device.fingerprint, self.device.sessions_of("run"))
        return table(["", ""], [[k, v] for k, v in known.items()], (0, 1))

    def _nothing(self) -> Shown:
        if self.comparison is None:
            return says([])
        what = "No pair of runs" if self.comparison.paired else "Not a run of each"
        return remark(f"{what} is finished yet: the same attnbench compare goes on.")


def _counted(comparison: Comparison) -> str:
    """``5 seeds (0, 1, 2, 3, 4)``, or ``10 folds of one corpus, each once per seed (0)``."""
    named = f"({', '.join(map(str, comparison.seeds))})"
    if comparison.units == "seeds":
        return f"{len(comparison.seeds)} seeds {named}"
    return f"{len(comparison.values)} folds of one corpus, each once per seed {named}"


def _paired(comparison: Comparison) -> str:
    return "paired" if comparison.paired else "declared unpaired: two independent groups"


def _mean_difference(difference: MeanDifference) -> str:
    return "mean difference" if difference.paired else "difference of the means, unpaired"


def _fold(number: object) -> str:
    return "" if number is None else f" fold {number}"


def _ended(sentence: str) -> str:
    return sentence if sentence.endswith((".", "!", "?")) else f"{sentence}."
