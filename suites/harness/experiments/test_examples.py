"""What kept predictions say beside a verdict: without seen examples, and over examples too."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from harness.experiments.conclusion import Comparison, conclude
from harness.experiments.tables import of_examples
from harness.records.predictions import Predictions, PredictionsLost, metric_of, unseen_of
from harness.stats import compare_means
from suites.support.comparisons import A, B, design, family, run

NOTHING = np.empty(0, np.uint8)
TESTED = 200


def said_right(right: np.ndarray, seen: Sequence[int] = (), items: Any = None) -> Predictions:
    """Of classes, right where it says so."""
    count = len(right)
    return Predictions(
        items=np.arange(count, dtype=np.int32) if items is None else items,
        seen=np.isin(np.arange(count), seen),
        truth=np.ones(count, np.uint8),
        said=right.astype(np.uint8),
        confidence=np.full(count, 200, np.uint8),
        errors=NOTHING,
    )


def drawn(seed: int, share: float, count: int = TESTED) -> np.ndarray:
    """Right with that probability, on each of so many examples."""
    return np.asarray(np.random.default_rng([seed, round(1000 * share)]).random(count) < share)


Kept = dict[str, Predictions]


def told(kept: Kept) -> Callable[[Mapping[str, Any]], Predictions | None]:
    return lambda record: kept.get(record["key"])


def records_of(kept: Kept, metric: str = "accuracy", **more: Any) -> list[dict[str, Any]]:
    """Runs that agree with what they said."""
    keys = [key.split() for key in kept]
    return [
        run(model, int(number), metric_of(metric, said), task, **{"data": "d", **more})
        for (model, task, number), said in zip(keys, kept.values(), strict=True)
    ]


def compared(
    kept: Kept,
    declared: Mapping[str, Any] | None = None,
    records: Sequence[Mapping[str, Any]] | None = None,
) -> Comparison:
    """Two models, whose records agree with what they said unless others are given."""
    declared = declared or design(len(kept) // 2)
    return conclude(declared, records or records_of(kept), said=told(kept)).comparisons[0]


def alike() -> Kept:
    """Two models that say the same."""
    return both(*[lambda seed: said_right(drawn(seed, 0.8))] * 2)


def apart() -> Kept:
    """The first one is right on nine of ten, the other one on seven."""
    return both(lambda s: said_right(drawn(s, 0.9)), lambda s: said_right(drawn(s + 50, 0.7)))


def both(first: Callable[[int], Predictions], second: Callable[[int], Predictions]) -> Kept:
    return {
        f"{model} trec {seed}": make(seed)
        for model, make in ((A, first), (B, second))
        for seed in range(6)
    }


def changed(
    *spans: tuple[int, int, bool], seen: Sequence[int] = ()
) -> Callable[[int], Predictions]:
    """Of each seed seven of ten are right, and in these spans of examples all, or none."""

    def make(seed: int) -> Predictions:
        right = drawn(seed, 0.7)
        for first, end, all_right in spans:
            right[first:end] = all_right
        return said_right(right, seen)

    return make


def test_a_model_that_learned_nothing_is_told_and_the_difference_without_it() -> None:
    """Half of the examples are of either class; one run of the second model says 0 of all."""
    truth = (np.arange(TESTED) % 2).astype(np.uint8)

    def says(right: np.ndarray) -> Predictions:
        return replace(said_right(right), truth=truth, said=np.where(right, truth, 1 - truth))

    kept = both(lambda s: says(drawn(s, 0.9)), lambda s: says(drawn(s + 50, 0.88)))
    kept[f"{B} trec 0"] = replace(kept[f"{B} trec 0"], said=np.zeros(TESTED, np.uint8))
    found = compared(kept)
    said = f"1 of 6 runs of {B} says one class for all 200 test examples: nothing was learned"
    assert [w for w in found.warnings if w.startswith(said)]
    values = [[metric_of("accuracy", kept[f"{m} trec {s}"]) for s in range(1, 6)] for m in (A, B)]
    d = compare_means(*values, paired=True)
    without = "without pairs of which a run says one class for all test examples: difference "
    assert f"{without}{found.unit.interval(d)}" in found.examples.lines
    whole = compared(both(lambda s: says(drawn(s, 0.9)), lambda s: says(drawn(s + 50, 0.88))))
    assert not [w for w in whole.warnings if "one class" in w]
    assert (found.examples.stuck, whole.examples.stuck) == (True, False)


def test_a_verdict_that_rests_on_seen_examples_changes() -> None:
    """The first model knows the 40 that it has seen; on the others both are alike."""

    def guesses(seed: int) -> Predictions:
        right = drawn(seed, 0.7)
        right[:40] = drawn(seed, 0.3, 40)
        return said_right(right, range(40))

    found = compared(both(changed((0, 40, True), seen=range(40)), guesses))
    assert found.verdict == "better"
    assert (found.examples.verdict, found.examples.seen) == ("undecided", 40)
    assert found.examples.lines[0] == (
        "without 40 of 200 test examples that stand in the training set: verdict changes from "
        "better to undecided, difference +0.00 points [+0.00, +0.00], p = 1"
    )
    assert of_examples([found])[0] == found.examples.lines[0]


def test_without_seen_examples_the_difference_is_that_of_the_others() -> None:
    kept = both(
        lambda seed: said_right(drawn(seed, 0.9), (3, 7)),
        lambda seed: said_right(drawn(seed + 50, 0.7), (3, 7)),
    )
    found = compared(kept)
    others = [i for i in range(TESTED) if i not in (3, 7)]
    sides = [
        [float(kept[f"{model} trec {seed}"].said[others].mean()) for seed in range(6)]
        for model in (A, B)
    ]
    assert [row[1] for row in found.examples.values] == pytest.approx(sides[0])
    plain = compare_means(*sides, paired=True)
    assert found.examples.difference.p == pytest.approx(plain.p)
    assert "verdict unchanged (better), difference +" in found.examples.lines[0]


def test_where_none_is_seen_it_says_so() -> None:
    found = compared(alike())
    assert found.examples.lines[0] == ("none of 200 test examples stands in the training set")


def test_a_family_is_judged_again_together() -> None:
    """By itself p = .03 decides; of two, of which the other is equal, it does not."""
    kept: Kept = {}
    models = ["mtsa", "disa"]
    for seed in range(6):
        kept[f"{B} trec {seed}"] = said_right(drawn(seed, 0.7), (0,))
        kept[f"disa trec {seed}"] = said_right(drawn(seed, 0.7), (0,))
        right = drawn(seed, 0.7)
        flips = [0, 3, 1, 4, 0, 3][seed]
        wrong = np.flatnonzero(~right)[1 : 1 + flips]
        right[wrong] = True
        kept[f"mtsa trec {seed}"] = said_right(right, (0,))
    records = records_of(kept)
    pair = compared(kept, design(6, "mtsa"), records)
    mtsa, _ = conclude(family(models, ["trec"]), records, said=told(kept)).comparisons
    assert 0.025 < pair.examples.difference.p < 0.05
    assert (pair.examples.verdict, mtsa.examples.verdict) == ("better", "undecided")
    assert of_examples([pair, pair])[0].startswith("mtsa, mtsa: without 1 of 200 ")


def test_runs_without_predictions_can_not_be_told() -> None:
    kept = alike()
    records = records_of(kept)
    del kept[f"{A} trec 2"]
    found = compared(kept, design(6), records).examples
    assert found.lines == (
        "without test examples that stand in the training set: can't be told, 1 of 12 runs are "
        "without predictions",
    )
    assert (found.verdict, found.crossed, found.warnings) == ("", None, ())


def test_numbers_of_a_record_stand_for_predictions_that_were_not_published() -> None:
    kept = {
        f"{model} trec {seed}": said_right(drawn(seed + shift, share), (0, 1))
        for model, shift, share in ((A, 0, 0.9), (B, 50, 0.8))
        for seed in range(6)
    }
    whole = compared(kept, design(6)).examples
    some = [
        {**one, "unseen": unseen_of(one["test"], kept[one["key"]])} if one["seed"] < 2 else one
        for one in records_of(kept)
    ]
    fewer = {key: one for key, one in kept.items() if int(key.split()[-1]) >= 2}
    found = compared(fewer, design(6), some).examples
    assert found.lines == (
        *whole.lines[:1],
        "over test examples nothing is told: of 4 of 12 runs numbers were published, not "
        "predictions",
    )
    assert found.lines[0].startswith("without 2 of 200 test examples")
    assert (found.values, found.verdict) == (whole.values, whole.verdict)
    assert found.by_run == whole.by_run
    assert statistics.fmean(found.by_run[f"{A} trec {s}"] for s in range(6)) == pytest.approx(
        statistics.fmean(row[1] for row in whole.values)
    )
    assert (found.crossed, found.pairs, found.hangs) == (None, (), False)
    folds = [{**one, "seed": 0, "fold": one["seed"]} for one in some]
    declared = design(6, folds=6, seeds=[0], units="folds")
    of_folds = compared(fewer, declared, folds).examples
    assert of_folds.tested == 6 * TESTED
    assert of_folds.lines[1:] == found.lines[1:]


def test_lost_files_are_a_warning_by_name_and_no_crash() -> None:
    kept = alike()
    records = records_of(kept)

    def said(record: Mapping[str, Any]) -> Predictions | None:
        if record["seed"] < 2:
            raise PredictionsLost(f"predictions of {record['key']} are lost: no p/k.npz; copy it")
        return kept[record["key"]]

    conclusion = conclude(design(6), records, said=said)
    (found,) = conclusion.comparisons
    assert found.verdict == conclude(design(6), records).comparisons[0].verdict
    lost = f"predictions of {A} trec 0 are lost: no p/k.npz; copy it (and those of 3 more runs)"
    assert lost in found.warnings
    assert lost in conclusion.warnings
    assert found.examples.lines[0].endswith("the predictions of 4 of 12 runs are lost")


def test_drawn_data_and_other_metrics_have_nothing_to_tell() -> None:
    kept = alike()
    records = records_of(kept, data="")
    assert compared(kept, design(6), records).examples is None
    assert compared(kept, design(6, task="mse"), records).examples is None


# Over seeds and examples


def test_a_verdict_that_hangs_on_the_test_set_is_a_warning() -> None:
    """The first model is better on six examples, with every seed, worse on two."""
    first, second = (changed((0, 6, ahead), (6, 8, not ahead)) for ahead in (True, False))
    found = compared(both(first, second))
    assert found.verdict == "better", "over seeds the difference never varies"
    assert found.examples.crossed.p == pytest.approx(0.158, abs=0.01)
    (said,) = [w for w in found.warnings if "hangs" in w]
    assert said == (
        "the verdict better hangs on this test set: it does not hold over seeds and test examples "
        "together (p = 0.16)"
    )
    assert found.examples.lines[1] == (
        "over 6 seeds and 200 test examples: difference +2.00 points [-0.78, +4.78], p = 0.16; "
        "0 of 6 pairs of runs differ by McNemar's exact test"
    )


def test_over_examples_too_a_verdict_is_its_familys_by_holm() -> None:
    """On four examples less p is .04: enough by itself, and too much as one of two."""

    def ahead(seed: int) -> Predictions:
        made = changed((0, 9, True), (9, 11, False))(seed)
        made.said[40 + seed] = 1  # seeds are not all alike
        return made

    kept = both(ahead, changed((0, 9, False), (9, 11, True)))
    alone = compared(kept)
    p = alone.examples.crossed.p
    assert 0.025 < p < 0.05
    assert not alone.examples.hangs
    more = {key.replace(B, "disa.fused"): one for key, one in kept.items() if B in key}
    every = {**kept, **more}
    records = records_of(every)
    found = conclude(family([A, "disa.fused"], ["trec"], 6), records, said=told(every))
    first = found.comparisons[0]
    assert (first.verdict, first.examples.hangs) == ("better", True)
    assert any(w.endswith(f"(p = {2 * p:.2g}, Holm over 2)") for w in first.warnings)


def test_practically_equal_has_to_hold_over_examples_too() -> None:
    """Alike in every seed, but by other examples: 10 each way."""
    kept = both(*[changed((0, 20, False), (low, low + 10, True)) for low in (0, 10)])
    wide, narrow = (compared(kept, design(6, margin=margin)) for margin in (0.1, 0.01))
    assert (wide.verdict, narrow.verdict) == ("practically equal", "practically equal")
    assert not [w for w in wide.warnings if "hangs" in w]
    assert [w for w in narrow.warnings if w.startswith("the verdict practically equal hangs")]


def test_a_difference_on_many_examples_holds() -> None:
    found = compared(apart())
    assert found.examples.crossed.p < 0.001
    assert found.examples.lines[1].endswith("6 of 6 pairs of runs differ by McNemar's exact test")
    assert not [w for w in found.warnings if "hangs" in w]


def test_seeds_that_are_tested_on_other_examples_are_not_crossed() -> None:
    def make(seed: int) -> Predictions:
        return said_right(drawn(seed, 0.8), items=np.arange(TESTED, dtype=np.int32) + seed)

    found = compared(both(make, make)).examples
    assert found.crossed is None
    assert len(found.lines) == 1
    assert len(found.pairs) == 6, "both of a pair are"


def test_folds_are_not_crossed_and_seen_is_over_the_others() -> None:
    kept = {
        f"{model} trec {fold}": said_right(
            drawn(fold + shift, 0.8), (0, 1), np.arange(TESTED, dtype=np.int32) + TESTED * fold
        )
        for model, shift in ((A, 0), (B, 50))
        for fold in range(6)
    }
    records = [{**one, "seed": 0, "fold": one["seed"]} for one in records_of(kept)]
    declared = design(6, folds=6, seeds=[0], units="folds")
    found = compared(kept, declared, records).examples
    assert found.crossed is None
    assert (found.seen, found.tested) == (12, 1200)
    assert found.lines[0].startswith(
        "without 12 of 1,200 test examples that stand in another fold too: verdict unchanged"
    )
    assert [fold for _, fold, _ in found.pairs] == list(range(6))


def test_degrees_are_compared_by_correlation() -> None:
    rng = np.random.default_rng(0)
    truth = rng.uniform(1, 5, TESTED).astype(np.float32)
    noise = rng.normal(size=TESTED)

    def degrees(seed: int, spread: float) -> Predictions:
        own = np.random.default_rng([seed, 1]).normal(size=TESTED)
        said = (truth + spread * (noise + 0.5 * own)).astype(np.float16)
        one = said_right(np.ones(TESTED, bool), (5,))
        return Predictions(one.items, one.seen, truth, said, NOTHING, NOTHING)

    kept = {
        f"{model} sick {seed}": degrees(seed, spread)
        for model, spread in ((A, 0.5), (B, 1.0))
        for seed in range(6)
    }
    found = compared(kept, design(6, task="sick"), records_of(kept, "pearson"))
    assert found.verdict == "better"
    assert found.examples.crossed.difference == pytest.approx(found.difference.difference)
    assert found.examples.lines[1].endswith("6 of 6 pairs of runs differ by a paired bootstrap")
    expected = [
        np.corrcoef(np.delete(p.said.astype(float), 5), np.delete(truth, 5))[0, 1]
        for p in kept.values()
    ]
    assert [row[1] for row in found.examples.values] == pytest.approx(expected[:6], abs=1e-5)


def test_few_seeds_are_only_described() -> None:
    some = {k: p for k, p in apart().items() if int(k.split()[2]) < 3}
    found = compared(some).examples
    assert (found.crossed, len(found.lines)) == (None, 1)
