"""What kept predictions add to a comparison: other test examples, and those that were trained on.

The verdict stays that of the declared test over seeds or folds; what stands here is told beside it.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from harness.experiments.replicates import (
    Measured,
    Record,
    Replicate,
    Ruled,
    Unit,
    is_ok,
    judged_by,
    ruled,
    unit_of,
)
from harness.experiments.warnings import DECIDED
from harness.records.predictions import Predictions, PredictionsLost, parts_of, unseen_of
from harness.stats import (
    ALPHA,
    SUMMED,
    Crossed,
    MeanDifference,
    correlation_p,
    crossed,
    holm,
    mcnemar,
    summed_p,
    too_few,
)

Said = Callable[[Record], Predictions | None]
"""What a run said of its test examples, by its record: `harness.records.predictions.read`."""
PAIR_TESTS = {
    "accuracy": "McNemar's exact test",
    **dict.fromkeys(("pearson", *SUMMED), "a paired bootstrap"),
}
"""By metric, how one pair of runs is tested on its examples."""
STANDING = "test examples that stand in the training set"
HANGS = "hangs on this test set"
"""A verdict that does not hold where test examples are drawn too."""
STUCK = "pairs of which a run says one class for all test examples"


@dataclass(frozen=True)
class KeptPairs:
    """The predictions of a comparison, counted."""

    # seen, tested: test examples whose text stands in the training set (with folds in another
    # fold), and all.
    seen: int = 0
    tested: int = 0
    # The comparison by the others alone; None where it can't be told.
    unseen: Measured | None = None
    unknown: str = ""  # why it can't
    lost: tuple[str, ...] = ()  # files of predictions that can't be read
    numbers: int = 0  # runs that were published without predictions, with numbers in their place
    # Pairs of runs, and the p of both on the examples that they share.
    pairs: tuple[tuple[Replicate, float], ...] = ()
    # Over seeds and test examples; None where not every seed meets every example.
    crossed: Crossed | None = None
    # By model, how many of its runs say one class for all test examples; and the comparison by the
    # other pairs, None where there are no such runs, or no pair is left.
    stuck: Mapping[str, int] = field(default_factory=dict)
    learned: Measured | None = None
    # By run, its test metric without seen examples.
    by_run: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class ByExamples:
    """What is told of a comparison's test examples."""

    lines: tuple[str, ...]  # without those that were trained on; over seeds and examples
    warnings: tuple[str, ...]
    seen: int  # seen, tested: as of `KeptPairs`
    tested: int
    # Without the seen ones, judged with its whole family without them; empty if not told.
    verdict: str
    difference: MeanDifference | None  # without them
    # Test metrics without them; with folds (fold, means over seeds).
    values: tuple[tuple[int, float, float], ...]
    pairs: tuple[tuple[int, int | None, float], ...]  # see `KeptPairs`
    crossed: Crossed | None
    hangs: bool = False  # whether the verdict does not hold over seeds and test examples together
    by_run: Mapping[str, float] = field(default_factory=dict)  # as of `KeptPairs`
    stuck: bool = False  # whether some runs say one class for all test examples

    def mean(self, side: int) -> float:
        """Of `values`, of the first model (0) or the second (1); nan without any."""
        return fmean(row[1 + side] for row in self.values) if self.values else math.nan


def hanging(told: ByExamples | None) -> list[str]:
    """That a verdict does not hold over seeds and test examples together, if so."""
    return [HANGS] * (told is not None and told.hangs)


def kept_of(found: Measured, said: Said) -> KeptPairs | None:
    """Read and count the predictions of a comparison; None where nothing is to be told.

    Of published runs without them their records have the numbers without seen examples. Nothing
    is to be told of data that are drawn for each seed, and of metrics that are no `PAIR_TESTS`.
    """
    metric = found.design["metric"]
    runs = [run for pair in found.pairs for run in pair if is_ok(run)]
    if metric not in PAIR_TESTS or not any(run.get("data") for run in runs):
        return None
    by_key: dict[str, Predictions] = {}
    lost, without = [], 0
    for run in runs:
        try:
            one = said(run)
        except PredictionsLost as error:
            lost.append(str(error))
            continue
        if one is not None and one.said.size:
            by_key[run["key"]] = one
        elif not run.get("unseen"):
            without += 1
    if lost or without:
        why = f"the predictions of {len(lost)} of {len(runs)} runs are lost"
        if without:
            why = f"{without} of {len(runs)} runs are without predictions"
        return KeptPairs(unknown=why, lost=tuple(lost))
    numbers = {r["key"]: r["unseen"] for r in runs if r["key"] not in by_key}
    numbers |= {key: unseen_of([metric], one) for key, one in by_key.items()}
    by_run = {key: float(one["test"].get(metric, math.nan)) for key, one in numbers.items()}
    unseen = judged_by(found.design, found.pairs, lambda run: by_run[run["key"]])
    of_fold = {run.get("fold"): numbers[run["key"]] for run in runs}.values()
    left = KeptPairs(
        seen=sum(one["seen"] for one in of_fold),
        tested=sum(one["examples"] for one in of_fold),
        unseen=None if unseen.difference is None else unseen,
        unknown="none is left" if unseen.difference is None else "",
        by_run=by_run,
    )
    if len(by_key) < len(runs):
        return replace(left, numbers=len(runs) - len(by_key))
    every = {int(i): bool(s) for p in by_key.values() for i, s in zip(p.items, p.seen, strict=True)}
    pairs = [
        (Replicate(a["seed"], a.get("fold")), (by_key[a["key"]], by_key[b["key"]]))
        for a, b in found.pairs
        if is_ok(a) and is_ok(b)
    ]
    paired = [both for _, both in pairs] if found.values.paired else []
    p_values = _pair_tests(metric, paired)  # of all pairs, or of none
    stuck = {key for key, one in by_key.items() if metric == "accuracy" and _says_one_class(one)}
    learned = None
    if stuck:
        learned = judged_by(
            found.design,
            found.pairs,
            lambda run: math.nan if run["key"] in stuck else float(run["test"][metric]),
        )
    return replace(
        left,
        seen=sum(every.values()),
        tested=len(every),
        pairs=tuple((one, p) for (one, _), p in zip(pairs, p_values, strict=False)),
        crossed=_crossed(metric, paired),
        stuck=Counter(str(run["model"]) for run in runs if run["key"] in stuck),
        learned=None if learned is None or learned.difference is None else learned,
    )


def _says_one_class(of: Predictions) -> bool:
    import numpy as np

    several = not of.lengths.size and np.unique(of.truth).size > 1
    return several and np.unique(of.said).size == 1


Both = tuple[Predictions, Predictions]


def _alike(some: Sequence[Predictions]) -> bool:
    """Whether all are of the same examples."""
    import numpy as np

    first = some[0]
    return all(
        np.array_equal(one.items, first.items) and np.array_equal(one.truth, first.truth)
        for one in some[1:]
    )


def _pair_tests(metric: str, pairs: Sequence[Both]) -> list[float]:
    """The p of each pair of runs; none unless each pair has its examples in common."""
    if not pairs or not all(map(_alike, pairs)):
        return []
    if metric == "accuracy":
        return [mcnemar(*(one.truth == one.said for one in pair)) for pair in pairs]
    if metric in SUMMED:
        return summed_p(metric, [(a.counts, b.counts) for a, b in pairs])
    return [correlation_p([(a.said, b.said)], a.truth)[0] for a, b in pairs]


def _crossed(metric: str, pairs: Sequence[Both]) -> Crossed | None:
    """Over seeds and examples; None unless all runs are of the same ones: those of folds never."""
    import numpy as np

    if len(pairs) < 2 or not _alike([one for pair in pairs for one in pair]):
        return None
    apart = [np.subtract(*(parts_of(metric, one).astype(float) for one in pair)) for pair in pairs]
    return crossed(np.array(apart)) if len(apart[0]) > 1 else None


def without_stuck(found: Sequence[Measured], kept: Sequence[KeptPairs | None]) -> list[Measured]:
    """Comparisons without pairs of which a run says one class for all test examples."""
    return [k.learned or m if k else m for m, k in zip(found, kept, strict=True)]


def without_seen(found: Sequence[Measured], kept: Sequence[KeptPairs | None]) -> list[Measured]:
    """Comparisons by the test examples that were not trained on; what can't be told stays."""
    return [k.unseen or m if k else m for m, k in zip(found, kept, strict=True)]


def by_examples(
    found: Sequence[Measured], rules: Sequence[Ruled], kept: Sequence[KeptPairs | None]
) -> list[ByExamples | None]:
    """What kept predictions say of comparisons that are judged together; None where nothing.

    Without the seen examples the whole family is judged again; a comparison of which that can't be
    told keeps its p-values.

    Parameters
    ----------
    rules : sequence of Ruled
        The verdicts by all test examples.
    kept : sequence of KeptPairs or None
        Of each comparison, from `kept_of`.
    """
    again = ruled(without_seen(found, kept))
    crossed_p = _crossed_p(found, rules, kept)
    return [
        None if k is None else _told(k, m, rule.verdict, other.verdict, p, len(found))
        for m, k, rule, other, p in zip(found, kept, rules, again, crossed_p, strict=True)
    ]


def _crossed_p(
    found: Sequence[Measured], rules: Sequence[Ruled], kept: Sequence[KeptPairs | None]
) -> list[float]:
    """By Holm over the family, as its verdicts are: p over seeds and examples of what each says.

    1 where that can't be told.
    """
    overs = [None if k is None else k.crossed for k in kept]
    margins = [m.design["margin"] for m in found]
    apart = holm([1.0 if over is None else over.p for over in overs])
    equal = holm(
        [
            1.0 if over is None or margin is None else over.equivalence(margin)
            for over, margin in zip(overs, margins, strict=True)
        ]
    )
    both = zip(rules, apart, equal, strict=True)
    return [e if rule.verdict == "practically equal" else p for rule, p, e in both]


def _told(
    kept: KeptPairs, found: Measured, verdict: str, again: str, crossed_p: float, together: int
) -> ByExamples:
    """What is said of it beside a verdict; `again` is that without the seen examples.

    `crossed_p` is over seeds and examples, as adjusted for so many comparisons `together`.
    """
    over, d, unit = kept.crossed, found.difference, unit_of(found.design["metric"])
    lines = []
    if verdict != "unfinished":
        lines.append(_without(kept, unit, verdict, again, bool(found.values.folds)))
    if kept.numbers:
        lines.append(
            f"over test examples nothing is told: of {kept.numbers} of {2 * len(found.pairs)} runs "
            "numbers were published, not predictions"
        )
    more = f" (and those of {len(kept.lost) - 1} more runs)" if len(kept.lost) > 1 else ""
    warnings = [f"{one}{more}" for one in kept.lost[:1]]
    for model, count in kept.stuck.items():
        warnings.append(
            f"{count} of {len(found.pairs)} runs of {model} say{'s' * (count == 1)} one class for "
            f"all {kept.tested:,} test examples: nothing was learned there, and it counts as it is"
        )
    if kept.learned is not None and (learned := kept.learned.difference) is not None:
        lines.append(f"without {STUCK}: difference {unit.interval(learned)}")
    if d is None or too_few(d):
        over = None
    if over is not None:
        lines.append(_over(over, kept, found.design["metric"], unit))
    hangs = over is not None and verdict in DECIDED and crossed_p >= ALPHA
    holm_over = f", Holm over {together}" if together > 1 else ""
    told = (
        f"the verdict {verdict} {HANGS}: it does not hold over seeds and test examples together "
        f"(p = {crossed_p:.2g}{holm_over})"
    )
    known = kept.unseen is not None and verdict != "unfinished"
    return ByExamples(
        lines=tuple(lines),
        warnings=(*warnings, *[told] * hangs),
        seen=kept.seen,
        tested=kept.tested,
        verdict=again if known else "",
        difference=kept.unseen.difference if kept.unseen else None,
        values=kept.unseen.values.rows if kept.unseen else (),
        pairs=tuple((replicate.seed, replicate.fold, p) for replicate, p in kept.pairs),
        crossed=over,
        hangs=hangs,
        by_run=kept.by_run,
        stuck=bool(kept.stuck),
    )


def _without(kept: KeptPairs, unit: Unit, verdict: str, again: str, folds: bool) -> str:
    which = STANDING.replace("the training set", "another fold too") if folds else STANDING
    if kept.unseen is None or (d := kept.unseen.difference) is None:
        return f"without {which}: can't be told, {kept.unknown}"
    if not kept.seen:
        return f"none of {kept.tested:,} {which.replace(' that stand', ' stands', 1)}"
    same = f"unchanged ({verdict})"
    changed = same if again == verdict else f"changes from {verdict} to {again}"
    p = "" if too_few(d) else f", p = {d.p:.2g}"
    return (
        f"without {kept.seen:,} of {kept.tested:,} {which}: verdict {changed}, difference "
        f"{unit.change(d)}{p}"
    )


def _over(over: Crossed, kept: KeptPairs, metric: str, unit: Unit) -> str:
    size = f"{unit.difference(over.difference)}{unit.of_differences}"
    found = sum(p < ALPHA for _, p in kept.pairs)
    p = f"= {over.p:.2g}" if over.p > 0 else "< 1e-15"
    return (
        f"over {over.seeds} seeds and {over.items:,} test examples: difference {size} "
        f"{unit.bounds(over)}, p {p}; "
        f"{found} of {len(kept.pairs)} pairs of runs differ by {PAIR_TESTS[metric]}"
    )
