"""Recipes tried for the common one: what is counted, how it is judged, what the page says."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from scipy.stats import ttest_rel
from statsmodels.stats.power import TTestPower

from harness.experiments.conclusion import conclude
from harness.experiments.sweep import Part, read_file
from harness.records import journal
from harness.records.schema import digest
from harness.train.recipe import CEILINGS, changed, identity, parse_settings
from harness.train.recipes import ABLATIONS, EARLIER, LATER
from harness.train.task import task
from reports.core.page import Output
from reports.core.source import find
from reports.pages.comparison.page import Compared
from reports.pages.corpora import edges, trials, tuning
from reports.pages.corpora.page import Corpora
from suites.support import comparisons
from suites.support.command_line import ROOT
from suites.support.report_records import fingerprint, write

PUBLISHED = "reports/published/cpu/tuning"
MECHANISMS = ("none", "multi_head", "mtsa", "disa", "bi_lstm", "msmsa")
BASE = dict(zip(MECHANISMS, (0.80, 0.90, 0.91, 0.92, 0.90, 0.89), strict=True))
UP = dict(zip(MECHANISMS, (0.010, 0.012, 0.011, 0.009, 0.010, 0.008), strict=True))
NOISE = dict(zip(MECHANISMS, (0.010, -0.012, 0.011, -0.009, 0.010, -0.008), strict=True))


def run(
    mechanism: str, dev: float, name: str = "trec", seed: int = 100, **recipe: Any
) -> dict[str, Any]:
    """A run whose dev metric at the chosen epoch, the second of three, is `dev`."""
    metric = task(name).metrics[0]
    epochs = [{"epoch": e, "seconds": 1.0, "dev": {metric: dev - abs(e - 2)}} for e in (1, 2, 3)]
    return comparisons.run(
        f"{mechanism}.fused",
        seed,
        0.123,
        name,
        key=f"{mechanism} {seed} {recipe}",
        recipe={**task(name).recipe.as_dict(), "tuning_trials": 0, **recipe},
        epochs=epochs,
        fingerprint=digest(fingerprint("Made up")),
    )


def runs(changed: Mapping[str, float], seed: int = 100, **recipe: Any) -> list[dict[str, Any]]:
    return [run(m, BASE[m] + changed.get(m, 0.0), seed=seed, **recipe) for m in MECHANISMS]


def the_only(records: list[dict[str, Any]]) -> trials.Tried:
    (one,), left = trials.tried(records)
    assert left == []
    return one


def test_recipes_are_paired_by_mechanism_and_judged_by_the_dev_split() -> None:
    one = the_only([*runs({}), *runs(UP, rate=2e-3), *runs(NOISE, dropout=0.4)])
    assert one.budgets == dict.fromkeys(MECHANISMS, 3)
    assert one.recipes == ["common recipe", "dropout=0.4", "rate=0.002"]
    assert one.scores("rate=0.002")["mtsa"] == {100: pytest.approx(0.921)}
    noise, up = tuning.judged(one)
    assert (noise.recipe, up.recipe) == ("dropout=0.4", "rate=0.002")
    oracle = ttest_rel([BASE[m] + UP[m] for m in MECHANISMS], [BASE[m] for m in MECHANISMS])
    assert up.difference.p == pytest.approx(oracle.pvalue)
    assert up.adjusted_p == pytest.approx(2 * oracle.pvalue)
    assert (noise.verdict, up.verdict) == ("undecided", "better")
    assert tuning.sentence(one, [noise, up]).endswith(
        "Better than the common recipe, over the mechanisms: rate=0.002. The common recipe is not "
        "yet that."
    )
    (said,) = edges.to_follow(one, ["mtsa"])
    assert said.startswith("trec: rate=0.002 in the place of the common recipe's gave +1.00 [")
    assert "over 6 mechanisms (p Holm 2.4e-05), +1.10 with mtsa: by the rule of" in said
    assert tuning.sentence(one, [noise]).endswith("the common recipe stays.")
    assert "6 mechanisms, 3 recipes each" in tuning.sentence(one, [noise])


def test_a_lower_error_is_better() -> None:
    name = "mirrored_summation"
    common = [run(m, BASE[m], name) for m in MECHANISMS]
    other = [run(m, BASE[m] + UP[m], name, rate=1.0) for m in MECHANISMS]
    assert [j.verdict for j in tuning.judged(the_only([*common, *other]))] == ["worse"]


def test_only_seeds_that_both_recipes_have_are_paired() -> None:
    more = runs(dict.fromkeys(MECHANISMS, 0.5), seed=101)
    one = the_only([*runs({}), *more, *runs(UP, rate=2e-3)])
    [up] = tuning.judged(one)
    assert up.singles == pytest.approx(UP)
    assert "(seed 100, 101)" in tuning.sentence(one, [up])


def test_the_newest_finished_run_counts_and_other_data_are_another_question() -> None:
    again = [{**r, "at": "2026-01-03"} for r in runs(UP, rate=2e-3)]
    failed = [{**r, "at": "2026-01-04", "status": "crash"} for r in runs({}, rate=2e-3)]
    one = the_only([*again, *runs({}), *runs({}, rate=2e-3), *failed])
    found = tuning.judged(one)
    assert found[0].singles == pytest.approx(UP)
    assert "Without a score" not in tuning.sentence(one, found)
    several, _ = trials.tried([*runs({}), *({**r, "data": "other"} for r in runs(UP, rate=2e-3))])
    assert [len(t.recipes) for t in several] == [1, 1]


def test_trials_against_a_former_common_recipe_stay_what_they_were() -> None:
    """Of today's and the former ones, that which most mechanisms were tried by is the base."""
    sick = task("sick_relatedness")
    assert [r.dropout for r in (*sick.former, sick.recipe)] == [0.3, 0.1, 0.05]
    then = [run(m, BASE[m], sick.name, dropout=0.3) for m in MECHANISMS]
    now = [run(m, BASE[m] + UP[m], sick.name) for m in MECHANISMS[1:]]
    (one,), _ = trials.tried([*then, *now])
    assert one.recipes == ["common recipe", "dropout=0.05"]
    assert one.former == "dropout=0.3"
    (judged,) = tuning.judged(one)
    assert judged.difference.difference == pytest.approx(0.01)
    assert tuning.sentence(one, [judged]).endswith("dropout=0.05 is the common recipe now.")
    (one,), _ = trials.tried([*then[1:], *now])  # as many: today's was tried against the former
    assert one.recipes == ["common recipe", "dropout=0.05"]
    assert one.former == "dropout=0.3"
    between = [run(m, BASE[m], sick.name, dropout=0.1) for m in MECHANISMS[1:]]
    (one,), _ = trials.tried([*then[1:], *now, *between])  # of two the one that it has replaced
    assert one.former == "dropout=0.1"
    besides = [run(m, BASE[m], sick.name, dropout=0.3, rate=2e-3) for m in MECHANISMS[1:]]
    (one,), left = trials.tried([*then[1:], *now, *besides])  # as many, but more against that one
    assert one.recipes == ["common recipe", "dropout=0.05", "rate=0.002"]
    assert (one.former, left) == ("dropout=0.3", [])
    failed = [{**r, "status": "timeout"} for r in now]
    (one,), _ = trials.tried([*then[2:], *failed])  # what has no score is no base
    assert one.former == "dropout=0.3"


def test_trials_against_another_common_recipe_have_a_table_of_their_own() -> None:
    sick = task("sick_relatedness")
    then = [run(m, BASE[m], sick.name, dropout=0.3) for m in MECHANISMS]
    worse = [run(m, BASE[m] - UP[m], sick.name, dropout=0.3, rate=2e-3) for m in MECHANISMS]
    later = [run(m, BASE[m] + UP[m], sick.name, rate=2e-3) for m in MECHANISMS]
    (one, another), left = trials.tried([*then, *worse, *later])
    assert one.recipes == ["common recipe", "rate=0.002"]
    assert (another.former, another.recipes, left) == ("", ["rate=0.002"], [])
    assert tuning.judged(another) == [], "nothing to compare it with"
    assert set(one.budgets.values()) == set(another.budgets.values()) == {3}
    found = tuning.judged(one)
    assert [j.verdict for j in found] == ["worse"]
    said = tuning.sentence(one, found)
    assert said.endswith("better than the former common recipe (dropout=0.3) over the mechanisms.")
    assert next(iter(tuning.cells(one, found)[0].values())).startswith(
        "former common recipe (dropout=0.3): "
    )
    today = [run(m, BASE[m] + UP[m], sick.name) for m in MECHANISMS]
    (one, another), _ = trials.tried([*then, *worse, *later, *today])
    assert one.recipes == ["common recipe", "dropout=0.05", "rate=0.002"]
    assert (another.recipes, another.former) == (["common recipe", "rate=0.002"], "")
    assert tuning.judged(another)[0].singles == pytest.approx(dict.fromkeys(MECHANISMS, 0.0))
    told = edges.of_tuning([one, another])
    edge = "sick_relatedness: dropout 0.05 is the smallest that was tried (0.05, 0.3)"
    assert len(told) == len(set(told))
    assert [line.startswith(edge) for line in told].count(True) == 1, "of both tables once"
    (one,), _ = trials.tried([*then, *worse, *today])
    (said,) = edges.replaced(one, {**sick.recipe.as_dict(), "dropout": 0.3, "epochs": 7})
    no_more = "sick_relatedness: dropout=0.3 is the common recipe no more: dropout="
    assert said.startswith(f"{no_more}0.05 in its place gave +0.0100 [")
    assert edges.replaced(one, sick.recipe.as_dict()) == []
    between = [run(m, BASE[m] + UP[m], sick.name, dropout=0.1) for m in MECHANISMS]
    (one,), _ = trials.tried([*then, *worse, *between])
    (said,) = edges.replaced(one, {**sick.recipe.as_dict(), "dropout": 0.3})
    assert said.startswith(f"{no_more}0.1 in its place gave"), "that was replaced since itself"
    luck = [run(m, BASE[m] + NOISE[m], sick.name) for m in MECHANISMS]
    (one,), _ = trials.tried([*then, *worse, *luck])
    assert edges.replaced(one, {**sick.recipe.as_dict(), "dropout": 0.3}) == [], "not shown"


def test_what_has_no_score_is_told_and_counts_as_a_trial() -> None:
    lost = [
        {**r, "status": "diverged"} if r["model"] == "disa.fused" else r
        for r in runs(UP, rate=2e-3)
    ]
    one = the_only([*runs({}), *lost, run("mtsa", 0.9, dropout=0.4)])
    assert one.budgets == {**dict.fromkeys(MECHANISMS, 2), "mtsa": 3}
    said = tuning.sentence(one, tuning.judged(one))
    assert said.endswith("Without a score: disa by rate=0.002 (diverged).")
    assert "2 recipes (none, multi_head, disa, bi_lstm, msmsa), 3 recipes (mtsa)" in said
    assert "Not run with none, multi_head, disa, bi_lstm, msmsa: dropout=0.4." in said
    assert set(tuning.judged(one)[0].singles) == set(MECHANISMS) - {"disa"}


def test_a_recipe_is_judged_over_the_mechanisms_that_ran_it_and_the_others_are_told() -> None:
    some = [r for r in runs(UP, rate=2e-3) if r["model"] != "mtsa.fused"]
    one = the_only([*runs({}), *some, *runs(NOISE, dropout=0.4)])
    noise, up = tuning.judged(one)
    assert set(noise.singles) == set(MECHANISMS)
    assert set(up.singles) == set(MECHANISMS) - {"mtsa"}
    said = tuning.sentence(one, [noise, up])
    assert "Not run with mtsa: rate=0.002." in said
    assert "Better than the common recipe, over the mechanisms: rate=0.002." in said
    *_, row = tuning.cells(one, [noise, up])
    assert "rate=0.002" in row.values()
    assert row["mtsa"] == ""


def test_what_a_task_counts_and_nothing_here_records_is_told() -> None:
    declared = task("trec").tuned
    assert declared["mtsa"] > 2
    said = tuning.sentence(one := the_only([*runs({}), *runs(UP, rate=2e-3)]), tuning.judged(one))
    assert "6 mechanisms, 2 recipes each; " in said
    assert f"{declared['mtsa']} recipes" in said.partition("with those that have no record")[0]
    more = [runs({}, dropout=0.01 * i) for i in range(1, max(declared.values()))]
    whole = the_only([*runs({}), *(r for some in more for r in some)])
    assert f"6 mechanisms, {max(declared.values())} recipes each, by" in tuning.sentence(whole, [])


@pytest.mark.parametrize("count", [0, 2, 4])
def test_with_few_mechanisms_or_recipes_nothing_is_concluded(count: int) -> None:
    both = (runs({})[: count or None], runs(NOISE, rate=2e-3)[:count])
    one = the_only([*both[0], *both[1]])
    said = tuning.sentence(one, tuning.judged(one))
    assert said.endswith("Too little to judge a recipe by.")
    _, *rows = tuning.cells(one, tuning.judged(one))
    assert [row["p (Holm), verdict"] for row in rows] == (["descriptive only"] if count else [])


@pytest.mark.parametrize(
    ("more", "says"),
    [
        ({"task": "of another version"}, "unknown task 'of another version'"),
        ({"task": None}, "names no task or recipe"),
        ({"recipe": None}, "names no task or recipe"),
        ({"chosen_epoch": 9}, "has no accuracy of the dev split"),
        ({"epochs": [{"epoch": 2, "dev": {"accuracy": float("nan")}}]}, "has no accuracy"),
        ({"model": "mtsa.fused[scale_t=identity]"}, "mtsa[scale_t=identity]: variants of what was"),
    ],
)
def test_an_odd_record_is_left_out_and_told(more: dict[str, Any], says: str) -> None:
    found, left = trials.tried([*runs({}), {**run("mtsa", 0.5, rate=2e-3), **more}])
    assert [one.recipes for one in found] == [["common recipe"]]
    assert len(left) == 1
    assert says in left[0]


def test_a_variant_stands_for_a_mechanism_that_was_not_tried_itself() -> None:
    both = [run(m, 0.5, rate=r) for m in ("mtsa", "disa") for r in (1e-3, 2e-3)]
    model = "disa.fused[scale=identity]"
    found, left = trials.tried([{**r, "model": model} if "disa" in r["model"] else r for r in both])
    assert not left
    assert found[0].mechanisms == ["mtsa", "disa[scale=identity]"]
    assert set(found[0].budgets.values()) == {2}


def test_a_variant_with_recipes_of_its_own_stands_beside_its_mechanism() -> None:
    both = [run("mtsa", 0.5, rate=r) for r in (1e-3, 2e-3)]
    form = [{**r, "model": "mtsa.fused[scale_t=identity]"} for r in both]
    (one,), left = trials.tried([*both, *form])
    assert (one.budgets, left) == ({"mtsa": 2, "mtsa[scale_t=identity]": 2}, [])


def test_a_recipe_that_was_tried_on_two_machines_counts_once_by_holm() -> None:
    some = [*runs({}), *runs(UP, rate=2e-3), *runs(NOISE, dropout=0.4)]
    there = [{**r, "fingerprint": "other"} for r in some if "bi_lstm" not in r["model"]]
    more = [{**r, "fingerprint": "other"} for r in runs(UP, rate=3e-3)]
    here, other = (tuning.judged(one) for one in trials.tried([*some, *there, *more])[0])
    assert [j.recipe for j in other] == ["dropout=0.4", "rate=0.002", "rate=0.003"]
    (up,) = (j for j in here if j.recipe == "rate=0.002")
    assert up.adjusted_p == pytest.approx(3 * up.difference.p, rel=1e-6), "of three recipes"


def test_the_table_and_the_figure_are_in_the_metrics_unit() -> None:
    one = the_only([*runs({}), *runs(UP, rate=2e-3)])
    common, other = tuning.cells(one, tuning.judged(one))
    head, mean, verdict, *mechanisms = common
    assert (head, mechanisms) == ("trec: less the common recipe, points", list(MECHANISMS))
    assert list(common.values())[:4] == ["common recipe: accuracy (%)", "", "", "80.00"]
    assert (other[head], other[mechanisms[0]]) == ("rate=0.002", "+1.00")
    assert other[mean].startswith("+1.00 [+0.8")
    assert other[verdict].endswith(", better")
    [line] = tuning.lines(one, tuning.judged(one))
    assert line.value == pytest.approx(1.0)
    assert line.low < line.value < line.high
    assert sorted(line.singles) == pytest.approx(sorted(100 * d for d in UP.values()))
    assert line.decided
    luck = the_only([*runs({}), *runs(NOISE, rate=2e-3)])
    _, open_ = tuning.cells(luck, tuning.judged(luck))
    effect = TTestPower().solve_power(nobs=len(MECHANISMS), alpha=0.05, power=0.8)
    least = 100 * effect * statistics.stdev(NOISE.values())
    assert open_[verdict].endswith(f", undecided (detectable {least:.2f})")


def test_a_chosen_value_at_the_edge_of_what_was_tried_is_told() -> None:
    usual = task("trec").recipe
    some = [*runs({}), *runs(NOISE, dropout=0.1), *runs(NOISE, rate=5e-4), *runs(NOISE, rate=2e-3)]
    assert edges.at_edges(the_only(some), usual.as_dict()) == [
        "trec: dropout 0.2 is the largest that was tried (0.1, 0.2): a larger one may be better"
    ]
    inside = the_only([*some, *runs(NOISE, dropout=0.4)])
    assert edges.at_edges(inside, usual.as_dict()) == []
    other = {**usual.as_dict(), "rate": 5e-4, "choose": "best-on-test", "dropout": None}
    assert edges.at_edges(inside, other) == [
        "trec: rate 0.0005 is the smallest that was tried (0.0005, 0.001, 0.002): a smaller one "
        "may be better"
    ]
    assert edges.at_edges(inside, {"rate": 1.0})[0].startswith("trec: rate 1 is the largest")
    zero = the_only([*runs({}), *runs(NOISE, weight_decay=0.0)])
    assert edges.at_edges(zero, {"weight_decay": 0.0}) == [], "below zero there is nothing"
    more = the_only([*runs({}), *runs(NOISE, epochs=usual.epochs + 1)])
    assert edges.of_tuning([more]) == [], "a ceiling of epochs is nothing that was tried"


def test_whom_the_common_recipe_suits_least_is_told() -> None:
    """A baseline that any other recipe makes better is a weak one."""
    first, *others = MECHANISMS
    up = {first: 0.01, **dict.fromkeys(others, -0.01)}
    some = [*runs({}), *runs(up, dropout=0.1), *runs(up, rate=5e-4)]
    assert edges.worst_for(the_only(some)) == [], "of few that says nothing"
    worst = (
        f"trec: the common recipe is the worst of 4 on the dev split, by 1 seed, with {first}, so"
    )
    (said,) = edges.worst_for(the_only([*some, *runs(up, rate=2e-3)]))
    assert said == f"{worst} that others gain by it"
    luck = [{**one, "fingerprint": "other"} for one in runs({first: 0.03})]
    (here, _), _ = trials.tried([*some, *runs(up, rate=2e-3), *luck])
    (said,) = edges.worst_for(here)
    assert said.endswith(
        "; the same recipe and seed ended up to 3.00 points apart when it was tried again"
    )
    assert edges.worst_for(the_only([*some, *runs({}, rate=2e-3)])) == []


def test_a_best_value_at_the_edge_is_told_though_it_was_not_chosen() -> None:
    grid = [*runs({}), *runs(NOISE, dropout=0.1)]
    (said,) = edges.best_at_edges(the_only([*grid, *runs(UP, dropout=0.4)]))
    own = sum(UP[m] > NOISE[m] for m in MECHANISMS)
    assert said == (
        f"trec: dropout 0.4, the best on the dev split over the mechanisms (by itself of {own} of "
        "6), is the largest that was tried (0.1, 0.2, 0.4): a larger one may be better"
    )
    down = {m: -gain for m, gain in UP.items()}
    both = [*runs({}), *runs(down, dropout=0.1), *runs(down, dropout=0.4)]
    assert edges.best_at_edges(the_only(both)) == [], "the common one is the best"
    inside = the_only([*grid, *runs(UP, dropout=0.3), *runs(NOISE, dropout=0.4)])
    assert edges.best_at_edges(inside) == []
    mixed = the_only([*both, *runs(UP, dropout=0.4, rate=2e-3)])
    assert edges.best_at_edges(mixed) == [], "which of both made it better is not known"


def test_unequal_numbers_of_trials_are_a_warning() -> None:
    assert edges.unequal_trials(the_only([*runs({}), *runs(UP, rate=2e-3)])) == []
    some = the_only([*runs({}), *(r for r in runs(UP, rate=2e-3) if r["model"] != "mtsa.fused")])
    counts = ", ".join(f"{m} {1 if m == 'mtsa' else 2}" for m in MECHANISMS)
    assert edges.unequal_trials(some) == [
        f"trec: 10 recipes were tried with each mechanism, fewer are recorded of {counts}"
    ]
    untold = replace(some, task=replace(some.task, tuned={}))
    assert edges.unequal_trials(untold) == [
        "trec: unequal numbers of trials, 1 to 2 recipes; fewer with mtsa"
    ]
    there = [{**one, "fingerprint": "other"} for one in runs(UP, rate=2e-3)]
    every = [*runs({}), *(r for r in runs(UP, rate=2e-3) if r["model"] != "mtsa.fused"), *there]
    assert [edges.unequal_trials(one) for one in trials.tried(every)[0]] == [[], []], "anywhere"


def test_ablations_are_described_by_themselves(tmp_path: Path) -> None:
    """In the mean over the mechanisms they would count one model several times."""
    whole = [*runs({}), *runs(UP, rate=2e-3)]
    common = {m: 0.9 + 0.001 * i for i, m in enumerate(ABLATIONS)}
    less = {m: dev - 0.01 - 0.0001 * i for i, (m, dev) in enumerate(common.items())}

    def ablated(rate: float, devs: Mapping[str, float]) -> list[dict[str, Any]]:
        some = [run(m, dev, rate=rate) for m, dev in devs.items()]
        return [{**r, "model": with_backend(m)} for r, m in zip(some, devs, strict=True)]

    parts = [*ablated(1e-3, common), *ablated(2e-3, less)]
    (first, second), left = trials.tried([*whole, *parts])
    assert (left, first, second.others) == ([], the_only(whole), ())
    assert (second.title, second.mechanisms) == ("trec, ablations", [*ABLATIONS])
    found = tuning.judged(second)
    # Three of the six are one model's: no spread of them is that of models.
    assert [(len(j.singles), j.verdict) for j in found] == [(6, "descriptive only")]
    assert tuning.sentence(second, found) == (
        "trec, ablations: 6 ablations, 2 recipes each; 10 recipes each with those that have no "
        "record here, by accuracy on the dev split (seed 100). They are described only, and "
        "trained as their whole models are."
    )
    assert [row["p (Holm), verdict"] for row in tuning.cells(second, found)[1:]] == [
        "descriptive only"
    ]
    shown = tuning.section([first, second], Output(tmp_path, "p"))
    assert "trec, ablations: less the common recipe" in shown.plain
    assert len(list((tmp_path / "figures").glob("*.svg"))) == 2, "each has its own"
    gains = [ablated(rate, common) for rate in (5e-4, 2e-3, 3e-3)]
    better = the_only([*ablated(1e-3, less), *(r for some in gains for r in some)])
    assert edges.to_follow(better) == []

    def asked(*models: str) -> str:
        pair = comparisons.design(1, models=[*models])
        pair["runs"] = [[f"{m} trec 0" for m in models]]
        trained = [comparisons.run(m, 0, 0.8, recipe=task("trec").recipe.as_dict()) for m in models]
        return " ".join(edges.of_conclusion(conclude(pair, trained), [better]))

    assert asked("mtsa_released.fused", "multi_head.sdpa") == "", "of whole models"
    said = asked("mtsa_released.fused[token2token=false]", "mtsa_released.fused")
    assert "with mtsa_released[token2token=false], so that others gain" in said, "and of no other"


def with_backend(form: str) -> str:
    """``mtsa.fused[a=b]`` of ``mtsa[a=b]``."""
    name, bracket, options = form.partition("[")
    return f"{name}.fused{bracket}{options}"


def test_the_page_shows_them_where_the_journal_has_them(tmp_path: Path) -> None:
    for folder in (tmp_path, tmp_path / tuning.FOLDER):
        write(folder, "Made up", [*runs({}), *runs(UP, rate=2e-3)])
    report = Corpora.begin(journal=str(tmp_path), device="", out="", page="corpora")
    shown = report.tried()
    assert "trec: rate 0.001 is the smallest that was tried (0.001, 0.002)" in shown.plain
    assert "trec: 6 mechanisms, 2 recipes each" in shown.plain
    assert shown.html.count("<svg") == 1
    assert tuning.tuned(find(str(tmp_path / tuning.FOLDER)), None) == ([], [])
    assert "attnbench sweep plans/tuning.toml" in tuning.section([], Output(None, "p")).plain


def test_the_page_of_a_comparison_warns_of_the_recipe_that_it_used(tmp_path: Path) -> None:
    usual = task("trec").recipe.as_dict()
    both = ["mtsa.fused", "multi_head.fused"]
    declared = comparisons.design(
        1,
        models=both,
        recipes=[usual, {**usual, "rate": 2e-3}],
        runs=[["mtsa 100 {}", "multi_head 100 {}"]],
        fingerprint=digest(fingerprint("Made up")),
    )
    some = [*runs({}), *runs(UP, dropout=0.4), *runs(UP, dropout=0.1), *runs(UP, rate=2e-3)]
    write(tmp_path, "Made up", [declared, *runs({})])
    write(tmp_path / tuning.FOLDER, "Made up", some)
    report = Compared.begin(journal=str(tmp_path), device="", design="", out="", page="p")
    said = report.verdicts().plain
    assert "trec: mtsa.fused: rate 0.001 is the smallest that was tried (0.001, 0.002)" in said
    assert "; multi_head.fused: rate 0.002 is the largest that was tried (0.001, 0.002)" in said
    assert "dropout 0.2" not in said


def test_beside_a_comparison_stands_what_was_tried_on_any_machine_with_its_models() -> None:
    first, *others = MECHANISMS
    up = {first: 0.01, **dict.fromkeys(others, -0.01)}
    some = [*runs({}), *runs(up, dropout=0.1), *runs(up, rate=5e-4), *runs(up, rate=2e-3)]
    down = dict.fromkeys(MECHANISMS, -0.01)
    there = [{**one, "fingerprint": "other"} for one in [*runs({}), *runs(down, dropout=0.4)]]
    every, left = trials.tried([*some, *there])
    assert (len(every), left) == (2, [])
    assert [t.task.name for t in trials.tried([*some, *there], "other")[0]] == ["trec"]
    usual = task("trec").recipe.as_dict()

    def said(model: str, recipe: dict[str, Any]) -> list[str]:
        pair = comparisons.design(1, model=f"{model}.fused", recipes=[recipe] * 2)
        pair["runs"] = [[f"{m} trec 0" for m in pair["models"]]]
        trained = [comparisons.run(m, 0, 0.8, recipe=recipe) for m in pair["models"]]
        return edges.of_conclusion(conclude(pair, trained), every)

    worst = f"trec: the common recipe is the worst of 4 on the dev split, by 1 seed, with {first}, "
    worst += "so that "
    assert said(first, usual) == [f"{worst}others gain by it"], "0.4 was tried, though not here"
    assert said(others[-1], usual) == []
    (edge,) = said(first, {**usual, "dropout": 0.4})
    assert edge.startswith("trec: dropout 0.4 is the largest that was tried (0.1, 0.2, 0.4)")
    assert said(first, {**usual, "optimiser": "adadelta", "rate": 0.5}) == [], "another grid's"
    assert said(first, {**usual, "patience": 99, "width": 600}) == said(first, usual), "not tuned"


def tried_by(recipe: dict[str, Any]) -> str:
    """What was tried by a recipe: a ceiling of its epochs was not."""
    return digest({k: v for k, v in identity(recipe).items() if k not in CEILINGS})


def resolved(part: Part) -> Iterator[tuple[str, str]]:
    """A part's tasks, and its recipe whatever the task's common one is."""
    for one in map(task, part.tasks):
        (settings,) = parse_settings(part.recipe, [["any"]], one.recipes, one.name)
        yield one.name, tried_by(changed(one.recipe, settings).as_dict())


def test_what_is_published_are_the_plans_trials_as_many_of_every_mechanism_as_its_task_counts() -> (
    None
):
    def plan(name: str) -> list[Part]:
        return read_file(ROOT / "plans" / f"{name}.toml")[0]

    every, forms = plan("tuning"), plan("tuning-forms")
    others = ("more", "edges", "ud_ewt", "multi30k", "scales", "parts")
    parts = [*every, *(part for other in others for part in plan(f"tuning-{other}"))]
    assert {part.seeds for part in (*parts, *forms)} == {(100,)}
    assert all(100 not in (part.seeds or ()) for part in plan("cpu")), "a seed of its own"
    assert {frozenset(part.models) for part in every} == {frozenset((*EARLIER, *LATER))}
    published = [dict(r) for r in journal.read(ROOT / PUBLISHED).records]
    made = [r for r in published if r["kind"] == "run" and r["task"] != "wnut17"]
    planned = {one for part in parts for one in resolved(part)}
    assert {(r["task"], tried_by(r["recipe"])) for r in made} == planned
    found, left = trials.tried(published)
    assert left == []
    budgets: dict[str, dict[str, int]] = {}
    for one in found:
        budgets.setdefault(one.task.name, {}).update(one.budgets)
    for name in ("trec", "sick_relatedness", "ud_ewt", "wnut17", "multi30k"):
        assert budgets[name] == task(name).tuned
