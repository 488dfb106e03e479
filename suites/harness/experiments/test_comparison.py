"""What may be concluded from recorded runs: verdicts, sentences, warnings."""

from __future__ import annotations

import hashlib
import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.experiments.comparison import Comparison, compare
from harness.experiments.conclusion import conclusions
from harness.experiments.tables import statistics_rows
from harness.train.data.corpora import corpora, is_known
from harness.train.task import task

RECIPE = {"width": 8, "heads": 2, "choose": "dev", "tuning_trials": 0, "rate": 0.001}
A, B = "mtsa.algorithm1", "multi_head.sdpa"


def run(model: str, seed: int, value: float, **more: Any) -> dict[str, Any]:
    return {
        "kind": "run",
        "key": f"{model}-{seed}",
        "model": model,
        "seed": seed,
        "status": "ok",
        "test": {"accuracy": value, "mse": value},
        "parameters": 100,
        "parameters_with_words": 150,
        "seconds": 10.0 + seed,
        "peak_bytes": 1000 * (seed + 1),
        "epochs": [{"epoch": 1, "seconds": 2.0}, {"epoch": 2, "seconds": 4.0}],
        "chosen_epoch": 2,
        "coverage": None,
        "at": "2026-01-02",
        "session": "s",
        **more,
    }


def design(count: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "design",
        "key": "d",
        "question": "q",
        "models": [A, B],
        "task": "trec",
        "metric": "accuracy",
        "metrics": ["accuracy"],
        "higher_is_better": True,
        "split": "s",
        "one_test_set": False,
        "recipes": [dict(RECIPE), dict(RECIPE)],
        "seeds": list(range(count)),
        "margin": None,
        "match": "none",
        "paired": True,
        "runs": [[f"{A}-{i}", f"{B}-{i}"] for i in range(count)],
        "at": "2026-01-01",
        "session": "s",
        "status": "ok",
        **more,
    }


def compared(first: list[float], second: list[float], **more: Any) -> Comparison:
    records = [run(A, i, v) for i, v in enumerate(first)]
    records += [run(B, i, v) for i, v in enumerate(second)]
    return compare(design(max(len(first), len(second)), **more), records)


LOW = [0.80, 0.81, 0.79, 0.80, 0.82]
HIGH = [0.90, 0.92, 0.89, 0.91, 0.90]
NEAR = [0.801, 0.809, 0.791, 0.799, 0.821]


@pytest.mark.parametrize(
    ("first", "second", "higher", "margin", "verdict"),
    [
        (HIGH, LOW, True, None, "better"),
        (LOW, HIGH, True, None, "worse"),
        (HIGH, LOW, False, None, "worse"),
        (LOW, HIGH, False, None, "better"),
        (LOW, NEAR, True, None, "undecided"),
        (LOW, NEAR, True, 0.01, "practically equal"),
        (LOW, NEAR, True, 0.0001, "undecided"),
        (HIGH, LOW, True, 0.5, "practically equal"),
        (HIGH[:4], LOW[:4], True, None, "descriptive only"),
        (HIGH[:1], LOW[:1], True, 0.5, "descriptive only"),
        (HIGH, LOW[:4], True, None, "unfinished"),
        ([], LOW, True, None, "unfinished"),
    ],
)
def test_verdicts(
    first: list, second: list, higher: bool, margin: float | None, verdict: str
) -> None:
    found = compared(first, second, higher_is_better=higher, margin=margin)
    assert found.verdict == verdict
    if found.difference is not None:
        pairs = min(len(first), len(second))
        mean = sum(first[:pairs]) / pairs - sum(second[:pairs]) / pairs
        assert found.difference.difference == pytest.approx(mean)
        assert len(found.values) == pairs


def test_the_sentence_names_the_interval_before_p() -> None:
    sentence = compared(HIGH, LOW).sentence
    assert sentence.startswith(f"{A} is better than {B} on trec: test accuracy 90.40 % and 80.40 %")
    assert "difference +10.00 points [+" in sentence
    assert sentence.index("[") < sentence.index("(p = ")
    assert "over 5 paired seeds" in sentence
    assert "p = " not in compared(HIGH[:4], LOW[:4]).sentence
    assert "undecided" in compared(LOW, NEAR).sentence
    assert "equal" not in compared(LOW, NEAR).sentence
    assert "4 paired seeds of 5" in compared(HIGH, LOW[:4]).sentence
    assert "no pair of runs is finished" in compared([], LOW).sentence
    assert (
        "mse 0.9040 and 0.8040, difference +0.1000 ["
        in compared(HIGH, LOW, metric="mse", higher_is_better=False).sentence
    )


def test_few_seeds_are_described_and_not_tested() -> None:
    names = [name for name, *_ in statistics_rows(compared(HIGH[:4], LOW[:4]))]
    assert names == ["difference of accuracy (higher is better)"]
    (row,) = statistics_rows(compared(HIGH[:1], LOW[:1]))
    assert row[1] == "+10.00: one pair has no interval"
    assert statistics_rows(compared([], LOW)) == []
    names = [name for name, *_ in statistics_rows(compared(HIGH, LOW, margin=0.01))]
    assert names[1:] == [
        "p (paired t, two-sided)",
        "Hedges g",
        "minimum detectable effect",
        "p (exact sign-flip, sensitivity)",
        "p (equal within 1.00 points, TOST)",
    ]


@pytest.mark.parametrize(("model", "place"), [(A, 1), (B, 6)])
def test_failed_runs_are_told_and_left_out(model: str, place: int) -> None:
    records = [run(A, i, v) for i, v in enumerate(HIGH)] + [run(B, i, v) for i, v in enumerate(LOW)]
    records[place] |= {"status": "diverged", "detail": "the loss is nan"}
    del records[place]["test"], records[place]["chosen_epoch"]
    found = compare(design(5), records)
    assert [seed for seed, *_ in found.values] == [0, 2, 3, 4]
    assert any(f"1 of 5 runs of {model} diverged" in w for w in found.warnings)
    assert any("1 of 5 pairs are incomplete" in w for w in found.warnings)
    assert found.verdict == "descriptive only"
    without = compare(design(5), records[:9])
    assert any("1 of 10 runs are missing" in w for w in without.warnings)


def test_costs_are_medians_of_the_finished_runs() -> None:
    found = compared(HIGH, LOW).costs[A]
    assert (found.seconds, found.seconds_per_epoch, found.peak_bytes) == (12.0, 3.0, 3000)
    assert (found.parameters, found.parameters_with_words) == (100, 150)
    assert (found.epochs, found.chosen_epoch) == (2, 2)


def test_runs_trained_under_another_spelling_are_the_models() -> None:
    typed = "mtsa.algorithm1[scale_t=log_sigmoid]"
    records = [{**run(A, i, v), "model": typed} for i, v in enumerate(HIGH)]
    records += [run(B, i, v) for i, v in enumerate(LOW)]
    found = compare(design(5), records)
    assert found.costs == compared(HIGH, LOW).costs
    assert [[r["model"] for r in side] for side in found.sides] == [[typed] * 5, [B] * 5]
    drawn = compared(HIGH, LOW)
    assert [[r["key"] for r in s] for s in found.sides] == [
        [r["key"] for r in s] for s in drawn.sides
    ]


def warned(text: str, comparison: Comparison) -> bool:
    return any(text in warning for warning in comparison.warnings)


def test_warnings_appear_when_they_must_and_only_then() -> None:
    clean = compared(HIGH, LOW)
    assert clean.warnings == ()
    assert warned("one and the same test set", compared(HIGH, LOW, one_test_set=True))
    tuned = [{**RECIPE, "tuning_trials": 3}, RECIPE]
    assert warned("unequal tuning budgets: 3 recipes", compared(HIGH, LOW, recipes=tuned))
    faster = [RECIPE, {**RECIPE, "rate": 0.1}]
    assert warned("the recipes differ: rate 0.001 and 0.1", compared(HIGH, LOW, recipes=faster))
    narrow = [{**RECIPE, "width": 6}, RECIPE]
    assert warned("the recipes differ: width 6 and 8", compared(HIGH, LOW, recipes=narrow))
    assert compared(HIGH, LOW, recipes=narrow, match="parameters").warnings == ()
    by_test = [{**RECIPE, "choose": "best-on-test"}] * 2
    found = compared(HIGH, LOW, recipes=by_test)
    assert warned("best over time on the test set", found)
    assert "best over time on the test set accuracy" in found.sentence


def test_data_that_are_not_the_known_corpus_are_told() -> None:
    content = {f.name: f.content for f in corpora()["trec"].files}
    known = [content[name] for name in task("trec").files]
    right = hashlib.sha256(b"".join(map(bytes.fromhex, known))).hexdigest()[:16]
    for data, told in (("", False), (right + "of vectors", False), ("0" * 16, True)):
        records = [run(A, i, v, data=data) for i, v in enumerate(HIGH)]
        records += [run(B, i, v, data=data) for i, v in enumerate(LOW)]
        found = compare(design(5), records)
        assert warned("this is not the trec of attnbench data list", found) == told
        assert found.difference is not None
    assert is_known("mirrored_summation[k=3]", "0" * 16) is None
    assert is_known("snli", "0" * 16) is None
    assert is_known("a task of another version", "0" * 16) is None


def test_policies_that_leave_nothing_out_are_told() -> None:
    for share, told in ((0.995, True), (0.9, False)):
        records = [
            run(A, i, v, selected={"heads": 1.0, "dependents": share}) for i, v in enumerate(HIGH)
        ]
        records += [run(B, i, v) for i, v in enumerate(LOW)]
        found = compare(design(5), records)
        assert warned(f"{A} selects 99.5 % of the tokens", found) == told


@pytest.mark.parametrize("metric", ["accuracy", "pearson", "spearman"])
def test_a_correlation_with_a_constant_is_told(metric: str) -> None:
    records = [run(A, i, v) for i, v in enumerate(HIGH)]
    records += [run(B, i, v) for i, v in enumerate([0.0, 0.0, *LOW[2:]])]
    for record in records:
        record["test"] = {metric: record["test"]["accuracy"]}
    found = compare(design(5, metric=metric, metrics=[metric]), records)
    told = f"2 of 5 runs of {B} predict one value for all test examples: their {metric}"
    assert warned(told, found) is (metric != "accuracy")


@pytest.mark.parametrize(("other", "told"), [(100, False), (101, False), (102, True), (50, True)])
def test_unequal_parameters(other: int, told: bool) -> None:
    records = [run(A, i, v) for i, v in enumerate(HIGH)]
    records += [run(B, i, v, parameters=other) for i, v in enumerate(LOW)]
    assert warned("unequal parameters", compare(design(5), records)) is told


def session_of(name: str, *records: dict[str, Any]) -> list[dict[str, Any]]:
    """Records of one session file, in the order of its lines."""
    return [{**record, "session": name} for record in records]


def pairs(first: list[float] = HIGH, second: list[float] = LOW, **more: Any) -> list[dict]:
    made = [run(A, i, v, **more) for i, v in enumerate(first)]
    return made + [run(B, i, v, **more) for i, v in enumerate(second)]


def judged(key: str, *sessions: list[dict[str, Any]]) -> Comparison:
    """The comparison of a declared design, from a journal of several sessions."""
    records = [record for session in sessions for record in session]
    return compare(next(r for r in records if r["key"] == key), records)


NOW = "2026-01-10T00:00"
SEEDS_CHANGED = "seeds changed after looking: results were seen with 3, now there are 5"


def seen(declared: str, looked: str, **more: Any) -> tuple[list[dict], list[dict]]:
    """A design of the same question in one session, and in another that its results were seen."""
    verdict = {"kind": "verdict", "key": f"v{looked}", "design": "old", "at": looked}
    return (
        session_of(f"d{declared}", design(3, key="old", at=declared, **more)),
        session_of(f"v{looked}", verdict),
    )


def test_looking_before_declaring_is_told() -> None:
    now = session_of("now", design(5, at=NOW), *pairs(at="2026-01-10T01:00"))
    before = seen("2026-01-04T00:00", "2026-01-05T00:00")
    assert warned(SEEDS_CHANGED, judged("d", *before, now))
    assert judged("d", before[0], now).warnings == (), "nobody has looked"
    assert judged("d", now, *seen("2026-01-11T00:00", "2026-01-12T00:00")).warnings == ()
    other = seen("2026-01-04T00:00", "2026-01-05T00:00", question="another")
    assert judged("d", *other, now).warnings == ()
    later = seen("2026-01-04T00:00", "2026-01-20T00:00")[1]
    assert warned(SEEDS_CHANGED, judged("d", *before, now, later)), "a second look changes nothing"
    margin = session_of("now", design(5, at=NOW, margin=0.01), *pairs(at="2026-01-10T01:00"))
    assert warned("margin was changed", judged("d", *before, margin))


def test_lines_of_a_session_are_in_order_whatever_the_clock_says() -> None:
    runs = pairs(at="2026-01-10T01:00")
    one = session_of("one", design(5, at=NOW), *runs)
    assert judged("d", one).warnings == ()
    assert warned("10 runs were trained", judged("d", session_of("one", *runs, design(5, at=NOW))))
    # The clock went back by nine days while they were trained: the lines say what happened.
    back = session_of("one", design(5, at=NOW), *pairs(at="2026-01-01T00:00"))
    assert judged("d", back).warnings == ()


def test_an_order_that_rests_on_a_clock_that_went_back_is_unsure() -> None:
    unsure = "can't be known: a clock went back"
    now = session_of("now", design(5, at=NOW), *pairs(at="2026-01-10T01:00"))
    declared, looked = seen("2026-01-04T00:00", "2026-01-05T00:00")
    assert not warned(unsure, judged("d", declared, looked, now))
    # What was seen was written down after a line of a later day: its own time may be wrong.
    turned = session_of("v", {"kind": "time", "key": "t", "at": "2026-01-30T00:00"}, *looked)
    found = judged("d", declared, session_of("v", *turned), now)
    assert warned(unsure, found)
    assert not warned("seeds changed", found), "after 30 January, for all that is known"
    without = session_of("none", {**looked[0], "at": None})
    assert warned(unsure, judged("d", declared, without, now))


def test_runs_that_were_there_before_the_design_are_told() -> None:
    runs = session_of("runs", *pairs(at="2026-01-05T00:00"))
    now = session_of("now", design(5, at=NOW))
    assert warned("10 runs were trained, and their test metrics shown", judged("d", runs, now))
    asked = session_of(
        "asked",
        {"kind": "sweep", "key": "s", "at": "2026-01-04T00:00", "runs": [r["key"] for r in runs]},
    )
    assert judged("d", asked, runs, now).warnings == (), "a sweep asked for them, and shows none"
    late = session_of("late", {**asked[0], "at": "2026-01-06T00:00"})
    assert warned("10 runs were trained", judged("d", runs, late, now)), "asked for afterwards"
    few = session_of("now", design(3, at=NOW))
    more = [{**r, "task": "trec", "recipe": dict(RECIPE)} for r in runs]
    assert warned("2 more seeds of both models had been trained", judged("d", asked, more, few))
    assert warned("not in it: 3, 4", judged("d", asked, more, few))
    tuned = [{**r, "recipe": {**RECIPE, "tuning_trials": 9}} for r in more]
    assert warned("not in it: 3, 4", judged("d", asked, tuned, few)), "the same recipe"
    other = [{**r, "recipe": {"width": 9}} if r["seed"] == 4 else r for r in more]
    assert warned("1 more seeds", judged("d", asked, other, few))
    words = [{**r, "vectors": "none" if r["seed"] > 2 else "glove.txt"} for r in more]
    assert not warned("more seeds", judged("d", asked, words, few)), "other words"
    typed = [{**r, "model": f"{r['model']}[causal=false]"} for r in more]
    assert warned("not in it: 3, 4", judged("d", asked, typed, few)), "the same models"


def test_what_was_added_to_a_plan_after_its_first_run_is_told() -> None:
    runs = pairs(at="2026-01-05T00:00")
    plans = {
        count: {
            "kind": "sweep",
            "key": f"s{count}",
            "runs": [r["key"] for r in runs if r["seed"] < count],
        }
        for count in (3, 5)
    }
    three = session_of("3", {**plans[3], "at": "2026-01-04T00:00"})
    begun = session_of("begun", *[r for r in runs if r["seed"] < 3])
    more = [{**r, "at": "2026-01-07T00:00"} for r in runs if r["seed"] >= 3]
    added = session_of("5", {**plans[5], "at": "2026-01-06T00:00"}, *more)
    now = session_of("now", design(5, at=NOW))
    text = f"2 runs of {A} were added to a plan of 3 when some of these were finished"
    assert warned(text, judged("d", three, begun, added, now))
    alone = session_of("now", design(5, at="2026-01-06T00:00"), *more)
    assert warned(text, judged("d", three, begun, alone)), "a comparison adds as a sweep does"
    early = session_of("5", {**plans[5], "at": "2026-01-04T12:00"}, *more)
    assert judged("d", three, early, begun, now).warnings == (), "nothing had been trained"
    assert judged("d", three, begun, session_of("now", design(3, at=NOW))).warnings == ()


def test_the_newest_design_of_each_question_counts() -> None:
    newer = session_of("3", design(5, key="newer", at="2026-04-01"), *pairs())
    records = [
        *newer,
        *session_of("1", design(3, key="older", at="2026-01-01")),
        *session_of("2", design(2, key="other", question="r", at="2026-03-01")),
        {"kind": "time", "key": "t", "at": "2026-01-01"},
    ]
    assert [c.key for c in conclusions(records)] == ["other", "newer"]
    assert conclusions(pairs()) == []
    assert conclusions([design(5)]) == []  # no run was recorded: a mistake in the command


# Cross-validation


def folded(seeds: int, gain: float = 0.02, folds: int = 10, **more: Any) -> Comparison:
    """Every fold once per seed; the folds differ much, the gain a little."""
    records, keys = [], []
    for seed in range(seeds):
        for fold in range(folds):
            value = 0.7 + 0.02 * (fold % 4) + 0.001 * seed
            mine = gain + 0.004 * (fold % 3 - 1)
            keys.append([f"{A}{seed}-{fold}", f"{B}{seed}-{fold}"])
            records.append(run(A, seed, value + mine, key=keys[-1][0], fold=fold))
            records.append(run(B, seed, value, key=keys[-1][1], fold=fold))
    units = "folds" if seeds == 1 else "repeated folds"
    declared = {"folds": folds, "units": units, "runs": keys, "seeds": list(range(seeds)), **more}
    return compare(design(1, **declared), records)


def test_folds_are_judged_with_the_corrected_variance() -> None:
    found = folded(1)
    assert found.difference is not None
    differences = [a - b for _, a, b in found.values]
    error = float(np.std(differences, ddof=1)) * math.sqrt(1 / 10 + 1 / 9)
    assert found.difference.test == "corrected resampled t"
    p = 2 * stats.t.sf(float(np.mean(differences)) / error, 9)
    assert found.difference.p == pytest.approx(p, abs=1e-12)
    assert math.isnan(found.difference.sign_flip_p)
    assert [fold for fold, *_ in found.values] == list(range(10))
    assert (found.units, found.replicate, found.pairs, found.finished) == ("folds", "fold", 10, 10)
    assert "over 10 paired folds" in found.sentence
    assert "seed" not in found.sentence
    assert warned("10 folds of one corpus are no independent seeds", found)
    assert warned("n_test / n_train = 1/9", found)


def test_seeds_on_the_same_folds_are_averaged_inside_them() -> None:
    once, thrice = folded(1), folded(3)
    assert thrice.difference is not None
    assert once.difference is not None
    assert thrice.difference.count_first == 10
    assert thrice.difference.p == pytest.approx(once.difference.p), "no new test examples"
    assert thrice.values[4][1] == pytest.approx(once.values[4][1] + 0.001)
    assert "10 paired folds, each the mean of 3 seeds" in thrice.sentence
    assert warned("they are averaged inside each fold", thrice)
    assert (thrice.pairs, thrice.finished) == (30, 30)


def test_a_design_that_takes_folds_for_seeds_is_not_believed() -> None:
    right = folded(1)
    found = compare({**right.design, "folds": 0, "units": "seeds"}, list(right.runs))
    assert found.difference is not None
    assert found.difference.test == "corrected resampled t"
    assert warned("takes folds for seeds", found)
    assert found.difference == right.difference
    assert not warned("takes folds for seeds", right)


def test_equality_over_folds_uses_the_corrected_variance_too() -> None:
    found = folded(1, gain=0.001, margin=0.01)
    assert found.difference is not None
    assert found.equivalence_p is not None
    error = (found.difference.high - found.difference.difference) / stats.t.ppf(0.975, 9)
    p = stats.t.sf((0.01 - abs(found.difference.difference)) / error, 9)
    assert found.equivalence_p == pytest.approx(p, abs=1e-12)
    assert found.verdict == "practically equal"
    few = folded(1, folds=4)
    assert few.verdict == "descriptive only"
    assert "too few folds to conclude" in few.sentence


def test_missing_folds_are_told_and_left_out() -> None:
    records = [run(A, 0, 0.8, key=f"a{f}", fold=f) for f in range(10)]
    records += [run(B, 0, 0.7, key=f"b{f}", fold=f) for f in range(8)]
    keys = [[f"a{f}", f"b{f}"] for f in range(10)]
    found = compare(design(1, folds=10, units="folds", runs=keys, seeds=[0]), records)
    assert found.verdict == "unfinished"
    assert (found.pairs, found.finished, len(found.values)) == (10, 8, 8)
    assert "over 8 paired folds of 10" in found.sentence
    assert warned("2 of 20 runs are missing", found)
