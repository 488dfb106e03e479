"""What one known difference to a paper's setting is worth, from runs that differ in it alone."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from harness.experiments.conclusion import conclude
from harness.train.task import task
from reports.core.trained import tasks_by_recipe
from reports.pages.corpora import causes, printed
from reports.pages.corpora.patience import cut_short, short_patience
from suites.reports.pages.test_printed import MTSA, trained
from suites.support import comparisons
from suites.support.comparisons import HIGH, LOW, A, B

PAPER = task("trec").recipes["paper"].recipe_for("mtsa")
CUT = "a_10d&b_30d"
PATIENT = replace(PAPER, patience=20)


def found(*runs: list[dict[str, Any]]) -> list[tuple[str, str, str, float]]:
    rows = causes.causes(tasks_by_recipe([one for some in runs for one in some]))
    _, texts = causes.table(rows)
    return [
        (cause, row["with"], row["in place of"], round(100 * pair.difference.difference, 6))
        for (cause, _, pair), row in zip(rows, texts, strict=True)
    ]


@pytest.mark.parametrize("turned", [False, True])
def test_the_fuller_setting_is_first_whatever_the_order(turned: bool) -> None:
    whole = trained("mtsa.fused", PATIENT, mean=0.94)
    half = trained("mtsa.fused", replace(PATIENT, width=300), mean=0.92)
    assert found(*([half, whole] if turned else [whole, half])) == [
        ("width", "width 600", "width 300", 2.0)
    ]
    short = trained("mtsa.fused", PATIENT, mean=0.95)
    every = trained("mtsa.fused", PAPER, mean=0.94)
    assert found(*([short, every] if turned else [every, short])) == [
        ("patience", "all steps", "patience 20", -1.0)
    ]
    few = trained("mtsa.fused", PATIENT, mean=0.90)
    many = trained("mtsa.fused", PATIENT, mean=0.93, vectors="glove_300d")
    assert found(*([few, many] if turned else [many, few])) == [
        ("vectors", "vectors glove_300d", "vectors top10k_100d_int8", 3.0)
    ]


def test_of_vectors_it_is_told_how_many_words_have_one_and_those_of_more_are_the_fuller() -> None:
    """Three tables: more components of half of the words, and of as many components two."""

    def of(vectors: str, covered: int, mean: float) -> list[dict[str, Any]]:
        told = {"coverage": {"covered_running": covered, "running_words": 1000}}
        return [{**r, **told} for r in trained("mtsa.fused", PATIENT, mean=mean, vectors=vectors)]

    few, many, wide = of(CUT, 515, 0.9), of("a_10d", 902, 0.92), of("b_30d", 520, 0.93)
    assert found(few, many, wide) == [
        ("vectors", "vectors b_30d (52 % of the words)", "vectors a_10d (90 % of the words)", 1.0),
        ("vectors", "vectors b_30d (52 % of the words)", f"vectors {CUT} (52 % of the words)", 3.0),
        ("vectors", "vectors a_10d (90 % of the words)", f"vectors {CUT} (52 % of the words)", 2.0),
    ]
    tasks = tasks_by_recipe([*few, *many])
    assert [one.model.runs[0]["vectors"] for one in printed.beside(tasks)] == ["a_10d"]


def test_two_changes_another_change_another_model_and_other_data_are_no_cause() -> None:
    both = trained("mtsa.fused", replace(PATIENT, width=300), vectors="glove_300d")
    another = trained("mtsa.fused", replace(PATIENT, dropout=0.4))
    model = trained("disa.chunked", replace(PATIENT, width=300))
    assert found(trained("mtsa.fused", PATIENT), both, another, model) == []
    whole, half = (trained("mtsa.fused", replace(PATIENT, width=w)) for w in (600, 300))
    assert len(found(whole, half)) == 1
    for one in half:
        one["data"] = "another corpus"
    for one in whole:
        one["data"] = "the corpus"
    assert found(whole, half) == []


def test_more_training_examples_of_one_corpus_are_a_cause_and_another_corpus_is_none() -> None:
    """SST-5's phrases and its sentences are two tasks with one test set."""
    sentences = trained("mtsa.fused", PATIENT, "sst5", 0.42, train=8544)
    phrases = trained("mtsa.fused", PATIENT, "sst5_phrases", 0.46, train=159_274)
    both = [("examples", "159,274 training examples", "8,544 training examples", 4.0)]
    assert found(sentences, phrases) == both
    assert found(phrases, sentences, trained("mtsa.fused", PATIENT, "cr", train=3000)) == both
    narrow = trained("mtsa.fused", replace(PATIENT, width=300), "sst5_phrases", train=159_274)
    assert found(sentences, narrow) == []


def test_only_the_seeds_of_both_are_compared() -> None:
    whole = trained("mtsa.fused", PATIENT, mean=0.94)
    half = trained("mtsa.fused", replace(PATIENT, width=300), mean=0.92)[1:3]
    ((_, _, pair),) = causes.causes(tasks_by_recipe([*whole, *half]))
    assert pair.counted == "2 paired seeds"


def test_two_machines_show_what_neither_does_alone() -> None:
    """Of SUBJ one machine trained widths 600 and 300, the other 300 and 150; of TREC each one.

    A third trained the narrow one once more, with the same result.
    """

    def on(machine: str, width: int, name: str, mean: float) -> list[dict[str, Any]]:
        runs = trained("mtsa.fused", replace(PATIENT, width=width), name, mean)
        return [run | {"fingerprint": machine} for run in runs]

    first = [*on("a", 600, "trec", 0.94), *on("a", 600, "subj", 0.9), *on("a", 300, "subj", 0.8)]
    second = [*on("b", 300, "trec", 0.92), *on("b", 300, "subj", 0.7), *on("b", 150, "subj", 0.6)]
    again = on("c", 300, "trec", 0.92)
    machines = [tasks_by_recipe(runs) for runs in (first, second, again)]
    _, texts = causes.table(causes.over(machines))
    assert [(row[""], row["difference [95 %]"][:6], row["over"]) for row in texts] == [
        ("subj (%): mtsa.fused", "+10.00", "5 paired seeds"),
        ("subj (%): mtsa.fused", "+10.00", "5 paired seeds"),
        ("subj (%): mtsa.fused", "+30.00", "5 paired seeds, on two machines"),
        ("trec (%): mtsa.fused", "+2.00 ", "5 paired seeds, on two machines"),
    ]


def patient(model: str, patience: int) -> dict[str, Any]:
    """A run best after epoch 2, then after 6, with 8 in all; patience 3 ends it after 5."""
    dev = [0.5, 0.7, 0.6, 0.6, 0.6, 0.8, 0.7, 0.7]
    recipe = replace(PAPER, choose="dev", epochs=len(dev), patience=patience)
    epochs = [{"epoch": i, "dev": {"accuracy": v}} for i, v in enumerate(dev[: patience + 2], 1)]
    told: dict[str, Any] = {"vectors": "", "recipe": recipe.as_dict(), "epochs": epochs}
    return comparisons.run(model, 0, 0.8, key=f"{model} {patience}", **told)


def test_what_patience_would_have_lost_of_the_runs_that_it_did_not_end() -> None:
    runs = [patient(A, 8), patient(A, 3), patient(A, 4), patient("disa.fused", 8)]
    numbers, (one, two) = cut_short([tasks_by_recipe(runs)])
    assert [n["mean_ended"] for n in numbers][:1] == [0.7]
    assert [(n["ended"], n["patience"]) for n in numbers] == [(1, 3), (0, 4)]
    assert (one.pop("with patience"), two.pop("with patience")) == ("3", "4")
    assert one.pop("is lost") == "1 of 1 runs end with 70.00 %, not 80.00 %"
    assert two.pop("is lost") == "nothing"
    assert one == two
    told = {"": f"trec: {A}", "over": "1 seed", "best epoch": "6", "of": "8"}
    assert {**one, **told, "longest wait": "4"} == one


def test_what_a_patience_would_have_lost_is_told_beside_what_was_trained_by_it() -> None:
    def said(patience: int, *more: dict[str, Any]) -> list[str]:
        short = [patient(model, patience) for model in (A, B)]
        pair = comparisons.design(1, runs=[[r["key"] for r in short]])
        return short_patience(conclude(pair, short), [tasks_by_recipe([*short, *more])])

    whole = patient(A, 8)
    assert said(3) == said(4, whole) == [], "nothing is known of it, and nothing would be lost"
    assert said(3, whole)[0] == (
        f"trec: with patience 3 1 of 1 runs end with 70.00 %, not 80.00 %: {A} by all steps; "
        "patience may have ended its runs here, not the model"
    )


def test_a_large_gap_by_a_papers_recipe_of_which_no_cause_was_measured_is_told() -> None:
    """Of the others one is near, one has its cause measured, and one is by the common recipe, too;
    what is by that alone is told.
    """
    low, common = PAPER, task("trec").recipe
    far = trained("mtsa.fused", low, mean=0.92)
    near = trained("multi_head.sdpa", task("trec").recipes["paper"].recipe_for("multi_head"))
    near = [{**run, "test": {"accuracy": 0.92}} for run in near]
    other = trained("bi_lstm.packed", common, mean=0.9)
    usual = trained("mtsa.fused", common, mean=0.9)
    tasks = tasks_by_recipe([*far, *near, *other, *usual])
    (said,) = causes.unexplained(printed.beside(tasks), causes.over([tasks]))
    assert said.endswith(
        "was measured for that model: trec, common, bi_lstm.packed -4.4 (vectors, width, steps, "
        "examples, epoch by, optimiser); trec, paper, mtsa.fused -3.3 (vectors, steps, examples)."
    )
    wider = trained("mtsa.fused", low, mean=0.95, vectors="glove_300d")
    tasks = tasks_by_recipe([*far, *near, *wider])
    assert causes.unexplained(printed.beside(tasks), causes.over([tasks])) == []
    forms = [*comparisons.runs(form := "mtsa_released.fused", HIGH), *comparisons.runs(MTSA, LOW)]
    ask = comparisons.design(5, form, models=[form, MTSA])
    ask["runs"] = [[f"{m} trec {i}" for m in (form, MTSA)] for i in range(5)]
    tasks = tasks_by_recipe(far)
    (said,) = causes.unexplained(printed.beside(tasks), [], [conclude(ask, forms)])
    assert said.endswith(f"(vectors, steps, examples, {causes.FORM}).")
    half = trained("mtsa.fused", replace(low, width=300), mean=0.95)
    tasks = tasks_by_recipe([*far, *half])
    (said,) = causes.unexplained(printed.beside(tasks), causes.over([tasks]))
    assert "paper, mtsa.fused -3.3 (" in said, "no cause of it"


@pytest.mark.parametrize(("wider", "left"), [(0.90, True), (0.93, True), (0.94, False)])
def test_a_large_gap_that_no_measured_cause_fills_is_told(wider: float, left: bool) -> None:
    """3.3 points, of which longer vectors gave none, one, or two."""
    far = trained("mtsa.fused", PAPER, mean=0.92)
    more = trained("mtsa.fused", PAPER, mean=wider, vectors="glove_300d")
    less = trained("mtsa.fused", PAPER, mean=0.88, vectors="few_10d")  # it has more than these
    tasks = tasks_by_recipe([*far, *more, *less])
    short = [one for one in printed.beside(tasks) if one.model.mean == pytest.approx(0.92)]
    said = causes.unexplained(short, causes.over([tasks]))
    assert [one.rpartition(" gave: ")[2] for one in said] == (
        ["trec, paper, mtsa.fused -3.3 (vectors)."] if left else []
    )


def test_a_gap_on_fewer_examples_is_told_where_nothing_was_trained_on_all() -> None:
    """SST-5's sentences, of models of which one was trained on its phrases too."""
    recipe = task("sst5").recipe
    few = [trained(m, recipe, "sst5", 0.42) for m in ("disa.chunked", "bi_lstm.packed")]
    many = trained("disa.chunked", task("sst5_phrases").recipe, "sst5_phrases", 0.5)
    tasks = tasks_by_recipe([run for some in (*few, many) for run in some])
    (said,) = causes.unexplained(printed.beside(tasks), [])
    assert "sst5, common, bi_lstm.packed -7.9 (" in said
    assert "disa.chunked" not in said


def test_a_longer_patience_by_which_a_model_ended_better_is_told_wherever_its_was_short() -> None:
    usual = task("mirrored_summation").recipe

    def of(model: str, patience: int, name: str, low: float, **more: Any) -> list[dict[str, Any]]:
        recipe = {**replace(usual, patience=patience).as_dict(), **more}
        values = [low + 0.001 * seed for seed in range(5)]
        told = {"recipe": recipe, "vectors": "", "fingerprint": "f"}
        return [
            {**r, "key": f"{r['key']} {patience} {more}", "test": {"mse": r["test"]["mse"]}}
            for r in comparisons.runs(model, values, name, **told)
        ]

    k = "mirrored_summation[k=3]"
    asked = [*of(A, 5, k, 0.06), *of(B, 5, k, 0.05)]
    pair = comparisons.design(5, A, k, metric="mse", higher_is_better=False)
    both = zip(asked[:5], asked[5:], strict=True)
    pair["runs"] = [[a["key"], b["key"]] for a, b in both]
    one = conclude(pair, asked)
    name = "mirrored_summation"
    short = [*of(A, 5, name, 0.06), *of(B, 5, name, 0.05)]
    long = [*of(A, 60, name, 0.06), *of(B, 60, name, 0.03), *of(B, 20, name, 0.01, rate=0.1)]

    def said(*runs: list[dict[str, Any]]) -> list[str]:
        return short_patience(one, [tasks_by_recipe(some) for some in (asked, *runs)])

    (line,) = said(short, long)
    assert line.startswith(f"{k}: patience 60 in place of patience 5 changed {B} by -0.0200 [")
    assert f"] on {name} (5 paired seeds); patience may have ended its runs here" in line
    (line,) = said(short, [{**r, "seed": r["seed"] + 9, "fingerprint": "g"} for r in long])
    assert "(5 and 5 unpaired seeds, on two machines)" in line
    capped = [{**r, "recipe": {**r["recipe"], "epochs": 2}} for r in asked]
    known = conclude(pair, capped)
    assert short_patience(known, [tasks_by_recipe(s) for s in (short, long)]) == [], "by it"
    big = "mirrored_summation_paper"
    other = [*of("none.fused", 5, big, 0.06), *of("disa.fused", 5, big, 0.05)]
    pair = comparisons.design(5, "none.fused", big, metric="mse", higher_is_better=False)
    pair["models"] = ["none.fused", "disa.fused"]
    pair["runs"] = [[a["key"], b["key"]] for a, b in zip(other[:5], other[5:], strict=True)]
    size = conclude(pair, other)
    (line,) = short_patience(size, [tasks_by_recipe([*short, *long])])
    assert line.startswith(f"{big}: at another size patience 60 in place of patience 5 changed {B}")
    assert short_patience(size, [tasks_by_recipe(short)]) == [], "nothing longer was tried there"
    assert said(long) == [], "not otherwise alike, and of what it was worth nothing is known"
    assert said(short, of(B, 60, name, 0.0501)) == [], "nothing was gained"
