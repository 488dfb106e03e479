"""What ``attention.ipynb`` calls: the scores of one trained model, from its record."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import pandas as pd

from harness.errors import UsageError
from harness.stats import t_interval
from reports.core.page import (
    DevicePage,
    Output,
    Shown,
    heading,
    machine,
    remark,
    says,
    together,
    warns,
)
from reports.core.source import DeviceRecords, Source
from reports.core.style import mechanism_of
from reports.core.words import file_name
from reports.pages.attention import figures

KINDS = ("attention",)
NONE = (
    "No trained model was looked at: attnbench train mtsa --task trec --look --sentence "
    "'Who was the first man on the moon ?' trains one and records what it attends to."
)
ROW_LIMIT, CELL_LIMIT = 1e-4, 0.0
"""Largest deviation of a row's sum in float32, and largest weight at a forbidden cell."""
KINDS_OF_NUMBERS = {
    "source2token_scores": "source2token score inside the attention",
    "pooling_weights": "weight in the pooling",
    "selected_heads": "share selected as heads",
    "selected_dependents": "share selected as dependents",
    "selected_neither": "share selected as neither",
}


def newest(records: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The newest record of each model and task, oldest first."""
    found: dict[tuple[str, str], Mapping[str, Any]] = {}
    looks = [r for r in records if r["kind"] == "attention" and r.get("status") == "ok"]
    for r in sorted(looks, key=lambda r: str(r.get("at"))):
        found.pop((r["model"], r["task"]), None)
        found[r["model"], r["task"]] = r
    return list(found.values())


def choose(device: DeviceRecords | None, key: str) -> Mapping[str, Any] | None:
    """The record of a key; the newest without one.

    Raises
    ------
    UsageError
        If there is none of that key.
    """
    everything = [r for r in device.records if r["kind"] == "attention"] if device else []
    if not key:
        found = newest(everything)
        return found[-1] if found else None
    for one in everything:
        if one["key"] == key:
            return one
    known = ", ".join(f"{r['key']} ({r['model']} on {r['task']})" for r in everything) or "none"
    raise UsageError(f"given look {key!r}; the records have {known}")


class Attended(DevicePage):
    """One look; every method shows one piece of the page."""

    kinds = KINDS

    def __init__(
        self, source: Source, device: DeviceRecords | None, place: Output, look: str = ""
    ) -> None:
        super().__init__(source, device, place)
        self.record = choose(device, str(look))

    @property
    def mechanism(self) -> str:
        """Whose scores these are."""
        return mechanism_of(str(self.record["model"])) if self.record else ""

    def about(self) -> Shown:
        """Which model this is."""
        r = self.record
        if r is None or self.device is None:
            return together(says([self.source.says]), says([NONE]))
        test = ", ".join(f"{name} {value:.4g}" for name, value in (r.get("test") or {}).items())
        return together(
            heading(f"{r['model']} on {r['task']}", 2),
            says(
                [
                    f"{self.source.says} Trained with seed {r.get('seed')} on {self.device.title}, "
                    f"{str(r.get('at'))[:10]}; test {test}.",
                ]
            ),
        )

    def checks(self) -> Shown:
        """Rows sum to one, forbidden cells are zero."""
        if self.record is None:
            return says([])
        c = self.record["checks"]
        row, cell = float(c["row_error"]), float(c["forbidden"])
        line = (
            f"Checked in numbers: over {c['rows']:,} rows, weights sum to one within {row:.1e}; at "
            f"{c['cells']:,} cells that the masks forbid, the largest weight is {cell:.1e}."
        )
        if row <= ROW_LIMIT and cell <= CELL_LIMIT:
            return says([line], main=True)
        return together(
            says([line], main=True),
            warns([f"This is no attention: expected at most {ROW_LIMIT:g} and {CELL_LIMIT:g}."]),
        )

    def sentences(self) -> Shown:
        """Heat maps of every sentence, as in MTSA's figure 3."""
        if self.record is None:
            return says([])
        pieces = []
        for number, sentence in enumerate(self.record["sentences"]):
            if not sentence["layers"]:
                continue
            figure = figures.heat_maps(sentence, str(self.record["model"]))
            strongest = figures.strongest(sentence)
            caption = (
                f"“{' '.join(sentence['tokens'])}”: each row is a query, and its weights over the "
                f"keys sum to one; hatched cells are forbidden. {strongest}"
            )
            pieces.append(self.place.figure(f"sentence{number}", figure, caption))
        return together(*pieces) if pieces else remark("This model has no token2token scores.")

    def tokens(self) -> Shown:
        """One number per token and kind: source2token scores, pooling weights, selections."""
        if self.record is None:
            return says([])
        pieces = []
        for number, sentence in enumerate(self.record["sentences"]):
            numbers = figures.by_mask(sentence)
            if numbers:
                figure = figures.per_token(sentence["tokens"], numbers, self.mechanism)
                said = figures.highest(sentence["tokens"], numbers)
                caption = f"“{' '.join(sentence['tokens'])}”: {said}."
                pieces.append(self.place.figure(f"tokens{number}", figure, caption))
        if not pieces:
            return remark("This model gives its tokens no scores of their own.")
        return together(*pieces, grid=True)

    def speech(self) -> Shown:
        """By part of speech (MTSA, appendix E; ReSAN, section 5.3)."""
        r = self.record
        if r is None:
            return says([])
        if not r["by_tag"]:
            return remark(
                "No sentences with parts of speech were there: attnbench train --look takes them "
                "from ud_ewt/ of the data directory (--data)."
            )
        pieces = [says([self._contrast(kind, c) for kind, c in r["contrast"].items()], main=True)]
        rows, flat = [], []
        for kind, tags in r["by_tag"].items():
            figure = figures.by_tag(kind, _intervals(tags), self.mechanism)
            caption = (
                f"{KINDS_OF_NUMBERS.get(kind, kind)}: how far tokens of a part of speech stand "
                "above the mean of their sentence; 95 % t-intervals over sentences."
            )
            pieces.append(self.place.figure(f"speech-{file_name(kind)}", figure, caption))
            for tag, one in tags.items():
                _, low, high = t_interval(one["mean"], one["sd"], one["sentences"])
                rows.append(
                    [
                        f"{kind}: {tag}",
                        f"{one['mean']:+.4g} [{low:+.4g}, {high:+.4g}]",
                        f"{one['sentences']:,}",
                        f"{one['tokens']:,}",
                    ]
                )
                flat.append({"kind": kind, "tag": tag, **one, "low": low, "high": high})
        columns = ["", "above the sentence's mean [95 %]", "sentences", "tokens"]
        shown = self.place.table("speech", pd.DataFrame(flat), columns, rows)
        return together(*pieces, shown)

    def distances(self) -> Shown:
        """How far away the key with the largest weight is, by layer and head."""
        r = self.record
        if r is None:
            return says([])
        if not r["distances"]:
            return remark("This model has no token2token scores.")
        figure = figures.distances(r["distances"], self.mechanism)
        frame = pd.DataFrame(
            {
                "layer": d["layer"] or "0",
                "head": d["head"],
                "mask": d["mask"],
                "distance": far,
                "queries": count,
            }
            for d in r["distances"]
            for far, count in d["counts"]
        )
        rows = [
            [
                f"layer {_layer(d)}, head {d['head']}",
                d["mask"],
                f"{_mean_distance(d):+.2f}",
                f"{_next(d):.0%}",
            ]
            for d in r["distances"]
        ]
        caption = (
            "Distance from a query to the key it attends to most: negative lies before it. "
            f"{r['tagged']} tagged and {len(r['sentences'])} given sentences; 15 stands for 15 and "
            "more."
        )
        columns = ["", "mask", "mean distance", "right beside it"]
        return together(
            self.place.figure("distances", figure, caption),
            self.place.table("distances", frame, columns, rows, (0, 1)),
        )

    def machine(self) -> Shown:
        """Where this was trained."""
        return machine(self.device if self.record else None, Output(None, ""), *KINDS)

    def _contrast(self, kind: str, c: Mapping[str, Any]) -> str:
        _, low, high = t_interval(c["mean"], c["sd"], c["sentences"])
        name = KINDS_OF_NUMBERS.get(kind, kind)
        said = "higher" if low > 0 else "lower" if high < 0 else "not shown to differ"
        return (
            f"{name[0].upper()}{name[1:]}: nouns and verbs less stop words {c['mean']:+.4g} "
            f"[{low:+.4g}, {high:+.4g}] over {c['sentences']} sentences: {said}."
        )


begin = Attended.begin


def _intervals(tags: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, float, float]]:
    """Mean and interval by tag, the highest first."""
    found = {
        tag: t_interval(one["mean"], one["sd"], one["sentences"])
        for tag, one in tags.items()
        if one["sentences"] > 1
    }
    return dict(sorted(found.items(), key=lambda pair: -pair[1][0]))


def _layer(one: Mapping[str, Any]) -> str:
    return str(one["layer"]).strip("l_") or "0"


def _mean_distance(one: Mapping[str, Any]) -> float:
    counts: Sequence[Sequence[int]] = one["counts"]
    total = sum(n for _, n in counts)
    return sum(d * n for d, n in counts) / total if total else math.nan


def _next(one: Mapping[str, Any]) -> float:
    """Share of queries whose strongest key is their neighbour."""
    counts: Sequence[Sequence[int]] = one["counts"]
    total = sum(n for _, n in counts)
    return sum(n for d, n in counts if abs(d) == 1) / total if total else math.nan
