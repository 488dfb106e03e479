"""Measured and exact claims on made-up records: value, interval, verdict."""

from __future__ import annotations

import math
import re
import tomllib
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.train.task import task
from reports.claims.device import first_fitting
from reports.claims.ledger import ledger
from reports.claims.record import Claim, load_claims
from reports.claims.verdict import Verdict
from reports.core.recipes import recipe_of
from suites.reports.claims.conftest import ABOVE, ASKED, BASE, OURS, SIZE, accuracy, devices, judged
from suites.support.command_line import ROOT
from suites.support.made_up_records import case, claim, exact, record, timed, trained

SEEDS = (0.80, 0.82, 0.79, 0.85, 0.81, 0.83)


def runs(gain: float, spread: float = 0.002, count: int = 6, **more: Any) -> list[dict[str, Any]]:
    ours = [v + gain + spread * (-1) ** i for i, v in enumerate(SEEDS[:count])]
    return [*trained("mtsa.algorithm1", ours, **more), *trained(BASE, SEEDS[:count], **more)]


MSE: dict[str, Any] = {"task": "sick_relatedness", "metric": "mse"}


@pytest.mark.parametrize(
    ("records", "tolerance", "more", "value", "answer"),
    [
        (runs(0.02), ABOVE, {}, 2.0, "reproduced"),
        (runs(-0.02), ABOVE, {}, -2.0, "not reproduced"),
        (runs(0.0005), ABOVE, {}, 0.05, "undecided"),
        (runs(0.05, count=4), ABOVE, {}, 5.0, "undecided"),
        (runs(0.0005), {"margin": 1.0}, {}, 0.05, "reproduced"),
        (runs(0.05), {"margin": 1.0}, {}, 5.0, "not reproduced"),
        (runs(-0.02, **MSE), ABOVE, MSE, 0.02, "reproduced"),
    ],
    ids=["better", "worse", "near", "few seeds", "equivalent", "not so", "a lower error"],
)
def test_an_accuracy_is_judged_paired_by_seed(
    records: list[dict[str, Any]],
    tolerance: dict[str, Any],
    more: dict[str, str],
    value: float,
    answer: str,
) -> None:
    v = accuracy(records, tolerance=tolerance, **more)
    assert v.verdict == answer, v.reason
    assert v.value == pytest.approx(value)  # in points
    # Seeds differ by points, their differences little.
    assert v.low < v.value < v.high < v.value + 1
    assert len(v.keys) == len(records)
    assert f"{len(records) // 2} paired seeds" in v.reason
    assert ("fewer than 5" in v.reason) == (len(records) < 10)


@pytest.mark.parametrize("gain", [0.0, 0.01])
def test_replicates_that_all_differ_by_the_same_are_judged_by_their_signs(gain: float) -> None:
    """Five can't be told from chance by them, six can: their interval is a point."""
    for count in (5, 6):
        v = accuracy(runs(gain, 0.0, count))
        assert v.verdict == ("reproduced" if gain and count == 6 else "undecided"), v.reason
        p = 2 / 2**count if gain else 1
        assert f"; p = {p:.2g};" in v.reason


def test_the_preferred_form_stands_before_one_with_more_seeds() -> None:
    """Claims that are judged together are to be about one model."""
    many = runs(-0.02)
    wanted = trained("mtsa_released.algorithm1", [v + 0.02 for v in SEEDS[:5]])
    v = accuracy([*many, *wanted])
    assert v.value == pytest.approx(2.0)
    assert "5 paired seeds" in v.reason
    few = trained("mtsa_released.algorithm1", [v + 0.02 for v in SEEDS[:4]])
    v = accuracy([*many, *few])
    assert v.value == pytest.approx(-2.0)


def test_only_runs_of_one_recipe_are_compared() -> None:
    ours = trained("mtsa.algorithm1", [v + 0.05 for v in SEEDS], width=300)
    other = trained(BASE, SEEDS, width=600)
    v = accuracy([*ours, *other])
    assert v.wants_records
    assert "attnbench compare mtsa_released multi_head --task trec --data DIR" in v.reason


@pytest.mark.parametrize("turned", [False, True])
def test_of_recipes_with_as_many_runs_the_tasks_common_one_counts(turned: bool) -> None:
    assert task("trec").recipe.width == 300
    mine, other = runs(0.02), runs(-0.02, width=600)
    records = [*other, *mine] if turned else [*mine, *other]
    v = accuracy(records)
    assert v.value == pytest.approx(2.0)
    fewer = [r for r in records if (r["recipe"]["width"], r["seed"]) != (300, 5)]
    v = accuracy(fewer)
    assert v.value == pytest.approx(-2.0)


def test_options_of_a_model_must_be_those_of_the_claim() -> None:
    records = [*runs(0.02), *trained("mtsa.algorithm1[token2token=False]", SEEDS)]
    v = accuracy(records, second="mtsa[token2token=false]")
    assert v.verdict == "reproduced"
    assert "mtsa.algorithm1[token2token=False]" in v.reason
    assert accuracy(records, second="mtsa[source2token=false]").wants_records


@pytest.mark.parametrize("staged", [False, True])
def test_seconds_per_epoch_are_of_those_in_which_it_samples(staged: bool) -> None:
    where = {"first": ["resan"], "second": ["resan[policy=iterative]"], "task": "trec"}
    records = []
    for name, seconds in (("resan.gathered", 2.0), ("resan.gathered[policy=iterative]", 10.0)):
        base = [{"epoch": i, "seconds": 1.0, "stage": "base"} for i in range(1, 9)]
        policy = {"epoch": 9, "seconds": 77.0, "stage": "policy"}
        both = {"epoch": 10, "seconds": seconds, "stage": "both"}
        for r in trained(name, SEEDS, epoch_seconds=seconds):
            records.append({**r, "epochs": [*base, policy, both]} if staged else r)
    v = judged("epoch_ratio", records, {"factor": 1.5}, 0.21, **where)
    assert v.value == pytest.approx(0.2)
    assert v.verdict == "reproduced"
    assert v.hardware == "", "of a device that was only trained on nothing tells its class"
    beside = [{**r, "workers": 2} if r["seed"] < 2 else r for r in records]
    v = judged("epoch_ratio", beside, {"factor": 1.5}, 0.21, **where)
    assert v.verdict == "undecided", "they slow each other"
    assert f"2 of {len(SEEDS)} pairs were trained beside other runs" in v.reason
    whole = [{**r, "selected": {"heads": 1.0, "dependents": 1.0}} for r in records]
    v = judged("epoch_ratio", whole, {"factor": 1.5}, 0.21, **where)
    assert v.verdict == "undecided"
    assert "says nothing of selecting" in v.reason


def test_runs_on_other_data_are_not_paired() -> None:
    better = [v + 0.2 for v in SEEDS]
    first, second = trained("mtsa.plain", better), trained("multi_head.sdpa", SEEDS)
    mine = [{**r, "data": "a corpus"} for r in first]
    for data, paired in (("a corpus", True), ("another of that name", False)):
        other = [{**r, "data": data} for r in trained("multi_head.sdpa", SEEDS)]
        v = accuracy([*mine, *other])
        assert v.wants_records != paired
    assert recipe_of(mine[0]) != recipe_of(next(second))


def test_a_policy_that_leaves_nothing_out_decides_nothing_of_selecting() -> None:
    better = [v + 0.2 for v in SEEDS]
    for share, verdict in ((0.6, "reproduced"), (0.995, "undecided")):
        mine = trained("resan.gathered", better, selected=(share, 1.0))
        other = trained("multi_head.sdpa", SEEDS)
        v = accuracy([*mine, *other], first=["resan"])
        assert v.verdict == verdict, v.reason
        assert ("nothing of selecting" in v.reason) == (share > 0.9)


def test_shares_of_what_is_selected() -> None:
    records = list(trained("resan.gathered", SEEDS, selected=(0.4, 0.6)))
    where: dict[str, Any] = {"first": ["resan", "resa"], "task": "trec"}
    for i, r in enumerate(records):
        r["selected"]["heads"] += 0.01 * i
    v = judged("selected_shares", records, **where)
    assert v.said == "reproduced (exploratory)", "no design asked for it"
    assert v.value == pytest.approx(17.5)
    assert "detectable" not in v.reason
    wider = list(trained("resan.gathered", SEEDS, selected=(0.6, 0.4), width=600))
    for both in ([*records, *wider], [*wider, *records]):  # by one recipe, the common one
        v = judged("selected_shares", both, **where)
        assert v.value == pytest.approx(17.5)
        assert "6 seeds" in v.reason
    level = list(trained("resan.gathered", SEEDS, selected=(0.5, 0.5)))
    for i, r in enumerate(level):
        r["selected"]["heads"] += 0.01 * (i % 3 - 1)
    none = judged("selected_shares", level, **where)
    assert none.verdict == "undecided"
    assert re.search(r", 6 seeds \(detectable \d\.\d\d points; .*\); declared", none.reason), (
        none.reason
    )
    assert judged("selected_shares", runs(0.0), **where).wants_records


@pytest.mark.parametrize(
    ("verdict", "answer"),
    [("ok", "reproduced"), ("wrong", "not reproduced"), ("crash", "undecided")],
)
def test_exact_claims_are_records_or_parts_of_one(verdict: str, answer: str) -> None:
    v = judged("exact", [exact("a", verdict)], {}, kind="exact", check="a")
    assert v.verdict == answer
    assert v.failed_exactly == (verdict == "wrong")
    assert len(v.keys) == 1
    parts = {"one": {"verdict": verdict, "value": 3, "detail": "three"}, "two": {"verdict": "ok"}}
    records = [exact("a", "wrong", parts=parts)]
    one = judged("exact", records, {}, kind="exact", check="a", part="one")
    assert (one.verdict, one.value, one.reason) == (answer, 3, "three")
    absent: list[dict[str, Any]] = [{"check": "b"}, {"check": "a", "part": "three"}]
    for where in absent:
        missing = judged("exact", records, {}, kind="exact", **where)
        assert missing.wants_records
        assert not missing.failed_exactly
        assert "attnbench verify" in missing.reason


def test_an_ablation_is_compared_with_the_form_it_is_of() -> None:
    level = {"mtsa_released.fused": 0.2, "mtsa.fused": 0.1, "mtsa.fused[masks=none]": 0.0}
    records = [r for m, more in level.items() for r in trained(m, [v + more for v in SEEDS])]
    v = accuracy(records, second=["mtsa_released[masks=none]", "mtsa[masks=none]"])
    assert v.value == pytest.approx(10), "in points; 20 would be masks and another program"
    cost = {
        case("mtsa_released.fused", 64): 9.0,
        case("mtsa.fused", 64): 2.0,
        case("mtsa.fused[masks=none]", 64): 1.0,
        case(BASE, 64): 1.0,
    }
    v = judged(
        "time_ratio",
        timed(cost),
        {"at_most": 3.0},
        **SIZE,
        first=["mtsa_released", "mtsa"],
        second=["mtsa[masks=none]"],
    )
    assert v.value == pytest.approx(2.0, rel=0.01)


def looked(
    model: str, mean: float, sentences: int, at: str = "2026-01-01", seed: int = 0
) -> dict[str, Any]:
    spread = {"mean": mean, "sd": 0.2, "sentences": sentences}
    where: dict[str, Any] = {"model": model, "task": "trec", "seed": seed, "at": at}
    contrast, stop_words = {"source2token_scores": spread}, {"selected_neither": spread}
    return record("attention", model, **where, contrast=contrast, stop_words=stop_words)


CONTRAST: dict[str, Any] = {"first": ["mtsa"], "number": "source2token_scores"}
NEITHER: dict[str, Any] = {"first": ["resan", "mtsa"], "number": "selected_neither"}


def test_what_tokens_are_given_is_over_seeds() -> None:
    """Scores of content words as they are, shares of stop words in percent."""
    means = [0.58, 0.6, 0.62, 0.59, 0.61]
    records = [looked("disa.plain", 9.0, 50)]
    records += [looked(OURS, m, 100, f"2026-01-0{i + 1}", i) for i, m in enumerate(means)]
    for query, where, scale in (
        ("content_over_stop_words", CONTRAST, 1),
        ("share_of_stop_words", NEITHER, 100),
    ):
        for least, answer in ((0.5, "reproduced"), (0.7, "not reproduced"), (0.59, "undecided")):
            v = judged(query, records, {"at_least": scale * least}, **where)
            assert v.verdict == answer, v.reason
            assert ("(exploratory)" in v.said or ", exploratory)" in v.said) == (least != 0.59)
            assert v.reason.endswith("declared nowhere.")
        assert v.value == pytest.approx(scale * 0.6)
        assert len(v.keys) == 5
        half = stats.t.ppf(0.975, 4) * np.std(means, ddof=1) / math.sqrt(5)
        assert v.high - v.value == pytest.approx(scale * half)
        few = judged(query, records[:-1], {"at_least": scale * 0.5}, **where)
        assert few.verdict == "undecided"
        assert "4 seeds, 100 sentences: fewer than 5 seeds, nothing is concluded" in few.reason
    # Nor is a model that was trained otherwise one more seed.
    other = {**records[-1], "recipe": {"width": 600}}
    alone = judged("content_over_stop_words", [*records[:-1], other], {"at_least": 0}, **CONTRAST)
    assert "1 seed, 100 sentences: fewer than 5 seeds" in alone.reason
    assert "; also looked at: +0.597 on trec (4 seeds)" in alone.reason
    last = {**records[-1], "task": "cr", "at": "2025-01-01"}
    told = judged("content_over_stop_words", [*records, last], {"at_least": 0}, **CONTRAST)
    assert told.reason.endswith("declared nowhere; also looked at: +0.61 on cr (1 seed).")
    # What was looked at before such shares were recorded says nothing.
    older = [{key: value for key, value in r.items() if key != "stop_words"} for r in records]
    assert judged("share_of_stop_words", older, {"at_least": 50}, **NEITHER).wants_records


def test_a_policy_that_selects_everything_says_nothing_of_stop_words() -> None:
    everything = {"heads": 1.0, "dependents": 0.995}
    records = [
        {**looked(OURS, 0.1 + 0.001 * i, 100, f"2026-01-0{i + 1}", i), "selected": everything}
        for i in range(5)
    ]
    v = judged("share_of_stop_words", records, {"at_least": 50}, **NEITHER)
    assert v.verdict == "undecided"
    assert "hardly one is left out, so this says nothing of selecting" in v.reason


def test_the_newest_look_counts_and_none_says_how() -> None:
    records = [looked(OURS, -1.0, 100), looked(OURS, 1.0, 100, at="2026-01-02")]
    v = judged("content_over_stop_words", records, **CONTRAST)
    assert v.value == 1.0
    v = judged("content_over_stop_words", runs(0.0), **CONTRAST)
    assert v.verdict == "not testable here"
    assert "attnbench train mtsa --task trec --look" in v.reason


def claimed(task: str, family: int = 0, **tolerance: Any) -> Claim:
    return claim(
        "accuracy_difference",
        name=f"{task}-{family}",
        parameters={**ASKED, "task": task},
        tolerance=tolerance or ABOVE,
        family=family,
    )


def together(records: list[dict[str, Any]], *claims: Claim) -> list[Verdict]:
    return ledger(devices(d=records), claims=claims)


BARELY = 0.0025
"""p = .038 over the six seeds: significant by itself, not of two (Holm 1979)."""


@pytest.mark.parametrize("gain", [BARELY, -BARELY])
def test_claims_that_a_paper_makes_together_are_tested_together(gain: float) -> None:
    records = [*runs(gain), *runs(gain, task="sst5")]
    (alone,) = together(records, claimed("trec"))
    assert alone.verdict == ("reproduced" if gain > 0 else "not reproduced")
    both = together(records, claimed("trec"), claimed("sst5"))
    assert [v.verdict for v in both] == ["undecided"] * 2
    assert "Holm over the 2 claims made together" in both[0].reason
    assert "p = 0.076, no longer significant" in both[0].reason
    assert (both[0].low, both[0].high) == (alone.low, alone.high)
    # Of one claim on two devices there is nothing to correct.
    twice = ledger(devices(d=records, e=records), claims=[claimed("trec")])
    assert [v.verdict for v in twice] == [alone.verdict] * 2
    # Not measured, or claimed elsewhere: each stands by itself.
    apart = together(records, claimed("trec"), claimed("mpqa"), claimed("sst5", 1))
    assert [v.verdict for v in apart] == [alone.verdict, "not testable here", alone.verdict]


def test_what_is_sure_stays_so_among_others() -> None:
    records = [*runs(0.02), *runs(BARELY, task="sst5"), *runs(0.0002, task="mpqa")]
    found = together(records, *(claimed(t) for t in ("trec", "sst5", "mpqa")))
    assert [v.verdict for v in found] == ["reproduced", "undecided", "undecided"]
    # An equality is no test against zero, and adds nothing to correct for.
    both = [claimed("trec", margin=5.0), claimed("sst5")]
    assert [v.verdict for v in together(records, *both)] == ["reproduced"] * 2


def planned(task: str) -> list[str]:
    """Models that a sweep for publication, or a design, trains on a task."""
    found: list[str] = []
    for path in sorted((ROOT / "plans").glob("*.toml")):
        plan = tomllib.loads(path.read_text())
        for part in plan.get("part", [plan]) if not path.stem.startswith("tuning") else ():
            if task in part["tasks"]:
                found += [*part.get("models", plan.get("models", [])), plan.get("baseline", "")]
    return found


def test_what_the_plans_train_settles_every_claim_on_accuracy() -> None:
    """Table 6 of the Multi-Scale paper with the models that the claims ask for first."""
    queries = ("accuracy_difference", "difference_over_tasks")
    asked = [c for c in load_claims() if c.query in queries and c.kind == "measured"]
    assert len(asked) > 30
    exactly = [c for c in asked if c.id.startswith("multi-scale-18-trec-")]
    assert len(exactly) == 5
    for one in asked:
        models = planned(one.parameters["task"])
        for side in ("first", "second"):
            names = one.parameters[side]
            assert first_fitting(names[:1] if one in exactly else names, models), (one.id, side)
