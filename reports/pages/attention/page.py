"""What ``attention.ipynb`` calls: the scores of one trained model, from its record."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any

from harness.stats import t_interval
from reports.core.page import DevicePage, Output, Shown, heading, remark, says, together, warns
from reports.core.source import DeviceRecords, Source, by_key
from reports.core.style import mechanism_of
from reports.core.words import file_name
from reports.pages.attention import figures

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


def choose(device: DeviceRecords, key: str) -> Mapping[str, Any]:
    """The record of a key; the newest without one, or nothing at all.

    Raises
    ------
    UsageError
        If there is none of that key.
    """
    if not key:
        return next(reversed(newest(device.records)), {})
    known = {r["key"]: r for r in device.records if r["kind"] == "attention"}
    return by_key("look", key, known, lambda r: f"{r['model']} on {r['task']}")


class Attended(DevicePage):
    """One look; every method shows one piece of the page."""

    kinds = ("attention",)
    none = (
        "No trained model was looked at: attnbench train mtsa --task trec --look --sentence "
        "'Who was the first man on the moon ?' trains one and records what it attends to."
    )
    of_record = True

    def __init__(
        self, source: Source, device: DeviceRecords, place: Output, look: str = ""
    ) -> None:
        super().__init__(source, device, place)
        self.record = choose(device, str(look))

    @property
    def empty(self) -> bool:
        """Whether no model was looked at."""
        return not self.record

    @cached_property
    def mechanism(self) -> str:
        """Whose scores these are."""
        return mechanism_of(str(self.record["model"]))

    def about(self) -> Shown:
        """Which model this is."""
        r = self.record
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
        c = self.record["checks"]
        row, cell = float(c["row_error"]), float(c["forbidden"])
        line = (
            f"Checked in numbers: over {c['rows']:,} rows, weights sum to one within {row:.1e}; at "
            f"{c['cells']:,} cells that the masks forbid, the largest weight is {cell:.1e}."
        )
        wrong = f"This is no attention: expected at most {ROW_LIMIT:g} and {CELL_LIMIT:g}."
        right = row <= ROW_LIMIT and cell <= CELL_LIMIT
        return together(says([line], main=True), *([] if right else [warns([wrong])]))

    def sentences(self) -> Shown:
        """Heat maps of every sentence, as in MTSA's figure 3."""
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
        if not r["by_tag"]:
            return remark(
                "No sentences with parts of speech were looked at: attnbench train --look takes "
                "them from ud_ewt/ of the data directory (--data), for a model that reads words "
                "(a translation reads pieces of them)."
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
                    {
                        "": f"{kind}: {tag}",
                        "above the sentence's mean [95 %]": (
                            f"{one['mean']:+.4g} [{low:+.4g}, {high:+.4g}]"
                        ),
                        "sentences": f"{one['sentences']:,}",
                        "tokens": f"{one['tokens']:,}",
                    }
                )
                flat.append({"kind": kind, "tag": tag, **one, "low": low, "high": high})
        return together(*pieces, self.place.table("speech", flat, rows))

    def distances(self) -> Shown:
        """How far away the key with the largest weight is, by layer and head."""
        r = self.record
        if not r["distances"]:
            return remark("This model has no token2token scores.")
        figure = figures.distances(r["distances"], self.mechanism)
        numbers = (
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
            {
                "": f"layer {str(d['layer']).strip('l_') or '0'}, head {d['head']}",
                "mask": d["mask"],
                "mean distance": f"{_mean(d['counts'], float):+.2f}",
                "right beside it": f"{_mean(d['counts'], lambda far: abs(far) == 1):.0%}",
            }
            for d in r["distances"]
        ]
        caption = (
            "Distance from a query to the key it attends to most: negative lies before it. "
            f"{r['tagged']} tagged and {len(r['sentences'])} given sentences; 15 stands for 15 and "
            "more."
        )
        return together(
            self.place.figure("distances", figure, caption),
            self.place.table("distances", numbers, rows, (0, 1)),
        )

    def _contrast(self, kind: str, c: Mapping[str, Any]) -> str:
        _, low, high = t_interval(c["mean"], c["sd"], c["sentences"])
        name = KINDS_OF_NUMBERS.get(kind, kind)
        said = "higher" if low > 0 else "lower" if high < 0 else "not shown to differ"
        return (
            f"{name[0].upper()}{name[1:]}: nouns and verbs less stop words {c['mean']:+.4g} "
            f"[{low:+.4g}, {high:+.4g}] over {c['sentences']} sentences: {said}."
        )


def _intervals(tags: Mapping[str, Mapping[str, Any]]) -> dict[str, tuple[float, float, float]]:
    """Mean and interval by tag, the highest first."""
    found = {
        tag: t_interval(one["mean"], one["sd"], one["sentences"])
        for tag, one in tags.items()
        if one["sentences"] > 1
    }
    return dict(sorted(found.items(), key=lambda pair: -pair[1][0]))


def _mean(counts: Sequence[Sequence[int]], of: Callable[[int], float]) -> float:
    """Of something of each distance over all queries; nan without any."""
    total = sum(n for _, n in counts)
    return sum(of(far) * n for far, n in counts) / total if total else math.nan
