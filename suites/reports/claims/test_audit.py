"""Audit claims: the arithmetic from printed numbers, against scipy and against hand counts."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from scipy import stats

from harness.stats import Summary
from reports.claims.ledger import AUDITS, ledger
from reports.claims.printed import Asked, load
from reports.claims.reanalysis import p_by_rounding
from reports.claims.record import load_claims
from reports.claims.verdict import Verdict
from suites.support.made_up_records import claim

AUDITED = {v.id: v for v in ledger(()) if v.claim.kind == "audit"}


def verdict(name: str) -> Verdict:
    return AUDITED[name]


def test_every_audit_is_settled_and_shows_its_arithmetic() -> None:
    assert len(AUDITED) == sum(c.kind == "audit" for c in load_claims())
    for v in AUDITED.values():
        assert v.verdict != "not testable here", v.id
        assert v.steps, v.id
        assert v.reason.endswith("."), v.reason
        assert not v.keys
        assert not v.device
        # The arithmetic names numbers, not just words.
        assert any(character.isdigit() for step in v.steps for character in step), v.id


def first_p(text: str) -> float:
    return float(text.partition("p = ")[2].split()[0].rstrip(".,;"))


def test_ratios_carry_what_rounding_allows() -> None:
    v = verdict("mtsa-4-memory-multi-cnn")
    assert v.value == pytest.approx(558 / 208)
    assert (v.low, v.high) == pytest.approx((557.5 / 208.5, 558.5 / 207.5))
    assert v.wanted == "alike: within 1.25x of each other"
    assert "558MB / 208MB = 2.68" in v.steps[0]
    assert v.verdict == "not reproduced"
    nse = verdict("resan-25-fewer-nse")
    assert nse.low < 1 or nse.low == pytest.approx(1)
    assert nse.verdict == "undecided"  # 3.1m and 3.0m may both be 3.05m


def test_proportions_are_those_of_a_hand_count() -> None:
    v = verdict("mtsa-7-masks")
    pooled = (0.863 + 0.853) / 2
    z = 0.01 / math.sqrt(2 * pooled * (1 - pooled) / 9824)
    assert first_p(v.reason) == pytest.approx(2 * stats.norm.sf(z), abs=5e-4)
    assert v.value == pytest.approx(1.0)
    assert v.low < 1 < v.high
    assert "after Holm over 4" in v.reason


def test_paired_differences_are_scipys() -> None:
    table = load("multi_scale")["table3"]
    numbers = [[float(c) for c in row["cells"]] for row in table["rows"][:16]]
    ours, slstm = [n[0] for n in numbers], [n[3] for n in numbers]
    test = stats.ttest_rel(ours, slstm)
    v = verdict("multi-scale-19-mtl-slstm")
    assert first_p(v.reason) == pytest.approx(test.pvalue, abs=5e-4)
    interval = test.confidence_interval()
    assert (v.low, v.high) == pytest.approx((interval.low, interval.high))
    assert (round(v.value, 2), round(v.low, 2), round(v.high, 2)) == (0.72, -0.26, 1.70)
    assert verdict("multi-scale-19-mtl-transformer-all").value == 16


def test_the_correlations_are_those_of_fishers_z() -> None:
    count = load("resan")["table3"]["examples"]
    z = (math.atanh(0.8720) - math.atanh(0.8695)) / math.sqrt(2 / (count - 3))
    found = {v.id: v for v in AUDITED.values() if v.claim.query == "correlations"}
    near = [v for v in found.values() if "0.8720" in v.reason and "0.8695" in v.reason]
    assert near
    for v in near:
        assert first_p(v.reason) == pytest.approx(2 * stats.norm.sf(z), abs=5e-4)


def made_up(query: str, tables: dict[str, Any], **parameters: Any) -> Any:
    one = claim(query, "audit", paper="p", parameters=parameters)
    return AUDITS[query](Asked(one, {"p": tables}))


def one_table(**cells: str) -> dict[str, Any]:
    rows = [{"name": name, "cells": [text]} for name, text in cells.items()]
    return {
        "t": {
            "place": "t",
            "columns": ["c"],
            "rows": rows,
            "replicates": {"c": 5},
            "examples": 1000,
            "average": "average",
        }
    }


def test_a_difference_against_the_claim_is_not_reproduced() -> None:
    table = one_table(a="80.0(0.5)", b="85.0(0.5)")
    same = {"table": "t", "column": "c"}
    assert made_up("welch", table, **same, first="a", second="b").answer == "not reproduced"
    assert made_up("welch", table, **same, first="b", second="a").answer == "reproduced"
    down = {**same, "lower_is_better": True}
    assert made_up("welch", table, **down, first="a", second="b").answer == "reproduced"
    assert made_up("proportions", table, **same, first="a", second="b").answer == "not reproduced"
    assert made_up("proportions", table, **same, first="b", second="a").answer == "reproduced"


def add_columns(t: dict[str, Any]) -> None:
    """Two more, in which all models are alike."""
    t["columns"] = ["c", "d", "e"]
    for row in t["rows"]:
        row["cells"] += ["50.0(9.0)", "50.0(9.0)"]
    t["replicates"] |= {"d": 5, "e": 5}


def test_holm_decides_where_several_are_claimed() -> None:
    table = one_table(a="81.9(1.0)", b="80.0(1.0)")
    single = made_up("welch", table, table="t", column="c", first="a", second="b")
    assert single.answer == "reproduced"
    p = first_p(single.reason)
    assert 0.05 / 3 < p < 0.05
    add_columns(table["t"])
    family = {"c": "b", "d": "b", "e": "b"}
    together = made_up("welch", table, table="t", column="c", first="a", family=family)
    assert together.answer == "undecided"
    assert "after Holm over 3" in together.reason


def test_a_printed_deviation_may_be_over_n() -> None:
    """Then it is smaller than the one over n - 1, by which a test goes, and p is larger."""

    def by_scipy(times: float) -> float:
        sd, other = 1.0 * times, 1.5 * times
        found = stats.ttest_ind_from_stats(82.0, sd, 5, 80.0, other, 5, equal_var=False)
        return float(found.pvalue)

    low, high = p_by_rounding(Summary(82.0, 1.0, 5), Summary(80.0, 1.5, 5), 0.0)
    assert low == pytest.approx(by_scipy(1.0))
    assert high == pytest.approx(by_scipy((5 / 4) ** 0.5))


def test_p_need_not_grow_with_a_printed_deviation() -> None:
    """With both deviations at their largest p is smaller than with one of them below that.

    ReSAN's Table 3: Spearman's rho against that of the dependency Tree-LSTM.
    """
    first, second, half = Summary(0.8163, 0.0018, 5), Summary(0.8083, 0.0042, 5), 0.00005
    _, high = p_by_rounding(first, second, half)
    sizes = [np.linspace(s.sd - half, (s.sd + half) * (5 / 4) ** 0.5, 41) for s in (first, second)]
    every = [
        stats.ttest_ind_from_stats(0.008 - 2 * half, a, 5, 0.0, b, 5, equal_var=False).pvalue
        for a in sizes[0]
        for b in sizes[1]
    ]
    assert every[-1] < max(every) * 0.99
    assert high == pytest.approx(max(every), rel=0.01)
    assert high * 3 > 0.05


def test_what_rounding_leaves_open_is_undecided() -> None:
    """By the numbers as printed p is .045; a little less of a and it is no more below .05."""
    table = one_table(a="81.5(1.0)", b="80.0(1.0)")
    found = made_up("welch", table, table="t", column="c", first="a", second="b")
    assert first_p(found.reason) < 0.05
    assert found.answer == "undecided"
    assert "Rounding, and deviations that may be over n" in found.reason
    several = one_table(a="82.0(1.0)", b="80.0(1.0)")
    add_columns(several["t"])
    alone = made_up("welch", several, table="t", column="c", first="a", second="b")
    family = {"c": "b", "d": "b", "e": "b"}
    together = made_up("welch", several, table="t", column="c", first="a", family=family)
    assert alone.answer == "reproduced"
    assert together.answer == "undecided"
    assert ".040 after Holm over 3" in together.reason
    assert "allow a p of .008 to .034, which is .101 after Holm." in together.reason


def test_an_average_within_rounding_is_right() -> None:
    table = one_table(a="1.00", b="2.01", average="1.50")  # 1.505 prints as either
    assert made_up("average", table, table="t", column="c").answer == "reproduced"
    table = one_table(a="1.00", b="2.01", average="1.53")
    assert made_up("average", table, table="t", column="c").answer == "not reproduced"
