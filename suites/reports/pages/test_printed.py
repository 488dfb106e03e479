"""What papers print beside what was reached: by every recipe, with the gap and what differs."""

from __future__ import annotations

import math
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.stats import fold_interval
from harness.train.recipe import Recipe
from harness.train.task import task
from reports.claims.printed import load
from reports.core.figure_data import data_of
from reports.core.printed_values import ACCURACIES, printed_accuracy
from reports.core.trained import tasks_by_recipe
from reports.pages.corpora import printed
from suites.support import comparisons

MTSA = "mtsa.fused"
STEPS = {"trec": 80_000, "cr": 1000, "sst5": 120_000, "sick_relatedness": 25_000}


MEAN = (
    "Here less printed, mean over the models, of several forms of one by the most often trained, "
    "then by the program's"
)


def trained(
    model: str,
    recipe: Recipe,
    name: str = "trec",
    mean: float = 0.9,
    vectors: str = "top10k_100d_int8",
    train: int = 320,
    folds: int = 0,
) -> list[dict[str, Any]]:
    """Five runs of two epochs, or one of each fold; their means are 0, 2, 4 ... thousandths up."""
    return [
        comparisons.run(
            model,
            0 if folds else i,
            mean + 0.002 * (i - 2 if not folds else i - (folds - 1) / 2),
            name,
            key=f"{model} {name} {recipe} {vectors} {i}",
            recipe=recipe.as_dict(),
            vectors=vectors,
            examples={"train": train, "dev": 10, "test": 10},
            fold=i if folds else None,
        )
        for i in range(folds or 5)
    ]


def shown(*runs: list[dict[str, Any]]) -> list[printed.Beside]:
    return printed.beside(tasks_by_recipe([one for some in runs for one in some]))


def test_the_recipe_has_its_name_or_that_of_the_nearest_with_what_it_changes() -> None:
    trec = task("trec")
    paper, released = (trec.recipes[name].recipe_for("mtsa") for name in ("paper", "released"))
    recipes = {
        "common": trec.recipe_for("mtsa"),
        "paper": paper,
        "released": released,
        "paper, width=300": replace(paper, width=300),
        "paper, patience=20": replace(paper, patience=20, epochs=100),  # a ceiling is in the steps
        "common, dropout=0.4": replace(trec.recipe, dropout=0.4),
    }
    found = shown(*(trained("mtsa.fused", recipe) for recipe in recipes.values()))
    assert {one.model.recipe for one in found} == set(recipes)
    _, rows = printed.table(found)
    called = {
        name if name.startswith("common") else f"{name}, best over time on the test set"
        for name in recipes
    }
    assert {row["recipe"] for row in rows} == called, "all of them stand in the table"
    heads = task("trec").recipes["paper"].recipe_for("multi_head")
    assert heads.heads != paper.heads
    assert [b.model.recipe for b in shown(trained("multi_head.sdpa", heads))] == ["paper"], (
        "of each model the row of its own"
    )


def test_the_gap_and_what_is_known_to_differ_come_from_records_and_paper() -> None:
    trec = task("trec")
    (one,) = shown(trained("mtsa.fused", trec.recipe))
    assert one.printed.text == "95.3 (0.3)"
    assert one.gap == pytest.approx(90 - 95.3)
    assert one.known == {
        "vectors": (100, 300),
        "width": (300, 600),
        "steps": (20, 80_000),  # ten steps of 32 an epoch
        "examples": (320, 330),  # a dev split is held out here alone
        "choose": ("dev", "best-on-test"),
        "heads": (6, 2),
        "optimiser": ("adamw 0.001", "adadelta 0.5"),
    }
    _, (row,) = printed.table([one])
    values = [90 + 0.2 * (i - 2) for i in range(5)]
    low, high = stats.t.interval(0.95, 4, np.mean(values), stats.sem(values))
    assert row == {
        "": "trec (%): mtsa.fused",
        "recipe": "common",
        "paper": "MTSA, Table 5",
        "printed": "95.3 (0.3)",
        "here [95 %]": f"90.00 [{low:.2f}, {high:.2f}]",
        "unseen": "",
        "gap": "-5.3",
        printed.BY_DEV: "",
        "over": "5 seeds",
        "known to differ": (
            "vectors 100-d / 300-d; width 300 / 600; steps 20 / 80,000; examples 320 / 330; epoch "
            "by dev / the test set; heads 6 / 2; optimiser adamw 0.001 / "
            "adadelta 0.5"
        ),
    }
    paper = replace(trec.recipes["paper"].recipe_for("mtsa"), batch=1)
    # One example a step: 80,200 in two epochs, which is within a part of an epoch.
    alike = trained("mtsa.fused", paper, vectors="glove.6B.300d.txt", train=40_100)
    assert shown(alike)[0].known == {"examples": (40_100, 40_110), "batch": (1, 32)}


def test_an_optimiser_of_which_no_rate_is_printed_is_known_by_its_name() -> None:
    name, common = "transformer.sdpa", task("sst5").recipe
    for optimiser, known in (("adam", False), ("adamw", True)):
        (one,) = shown(trained(name, replace(common, optimiser=optimiser), "sst5"))
        assert ("optimiser" in one.known) == known
        assert one.known["layers"] == (2, 3)


def test_of_folds_the_interval_has_the_corrected_variance() -> None:
    common = task("cr").recipe
    (one,) = shown(trained("bi_lstm.packed", common, "cr", folds=10))
    values = [0.9 + 0.002 * (i - 4.5) for i in range(10)]
    half = stats.t.ppf(0.975, 9) * np.std(values, ddof=1) * math.sqrt(1 / 10 + 1 / 9)
    assert one.model.interval == pytest.approx((0.9, 0.9 - half, 0.9 + half))
    assert math.isnan(fold_interval([0.9], 10).low)


def test_more_phrases_and_fewer_steps_are_told_of_sst() -> None:
    (one,) = shown(trained("disa.chunked", task("sst5").recipe, "sst5", 0.42, train=8544))
    assert one.known["examples"] == (8544, 159_274)
    assert one.known["batch"] == (32, 128), "the paper's recipe is that of the phrases"
    assert one.known["steps"][1] == STEPS["sst5"]
    assert one.gap == pytest.approx(42 - 51.0)


def test_every_row_and_column_that_is_declared_is_printed() -> None:
    for table in ACCURACIES:
        content = load(table.paper)[table.table]
        for row in table.rows.values():
            assert any(table.printed(row, column) for column in table.columns.values())
        for (name, _), column in table.columns.items():
            steps = content.get("setup", {}).get("steps")
            told = steps.get(column) if isinstance(steps, dict) else steps
            assert table.paper not in ("mtsa", "resan") or told == STEPS.get(name, told)
    related = trained(
        "multi_head.sdpa", task("sick_relatedness").recipe, "sick_relatedness", 0.8, "840B_300d"
    )
    (sick,) = shown([{**one, "test": {"pearson": 0.8}} for one in related])
    assert "vectors of GloVe 840B / 6B; width 300 / 600" in sick.known_text
    assert "tokens" not in shown(trained(MTSA, task("trec").recipe))[0].known, "its name tells none"
    resan = printed_accuracy("sick_relatedness", "pearson", "hrchy_cnn")
    assert (resan.text, resan.setup["width"]) == ("0.8436 (0.0014)", 300)
    transformer = printed_accuracy("sst5", "accuracy", "transformer")
    assert (transformer.place, transformer.text) == ("Multi-Scale, Table 2", "50.4")
    assert printed_accuracy("sick_relatedness", "pearson", "mtsa") is None
    assert printed_accuracy("mirrored_summation", "mse", "mtsa") is None
    average = printed_accuracy("mtl16", "accuracy", "bi_lstm")
    assert (average.text, average.note) == ("84.01", " (its 16 numbers average 84.245)")
    assert printed_accuracy("mtl16", "accuracy", "transformer").note == ""


def test_a_transformers_own_width_and_heads_are_compared() -> None:
    """What gives two vectors side by side is half as wide as what it gives."""
    recipe = task("sst5").recipe
    (one,) = shown(trained("multi_scale_transformer.windowed", recipe, "sst5", 0.42))
    assert one.known["width"] == (recipe.width // 2, 300)
    assert one.known["heads"] == (recipe.heads, 10)
    (lstm,) = shown(trained("bi_lstm.packed", task("trec").recipe, "trec", 0.9))
    assert "heads" not in lstm.known


def test_the_figure_has_what_is_printed_beside_what_was_reached() -> None:
    trec = task("trec")
    paper = trec.recipes["paper"].recipe_for("mtsa")
    mine, other = trained("mtsa.fused", trec.recipe), trained("multi_head.sdpa", trec.recipe)
    found = shown(mine, other, trained("mtsa.fused", paper, mean=0.95))
    drawn = data_of(printed.figure(found))
    at_point = drawn[drawn["kind"] == "point"].set_index("series")["x"]
    assert at_point["trec: mtsa"] == pytest.approx(90)
    assert at_point["trec: mtsa, paper"] == pytest.approx(95)
    assert at_point["trec: mtsa: printed"] == at_point["trec: mtsa, paper: printed"] == 95.3
    models = {b.model.model: b.model for b in found if b.model.recipe == "common"}
    apart = printed.difference(models["mtsa.fused"], models["multi_head.sdpa"])
    assert apart == pytest.approx(95.3 - 93.4)
    (none,) = tasks_by_recipe(trained("none.fused", trec.recipe))[0][0].models
    assert math.isnan(printed.difference(none, models["multi_head.sdpa"]))


def test_where_the_test_set_chose_it_is_told_what_dev_would_have() -> None:
    recipe = replace(task("trec").recipe, choose="best-on-test")
    dev, test = (0.7, 0.9, 0.9), (0.95, 0.8, 0.85)
    epochs = [
        {"dev": {"accuracy": d}, "test": {"accuracy": t}} for d, t in zip(dev, test, strict=True)
    ]
    runs = [{**run, "epochs": epochs} for run in trained("mtsa.fused", recipe)]
    _, (row,) = printed.table(shown(runs))
    assert row[printed.BY_DEV] == "80.00", "the first of equals, as training has it"
    lost = [{**run, "epochs": [{"dev": {"accuracy": 0.7}}]} for run in runs]
    by_dev = [{**run, "recipe": task("trec").recipe.as_dict()} for run in runs]
    for others in (lost, by_dev):
        _, (row,) = printed.table(shown(others))
        assert row[printed.BY_DEV] == ""


def test_what_was_trained_again_to_the_digit_is_one_row_that_names_both_places() -> None:
    many = shown(trained(MTSA, task("trec").recipe))
    few = shown(trained(MTSA, task("trec").recipe)[:3])
    other = shown(trained(MTSA, task("trec").recipe, mean=0.5))
    every = ((few, "1"), (many, "2"), (other, "3"), (few, "2"), (few, "1"), (few, "4"))
    of = [replace(b, where=where) for some, where in every for b in some]
    first, second = printed.told_once(of)
    assert (len(first.model.runs), first.where) == (len(many[0].model.runs), "2; again 1; again 4")
    assert second.where == "3", "other results"


def test_rows_of_a_papers_recipe_are_compared_with_each_other() -> None:
    paper = task("trec").recipes["paper"]
    rows = {model: paper.recipe_for(model.partition(".")[0]) for model in (MTSA, "multi_head.sdpa")}
    assert rows[MTSA].heads != rows["multi_head.sdpa"].heads
    whole = [one for model, row in rows.items() for one in trained(model, row)]
    patient = [
        {**one, "key": f"{one['key']} patient"}
        for model, row in rows.items()
        for one in trained(model, replace(row, patience=20))
    ]
    common = trained(MTSA, task("trec").recipe)
    (recipes,) = tasks_by_recipe([*whole, *patient, *common])
    found = [{(m.model, m.recipe) for m in one.models} for one in recipes]
    for name in ("paper", "paper, patience=20"):
        assert {(model, name) for model in rows} in found
    assert {(MTSA, "common")} in found


def test_the_mean_gap_counts_a_model_once_for_each_recipe() -> None:
    trec = task("trec")
    older = trained("mtsa.fused", replace(trec.recipe, epochs=99), mean=0.5)
    other = trained("multi_head.sdpa", trec.recipe, mean=0.934)
    said = printed.gaps(shown(trained("mtsa.fused", trec.recipe, mean=0.933), other, older))
    assert said == f"{MEAN}: trec -1.0 points (common; 2 models, -2.0 to -0.0)."
    ours = trained("mtsa_released.fused", trec.recipe, mean=0.943)
    text = trained("mtsa.fused", trec.recipe, mean=0.5)
    assert printed.gaps(shown(text, ours)) == f"{MEAN}: trec -1.0 points (common; 1 model)."


def test_of_two_rows_of_one_name_it_is_told_of_which_days_code_they_are() -> None:
    """Older records have less of the recipe in them, which is told as the same."""
    old, new = (
        [
            {**r, "at": f"2026-01-0{day}T01:00"}
            for r in trained(MTSA, task("trec").recipe, mean=mean)
        ]
        for day, mean in ((1, 0.92), (2, 0.91))
    )
    for r in old:
        r["recipe"] = {k: value for k, value in r["recipe"].items() if k != "degree_loss"}
    _, rows = printed.table(shown(old, new))
    assert sorted(row["over"] for row in rows) == [
        "5 seeds, code of 2026-01-01",
        "5 seeds, code of 2026-01-02",
    ]
    (alone,) = printed.table(shown(old))[1]
    assert alone["over"] == "5 seeds"


def test_of_equal_names_that_of_most_replicates_counts() -> None:
    recipe = task("trec").recipe
    few = trained(MTSA, replace(recipe, epochs=99), mean=0.5)[:3]
    found = shown(trained(MTSA, recipe, mean=0.943))
    for both in ([*shown(few), *found], [*found, *shown(few)]):
        assert printed.gaps(both).endswith("trec -1.0 points (common; 1 model).")
        drawn = data_of(printed.figure(both))
        points = drawn[(drawn["kind"] == "point") & (drawn["series"] == "trec: mtsa")]
        assert list(points["x"]) == pytest.approx([94.3])


def test_texts_without_a_key_are_a_cause_and_their_gap_is_not_the_others() -> None:
    recipe = task("mpqa").recipe

    def of(model: str, mean: float) -> list[dict[str, Any]]:
        return trained(model, recipe, "mpqa", mean, folds=10)

    found = shown(of(MTSA, 0.788), of("mtsa_released.fused", 0.885), of("multi_head.sdpa", 0.868))
    flat, rows = printed.table(found)
    cause = "31.9 % of the texts are one word: no key under strict masks; "
    assert [row["known to differ"].startswith(cause) for row in rows] == [True, False, False]
    assert [row.get("texts_without_key") for row in flat] == [3381 / 10603, None, None]
    assert printed.gaps(found) == (
        f"{MEAN}: mpqa -2.5 points (common; 2 models, -3.0 to -2.0). Left out, "
        "as texts of one word have no key under strict masks: mtsa.fused on mpqa (common)."
    )
    assert printed.gaps(shown(of(MTSA, 0.788))).startswith("Left out")
