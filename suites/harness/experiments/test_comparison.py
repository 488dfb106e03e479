"""What may be concluded of two models on one task: verdicts, sentences, warnings, rows."""

from __future__ import annotations

import hashlib
import math
from pathlib import Path
from typing import Any

import pytest

from harness.cli import compare
from harness.cli import run as cli
from harness.experiments.conclusion import Comparison, conclusions, costs_over
from harness.experiments.costs import at_dev_epoch, at_the_end, best_within, still_gains
from harness.experiments.design import Surroundings, make_design
from harness.experiments.model import parse_model
from harness.experiments.tables import of_examples, statistics_rows
from harness.experiments.unequal import unequal_recipes
from harness.records import journal
from harness.registry import Registry
from harness.stats import compare_folds, compare_means, equivalence
from harness.train.data.corpora import corpora, is_known
from harness.train.task import task
from reports.pages.comparison.page import Compared
from suites.support.command_line import TOY
from suites.support.comparisons import (
    HIGH,
    LOW,
    RECIPE,
    A,
    B,
    compared,
    design,
    judged,
    run,
    runs,
    warned,
)

NEAR = [0.801, 0.809, 0.791, 0.799, 0.821]


def test_an_unpaired_table_has_every_seed_and_the_difference_beside_the_means() -> None:
    table = compare.values_table(compared(HIGH, LOW, paired=False))
    *values, difference = (list(column.cells) for column in table.columns[1:])
    assert [len(cells) for cells in values] == [7, 7]
    shown = [str(cell).partition(" ")[0] for cell in difference]
    assert shown == [*[""] * 5, "+10.00", ""]


@pytest.mark.parametrize(
    ("first", "second", "higher", "margin", "verdict"),
    [
        (HIGH, LOW, True, None, "better"),
        (LOW, HIGH, True, None, "worse"),
        (HIGH, LOW, False, None, "worse"),
        (LOW, NEAR, True, None, "undecided"),
        (LOW, NEAR, True, 0.01, "practically equal"),
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


def test_a_margin_that_no_improvement_could_pass_is_told() -> None:
    """A seventh of the baseline's error may be practically equal to it: errors end at 0."""
    theirs = [0.0041, 0.0040, 0.0042, 0.0043, 0.0039]
    mine = [0.0006, 0.0007, 0.0005, 0.0006, 0.0006]

    def found(margin: float, higher: bool = False) -> Comparison:
        return compared(mine, theirs, metric="mse", margin=margin, higher_is_better=higher)

    told = (
        f"the margin of 0.0100 is no less than the whole mse of {B}, 0.0041: without any error a "
        "model would be practically equal to it"
    )
    wide = found(0.01)
    assert wide.verdict == "practically equal"
    assert wide.sentence.endswith("over 5 paired seeds (margin 0.0100)")
    assert told in wide.warnings
    assert wide.said == "practically equal (not counted)"
    assert "(not counted: the margin is no less than the baseline's whole error)" in wide.sentence
    assert found(0.01, higher=True).said == "practically equal"
    assert warned("the whole mse", found(0.0041))
    assert not warned("the whole mse", found(0.004))
    assert not warned("the whole mse", found(0.01, higher=True)), "it ends at no 0"


def test_one_pair_or_none_has_no_interval() -> None:
    (row,) = statistics_rows(compared(HIGH[:1], LOW[:1]))
    assert row[1] == "+10.00: one pair has no interval"
    assert "[" not in compared(HIGH[:1], LOW[:1]).sentence
    assert statistics_rows(compared([], LOW)) == []


@pytest.mark.parametrize(("model", "place"), [(A, 1), (B, 6)])
def test_failed_runs_are_told_and_left_out(model: str, place: int) -> None:
    records = [*runs(A, HIGH), *runs(B, LOW)]
    records[place] |= {"status": "diverged", "detail": "the loss is nan"}
    del records[place]["test"], records[place]["chosen_epoch"]
    found = judged(design(5), records)
    assert [seed for seed, *_ in found.values] == [0, 2, 3, 4]
    assert any(f"1 of 5 runs of {model} diverged" in w for w in found.warnings)
    assert any("1 of 5 pairs are incomplete" in w for w in found.warnings)
    assert found.verdict == "descriptive only"
    without = judged(design(5), records[:9])
    assert any("1 of 10 runs are missing" in w for w in without.warnings)


def test_costs_are_medians_of_the_finished_runs() -> None:
    found = compared(HIGH, LOW).costs[A]
    assert (found.seconds, found.seconds_per_epoch, found.peak_bytes) == (12.0, 3.0, 3000)
    assert (found.parameters, found.parameters_with_words) == (100, 150)
    assert (found.epochs, found.chosen_epoch) == (2, 2)


def test_the_epoch_that_dev_would_have_chosen_is_known_only_where_every_epoch_is() -> None:
    def of(*dev: float | None) -> float:
        epochs = [
            {"test": {"accuracy": i / 10}} | ({} if one is None else {"dev": {"accuracy": one}})
            for i, one in enumerate(dev)
        ]
        return at_dev_epoch({"epochs": epochs}, "accuracy", True)

    assert of(0.1, 0.9, 0.9) == 0.1, "the first of the best"
    assert all(math.isnan(of(*some)) for some in ((), (math.nan, 0.9), (None, 0.9)))


def test_what_several_took_is_over_all_their_runs() -> None:
    first, second = compared(HIGH, LOW), compared(HIGH[:1], LOW[:1])
    moved = [{**r, "key": f"{r['key']} more", "seconds": 99.0} for r in second.runs]
    pair = design(1, runs=[[r["key"] for r in moved]])
    both = costs_over([first, judged(pair, moved)])
    assert {m: cost.seconds for m, cost in both.items()} == dict.fromkeys((A, B), 12.5)


def test_runs_trained_under_another_spelling_are_the_models() -> None:
    typed = "mtsa.algorithm1[scale_t=log_sigmoid]"
    records = [{**r, "model": typed} for r in runs(A, HIGH)] + runs(B, LOW)
    found, drawn = judged(design(), records), compared(HIGH, LOW)
    assert found.costs == drawn.costs
    assert [[r["model"] for r in side] for side in found.sides] == [[typed] * 5, [B] * 5]
    keys = [[r["key"] for r in side] for side in drawn.sides]
    assert [[r["key"] for r in side] for side in found.sides] == keys


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
    assert warned("(the papers' way), which is too good", found)
    assert not warned("patience", found)
    assert not of_examples([found]), "no epoch kept both"

    def kept(model: str, values: list[float]) -> list[dict[str, Any]]:
        """Dev is best after the first epoch, where the test set has a tenth less."""
        first = [{"dev": {"accuracy": 1.0}, "test": {"accuracy": v - 0.1}} for v in values]
        last = [{"dev": {"accuracy": 0.5}, "test": {"accuracy": v}} for v in values]
        runs_of = zip(runs(model, values), first, last, strict=True)
        return [{**run, "epochs": [one, two]} for run, one, two in runs_of]

    both = [*kept(A, HIGH), *runs(B, LOW)]
    assert not of_examples([judged(design(recipes=by_test), both)]), "of one model alone"
    some = [*kept(A, HIGH), *kept(B, HIGH)[:3], *runs(B, LOW)[3:]]
    assert not of_examples([judged(design(recipes=by_test), some)]), "of some pairs alone"
    both = [*kept(A, HIGH), *kept(B, HIGH[::-1])]
    (line,) = of_examples([judged(design(recipes=by_test), both)])
    d = compare_means(HIGH, HIGH[::-1], paired=True)
    size = f"{100 * d.difference:+.2f} [{100 * d.low:+.2f}, {100 * d.high:+.2f}]"
    assert line == f"by dev's epochs of the same runs: {size} points, p = {d.p:.2g} by itself"
    patient = [{**one, "epochs": 9, "patience": 3} for one in by_test]
    ended = "which is too good, and by it patience ended the runs"
    assert warned(ended, compared(HIGH, LOW, recipes=patient))
    assert "best over time on the test set accuracy" in found.sentence


def test_data_that_are_not_the_known_corpus_are_told() -> None:
    content = {f.name: f.content for f in corpora()["trec"].files}
    known = [content[name] for name in task("trec").files]
    right = hashlib.sha256(b"".join(map(bytes.fromhex, known))).hexdigest()[:16]
    for data, told in (("", False), (right + "of vectors", False), ("0" * 16, True)):
        found = judged(design(), [*runs(A, HIGH, data=data), *runs(B, LOW, data=data)])
        assert warned("this is not the trec of attnbench data list", found) == told
        assert found.difference is not None
    few = [run for m in (A, B) for run in runs(m, HIGH, "snli", examples={"train": 30})]
    told_of = judged(design(task="snli"), few)
    assert warned("not snli: trained on 30 examples, snli has 549,367", told_of)
    assert is_known("mirrored_summation[k=3]", "0" * 16) is None
    assert is_known("snli", "0" * 16) is None
    assert is_known("a task of another version", "0" * 16) is None


def test_policies_that_leave_nothing_out_are_told() -> None:
    for share, told in ((0.995, True), (0.9, False)):
        mine = runs(A, HIGH, selected={"heads": 1.0, "dependents": share})
        found = judged(design(), [*mine, *runs(B, LOW)])
        assert warned(f"{A} selects 99.5 % of the tokens", found) == told


@pytest.mark.parametrize("metric", ["accuracy", "pearson", "spearman"])
def test_a_correlation_with_a_constant_is_told(metric: str) -> None:
    records = runs(A, HIGH) + runs(B, [0.0, 0.0, *LOW[2:]])
    for record in records:
        record["test"] = {metric: record["test"]["accuracy"]}
    found = judged(design(metric=metric, metrics=[metric]), records)
    told = f"2 of 5 runs of {B} predict one value for all test examples: their {metric}"
    assert warned(told, found) is (metric != "accuracy")


@pytest.mark.parametrize(("other", "told"), [(100, False), (101, False), (102, True), (50, True)])
def test_unequal_parameters(other: int, told: bool) -> None:
    found = judged(design(), [*runs(A, HIGH), *runs(B, LOW, parameters=other)])
    assert warned("unequal parameters", found) is told


# Training that can't be compared


def trained(model: str, values: list[float], dev: list[float], **more: Any) -> list[dict[str, Any]]:
    """Runs of these dev accuracies by epoch; the best epoch is chosen. 64 examples, two steps."""
    recipe = {"batch": 32, "epochs": 10, "patience": 3, "choose": "dev", **more}
    epochs = [{"epoch": i + 1, "seconds": 1.0, "dev": {"accuracy": v}} for i, v in enumerate(dev)]
    chosen = dev.index(max(dev)) + 1
    examples = {"train": 64}
    return runs(model, values, recipe=recipe, epochs=epochs, examples=examples, chosen_epoch=chosen)


PATIENT = [0.5, 0.7, 0.6, 0.6, 0.6]
"""Ended by patience."""
CEILING = [0.50, 0.55, 0.60, 0.65, 0.70, 0.75, 0.80, 0.84, 0.87, 0.90]
"""Ended by the number of epochs, at its best."""


def of_training(first: list[float], second: list[float], **more: Any) -> Comparison:
    records = [*trained(A, HIGH, first), *trained(B, LOW, second)]
    return judged(design(metric="accuracy", **more), records)


def test_what_was_trained_alike_is_counted_and_its_steps_are_told() -> None:
    found = of_training(PATIENT, [*PATIENT, 0.6])
    assert (found.said, found.flaws, found.warnings) == ("better", (), ())
    costs = found.costs[A], found.costs[B]
    assert [c.steps for c in costs] == [10, 12]
    assert [c.examples for c in costs] == [320, 384]


def test_more_steps_of_one_model_keep_a_verdict_from_being_counted() -> None:
    found = of_training([*PATIENT, 0.6, 0.6], PATIENT)
    assert found.verdict == "better"
    assert found.said == "better (not counted)"
    assert warned(f"unequal training: 14 and 10 steps of {A} and {B}, 1.40x (medians)", found)
    told = f"{A} is better than {B} on trec (not counted: 14 and 10 steps): test accuracy"
    assert found.sentence.startswith(told)


def test_what_equally_many_steps_show_is_told_beside_it() -> None:
    late, early = [0.5, 0.6, 0.6, 0.66, 0.62, 0.9, 0.8], PATIENT
    for first, second, whole, difference in (
        (late, early, "+20.00", "-4.00"),
        (early, late, "-20.00", "+4.00"),
    ):
        found = of_training(first, second)
        assert warned(
            f"{A} and {B}, 1.40x (medians); on dev, not test, {A} less {B} is {whole} [{whole}, "
            f"{whole}] points by the best of all epochs, {difference} [{difference}, "
            f"{difference}] points by that of those within 10 steps",
            found,
        )
    assert not warned("by the best of all epochs", of_training(late[:6], early))
    # What epochs are chosen by, in its own direction; of an epoch that was over later nothing.
    run = trained(A, HIGH, late, choose="best-on-test")[0]
    for epoch in run["epochs"]:
        epoch["test"] = {"mse": epoch["epoch"] / 8}
    assert best_within(run, "mse", False, 9) == 1 / 8
    assert best_within(run, "mse", True, 9) == 4 / 8
    assert math.isnan(best_within(run, "mse", True, 1))
    assert math.isnan(best_within(run, "pearson", True, 9))


def test_training_that_was_cut_off_keeps_a_verdict_from_being_counted() -> None:
    found = of_training(CEILING, [*CEILING[:7], 0.7, 0.7, 0.7])
    assert found.flaws == (f"{A} best at its last epoch in 5 of 5 runs",)
    assert warned("the epoch that counts is the last that the recipe allows (10 epochs)", found)
    late = [*CEILING[:8], 0.7, 0.7]  # by its number of epochs, and not at the last
    for margin in (0.05, None):
        found = of_training(late, [*CEILING[:7], 0.7, 0.7, 0.7], margin=margin)
        assert (found.flaws, warned(f"{A} gained", found)) == ((), False)
        assert warned("no margin is declared: whether a model still", found) == (margin is None)
        told = f"5 of 5 runs of {A} were ended by the 10 epochs that the recipe allows, before"
        assert warned(told, found)
    found = of_training(late, [*CEILING[:7], 0.7, 0.7, 0.7], margin=0.03)
    assert warned(f"unfinished training: {A} gained 4.00 points in its last 3 epochs", found)
    assert warned("more than the margin of 3.00 points", found)
    assert (found.said, found.flaws) == ("better (not counted)", (f"{A} still gaining",))
    assert found.sentence.startswith(f"{A} is better than {B} on trec (not counted: {A} still")
    assert not warned(f"{B} gained", found)


def test_patience_that_ends_a_model_that_still_learns_is_told() -> None:
    """The longer its runs, the better they are."""
    rising, ranks = [0.90, 0.92, 0.89, 0.91, 0.93], [1, 3, 0, 2, 4]

    def of_runs(lengths: list[int], **more: Any) -> Comparison:
        sides = [trained(A, rising, PATIENT), trained(B, LOW, PATIENT)]
        for record, length in zip(sides[0], lengths, strict=True):
            record["epochs"] = record["epochs"] + record["epochs"][-1:] * length
        return judged(design(metric="accuracy", **more), [*sides[0], *sides[1]])

    found = of_runs(ranks)
    assert warned(f"unfinished training: the longer a run of {A}, the higher its accuracy", found)
    assert warned("(Kendall's tau 1.00, p = 0.008; 89.00 % after 5 epochs, 93.00 % after 9)", found)
    assert not any("ended it" in flaw for flaw in found.flaws), "chance finds it now and then"
    falling = [4 - rank for rank in ranks]
    assert warned(f"a run of {A}, the lower its acc", of_runs(falling, higher_is_better=False))
    for lengths in (falling, [0] * 5, [0, 0, 0, 0, 1]):
        assert not warned("the longer a run", of_runs(lengths))
    assert not warned("the longer a run", of_runs(ranks, folds=5, units="folds"))


def test_where_patience_ends_nothing_a_quarter_of_the_epochs_is_the_end() -> None:
    epochs = [0.5, 0.6, 0.65, 0.7, 0.72, 0.74, 0.76, 0.78]
    for patience, last in ((8, 2), (20, 2), (3, 3)):
        run = {"recipe": {"patience": patience}, "epochs": [{}] * 8}
        assert at_the_end(run) == last
    assert at_the_end({"recipe": {"patience": 9}, "epochs": [{}] * 3}) == 1
    whole: dict[str, Any] = {
        "recipe": {"patience": 8, "epochs": 8},
        "test": {"accuracy": 0.78},
        "chosen_epoch": 8,
        "epochs": [{"dev": {"accuracy": value}} for value in epochs],
    }
    assert still_gains(whole, True) == pytest.approx(0.78 - 0.74)


def test_a_policy_of_its_own_stage_counts_its_own_steps() -> None:
    stages = [*["base"] * 4, "policy", "both", "both"]
    records = trained(A, HIGH, [*PATIENT, 0.6, 0.6], policy_steps=7, policy_epochs=2)
    for record in records:
        for epoch, stage in zip(record["epochs"], stages, strict=True):
            epoch["stage"] = stage
        record["chosen_epoch"] = 7
    found = judged(design(), [*records, *trained(B, LOW, PATIENT)])
    assert found.costs[A].steps == 6 * 2 + 7
    assert found.costs[A].examples == 6 * 64 + 7 * 32
    assert f"{A} best at its last epoch in 5 of 5 runs" in found.flaws


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
    return judged(design(1, **declared), records)


def test_folds_are_judged_with_the_corrected_variance() -> None:
    found = folded(1)
    folds, first, second = zip(*found.values, strict=True)
    assert folds == tuple(range(10))
    assert found.difference == compare_folds(first, second, folds, 10)
    assert (found.units, found.replicate, found.pairs, found.finished) == ("folds", "fold", 10, 10)
    assert "over 10 paired folds" in found.sentence
    assert "seed" not in found.sentence
    assert warned("10 folds of one corpus are no independent seeds", found)
    assert warned("n_test / n_train = 1/9", found)


def test_seeds_on_the_same_folds_are_averaged_inside_them() -> None:
    once, thrice = folded(1), folded(3)
    assert thrice.difference.count_first == 10
    assert thrice.difference.p == pytest.approx(once.difference.p), "no new test examples"
    assert thrice.values[4][1] == pytest.approx(once.values[4][1] + 0.001)
    assert "10 paired folds, each the mean of 3 seeds" in thrice.sentence
    assert warned("they are averaged inside each fold", thrice)
    assert (thrice.pairs, thrice.finished) == (30, 30)


def test_a_design_that_takes_folds_for_seeds_is_not_believed() -> None:
    right = folded(1)
    found = judged({**right.design, "folds": 0, "units": "seeds"}, list(right.runs))
    assert found.difference.test == "corrected resampled t"
    assert warned("takes folds for seeds", found)
    assert found.difference == right.difference
    assert not warned("takes folds for seeds", right)


def test_folds_may_be_equal_or_too_few() -> None:
    found = folded(1, gain=0.001, margin=0.01)
    assert found.equivalence_p == equivalence(found.difference, 0.01)
    assert found.verdict == "practically equal"
    few = folded(1, folds=4)
    assert few.verdict == "descriptive only"
    assert "too few folds to conclude" in few.sentence


def test_missing_folds_are_told_and_left_out() -> None:
    whole = folded(1)
    found = judged(whole.design, [r for r in whole.runs if r["model"] == A or r["fold"] < 8])
    assert found.verdict == "unfinished"
    assert (found.pairs, found.finished, len(found.values)) == (10, 8, 8)
    assert "over 8 paired folds of 10" in found.sentence
    assert warned("2 of 20 runs are missing", found)


# Unpaired


def test_unpaired_is_welchs_t_and_never_called_pairs() -> None:
    mine, theirs = HIGH, [v + 0.07 for v in LOW]
    found = compared(mine, theirs, paired=False, margin=0.5)
    assert found.difference == (welch := compare_means(mine, theirs, paired=False))
    assert found.equivalence_p == equivalence(welch, 0.5)
    assert "practically equal" in found.sentence
    assert "5 and 5 unpaired seeds" in found.sentence
    assert "(Welch, p = " in compared(mine, theirs, paired=False).sentence
    said = " ".join(" ".join(row) for row in statistics_rows(found))
    for words in ("(Welch, two-sided)", "exact permutation, sens", "at these 5 and 5 seeds"):
        assert words in said
    assert "pair" not in (said + found.sentence).replace("unpaired", "")


def test_runs_without_a_partner_count_too() -> None:
    failed = runs(A, HIGH)
    failed[1] |= {"status": "diverged", "test": {}}
    found = judged(design(paired=False), [*failed, *runs(B, LOW)])
    assert found.difference == compare_means([HIGH[0], *HIGH[2:]], LOW, paired=False)
    assert "4 and 5 unpaired seeds" in found.sentence
    assert (found.finished, found.pairs) == (4, 5)
    assert math.isnan(found.values[1][1])
    assert found.values[1][2] == LOW[1]
    assert warned("diverged", found)
    assert not warned("pairs", found)
    nothing = judged(design(paired=False), [run(A, 0, 0.5)])
    assert nothing.sentence.endswith("unpaired, and not a run of each is finished")


def test_the_command_declares_it_and_the_page_says_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The command itself, with runs that are written down instead of trained."""

    def write(missing: Any, around: Surroundings, folder: Path, *others: Any) -> None:
        writer = journal.Writer(folder, {"fingerprint": dict(around.fingerprint)})
        for record in others[-1]:
            writer.append(record)
        for one in missing:
            value = (HIGH if one.model.mechanism == "mtsa" else LOW)[one.seed]
            made = run(str(one.model), one.seed, value, TOY, key=one.key)
            writer.append({k: v for k, v in made.items() if k not in ("session", "at")})
        writer.close()

    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(compare, "train_missing", write)
    monkeypatch.setattr(compare, "refuse_unbuildable", lambda *_: None)
    monkeypatch.setattr(compare, "verified_or_refused", lambda *_: None)
    line = ["compare", "mtsa", "multi_head", "--task", TOY, "--device", "cpu"]
    assert cli([*line, "--unpaired"]) == 0
    assert "5 and 5 unpaired seeds (Welch, p = " in " ".join(capsys.readouterr().out.split())
    page = Compared.begin(journal="results", device="", out="", page="comparison")
    pieces = (page.about, page.verdicts, page.seeds, page.differences, page.statistics, page.power)
    shown = " ".join(piece().html for piece in pieces)
    words = [
        "declared unpaired: two independent groups",
        "5 and 5 unpaired seeds (Welch, p",
        "Every run of",
        "difference of the means, unpaired",
        "p (Welch, two-sided)",
        "p (exact permutation, sensitivity)",
        "plan --unpaired",
    ]
    places = [shown.index(word) for word in words]
    assert places == sorted(places)
    assert "did better than" not in shown
    assert "pairs" not in shown.replace(task(TOY).summary, "")
    assert cli(line) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "10 of them already there" in told
    assert "paired was declared after the unpaired results had been seen" in told
    both = conclusions(journal.read(tmp_path / "results").records)
    assert [c.comparisons[0].paired for c in both] == [False, True], "one replaced the other"
    assert both[0].comparisons[0].values == both[1].comparisons[0].values, "of the same runs"


def test_designs_that_were_declared_before_keep_their_keys() -> None:
    registry, toy = Registry(), task(TOY)
    models = [parse_model(name, registry) for name in ("mtsa", "multi_head")]
    around = Surroundings(registry, {"device": "cpu"})
    one, other = (
        make_design(models, toy, [toy.recipe] * 2, [0, 1], around, paired=paired).record
        for paired in (True, False)
    )
    assert one["paired"] is True
    assert one["question"] == one["paired_question"] == other["paired_question"]
    assert one["question"] != other["question"]
    assert one["key"] != other["key"]
    assert one["runs"] == other["runs"]


def test_trials_that_are_known_since_count_and_on_which_task_they_were() -> None:
    """Of a common recipe, today's or a former one; one that was changed was found by itself."""

    def said(name: str, model: str, trials: int = 0, **change: Any) -> list[str]:
        common = {**task(name).recipe.as_dict(), "tuning_trials": 0, **change}
        recipes = [{**common, "tuning_trials": trials}, common]
        found = {"models": [model, "multi_head.sdpa"], "task": name, "recipes": recipes}
        return unequal_recipes({**found, "match": "width"})

    assert said("multi30k", "mtsa_nmt.fused") == [], "two of each since"
    assert said("multi30k", "mtsa.fused") == [
        "unequal tuning budgets: 0 recipes were tried for mtsa.fused, 2 for "
        "multi_head.sdpa (0 as declared)"
    ]
    assert said("multi30k", "mtsa.fused", rate=0.5) == []
    assert said("multi30k", "mtsa.fused", epochs=3) != [], "a ceiling was never tuned"
    assert said("mtl16[domain=books]", "transformer.sdpa", 10) == []
    (line,) = said("mtl16[domain=books]", "kim_cnn.conv")
    assert line.startswith("unequal tuning budgets: 0 recipes were tried on trec for ")
    (own,) = said("trec", "kim_cnn.conv")
    assert "on trec" not in own
    assert said("sst5", "disa.chunked[direction=diagonal]") == [], "an ablation's own ten"
    assert said("sick_relatedness", "disa.chunked", 9, dropout=0.3) == [], "a former common recipe"
    assert said("sick_relatedness", "disa.chunked", 9, dropout=0.25) != []
    # What records told of a form was its mechanism's, nine on TREC at the time and ten now.
    form = "mtsa.fused[scale_t=identity]"
    for told in (9, 10):
        (line,) = said("trec", form, told, patience=25)
        assert line.startswith(f"unequal tuning budgets: 0 recipes were tried for {form} (")
        assert said("trec", f"{B}[positions=none]", told) == [], "tried with ten of its own since"
    (line,) = said("trec", form, 4)
    assert ": 4 recipes were tried for " in line
    assert said("ud_ewt", f"{B}[positions=none]", 3)[0].startswith(
        "unequal tuning budgets: 4 recipes were tried for "
    )
