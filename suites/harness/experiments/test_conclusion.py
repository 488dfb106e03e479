"""Many models against a baseline: declared together, judged together, and over tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats
from statsmodels.stats.multitest import multipletests

from harness.cli.compare import as_json
from harness.experiments.conclusion import Conclusion, conclude, conclusions
from harness.experiments.estimate import Sought, sought, together_sought
from harness.experiments.once import told_once
from harness.experiments.over_tasks import overall_rows
from harness.experiments.preregistration import designs
from harness.experiments.replicates import (
    EXPLORATORY,
    LATE,
    Replicate,
    late_text,
    measured,
    replicates,
    ruled,
    unit_of,
    units_of,
)
from harness.experiments.tables import columns, omnibus, reading, task_rows, tied_on
from harness.stats import chances, compare_means, friedman
from suites.support.comparisons import RECIPE, A, B, compared, design, family, judged, run, runs

SEEDS = 6


def of_each(values: Mapping[str, Iterable[float]], task: str = "trec") -> list[dict[str, Any]]:
    """Runs of several models."""
    return [one for model, own in values.items() for one in runs(model, own, task)]


def noisy(mean: float, number: int, sd: float = 0.01, count: int = SEEDS) -> np.ndarray:
    return mean + stats.zscore(np.random.default_rng(number).normal(size=count), ddof=1) * sd


GAINS = {"disa.plain": 0.06, "bi_lstm.packed": 0.012, "none.fused": 0.008, "mtsa.fused": 0.0}


def concluded(
    tasks: list[str] | None = None, gains: dict[str, float] | None = None, **more: Any
) -> Conclusion:
    tasks, gains = tasks or ["trec"], gains or GAINS
    base = {task: noisy(0.8, i) for i, task in enumerate(tasks)}
    records = [family(list(gains), tasks, **more)]
    for i, task in enumerate(tasks):
        records += runs(B, base[task], task)
        sign = -1 if task == "mse" else 1
        for j, (model, gain) in enumerate(gains.items()):
            spread = noisy(0, 100 + 10 * i + j)
            # Tasks are not all alike: without it differences over tasks would have no spread.
            own = gain + (0.004 * np.sin(3 * i + j) if i else 0.0)
            records += runs(model, base[task] + spread + sign * own, task)
    return conclude(records[0], records)


def test_holm_is_over_all_comparisons() -> None:
    found = concluded()
    p_values = [c.difference.p for c in found.comparisons if c.difference]
    adjusted = multipletests(p_values, method="holm")[1]
    assert [c.adjusted_p for c in found.comparisons] == pytest.approx(adjusted, abs=1e-10)
    verdicts = dict(zip(GAINS, [c.verdict for c in found.comparisons], strict=True))
    assert verdicts["disa.plain"] == "better"
    assert verdicts["mtsa.fused"] == "undecided"
    # Alone it would have been better: one of four it is not.
    lonely = next(c for c in found.comparisons if c.first == "bi_lstm.packed")
    assert lonely.difference.p < 0.05 < (lonely.adjusted_p or 0)
    assert lonely.verdict == "undecided"
    assert "by Holm over 4 comparisons" in lonely.sentence
    assert any("1 undecided though the interval excludes zero" in line for line in reading(found))


def test_holm_is_over_tasks_too() -> None:
    one, two = concluded(["trec"]), concluded(["trec", "cr"])
    same = [c for c in two.comparisons if c.task == "trec"]
    assert [c.difference for c in same] == [c.difference for c in one.comparisons]
    assert {c.together for c in two.comparisons} == {8}
    assert all(
        (a.adjusted_p or 0) >= (b.adjusted_p or 0)
        for a, b in zip(same, one.comparisons, strict=True)
    )
    assert [c.adjusted_p for c in same] != [c.adjusted_p for c in one.comparisons]


def test_an_unfinished_comparison_counts_among_them_and_finds_nothing() -> None:
    record = family(["disa.plain", "bi_lstm.packed"], ["trec"])
    base = noisy(0.8, 0)
    first, second = base + noisy(0.02, 5), base + noisy(0.02, 6)
    records = of_each({B: base, "disa.plain": first[:5], "bi_lstm.packed": second})
    found = conclude(record, records)
    first, second = found.comparisons
    assert (first.verdict, first.adjusted_p) == ("unfinished", 1.0)
    assert second.adjusted_p == pytest.approx(2 * second.difference.p)
    assert not found.complete
    none = conclude(record, [r for r in records if r.get("model") != "disa.plain"])
    assert none.comparisons[0].difference is None
    assert none.comparisons[1].adjusted_p == pytest.approx(2 * second.difference.p)


def test_claims_of_equality_are_adjusted_by_themselves() -> None:
    found = concluded(gains={"a.x": 0.0, "b.x": 0.0, "c.x": 0.1}, margin=0.02)
    alone = [judged(dict(c.design), list(c.runs)).equivalence_p or 0.0 for c in found.comparisons]
    adjusted = [c.adjusted_equivalence_p for c in found.comparisons]
    assert adjusted == pytest.approx(multipletests(alone, method="holm")[1], abs=1e-10)
    assert [c.verdict for c in found.comparisons] == ["practically equal"] * 2 + ["better"]
    assert "p equal, Holm" in columns(found.comparisons)
    assert {len(row) for row in task_rows(found.comparisons)} == {len(columns(found.comparisons))}
    for c in found.comparisons:
        assert c.chances == chances(c.difference, True, 0.02)


@pytest.mark.parametrize(("count", "there"), [(8, 7), (4, 4)], ids=["unfinished", "too few"])
def test_equality_of_what_is_to_come_counts_among_them_with_one(count: int, there: int) -> None:
    """Its own p by the runs that are there is no answer, and adds none to the others' chances."""
    low = [0.79, 0.81, 0.795, 0.805, 0.792, 0.808, 0.798, 0.802]
    wide = [0.8 + 1.9 * (v - 0.8) for v in low]
    designs = design(count, "a.x", margin=0.01), design(8, "b.x", margin=0.01)
    near = [0.8 + 0.1 * (v - 0.8) for v in low]
    records = [*runs(B, [0.8] * 8), *runs("a.x", near[:there]), *runs("b.x", wide)]
    first, second = (measured(one, records) for one in designs)
    assert first.equivalence_p is not None
    assert first.equivalence_p < 0.001
    assert 0.025 < (second.equivalence_p or 1) < 0.05
    told = ruled([first, second])[1]
    assert told.verdict == "undecided"
    assert told.equal_p == pytest.approx(2 * (second.equivalence_p or 1))


def trained_unlike(unlike: Sequence[str]) -> Conclusion:
    """Two models and the baseline; of some tasks the last one was trained for 1.5 times as many."""
    tasks = FIVE[:3]
    record = family(["disa.plain", "none.fused"], tasks)
    records: list[Any] = [record]
    for task in tasks:
        base = noisy(0.8, 1)
        for model, gain, epochs in ((B, 0.0, 4), ("disa.plain", 0.06, 4), ("none.fused", 0.05, 6)):
            count = epochs if task in unlike else 4
            told: dict[str, Any] = {
                "recipe": {"batch": 32, "epochs": 20, "patience": 3},
                "examples": {"train": 64},
                "epochs": [{"epoch": i, "seconds": 1.0} for i in range(count)],
            }
            records += runs(model, base + gain + noisy(0, len(model), 0.001), task, **told)
    return conclude(record, records)


def test_what_was_not_trained_alike_is_no_win() -> None:
    found = trained_unlike(["cr"])
    assert {c.verdict for c in found.comparisons} == {"better"}
    assert [c.said for c in found.of_task("cr")] == ["better", "better (not counted)"]
    assert found.sentences[0].endswith("5 better, 1 better (not counted)")
    assert [row.tasks.wins for row in found.overall.rows] == [3, 2]
    why = "not counted over tasks, as the training was not alike: none.fused on cr"
    (told,) = found.overall.warnings
    assert told.startswith(
        f"{why}; such tasks have no part in the ranks (with them, on 3 tasks: Friedman's chi2(2) = "
    )
    assert told.endswith("disa.plain 1.00, none.fused 2.00, multi_head.sdpa 3.00)")
    assert found.overall.ties.omnibus.blocks == 2
    assert set(found.ties["trec"].omnibus.ranks) == {B, "disa.plain", "none.fused"}
    assert found.ties.keys() == {"trec", "mpqa"}, "of cr two models are left"
    assert tied_on(found, "cr") == [
        "no ranks of fewer than three models; left out, as the training was not alike: none.fused"
    ]
    assert any(line.startswith("none.fused and the baseline") for line in reading(found))
    assert [why for why in found.overall.why if "none.fused and" in why] == [
        "none.fused and the baseline are compared by a paired t-test over the means of the 2 tasks "
        "with accuracy, because differences of one metric can be averaged; the exact sign-flip "
        "test beside it assumes no normal distribution"
    ]


def test_models_of_which_each_differs_from_each_are_all_told_apart() -> None:
    means = {B: 0.7, "a.x": 0.8, "b.x": 0.9}
    values = {m: mean + 0.001 * len(m) * np.arange(7) for m, mean in means.items()}
    _, said = tied_on(conclude(family(["a.x", "b.x"], ["trec"], 7), of_each(values)), "trec")
    assert said.startswith(f"all told apart: b.x | a.x | {B} (Wilcoxon's signed ranks over 7 seeds")


@pytest.mark.parametrize(
    ("late", "of", "named"),
    [(["a on t"], 2, " (a on t)"), (["a on t", "b on t"], 2, ""), (["a on t"] * 4, 9, "")],
)
def test_of_a_family_of_which_little_is_exploratory_it_is_named(
    late: list[str], of: int, named: str
) -> None:
    some = f" in {len(late)} of {of}" * (len(late) < of)
    assert late_text(late, of) == f"{EXPLORATORY}{some}, {LATE}{named}"


def test_what_is_counted_on_no_task_has_no_test_over_them() -> None:
    found = trained_unlike(FIVE[:3])
    _, disa, none = overall_rows(found.baseline, found.overall)
    assert (disa[2], disa[3], disa[-1]) == ("3", "3 / 0", "descriptive only")
    assert none == ["none.fused", *[""] * 7, "not counted"]
    assert any("a model and the baseline are compared by a paired" in w for w in found.overall.why)
    few = trained_unlike(FIVE[1:3]).overall
    assert [row.verdict for row in few.rows] == ["descriptive only", "signs only"]
    assert any(
        why.startswith("none.fused is counted on fewer than two tasks that share a metric")
        for why in few.why
    )


def test_few_seeds_are_only_described() -> None:
    found = concluded(count=4)
    assert {c.verdict for c in found.comparisons} == {"descriptive only"}
    assert {c.adjusted_p for c in found.comparisons} == {1.0}
    assert {cell for row in task_rows(found.comparisons) for cell in row[-3:-1]} == {""}
    assert {c.chances for c in found.comparisons} == {None}
    assert found.sentences[0].endswith(": 4 descriptive only")
    flawed = replace(found.comparisons[0], flaws=("14 and 10 steps",))
    found = replace(found, comparisons=(flawed, *found.comparisons[1:]))
    assert found.sentences[0].endswith(": 4 descriptive only (1 of unlike training)")


def test_more_seeds_make_up_for_a_failed_run_and_for_no_unlike_training() -> None:
    plan = {"file": "p.toml", "sha256": "p", "void": ["failed runs"], "hours": 9.0}
    declared = design(6, plan=plan)
    done = [*runs(A, noisy(0.8, 1)[:6], plan="p"), *runs(B, noisy(0.8, 2)[:6], plan="p")]
    failed = {**{k: v for k, v in done[0].items() if k != "test"}, "status": "diverged"}
    lost = conclude(declared, [declared, failed, *done[1:]]).comparisons[0]
    assert lost.flaws == ("failed runs",)
    assert lost.verdict == "undecided"
    assert lost.sought.needed > 6
    known: dict[str, Any] = {"recipe": {"batch": 32, "epochs": 99, "patience": 5}}
    known["examples"] = {"train": 320}
    longer = [{"epoch": n + 1, "seconds": 1.0} for n in range(9)]
    unlike = [{**r, **known, **({"epochs": longer} if r["model"] == A else {})} for r in done]
    (found,) = conclude(declared, [declared, *unlike]).comparisons
    assert found.verdict == "undecided"
    assert found.sought.unlike
    assert found.sought.needed is None


def test_what_could_have_been_found_allows_for_the_others() -> None:
    found = concluded()
    place = columns(found.comparisons).index("detectable")
    for c, row in zip(found.comparisons, task_rows(found.comparisons)[1:], strict=True):
        assert row[place] == c.unit.size(c.difference.detectable_among(4))
    assert "judged as one of 4." in reading(found)[1]


def test_models_of_a_task_are_ranked_by_the_seeds_that_all_finished() -> None:
    found = concluded(["mse"], count=SEEDS).ties["mse"]
    assert found.omnibus.blocks == SEEDS
    assert found.omnibus.ranks["disa.plain"] == 1.0, "less error is better"
    lost = diverged(["disa.plain", "none.fused"], ["trec"], {"disa.plain": [0]})
    assert lost.ties["trec"].omnibus.blocks == SEEDS - 1
    unpaired = diverged(["disa.plain", "none.fused"], ["trec"], {"disa.plain": [0]}, paired=False)
    assert unpaired.ties["trec"].omnibus.blocks == SEEDS - 1
    running = family(["disa.plain", "none.fused"], ["trec"])
    some = of_each({B: noisy(0.8, 0), "disa.plain": noisy(0.9, 1)})
    assert conclude(running, some).ties == {}, "runs are to come"


FIVE = ["trec", "cr", "mpqa", "subj", "mr"]


def test_over_tasks_of_one_metric_means_are_compared() -> None:
    many = concluded(FIVE)
    found = many.overall
    assert found.tasks == tuple(FIVE)
    *_, level = overall_rows(many.baseline, found)
    (d,) = [r.tasks.difference for r in found.rows if r.model == level[0]]
    could = f"{100 * d.detectable_among(4):.2f} points"
    assert level[-1] == f"undecided (detectable {could}; the tasks are given)"
    row = next(r for r in found.rows if r.model == "disa.plain")
    means: dict[str, list[float]] = {}
    for c in many.comparisons:
        means.setdefault(c.first, []).append(c.difference.mean_first)
    means[B] = [c.difference.mean_second for c in many.comparisons[:: len(GAINS)] if c.difference]
    assert row.tasks.difference == compare_means(means["disa.plain"], means[B], paired=True)
    assert (row.verdict, row.metric, row.shared) == ("better", "accuracy", tuple(FIVE))
    p_values = [r.tasks.difference.p for r in found.rows if r.tasks.difference]
    adjusted = [r.adjusted_p for r in found.rows]
    assert adjusted == pytest.approx(multipletests(p_values, method="holm")[1], abs=1e-10)
    assert found.ties.omnibus == friedman(means)
    assert any("Friedman" in why for why in found.why)
    assert any("5 tasks with accuracy" in why for why in found.why)


def test_a_p_that_no_permutation_reached_is_a_bound() -> None:
    # Seven tasks, eight models, always in the same order: chi-squared is tasks x (models - 1).
    same = friedman({str(m): [m / 10 + t for t in range(7)] for m in range(8)})
    assert omnibus(same) == (
        "any difference among the 8 models (Friedman): chi2(7) = 49.00, p < 0.0001 by 20,000 "
        "permutations"
    )
    some = friedman({"a": [3.0, 2.0, 3.0], "b": [2.0, 3.0, 2.0], "c": [1.0, 1.0, 1.0]})
    assert f"chi2(2) = 4.67, p = {some.p:.2g} by 20,000 permutations" in omnibus(some)


def test_over_tasks_of_several_metrics_only_ranks_and_signs_are_mixed() -> None:
    tasks = ["trec", "mse", "sick", "cr"]
    found = concluded(tasks).overall
    row = found.rows[0]
    assert (row.shared, row.metric) == (("trec", "cr"), "accuracy")
    assert (row.tasks.wins, row.tasks.losses) == (4, 0), "less error is a win"
    assert row.verdict == "descriptive only"
    assert found.ties.omnibus.ranks["disa.plain"] == 1.0, "also where lower is better"
    unlike = concluded(["mse", "sick"]).overall
    assert unlike.rows[0].tasks.difference is None
    assert unlike.rows[0].verdict == "signs only"
    assert any("exact sign test" in why for why in unlike.why)


def test_what_is_over_tasks_needs_tasks() -> None:
    assert concluded(["trec"]).overall is None
    two = concluded(FIVE, gains={"disa.plain": 0.06}).overall
    assert two.ties is None, "of two models the ranks say no more than the signs"
    record = family(["disa.plain"], ["trec", "cr", "mr"])
    both = {B: noisy(0.8, 1), "disa.plain": noisy(0.9, 2)}
    records = [*of_each(both), *of_each(both, "cr")]
    partly = conclude(record, records).overall
    assert (partly.tasks, partly.left_out) == (("trec", "cr"), ("mr",))
    # One seed of many is no mean of a task.
    records += of_each({B: [0.8], "disa.plain": [0.9]}, "mr")
    partly = conclude(record, records).overall
    assert (partly.tasks, partly.left_out) == (("trec", "cr"), ("mr",))


def diverged(
    models: list[str], tasks: list[str], failing: dict[str, list[int]], **more: Any
) -> Conclusion:
    """Seed 0 is hard for everyone; the baseline is the best with every seed, and disa the worst."""
    record = family(models, tasks, **more)
    records = [record]
    hard = np.array([-0.4, 0, 0, 0, 0, 0])
    for number, task in enumerate(tasks):
        own = hard + 0.001 * number * np.arange(SEEDS)
        gains = {B: 0.9, "none.fused": 0.88, "disa.plain": 0.85}
        for model, mean in gains.items():
            made = runs(model, mean + (hard if model == B else own), task)
            for seed in failing.get(f"{model} {task}", failing.get(model, [])):
                made[seed] |= {"status": "diverged", "test": {}}
            records += made
    return conclude(record, records)


def test_a_diverged_run_does_not_decide_the_ranks() -> None:
    tasks = ["trec", "cr", "mr"]
    for models in (["disa.plain", "none.fused"], ["none.fused", "disa.plain"]):
        found = diverged(models, tasks, {"disa.plain": [0]})
        # By hand: on seeds 1 to 5 the baseline is before none.fused before disa, on all tasks.
        ranks = {B: 1.0, "none.fused": 2.0, "disa.plain": 3.0}
        assert found.overall.ties.omnibus.ranks == ranks
        assert found.overall.ties.omnibus.statistic == pytest.approx(6.0), (
            "of three tasks that agree"
        )
        (told,) = found.overall.warnings
        assert "rest on 5 of 6 seeds of trec, 5 of 6 seeds of cr, 5 of 6 seeds of mr" in told
        assert told in found.warnings
    alike = diverged(["disa.plain", "none.fused"], tasks, {})
    assert alike.overall.warnings == ()
    unpaired = diverged(["disa.plain", "none.fused"], tasks, {"disa.plain": [0]}, paired=False)
    assert unpaired.overall.ties.omnibus.ranks == ranks
    assert told in unpaired.overall.warnings


def test_a_task_without_a_common_replicate_is_left_out() -> None:
    failing = {"disa.plain cr": [0, 1, 2], "none.fused cr": [3, 4, 5]}
    found = diverged(["disa.plain", "none.fused"], ["trec", "cr", "mr"], failing)
    assert (found.overall.tasks, found.overall.left_out) == (("trec", "mr"), ("cr",))
    assert any("cr is left out" in w and "none of its 6 seeds" in w for w in found.warnings)


def test_ranks_of_folds_are_of_common_folds_and_seeds() -> None:
    record = family(["a.x", "b.x"], ["cr", "mr"])
    # Three folds, each with seeds 0 and 1: fold 2 is hard; b.x loses it with seed 1 only.
    base = {(s, f): 0.9 - 0.3 * (f == 2) - 0.1 * s for s in (0, 1) for f in range(3)}
    own = {B: 0.0, "a.x": -0.01, "b.x": -0.02}
    records: list[dict[str, Any]] = [record]
    for one in record["designs"]:
        model, task = one["models"][0], one["task"]
        keys = [[f"{m} {task} {s} {f}" for m in (model, B)] for s, f in base]
        one |= {"folds": 3, "units": "repeated folds", "seeds": [0, 1], "runs": keys}
    for model, more in own.items():
        for task in ("cr", "mr"):
            for (seed, fold), value in base.items():
                made = run(
                    model,
                    seed,
                    value + more,
                    key=f"{model} {task} {seed} {fold}",
                    task=task,
                    fold=fold,
                )
                if (model, seed, fold) == ("b.x", 1, 2):
                    made |= {"status": "diverged", "test": {}}
                records.append(made)
    whole = conclude(record, records)
    assert whole.ties == {}
    assert tied_on(whole, "cr")[0].startswith("no ranks over folds: they share training examples")
    found = whole.overall
    assert found.ties.omnibus.ranks == {B: 1.0, "a.x": 2.0, "b.x": 3.0}
    assert "rest on 5 of 6 replicates of cr, 5 of 6 replicates of mr" in found.warnings[0]


def test_folds_and_seeds_in_one_family() -> None:
    record = family(["disa.plain"], ["trec", "cr"])
    keys = [[f"disa.plain cr {f}", f"{B} cr {f}"] for f in range(10)]
    record["designs"][1] |= {"folds": 10, "units": "folds", "seeds": [0], "runs": keys}
    base = noisy(0.8, 3, count=10)
    of_folds = of_each({B: base, "disa.plain": base + noisy(0.01, 4, count=10)}, "cr")
    records = of_each({B: noisy(0.8, 1), "disa.plain": noisy(0.9, 2)})
    records += [{**r, "seed": 0, "fold": r["seed"]} for r in of_folds]
    found = conclude(record, records)
    tests = [c.difference.test for c in found.comparisons if c.difference]
    assert tests == ["paired t", "corrected resampled t"]
    assert any(w.startswith("cr: 10 folds of one corpus") for w in found.warnings)
    assert replicates([7], 3) == (Replicate(7, 0), Replicate(7, 1), Replicate(7, 2))
    assert replicates([7, 8], 0) == (Replicate(7), Replicate(8))
    counted = [units_of(1, 0), units_of(1, 10), units_of(2, 10)]
    assert counted == ["seeds", "folds", "repeated folds"]


def test_a_warning_of_all_is_told_once() -> None:
    found = concluded(["trec", "cr"], one_test_set=True)
    assert [w for w in found.warnings if "one and the same test set" in w] == [
        "all runs are tested on one and the same test set: the interval covers seeds, not the "
        "choice of test examples"
    ]
    record = family(list(GAINS), ["trec"])
    record["designs"][0]["recipes"] = [{**RECIPE, "tuning_trials": 3}, dict(RECIPE)]
    records = of_each({B: noisy(0.8, 0), **dict.fromkeys(GAINS, noisy(0.8, 1))})
    told = conclude(record, records).warnings
    assert [w for w in told if "unequal tuning budgets" in w] == [
        "disa.plain on trec: unequal tuning budgets: 3 recipes were tried for "
        "disa.plain, 0 for multi_head.sdpa"
    ]
    # Of several models a line: what all texts end with is said once.
    record["designs"][1]["recipes"] = [{**RECIPE, "tuning_trials": 2}, dict(RECIPE)]
    told = conclude(record, records).warnings
    (line,) = [w for w in told if "unequal tuning budgets" in w]
    assert line.startswith("trec: unequal tuning budgets: 3 recipes were tried for disa.plain; 2 ")
    assert line.count("for multi_head.sdpa") == 1
    assert line.endswith(", 0 for multi_head.sdpa")


def test_what_is_said_of_several_tasks_alike_is_told_once() -> None:
    both, one = ["a: x 1", "b: y"], ["a: x 2", "b: y"]
    told = told_once([("m", "cr", both), ("n", "cr", one), ("m", "mr", both), ("n", "mr", one)])
    assert told == ["b: y", "cr, mr: a: x 1; x 2"]
    assert told_once([("m", "cr", both), ("n", "cr", []), ("m", "mr", both), ("n", "mr", [])]) == [
        "m on cr, mr: a: x 1", "m on cr, mr: b: y",
    ]  # fmt: skip


def test_families_are_no_single_comparisons() -> None:
    record = family(["disa.plain"], ["trec", "cr"])
    records = [record, *of_each({B: noisy(0.8, 1), "disa.plain": noisy(0.9, 2)})]
    (found,) = conclusions(records)
    assert not found.is_pair
    assert found.title == f"disa.plain against {B} on trec, cr"
    assert conclusions([record]) == []
    assert [d["family"] for d in designs(records)] == ["f", "f"]
    older = {**record, "key": "g", "session": "old", "at": "2025-01-01"}
    assert [m.key for m in conclusions([record, older, *records[1:]])] == ["f"]


# What is missing to decide a comparison: by simulation, as one of several, and in words.


DRAWS = 40_000
BASE = np.array([0.80, 0.81, 0.79, 0.80, 0.82])


def undecided(mean: float = 0.003, sd: float = 0.01, count: int = 5) -> np.ndarray:
    """Differences with exactly this mean and deviation."""
    return mean + sd * stats.zscore(np.arange(count) ** 2, ddof=1)


def missing(gains: np.ndarray, **more: Any) -> Sought:
    found = compared(list(0.8 + gains), [0.8] * len(gains), **more)
    assert found.verdict == "undecided"
    return found.sought


def power(effect: float, sd: float, count: int, alpha: float) -> float:
    """How often a paired t-test finds it, by simulation."""
    draws = np.random.default_rng(count).normal(effect, sd, (DRAWS, count))
    return float(np.mean(stats.ttest_1samp(draws, 0, axis=1).pvalue < alpha))


@pytest.mark.parametrize("together", [1, 9])
@pytest.mark.parametrize("margin", [None, 0.012, 0.02])
def test_what_is_detectable_and_needed_is_found_four_times_in_five(
    margin: float | None, together: int
) -> None:
    """At five pairs the quantile of t is far from the normal one, at Holm's first step farther."""
    models = [A, *(f"other{i}.x" for i in range(together - 1))]
    values = dict.fromkeys(models, BASE + undecided(0.007, 0.015))
    declared = family(models, ["trec"], 5, margin=margin)
    found = conclude(declared, of_each({B: BASE, **values})).comparisons[0].sought
    assert (found.effect, found.is_margin) == (
        pytest.approx(0.007 if margin is None else margin),
        margin is not None,
    )
    level = 0.05 / together
    assert power(found.detectable, 0.015, 5, level) == pytest.approx(0.8, abs=0.01)
    assert power(found.effect, 0.015, found.needed, level) > 0.79
    if found.needed > 5:  # with fewer nothing is concluded
        assert power(found.effect, 0.015, found.needed - 1, level) < 0.81


def test_unpaired_seeds_are_of_each_model() -> None:
    first, second = 0.80 + undecided(0.009), 0.80 + undecided(0.0)[::-1]
    found = compared(list(first), list(second), paired=False).sought
    random = np.random.default_rng(1)
    for count, most in ((found.needed, 1.0), (found.needed - 1, 0.81)):
        draws = [random.normal(mean, 0.01, (DRAWS, count)) for mean in (0.009, 0.0)]
        share = np.mean(stats.ttest_ind(*draws, axis=1).pvalue < 0.05)
        assert (0.79 if most == 1 else 0) < share < most


def test_folds_have_the_corrected_error_and_no_number_of_seeds() -> None:
    """Folds share what they are trained on: simulated as a common part of their differences."""
    gains, of_fold = undecided(0.003, 0.01, 10), list(range(10))
    keys = [[f"{m} {fold}" for m in (A, B)] for fold in of_fold]
    declared = design(1, folds=10, units="folds", runs=keys)
    records = [
        run(model, 0, value, fold=fold, key=f"{model} {fold}")
        for model, values in ((A, 0.8 + gains), (B, [0.8] * 10))
        for fold, value in zip(of_fold, values, strict=True)
    ]
    found = judged(declared, records).sought
    assert (found.needed, found.by_folds, found.count) == (None, True, "folds are given")
    random = np.random.default_rng(3)
    common = random.normal(found.detectable, 0.01 / 3, (DRAWS, 1))  # test over training is 1 : 9
    draws = common + random.normal(0, 0.01, (DRAWS, 10))
    error = draws.std(axis=1, ddof=1) * np.sqrt(1 / 10 + 1 / 9)
    share = np.mean(np.abs(draws.mean(axis=1) / error) > stats.t.ppf(0.975, 9))
    assert share == pytest.approx(0.8, abs=0.01)


def test_what_no_number_of_seeds_would_find_says_so() -> None:
    zero = missing(undecided(0.0))
    assert (zero.needed, zero.count) == (None, "no number")
    assert compared([0.9] * 5, [0.9] * 5).sought == Sought(0.0, 0.0, False, None, False)
    d = compared([0.8, 0.9] * 3, [0.85] * 6).difference
    alike, unlike = (sought(d, 0.01, 1, unlike) for unlike in (False, True))
    assert alike.needed > unlike.detectable
    points = unit_of("accuracy")
    assert unlike.short(points) == f" (detectable {points.size(d.detectable)}; unlike training)"
    assert unlike.said(points).endswith("unlike training, which no number of seeds makes up for")
    assert together_sought([alike, unlike]).endswith(" seeds needed; 1 of unlike training)")
    folds = replace(unlike, by_folds=True, needed=None)
    assert folds.count == "folds are given, unlike training"
    said = together_sought([folds, replace(folds, unlike=False)])
    assert said == " (2 by folds, which are given; 1 of unlike training)"
    assert together_sought([zero, folds]).endswith("; 1 without a number of seeds)")
    far = missing(undecided(1e-9))
    assert far.needed is None


def test_it_stands_beside_every_undecided_verdict_and_nowhere_else() -> None:
    both = of_each({A: BASE + undecided(), B: BASE})
    alone = conclude(design(), both)
    (found,) = alone.comparisons
    sentence, said = alone.sentences
    assert ": undecided: " in sentence
    assert said == (
        f"undecided: with 80 % power a true difference of {100 * found.sought.detectable:.2f} "
        "points is found here; a true difference as large as the one seen, 0.30 points, takes "
        f"{found.sought.needed} seeds"
    )
    by_margin = conclude(design(margin=0.005), both)
    assert "; the margin, 0.50 points, takes " in by_margin.sentences[1]
    better = conclude(design(), of_each({A: BASE + 0.1 + undecided(), B: BASE}))
    assert (better.comparisons[0].sought, len(better.sentences)) == (None, 1)
    several = family([A, "disa.x"], ["trec"], 5)
    many = conclude(several, [*both, *runs("disa.x", BASE + 0.1 + undecided())])
    one, _ = many.comparisons
    assert f"1 undecided ({one.sought.needed:,} seeds needed), 1 better" in many.sentences[0]
    place = columns(many.comparisons).index("seeds needed")
    assert [row[place] for row in task_rows(many.comparisons)] == ["", one.sought.count, ""]
    assert any(line.startswith("seeds needed: ") for line in reading(many))
    for told in (as_json(alone), as_json(many)["comparisons"][0]):
        assert told["sought"].keys() >= {"detectable", "effect", "is_margin", "needed"}
