"""What may be concluded from recorded runs: verdicts, sentences, warnings."""

from __future__ import annotations

from typing import Any

import pytest

from harness.experiments.conclusion import Comparison, comparisons, conclude

RECIPE = {"width": 8, "heads": 2, "choose": "dev", "tuning_trials": 0, "rate": 0.001}
A, B = "mtsa.algorithm1", "multi_head.sdpa"


def run(model: str, seed: int, value: float, **more: Any) -> dict[str, Any]:
    return {
        "kind": "run", "key": f"{model}-{seed}", "model": model, "seed": seed, "status": "ok",
        "test": {"accuracy": value, "mse": value}, "parameters": 100,
        "parameters_with_words": 150, "seconds": 10.0 + seed, "peak_bytes": 1000 * (seed + 1),
        "epochs": [{"epoch": 1, "seconds": 2.0}, {"epoch": 2, "seconds": 4.0}], "chosen_epoch": 2,
        "coverage": None, "at": "2026-01-02", "session": "s", **more,
    }  # fmt: skip


def design(count: int, **more: Any) -> dict[str, Any]:
    return {
        "kind": "design", "key": "d", "question": "q", "models": [A, B], "task": "trec",
        "metric": "accuracy", "metrics": ["accuracy"], "higher_is_better": True, "split": "s",
        "one_test_set": False, "recipes": [dict(RECIPE), dict(RECIPE)],
        "seeds": list(range(count)), "margin": None, "match": "none", "paired": True,
        "runs": [[f"{A}-{i}", f"{B}-{i}"] for i in range(count)], "at": "2026-01-01",
        "session": "s", "status": "ok", **more,
    }  # fmt: skip


def compared(first: list[float], second: list[float], **more: Any) -> Comparison:
    records = [run(A, i, v) for i, v in enumerate(first)]
    records += [run(B, i, v) for i, v in enumerate(second)]
    return conclude(design(max(len(first), len(second)), **more), records)


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
    assert "mse 0.9040 and 0.8040, difference +0.1000 [" in compared(
        HIGH, LOW, metric="mse", higher_is_better=False
    ).sentence  # fmt: skip


@pytest.mark.parametrize(("model", "place"), [(A, 1), (B, 6)])
def test_failed_runs_are_told_and_left_out(model: str, place: int) -> None:
    records = [run(A, i, v) for i, v in enumerate(HIGH)] + [run(B, i, v) for i, v in enumerate(LOW)]
    records[place] |= {"status": "diverged", "detail": "the loss is nan"}
    del records[place]["test"], records[place]["chosen_epoch"]
    found = conclude(design(5), records)
    assert [seed for seed, *_ in found.values] == [0, 2, 3, 4]
    assert any(f"1 of 5 runs of {model} diverged" in w for w in found.warnings)
    assert any("1 of 5 pairs are incomplete" in w for w in found.warnings)
    assert found.verdict == "descriptive only"
    without = conclude(design(5), records[:9])
    assert any("1 of 10 runs are missing" in w for w in without.warnings)


def test_costs_are_medians_of_the_finished_runs() -> None:
    found = compared(HIGH, LOW).costs[A]
    assert (found.seconds, found.seconds_per_epoch, found.peak_bytes) == (12.0, 3.0, 3000)
    assert (found.parameters, found.parameters_with_words) == (100, 150)
    assert (found.epochs, found.chosen_epoch) == (2, 2)


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


@pytest.mark.parametrize(("other", "told"), [(100, False), (101, False), (102, True), (50, True)])
def test_unequal_parameters(other: int, told: bool) -> None:
    records = [run(A, i, v) for i, v in enumerate(HIGH)]
    records += [run(B, i, v, parameters=other) for i, v in enumerate(LOW)]
    assert warned("unequal parameters", conclude(design(5), records)) is told


def earlier(seen: str, declared: str, **more: Any) -> list[dict[str, Any]]:
    """A design of the same question, and that its results were seen."""
    return [
        design(3, key="old", at=declared, **more),
        {"kind": "verdict", "key": "v", "design": "old", "at": seen, "status": "ok"},
    ]


def test_looking_before_declaring_is_told() -> None:
    runs = [run(A, i, v) for i, v in enumerate(HIGH)] + [run(B, i, v) for i, v in enumerate(LOW)]
    now = design(5, at="2026-01-10")
    text = "seeds changed after looking: results were seen with 3, now there are 5"
    assert warned(text, conclude(now, [*runs, *earlier("2026-01-05", "2026-01-04")]))
    unseen = earlier("2026-01-05", "2026-01-04")[:1]
    assert not warned("looking", conclude(now, [*runs, *unseen]))
    later = earlier("2026-01-12", "2026-01-11")
    assert not warned("looking", conclude(now, [*runs, *later]))
    other = earlier("2026-01-05", "2026-01-04", question="another")
    assert not warned("looking", conclude(now, [*runs, *other]))
    first_look = earlier("2026-01-05", "2026-01-04")
    again = {"kind": "verdict", "key": "w", "design": "old", "at": "2026-01-20", "status": "ok"}
    assert warned(text, conclude(now, [*runs, *first_look, again]))
    assert warned("10 runs were trained", conclude({**now, "at": "2026-01-03"}, runs))
    assert not warned("runs were trained", conclude({**now, "at": "2026-01-01"}, runs))
    margin = {**now, "margin": 0.01}
    assert warned(
        "margin was changed", conclude(margin, [*runs, *earlier("2026-01-05", "2026-01-04")])
    )


def test_the_newest_design_of_each_question_counts() -> None:
    runs = [run(A, i, v) for i, v in enumerate(HIGH)] + [run(B, i, v) for i, v in enumerate(LOW)]
    records = [
        design(5, key="newer", at="2026-04-01"), design(3, key="older", at="2026-01-01"),
        design(2, key="other", question="r", at="2026-03-01"), *runs,
        {"kind": "time", "key": "t", "at": "2026-01-01"},
    ]  # fmt: skip
    assert [c.key for c in comparisons(records)] == ["other", "newer"]
    assert comparisons(runs) == []
    assert comparisons([design(5)]) == []  # no run was recorded: a mistake in the command
