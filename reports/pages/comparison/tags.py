"""What models said of the words of sentences: by tag or type, what is taken for what, and where."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from harness.experiments.conclusion import Comparison
from harness.stats.sums import has_spans, spans_of
from harness.train.data.texts import Tagged
from reports.core.page import Output, Shown, remark, says, together
from reports.core.tables import under
from reports.pages.comparison.arms import Arm, both_said, loader_of, pairs_of, table_of

CONFUSED = 15
"""Confusions shown, the most frequent ones."""


def are_tagged(arms: Sequence[Arm]) -> bool:
    """Whether all said tags of words: what they hold can be counted by."""
    return all(
        arm.pooled("lengths").size
        and arm.pooled("truth").size
        and {arm.pooled(name).dtype.kind for name in ("truth", "said")} == {"u"}
        for arm in arms
    )


def show(place: Output, some: Sequence[Comparison], name: str, arms: Sequence[Arm]) -> Shown:
    """All of it, of one task."""
    corpus = loader_of(some[0].task, Tagged)
    names = _names(arms, corpus)
    parts = [
        _words(place, f"{name}words", arms),
        _types(place, f"{name}types", arms, names),
        _confusion(place, f"{name}confusion", arms, names),
    ]
    for _, first, second, suffix, most in pairs_of(some, arms):
        label = f"{name}examples{suffix}"
        parts.append(_sentences(place, label, (first, second), names, corpus, most))
    return together(*parts)


def _names(arms: Sequence[Arm], corpus: Tagged | None) -> list[str]:
    """Of the tags by their numbers; 0 is none."""
    most = max(int(max(arm.pooled("truth").max(), arm.pooled("said").max())) for arm in arms)
    known = ["", *corpus.tags] if corpus is not None else []
    return known if most < len(known) else [f"tag {number}" for number in range(most + 1)]


def _words(place: Output, name: str, arms: Sequence[Arm]) -> Shown:
    """Right words of all, of those that training has seen, and of the others."""
    rows, numbers = [], []
    for arm in arms:
        right, total, fresh, unseen = _counts(arm)
        shares = {"all": (right, total), "seen": (right - fresh, total - unseen)}
        shares["unseen"] = (fresh, unseen)
        cells = [f"{100 * a / b:.2f} %" if b else "" for a, b in shares.values()]
        rows.append(
            [arm.model, *cells, f"{total / len(arm.said):g}", f"{unseen / len(arm.said):g}"]
        )
        known = {f"{of}_right": a for of, (a, _) in shares.items()}
        known |= {f"{of}_words": b for of, (_, b) in shares.items()}
        numbers.append({"model": arm.model, "runs": len(arm.said), **known})
    columns = ["model", "right words", "seen in training", "unseen", "words", "of them unseen"]
    said = (
        "Words whose tag is right, over all seeds; unseen ones don't stand in the training split."
    )
    return together(remark(said), place.table(name, numbers, under(columns, rows)))


def _counts(arm: Arm) -> list[int]:
    """Right words and words, and those that training has not seen, over all runs."""
    total = np.zeros(4, int)
    for one in arm.said.values():
        if one.counts.ndim == 2 and one.counts.shape[1] >= 4:
            total += one.counts[:, :4].sum(0)
    return [int(n) for n in total]


@dataclass(frozen=True)
class SpanCounts:
    """How often something was found, over all runs of a model."""

    right: int
    said: int
    true: int

    @property
    def f1(self) -> float:
        """Of both precision and recall; 0 where nothing was said and nothing is."""
        return 2 * self.right / max(1, self.said + self.true)


def by_type(arm: Arm, names: Sequence[str]) -> dict[str, SpanCounts]:
    """Spans of each type, where tags are BIO; else words of each tag."""
    counts = {what: Counter[str]() for what in ("right", "said", "true")}
    for true, said in _both(arm):
        if has_spans(names):
            own, other = (spans_of([names[tag] for tag in tags]) for tags in (true, said))
            found = {"right": own & other, "said": other, "true": own}
            for what, spans in found.items():
                counts[what].update(kind for kind, _, _ in spans)
        else:
            counts["right"].update(names[tag] for tag in true[true == said])
            counts["said"].update(names[tag] for tag in said)
            counts["true"].update(names[tag] for tag in true)
    kinds = sorted({kind for some in counts.values() for kind in some})
    return {kind: SpanCounts(*(counts[what][kind] for what in counts)) for kind in kinds}


def _both(arm: Arm) -> Iterator[tuple[np.ndarray, np.ndarray]]:
    """Truth and what was said of every sentence of every run."""
    for one in arm.said.values():
        yield from zip(one.sequences("truth"), one.sequences("said"), strict=True)


def _types(place: Output, name: str, arms: Sequence[Arm], names: Sequence[str]) -> Shown:
    found = {arm.model: by_type(arm, names) for arm in arms}
    nothing = SpanCounts(0, 0, 0)
    numbers = [
        {"model": m, "type": kind, **vars(one), "f1": one.f1}
        for m, some in found.items()
        for kind, one in some.items()
    ]
    of = found[arms[0].model]
    rows = [
        [
            kind,
            f"{of.get(kind, nothing).true / len(arms[0].said):g}",
            *(f"{100 * some.get(kind, nothing).f1:.1f}" for some in found.values()),
        ]
        for kind in sorted({kind for some in found.values() for kind in some})
    ]
    what = "spans of each type" if has_spans(names) else "words of each tag"
    columns = ["type" if has_spans(names) else "tag", "there are", *(f"{m} (F1, %)" for m in found)]
    shown = place.table(name, numbers, under(columns, rows))
    return together(remark(f"F1 of {what}, over all seeds together."), shown)


def confused(arm: Arm, names: Sequence[str]) -> Counter[tuple[str, str]]:
    """How often which tag was said (second) of which (first), where they differ, over all runs."""
    truth, said = arm.pooled("truth").astype(int), arm.pooled("said").astype(int)
    pairs = zip(truth[truth != said].tolist(), said[truth != said].tolist(), strict=True)
    return Counter((names[true], names[other]) for true, other in pairs)


def _confusion(place: Output, name: str, arms: Sequence[Arm], names: Sequence[str]) -> Shown:
    found = [(arm, confused(arm, names)) for arm in arms]
    most = Counter[tuple[str, str]]()
    for arm, counts in found:
        for pair, times in counts.items():
            most[pair] = max(most[pair], times // len(arm.said))
    if not most:
        return remark("Every word of every run has its tag.")
    ranked = sorted(most, key=lambda pair: (-most[pair], pair))
    cells = {p: [f"{counts[p] / len(arm.said):.1f}" for arm, counts in found] for p in ranked}
    numbers = [
        {"model": arm.model, "is": true, "said": said, "words": counts[true, said]}
        for arm, counts in found
        for true, said in ranked
    ]
    rows = [[true, said, *cells[true, said]] for true, said in ranked[:CONFUSED]]
    columns = ["is", "said", *(f"{arm.model} (words a run)" for arm, _ in found)]
    shown = place.table(name, numbers, under(columns, rows), (0, 1))
    left = (
        f" {len(ranked) - CONFUSED} rarer ones are in the data." if len(ranked) > CONFUSED else ""
    )
    return together(remark(f"What is taken for what, most often first.{left}"), shown)


@dataclass(frozen=True, eq=False)
class Apart:
    """One test sentence, by its place in the corpus' table, as both models see it.

    Truth of shape [n]; what was said of shape [runs, n], by pair of runs.
    """

    item: int
    truth: np.ndarray
    first: np.ndarray
    second: np.ndarray

    def right(self, said: np.ndarray) -> float:
        """Words that are right, the mean over runs."""
        return float((said == self.truth).sum(1).mean())

    @property
    def ahead(self) -> float:
        """How many words more the first model has right."""
        return self.right(self.first) - self.right(self.second)

    def differences(self) -> list[tuple[int, int, int]]:
        """Places where most runs of both say something else: place, first, second."""
        usual = [
            np.array([np.bincount(w).argmax() for w in s.T]) for s in (self.first, self.second)
        ]
        return [(n, int(a), int(b)) for n, (a, b) in enumerate(zip(*usual, strict=True)) if a != b]


def apart(first: Arm, second: Arm) -> list[Apart]:
    """All sentences that both models tagged, those where one is further ahead first."""
    seen: dict[int, tuple[np.ndarray, list[np.ndarray], list[np.ndarray]]] = {}
    for item, (truth, said), (_, other) in both_said(
        first, second, lambda p: zip(p.sequences("truth"), p.sequences("said"), strict=True)
    ):
        if len(other) == len(truth) > 0:
            _, mine, theirs = seen.setdefault(item, (truth, [], []))
            if len(said) == len(seen[item][0]):
                mine.append(said)
                theirs.append(other)
    found = [Apart(i, t, np.stack(x), np.stack(y)) for i, (t, x, y) in seen.items() if x]
    return sorted(found, key=lambda one: (-abs(one.ahead), one.item))


def _sentences(
    place: Output,
    name: str,
    both: tuple[Arm, Arm],
    names: Sequence[str],
    corpus: Tagged | None,
    most: int,
) -> Shown:
    """Where one model is furthest ahead of the other, with the words where data are given."""
    first, second = (arm.model for arm in both)
    everything = apart(*both)
    chosen = [one for one in everything if one.differences()][:most]
    if not chosen:
        return remark(f"{first} and {second} say the same of every word, in most of their runs.")
    texts, why = _texts(corpus, chosen)
    table = corpus.files[-1] if corpus is not None else "sentence"
    cells = []
    for one in chosen:
        words = texts.get(one.item) or [f"word {n + 1}" for n in range(len(one.truth))]
        told = "; ".join(
            f"{words[n]} is {names[one.truth[n]]}: {names[a]} | {names[b]}"
            for n, a, b in one.differences()
        )
        right = [f"{one.right(said):.1f} of {len(one.truth)}" for said in (one.first, one.second)]
        text = " ".join(texts.get(one.item, []))
        cells.append([f"{table} row {one.item + 1}", *right, told, text])
    number = sum(bool(one.differences()) for one in everything)
    heads = [
        f"Of {number:,} of {len(everything):,} test sentences most runs of {first} and {second} "
        "say different tags; here those where one is furthest ahead.",
        *([why] if why else []),
    ]
    columns = ["place", f"{first}: right", f"{second}: right", "word is: both say", "sentence"]
    rows = under(columns, cells)
    return together(says(heads), place.table(name, rows, rows, (0, 3, 4)))


def _texts(corpus: Tagged | None, chosen: Sequence[Apart]) -> tuple[dict[int, list[str]], str]:
    """Their words by place; or none, and why."""
    if corpus is None:
        return {}, "The sentences were drawn, or are of a task that this version does not know."
    path, table, why = table_of(corpus.files[-1], corpus.read, "the sentences")
    if table is None:
        return {}, why
    sentences, tags = table
    for one in chosen:
        if not 0 <= one.item < len(tags) or tags[one.item] != one.truth.tolist():
            return {}, f"The sentences can't be shown: {path} is not what was tested on."
    return {one.item: sentences[one.item] for one in chosen}, ""
