"""The audit of MTSA's Tables 5 and 6: transcription, statistics, words."""

from __future__ import annotations

from pathlib import Path

import pytest
from scipy import stats

from reports.claims.ledger import ledger
from reports.claims.printed import cell, load, summaries
from reports.claims.reanalysis import added_parameters, fold_deviations, implied
from reports.claims.retests import p_words
from reports.claims.verdict import Verdict
from reports.core.page import Output
from reports.pages.audit.page import Audit

TABLES = load("mtsa")
FIVE, SIX = TABLES["table5"], TABLES["table6"]


def test_the_numbers_are_those_of_the_printed_lines() -> None:
    for setup in SIX["setups"]:
        numbers = " ".join(setup["lines"])
        assert f"{setup['multi_head']:.2f} {setup['mtsa']:.2f}" in numbers
        assert f"p-value: {setup['p']:.3f} ({setup['runs_in_table']} runs)" in numbers
    for name, millions in SIX["parameters_millions"].items():
        assert f"{millions:.2f}M" in SIX["lines"][1], name
    assert cell("82.2(.2)") == (82.2, 0.2)
    assert cell("/") is None
    assert summaries(FIVE)["TREC"]["MTSA"].count == 5
    assert summaries(FIVE)["CR"]["MTSA"].count == 10
    assert "cBoW" not in summaries(FIVE)["CR"]  # without a deviation nothing can be tested


def audited() -> dict[str, Verdict]:
    return {v.id: v for v in ledger(()) if v.claim.query == "welch" and v.claim.paper == "mtsa"}


def test_means_are_judged_by_welch_with_holm_against_the_printed_runner_up() -> None:
    found, known = audited(), summaries(FIVE)
    for v in found.values():
        p = v.claim.parameters
        a, b = known[p["column"]]["MTSA"], known[p["column"]][p["family"][p["column"]]]
        oracle = stats.ttest_ind_from_stats(
            a.mean, a.sd, a.count, b.mean, b.sd, b.count, equal_var=False
        )
        assert f": p = {p_words(float(oracle.pvalue))}, " in v.reason
        assert ("(Welch; folds share" in v.reason) == (p["column"] in ("CR", "MPQA", "SUBJ"))
        if "best" in v.id:
            others = {name: s for name, s in known[p["column"]].items() if name != "MTSA"}
            assert b == max(others.values(), key=lambda s: (s.mean, -s.sd)), "the runner-up"
    best = {v.claim.parameters["column"] for v in found.values() if "best" in v.id}
    assert best == {*FIVE["claimed"]}
    shown = {v.claim.parameters["column"] for v in found.values() if v.verdict == "reproduced"}
    assert shown == {"TREC", "SST-5"}, "both against multi-head attention"
    assert "p = .017, .070 after Holm over 4" in found["mtsa-8-best-trec"].reason


def test_rounding_reaches_both_sides_of_five_per_cent_on_trec() -> None:
    over_n = (5 / 4) ** 0.5  # as much more is a deviation over n - 1
    first, second = 0.35 * over_n, 0.25 * over_n
    wider = stats.ttest_ind_from_stats(0.4, first, 5, 0.0, second, 5, equal_var=False)
    assert wider.pvalue > 0.05
    low, high = audited()["mtsa-8-best-trec"].steps[-1].partition("a p of ")[2].split(" to ")
    assert float(low) < 0.017 < float(high) == pytest.approx(wider.pvalue, abs=5e-4)


def test_implied_intervals_are_turned_back_into_the_printed_p() -> None:
    found = {(r.setup, r.runs, r.paired): r for r in implied(SIX)}
    assert {(runs, paired) for setup, runs, paired in found if setup == "Setup 1"} == {
        (5, True),
        (5, False),
        (6, True),
        (6, False),
    }
    for (_, runs, paired), r in found.items():
        freedom = runs - 1 if paired else 2 * runs - 2
        error = (r.high_bleu - r.difference_bleu) / stats.t.ppf(0.975, freedom)
        assert 2 * stats.t.sf(r.difference_bleu / error, freedom) == pytest.approx(r.p)
    spans = {
        key: (round(r.low_bleu, 2), round(r.high_bleu, 2)) for key, r in found.items() if key[2]
    }
    assert spans["Setup 1", 5, True] == (0.30, 0.60)
    assert spans["Setup 1", 6, True] == (0.28, 0.62)
    assert spans["Setup 2", 3, True] == (-0.07, 0.53)


def test_one_deviation_is_too_small_for_folds() -> None:
    found = {(f.data, f.model): f for f in fold_deviations(FIVE)}
    odd = found["CR", "CNNs"]
    assert odd.counting_points == pytest.approx(100 * (0.822 * 0.178 / 377.5) ** 0.5)
    # Of ten folds, with what rounding allows, as if the deviation were over ten, not over nine.
    assert odd.p == pytest.approx(stats.chi2.cdf(10 * (0.25 / odd.counting_points) ** 2, 9))
    assert odd.p < 1e-5
    assert all(f.p > 0.01 for key, f in found.items() if key != ("CR", "CNNs"))
    assert not any(data in ("TREC", "SST-5") for data, _ in found)  # runs share one test set


def test_parameters_fit_one_layer_per_head() -> None:
    counts = SIX["parameters_millions"]
    printed = counts["MTSA"] - counts["Multi-head"]
    assert printed == pytest.approx(added_parameters(SIX, 1), abs=0.002)
    assert abs(printed - added_parameters(SIX, 2)) > 0.1


def test_the_words_are_fair(tmp_path: Path) -> None:
    audit = Audit(Output(tmp_path, "audit"))
    said = " ".join(
        piece.plain
        for piece in (
            audit.means(),
            audit.deviations(),
            audit.translation_table(),
            audit.translation_intervals(),
        )
    )
    assert "Of 9 claims of this kind 2 are reproduced, 7 are undecided." in said
    assert "the table says 6 runs, the caption 5" in said
    assert "Setup 2: a gain of 0.23 BLEU is not shown by the printed numbers" in said
    for unfair in ("false", "wrong", "fraud", "fake", "cheat"):
        assert unfair not in said.lower()
