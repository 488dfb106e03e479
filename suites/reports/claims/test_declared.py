"""One question has one verdict: a claim of trained models has that of the declared comparison."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.experiments.conclusion import Comparison, conclude
from harness.experiments.examples import ByExamples
from harness.train.task import task
from reports.claims.declared import says_otherwise
from reports.claims.ledger import ledger, score
from reports.claims.verdict import Precedence, Verdict
from reports.core.source import DeviceRecords
from suites.reports.claims.conftest import ABOVE, ASKED, accuracy, devices, judged
from suites.support.comparisons import B, design, family, runs
from suites.support.declared import COMMON, compared, planned
from suites.support.domains import SEEDS, TASKS, averages, reviewed, value
from suites.support.made_up_records import claim

A = "mtsa_released.fused"
OTHERS = ["disa.plain", "bi_lstm.packed", "none.fused", "multi_cnn.conv", "msmsa.windowed"]


def spread(number: int, gain: float = 0) -> np.ndarray:
    drawn = np.random.default_rng(number).normal(size=6)
    return 0.8 + gain + 0.01 * stats.zscore(drawn, ddof=1)


def trained(*models: str, gain: float = 0.008) -> list[dict[str, Any]]:
    found = runs(B, spread(1))
    for number, model in enumerate(models):
        found += runs(model, spread(2 + number, gain if model.startswith("mtsa") else 0.0))
    return found


def test_a_claim_is_judged_in_the_declared_family() -> None:
    """Better by itself, not as one of six: the ledger says so as the comparison does."""
    ours = "mtsa_released.fused"
    alone = design(6, ours)
    records = [alone, *trained(ours)]
    assert conclude(alone, records).comparisons[0].verdict == "better"
    found = accuracy(records)
    assert (found.verdict, found.value) == ("reproduced", pytest.approx(0.8))

    together = family([ours, *OTHERS], ["trec"])
    records = [together, *trained(ours, *OTHERS)]
    (concluded, *_) = conclude(together, records).comparisons
    assert concluded.verdict == "undecided"
    assert concluded.difference.p < 0.05 < (concluded.adjusted_p or 0)
    found = accuracy(records)
    assert found.verdict == "undecided"
    assert concluded.sentence in found.reason
    assert "judged in 6 models against multi_head.sdpa on trec" in found.reason
    assert "with 80 % power a true difference of" in found.reason


@pytest.mark.parametrize("status", ["diverged", "missing"])
def test_of_a_declared_comparison_without_all_its_runs_nothing_else_is_the_answer(
    status: str,
) -> None:
    """Not what the finished ones show by a test that nobody declared."""
    ours = "mtsa_released.fused"
    plan = {"file": "p.toml", "sha256": "p", "void": ["failed runs"], "hours": 9.0}
    declared = {**family([ours, *OTHERS], ["trec"]), "plan": plan}
    records = [declared, *trained(ours, *OTHERS, gain=0.05)]
    assert accuracy(records).verdict == "reproduced"
    lost = next(r for r in records if r.get("model") == ours)
    records.remove(lost)
    if status != "missing":
        records.append({**{k: v for k, v in lost.items() if k != "test"}, "status": status})
    found = accuracy(records)
    assert found.verdict == "undecided"
    assert ("unfinished" if status == "missing" else "not counted: failed runs") in found.reason
    assert "declared in no family" not in found.reason


def test_what_is_practically_equal_is_not_above_zero() -> None:
    """Its own interval may be, which is not corrected for the family."""
    ours, small = "mtsa_released.fused", 0.0012
    records = [family([ours, *OTHERS], ["trec"], margin=0.05), *trained(ours, *OTHERS, gain=small)]
    for r in records:
        if r.get("model") == ours:
            base = float(spread(1)[r["seed"]])
            r["test"] = {"accuracy": base + small + 0.001 * float(spread(9)[r["seed"]] - 0.8) * 100}
    (concluded, *_) = conclude(records[0], records).comparisons
    assert concluded.verdict == "practically equal"
    assert concluded.difference.low > 0
    assert (concluded.adjusted_p or 0) > 0.05
    found = accuracy(records)
    assert found.verdict == "undecided"
    assert found.said == "undecided (practically equal)"


@pytest.mark.parametrize(
    ("known_of", "said"),
    [
        ({"hangs": True}, " (hangs on this test set)"),
        ({"stuck": True}, " (some runs learned nothing)"),
        ({}, ""),
    ],
)
def test_a_verdict_that_hangs_on_its_test_set_or_on_runs_that_learned_nothing_says_so(
    known_of: dict[str, Any], said: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    records = [design(6, A), *trained(A)]
    known = conclude(records[0], records)
    told = ByExamples((), (), 3, 400, "better", None, (), (), None, **known_of)
    again = replace(known, comparisons=(replace(known.comparisons[0], examples=told),))
    monkeypatch.setattr(DeviceRecords, "conclusions", [again])
    assert accuracy(records).said == f"reproduced{said}"
    open_ = replace(known.comparisons[0], examples=told, verdict="undecided")
    again = replace(known, comparisons=(open_,))
    monkeypatch.setattr(DeviceRecords, "conclusions", [again])
    assert accuracy(records).said == "undecided"


@pytest.mark.parametrize(
    ("name", "said"),
    [
        (
            "mpqa",
            "texts of one word have no key under the strict masks of mtsa.fused: all of them,",
        ),
        ("mirrored_summation[k=12]", "neither shows to use order: relative_mse 0.90 and 0.90, by"),
    ],
)
def test_what_leaves_little_to_be_told_apart_stands_in_the_ledger(name: str, said: str) -> None:
    every = [*runs("mtsa.fused", spread(2, 0.05), name), *runs(B, spread(1), name)]
    for one in every:
        one["test"] |= {"relative_mse": 0.9}
    assert f"; {said}" in accuracy([design(6, "mtsa.fused", name), *every], task=name).reason
    other = [design(6, A, "cr"), *runs(A, spread(2), "cr"), *runs(B, spread(1), "cr")]
    assert said not in accuracy(other, task="cr").reason


def test_what_models_learn_is_counted_once_where_it_was_declared_and_costs_everywhere() -> None:
    ours = "mtsa_released.fused"
    declared = [design(6, ours), *trained(ours, gain=0.05)]
    nowhere = [{**r, "key": f"there {r['key']}"} for r in trained(ours, gain=0.06)]
    one = claim("accuracy_difference", parameters=ASKED, tolerance=ABOVE)
    for order in ((declared, nowhere), (nowhere, declared)):
        found = ledger(devices(a=order[0], b=order[1]), claims=[one])
        best = "a" if order[0] is declared else "b"
        assert [v.counted for v in found] == [v.device == best for v in found]
        assert {v.told_on for v in found} == {"", best}
        assert all(v.verdict == "reproduced" for v in found), "each tells what it found"
        assert [*score(found, best)] == ["accuracy"]
        assert score(found, "b" if best == "a" else "a") == {}
    (alone,) = ledger(devices(a=nowhere), claims=[one])
    assert alone.counted


def test_runs_by_cut_word_vectors_answer_no_claim() -> None:
    """They ask for a cause, whether they were declared or not."""
    ours = "mtsa_released.fused"
    cut = [{**r, "vectors": "a&b"} for r in trained(ours, gain=0.05)]
    assert accuracy([design(6, ours), *trained(ours, gain=0.05)]).verdict == "reproduced"
    assert accuracy([design(6, ours), *cut]).wants_records
    assert accuracy(cut).wants_records


def test_what_was_declared_before_its_runs_stands_before_what_was_not() -> None:
    exploratory = {**design(6, "mtsa_released.fused"), "at": "2026-01-03", "session": "late"}
    before = design(6, "mtsa.fused")
    records = [before, *trained("mtsa_released.fused", gain=0.05)]
    records += runs("mtsa.fused", spread(9, -0.05))
    found = accuracy([*records, exploratory])
    assert found.verdict == "not reproduced"
    assert not found.reason.startswith("exploratory")
    without = accuracy([*records[1:], exploratory])
    assert without.verdict == "reproduced"
    assert without.reason.startswith("exploratory")


def test_what_was_trained_alike_stands_before_what_was_not() -> None:
    def steps(each: int) -> dict[str, Any]:
        epochs = [{"epoch": n, "seconds": 2.0, "steps": each} for n in (1, 2)]
        return {"epochs": epochs, "recipe": {"batch": 1}, "examples": {"train": each}}

    records = [design(6, "mtsa_released.fused"), design(6, "mtsa.fused")]
    records += runs(B, spread(1), **steps(100)) + runs("mtsa.fused", spread(2, -0.05), **steps(100))
    alike = runs("mtsa_released.fused", spread(3, 0.05), **steps(100))
    assert accuracy([*records, *alike]).verdict == "reproduced"
    longer = runs("mtsa_released.fused", spread(3, 0.05), **steps(150))
    assert accuracy([*records, *longer]).verdict == "not reproduced"
    alone = accuracy([records[0], *records[2:], *longer])
    assert alone.verdict == "undecided", "what was trained more decides nothing"


def apart(records: list[dict[str, Any]], **more: Any) -> list[dict[str, Any]]:
    """The same with keys of their own."""
    text = json.dumps(records).replace(" trec ", " again trec ")
    return [{**r, **more, "task": "trec"} for r in json.loads(text)]


def test_todays_recipe_stands_before_a_larger_family() -> None:
    """Runs by a recipe that is none of today's, in a family of six, decide nothing beside it."""
    ours = "mtsa_released.fused"
    old = [{**r, "recipe": {"width": 600}} for r in trained(ours, *OTHERS, gain=-0.05)]
    records = [family([ours, *OTHERS], ["trec"]), *old]
    assert accuracy(records).verdict == "not reproduced"
    (own,) = apart([{**design(6, ours), "question": "today's"}])
    for more, said in (({}, ""), ({"patience": 9}, ", patience=9")):
        today = apart(trained(ours), recipe={"width": 300, **more})
        found = accuracy([*records, own, *today])
        assert found.verdict == "reproduced", "patience was never tuned"
        told = f"recipe: common{said}; epoch by dev; judged in mtsa_released.fused and"
        assert told in found.reason
    wide = apart(trained(ours), recipe={"width": 301})
    assert accuracy([*records, own, *wide]).verdict == "not reproduced"


def test_what_was_declared_of_another_form_is_told_beside() -> None:
    """One family has both: the claim has the verdict of the preferred form, and hides no other."""
    both = ["mtsa_released.fused", "mtsa.fused"]
    records = [family(both, ["trec"]), *trained(both[0]), *runs(both[1], spread(9, -0.08))]
    concluded = conclude(records[0], records).comparisons
    assert [c.verdict for c in concluded] == ["better", "worse"]
    found = accuracy(records)
    assert (found.verdict, found.value) == ("reproduced", pytest.approx(0.8))
    told, other = found.reason.split(". In another form: ")
    assert told.startswith(concluded[0].sentence)
    assert other.startswith(concluded[1].sentence)
    assert "difference -8.00 points [" in other
    assert "In another form" not in accuracy(records, first="mtsa_released").reason


@pytest.mark.parametrize("early", [True, False])
def test_what_a_design_file_declared_too_and_says_otherwise_is_told_beside(early: bool) -> None:
    """By another recipe; what was not declared before its runs is not told."""
    whole = {**family([A, *OTHERS], ["trec"]), "plan": planned("six.toml")}
    records = [whole, *({**r, "plan": whole["plan"]["sha256"]} for r in trained(A, *OTHERS))]
    assert "Declared too" not in accuracy(records).reason
    own = {**design(6, A), "question": "paper's", "plan": planned("paper.toml")}
    more = {"recipe": {"width": 600}, "plan": own["plan"]["sha256"] if early else "other"}
    beside = apart([own, *trained(A)])
    beside[1:] = [{**r, **more} for r in beside[1:]]
    found = accuracy([*records, *beside])
    assert found.verdict == "undecided"
    _, _, too = found.reason.partition(". Declared too: ")
    assert too.startswith(f"{A} is better than {B} on trec: ") == early
    assert ("judged in paper.toml" in too) == early


@pytest.mark.parametrize("turned", [True, False])
def test_the_same_two_models_the_other_way_round_say_the_same(turned: bool) -> None:
    """Of a comparison with its sides exchanged the opposite verdict is the same answer."""
    record = design(6, A)
    c = conclude(record, [record, *trained(A)]).comparisons[0]
    other = replace(c, first=c.second, second=c.first, verdict="worse") if turned else c
    rank = Precedence(enough=True, alike=True, early=True, planned=True)
    assert not says_otherwise(rank, other, c)
    assert says_otherwise(rank, replace(other, verdict="undecided"), c)
    assert says_otherwise(rank, replace(other, verdict=c.verdict), c) == turned


def test_by_what_it_was_trained_is_told_as_the_runs_have_it() -> None:
    known = task("trec").recipes["paper"]
    paper = {m: known.recipe_for(m.partition(".")[0]).as_dict() for m in ("mtsa.fused", B)}
    records = [design(6, "mtsa.fused"), *trained("mtsa.fused")]
    assert "; recipe not recorded; judged in" in accuracy(records).reason
    for chosen, said in (("best-on-test", "the test set"), ("dev", "dev")):
        given = {m: {**recipe, "choose": chosen} for m, recipe in paper.items()}
        told = [{**r, "recipe": given[r["model"]]} if r["kind"] == "run" else r for r in records]
        name = "paper" if chosen == "best-on-test" else "paper, choose=dev"
        assert f"; recipe: {name}; epoch by {said}; judged in" in accuracy(told).reason
    tuned = {"mtsa.fused": {"width": 300, "rate": 0.5}, B: {"width": 300}}
    told = [{**r, "recipe": tuned[r["model"]]} if r["kind"] == "run" else r for r in records]
    said = f"; recipe of mtsa.fused: common, rate=0.5; recipe of {B}: common; epoch by dev;"
    assert said in accuracy(told).reason


def test_no_seeds_are_asked_for_where_the_training_was_unlike() -> None:
    known = {"recipe": {"batch": 32, "epochs": 99, "patience": 5}, "examples": {"train": 320}}
    some = [
        {**r, **known, **(LONGER if r["model"] != B else {})}
        for r in trained("mtsa.fused", gain=0.001)
    ]
    found = accuracy(some)
    assert "unequal training: " in found.reason
    assert "(detectable 0.86 points; unlike training)" in found.reason
    assert "seeds needed" not in found.reason


def test_a_weak_baseline_is_told_in_the_ledger() -> None:
    form = "multi_head_released.sdpa"
    pair = [design(6, "mtsa.fused"), *trained("mtsa.fused")]
    better = [design(6, form), *runs(form, spread(7, 0.02))]
    assert "a weak baseline" not in accuracy(pair).reason
    found = accuracy([*pair, *better])
    head = f"; trec: a weak baseline? Other forms of {B} ended better by the same recipe: "
    assert f"{head}{form} +2.00 [" in found.reason
    assert "declared against" not in found.reason
    early = compared("form", models=["mtsa.fused", form], plan=planned("form.toml"))
    late = compared("late", models=["mtsa.fused", form], late=True, plan=planned("late.toml"))
    peer, same = ["bi_lstm.packed", form], ["mtsa.fused", f"{B}[positions=none]"]
    for width, which in ((600, peer), (900, same)):  # the second is not shown to be better
        own = {**COMMON, "width": width}
        early += compared(f"{width}", own, models=which, plan=planned(f"{width}.toml"))
    told = accuracy([*pair, *better, *early, *late]).reason
    assert told.count("declared against") == 1
    assert f"declared against {form} +10.00 [+8.48, +11.52] points: better (form.toml)" in told


@pytest.mark.parametrize(("weak", "direction"), [(False, "more favourable"), (True, "")])
def test_what_is_more_than_printed_against_a_weak_baseline_has_no_direction(
    weak: bool, direction: str
) -> None:
    records = [design(6, "mtsa.fused"), *trained("mtsa.fused", gain=0.05)]
    form = "multi_head_released.sdpa"
    records += [design(6, form), *runs(form, spread(7, 0.02 if weak else -0.02))]
    found = judged("accuracy_difference", records, published=0.1, **ASKED)
    assert (found.verdict, found.direction) == ("reproduced", direction)
    assert found.said == f"reproduced ({direction or 'a weak baseline'})"


def test_the_sides_of_a_claim_may_be_turned() -> None:
    records = [design(6, "mtsa.fused"), *trained("mtsa.fused")]
    found = accuracy(records, first="multi_head", second="mtsa")
    assert (found.verdict, found.value) == ("not reproduced", pytest.approx(-0.8))


def test_without_a_declaration_the_ledger_says_so() -> None:
    found = accuracy(trained("mtsa.fused"))
    assert found.said == "reproduced (exploratory)"
    assert "declared in no family" in found.reason
    here = f"mtsa.fused {80.8 - 95.3:+.1f}, multi_head.sdpa {80 - 93.4:+.1f}"
    assert f"; here less printed: {here}; " in found.reason
    assert "detectable" not in found.reason
    found = accuracy(trained("mtsa.fused", gain=0.001))
    assert found.verdict == "undecided"
    assert "p = 0.7 (detectable 0.86 points; 283 seeds needed);" in found.reason


MS, LSTM = "multi_scale_transformer.windowed", "bi_lstm.packed"
LONGER = {"epochs": [{"epoch": n + 1, "seconds": 1.0} for n in range(9)], "chosen_epoch": 4}
WHOLE = reviewed()


def unlike(r: dict[str, Any]) -> dict[str, Any]:
    """Trained for longer, if it is of one of the models."""
    recipe = {"batch": 32, "epochs": 99, "patience": 5}
    return {**r, "recipe": recipe, **(LONGER if r["model"] == MS else {})}


UNLIKE = [unlike(r) if r.get("task") in TASKS[:2] else r for r in WHOLE]


def over(first: str, second: str, records: list[dict[str, Any]] = WHOLE) -> Verdict:
    return judged("difference_over_tasks", records, first=first, second=second, task="mtl16")


def gaps(first: str, second: str) -> list[float]:
    """Differences of the domains' means, in points."""
    seeds = range(SEEDS)
    return [
        100 * float(np.mean([value(first, i, s) - value(second, i, s) for s in seeds]))
        for i in range(16)
    ]


def with_interval(differences: list[float]) -> Any:
    mean = np.mean(differences)
    return pytest.approx((mean, *stats.t.interval(0.95, 15, mean, stats.sem(differences))))


def test_two_models_of_a_family_are_compared_without_what_was_trained_on_too(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of half of the domains the first is worse without the seen reviews."""
    known = conclude(WHOLE[0], WHOLE)

    def unseen(c: Comparison) -> Comparison:
        gain = 0.01 * (1 if TASKS.index(c.task) % 2 else -1) if c.first == MS else 0.0
        rows = tuple((seed, 0.8 + gain, 0.8) for seed in range(SEEDS))
        told = ByExamples((), (), 3, 400, "", None, rows, (), None)
        return replace(c, examples=told)

    again = replace(known, comparisons=tuple(map(unseen, known.comparisons)))
    monkeypatch.setattr(DeviceRecords, "conclusions", [again])
    found = over(MS, LSTM)
    assert found.verdict == "reproduced"
    low, high = stats.t.interval(0.95, 15, 0, stats.sem([1, -1] * 8))
    assert (
        f"; without test examples that stand in the training set +0.00 [{low:+.2f}, {high:+.2f}] "
        "points, 8 better, 8 worse, p = 1; "
    ) in found.reason


def test_an_average_over_domains_is_judged_over_domains() -> None:
    """The interval is that of sixteen differences, and the verdict that of the declared family."""
    differences = gaps(MS, B)
    found = over("multi_scale_transformer", "multi_head")
    assert (found.value, found.low, found.high) == with_interval(differences)
    assert found.verdict == "reproduced"
    assert found.measured.endswith(" points")
    assert "16 better, 0 worse (sign test p = 3.1e-05)" in found.reason
    assert "however trained" not in found.reason
    assert len(found.keys) == 16 * SEEDS * 2
    back = over("multi_head", "multi_scale_transformer")
    assert (back.verdict, back.value) == ("not reproduced", pytest.approx(-np.mean(differences)))
    level = over("bi_lstm", "multi_head")
    assert level.verdict == "undecided"
    assert level.low < 0 < level.high
    assert re.search(
        r"undecided \(detectable \d\.\d\d points; the tasks are given\); ", level.reason
    )
    few = [r for r in WHOLE if r.get("task") != TASKS[0]]
    lost = over("multi_scale_transformer", "multi_head", few)
    assert lost.wants_records
    assert "attnbench compare multi_scale_transformer multi_head --task mtl16" in lost.reason


def test_an_average_is_told_beside_the_printed_ones() -> None:
    reached = f"{MS} {100 * np.mean(averages(MS)) - 86.34:+.2f}"
    found = over("multi_scale_transformer", "multi_head")
    assert f"; here less printed: {reached}; " in found.reason
    rival = "transformer.sdpa"
    renamed = json.loads(json.dumps(WHOLE).replace(B, rival))
    both = f"{reached}, {rival} {100 * np.mean(averages(B)) - 82.78:+.2f}"
    found = over("multi_scale_transformer", "transformer", renamed)
    assert f"; here less printed: {both}; " in found.reason


def test_an_average_is_exploratory_where_one_of_its_own_runs_was_early() -> None:
    early = {"at": "2025-01-01", "session": "early"}
    seen = [
        {**r, **early} if (r.get("model"), r.get("task")) == (MS, TASKS[0]) else r for r in WHOLE
    ]
    own = over("multi_scale_transformer", "multi_head", seen)
    assert own.said == "reproduced (exploratory)"
    assert "of its family exploratory" not in own.reason
    other = over("bi_lstm", "multi_head", seen)
    assert not other.reason.startswith("exploratory")
    assert f"; of its family exploratory: {MS} on " in other.reason
    assert "of its family exploratory" not in over("bi_lstm", "multi_head").reason


def test_domains_that_were_not_trained_alike_have_no_part_in_an_average() -> None:
    differences = gaps(MS, B)
    most = over("multi_scale_transformer", "multi_head", UNLIKE)
    assert most.verdict == "reproduced"
    assert most.value == pytest.approx(np.mean(differences[2:]))
    every = f"{MS} on all 16 tasks, however trained: mean difference {np.mean(differences):+.2f} ["
    assert every in most.reason
    told = f"14 of the 16 tasks of mtl16 (the training was not alike on {TASKS[0]}, {TASKS[1]})"
    assert told in most.reason
    some = over("multi_scale_transformer", "bi_lstm", UNLIKE)
    assert some.value == pytest.approx(np.mean(gaps(MS, LSTM)[2:]))
    assert "14 of the 16 tasks of mtl16" in some.reason


def test_two_models_of_a_family_are_compared_though_neither_is_the_baseline() -> None:
    differences = gaps(MS, LSTM)
    two = over("multi_scale_transformer", "bi_lstm")
    assert (two.value, two.low, two.high) == with_interval(differences)
    assert two.said == "reproduced (exploratory)"
    assert "declared in no family" in two.reason
    assert "stand in the training set" not in two.reason
    turned = over("bi_lstm", "multi_scale_transformer")
    assert (turned.value, turned.verdict) == (
        pytest.approx(-np.mean(differences)),
        "not reproduced",
    )
