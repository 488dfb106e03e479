"""Claims as records, regions, and the ledger's score."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.registry import Registry
from harness.train.task import tasks
from reports.claims.device import alternatives, first_fitting, parse
from reports.claims.ledger import AUDITS, PAGES, QUERIES, ledger, score, score_lines, shown
from reports.claims.printed import PAPERS, PrintedNumber, load_all, published
from reports.claims.record import load_claims, whose_text
from reports.claims.verdict import region
from reports.contents import NOTEBOOKS
from suites.reports.claims.conftest import BASE, OURS, SIZE, devices
from suites.support.made_up_records import case, claim, exact, timed

CLAIMS = load_claims()
TABLES = load_all()


def test_every_published_item_has_its_claims() -> None:
    assert {c.item for c in CLAIMS} == set(range(1, 27))
    assert {c.paper for c in CLAIMS} == set(PAPERS)
    assert len(CLAIMS) > 150
    assert {c.kind for c in CLAIMS} == {"exact", "audit", "measured", "not testable"}


def test_commands_that_make_records_name_what_there_is() -> None:
    """The implementations, options and tasks of what a claim says to run."""
    known = Registry()
    asked = 0
    for one in CLAIMS:
        if one.kind != "measured":
            continue
        for side in ("first", "second"):
            for text in alternatives(one.parameters.get(side, ())):
                name, _, options = text.partition("@")[0].partition("[")
                mechanism, _ = known.find(name)
                for option in filter(None, options.rstrip("]").split(",")):
                    assert option.partition("=")[0] in {*mechanism.options, "preset"}, text
                asked += 1
        if "task" in one.parameters:
            assert one.parameters["task"] in tasks(), one.id
            metrics = tasks()[one.parameters["task"]].metrics
            if one.query in ("accuracy_difference", "epoch_ratio"):
                assert one.parameters.get("metric", "accuracy") in metrics, one.id
    assert asked > 150


def test_every_claim_is_complete_and_every_query_used() -> None:
    assert {*AUDITS, *QUERIES} <= {c.query for c in CLAIMS}
    pages = {book.name for book in NOTEBOOKS}
    for one in CLAIMS:
        queries = AUDITS if one.kind == "audit" else QUERIES
        assert one.kind == "not testable" or one.query in queries, one.id
        assert one.statement.endswith("."), one.id
        found = published(one, TABLES)
        if one.tolerance:
            wanted = region(one.tolerance, found)
            assert wanted.least < wanted.most, one.id
            if {"factor", "plus_minus"} & set(one.tolerance):
                # What is published is itself within the tolerance.
                assert wanted.judge(found.value, found.value) == "reproduced", one.id
        if one.query in ("time_ratio", "memory_ratio", "slope", "accuracy_difference"):
            assert one.tolerance, one.id
            assert one.setup, one.id
        if one.query in ("accuracy_difference", "difference_over_tasks"):
            assert "recipe" not in one.setup, one.id  # the runs say it
        assert (one.page or PAGES.get(one.kind, "claims")) in pages, one.id
        assert one.kind != "not testable" or one.why.endswith("."), one.id


def test_published_numbers_come_from_the_tables() -> None:
    by_id = {c.id: c for c in CLAIMS}
    found = published(by_id["mtsa-2-disa"], TABLES)
    assert found.value == pytest.approx(558 / 6682)
    assert found.text == "558MB / 6682MB = 0.0835"
    assert published(by_id["multi-scale-15-average"], TABLES).value == pytest.approx(1 / 6.5)
    gain = published(by_id["mtsa-8-measured-trec"], TABLES)
    assert (round(gain.value, 6), gain.text) == (1.9, "95.3 - 93.4 = +1.9")
    assert published(by_id["resan-24-training-time"], TABLES).value == pytest.approx(622 / 2996)
    apart = published(by_id["resan-23-measured-disan"], TABLES)
    assert apart.text == ".8720 - .8695 = +0.0025"


def test_what_whole_models_have_in_common_leaves_the_ratio_of_their_layers_open() -> None:
    """Nothing, or up to the 1.1 s of the model without these layers; all are rounded."""
    found = published({c.id: c for c in CLAIMS}["mtsa-3-inference-disa"], TABLES)
    assert found.text == "1.6s / 5.2s = 0.308"
    assert found.value == pytest.approx(1.6 / 5.2)
    assert found.low == pytest.approx((1.55 - 1.15) / (5.25 - 1.15))
    assert found.high == pytest.approx(1.65 / 5.15)
    # All of the multi-window CNN's time may be what every model has.
    fastest = published({c.id: c for c in CLAIMS}["mtsa-3-epoch-multi-cnn"], TABLES)
    assert (fastest.low, fastest.high) == (pytest.approx(179.5 / 137.5), math.inf)


@pytest.mark.parametrize(
    ("ratio", "answer", "wanted"),
    [
        (0.30, "undecided", 1.5),
        (0.12, "undecided", 1.5),
        (0.03, "not reproduced", 1.5),
        (0.60, "not reproduced", 1.5),
        (0.20, "undecided", 1.5),  # not near either end, and near what lies between
        (0.20, "reproduced", 3.0),
    ],
)
def test_reproduced_is_what_agrees_with_all_that_may_be_meant(
    ratio: float, answer: str, wanted: float
) -> None:
    disa = {c.id: c for c in CLAIMS}["mtsa-3-inference-disa"]
    one = claim(
        "time_ratio",
        published=disa.published,
        tolerance={"factor": wanted},
        parameters={**disa.parameters, "first": OURS, "second": BASE, "phase": "training"},
    )
    times = timed({case(OURS, 64, heads=2): ratio, case(BASE, 64): 1.0})
    (found,) = ledger(devices(d=times), claims=[one])
    assert found.verdict == answer
    told = "By what is printed the number to compare with may be 0.0976 to 0.32."
    assert found.reason.endswith(told) == (answer == "undecided")


def printed(value: float, half: float = 0.0) -> PrintedNumber:
    return PrintedNumber(value, value - half, value + half)


@pytest.mark.parametrize(
    ("tolerance", "inside", "outside", "across"),
    [
        ({"factor": 1.5}, (1.4, 2.9), (3.1, 4.0), (2.0, 3.5)),
        ({"plus_minus": 0.5}, (1.6, 2.4), (2.6, 3.0), (1.0, 1.7)),
        ({"alike": 1.25}, (0.85, 1.2), (0.5, 0.7), (1.1, 1.4)),
        ({"margin": 0.5}, (-0.4, 0.3), (0.6, 0.7), (0.4, 0.6)),
        ({"at_most": 1.0}, (0.2, 0.9), (1.1, 2.0), (0.9, 1.1)),
        ({"at_least": 4.0}, (4.1, 5.0), (2.0, 3.9), (3.0, 5.0)),
        ({"positive": True}, (0.1, 0.2), (-0.2, -0.1), (-0.1, 0.1)),
        ({"positive": True}, (0.1, 0.2), (0.0, 0.0), (0.0, 0.1)),
        ({"plus_minus": 0.0}, (2.0, 2.0), (2.1, 2.2), (1.9, 2.1)),
    ],
)
def test_three_way(
    tolerance: dict[str, Any],
    inside: tuple[float, float],
    outside: tuple[float, float],
    across: tuple[float, float],
) -> None:
    wanted = region(tolerance, printed(2.0))
    assert wanted.judge(*inside) == "reproduced"
    assert wanted.judge(*outside) == "not reproduced"
    assert wanted.judge(*across) == "undecided"
    assert wanted.judge(math.nan, math.nan) == "undecided"


@pytest.mark.parametrize(
    ("number", "least", "most"),
    [
        (printed(0.923, 0.005), 0.923 / 1.5, 1.0),
        (printed(1.07, 0.05), 1.0, 1.07 * 1.5),
        (printed(1.006, 0.006), 1.006 / 1.5, 1.006 * 1.5),  # 180s / 179s may be 1 before rounding
        (printed(0.211, 0.001), 0.211 / 1.5, 0.211 * 1.5),
    ],
)
def test_a_factor_does_not_reach_to_the_other_side_of_equality(
    number: PrintedNumber, least: float, most: float
) -> None:
    wanted = region({"factor": 1.5}, number)
    assert (wanted.least, wanted.most) == pytest.approx((least, most))
    assert ("and at" in wanted.says) == (1.0 in (wanted.least, wanted.most))


def test_tolerances_that_can_not_be_are_refused() -> None:
    for tolerance in ({}, {"factor": 2, "alike": 2}, {"nearly": 1}):
        with pytest.raises(ValueError, match="tolerance"):
            region(tolerance, printed(1.0))
    with pytest.raises(ValueError, match="needs a published value"):
        region({"factor": 1.5}, PrintedNumber())


FAMILY = """
[names]
A = ["a", "b"]
[[family]]
item = 1
paper = "mtsa"
place = "p"
line = "l"
kind = "measured"
query = "time_ratio"
parameters = {{ first = "$A", batch = 64 }}
claims = [{claims}]
"""


def write(folder: Path, claims: str) -> Path:
    path = folder / "claims.toml"
    path.write_text(FAMILY.format(claims=claims))
    return path


def test_a_family_is_shared(tmp_path: Path) -> None:
    path = write(
        tmp_path,
        '{ id = "x", statement = "X." }, '
        '{ id = "y", statement = "Y.", parameters = { batch = 2 }, place = "q" }',
    )
    x, y = load_claims(path)
    assert (x.id, y.id) == ("mtsa-1-x", "mtsa-1-y")
    assert x.parameters == {"first": ["a", "b"], "batch": 64}
    assert y.parameters == {"first": ["a", "b"], "batch": 2}
    assert (x.place, y.place) == ("p", "q")


UNTESTABLE = 'id = "x", statement = "X.", kind = "not testable", why = "w"'


@pytest.mark.parametrize(
    ("claims", "message"),
    [
        ('{ id = "x" }', "x lacks statement"),
        ('{ id = "x", statement = "X.", tolerence = {} }', "x has unknown tolerence"),
        ('{ id = "x", statement = "X." }, { id = "x", statement = "Y." }', "two claims are called"),
        ('{ id = "x", statement = "X.", kind = "guessed" }', "x is 'guessed'"),
        ('{ id = "x", statement = "X.", kind = "not testable" }', "needs a why"),
        ('{ id = "x", statement = "X.", query = "" }', "needs a query"),
        (f"{{ {UNTESTABLE} }}", "x: given lacks None; expected one of hardware, data, not built"),
        (f'{{ {UNTESTABLE}, lacks = "time" }}', "x: given lacks 'time'"),
        (f'{{ {UNTESTABLE}, lacks = "data" }}', "x: given about None; expected one of cost, acc"),
        ('{ id = "x", statement = "X.", lacks = "data" }', "given lacks 'data'; .* nothing for"),
        ('{ id = "x", statement = "X.", whose = "nobody" }', "x is of 'nobody'; use paper"),
        ('{ id = "x", statement = "X.", same_as = "y" }', "is the same as y: no claim"),
        ('{ id = "x", statement = "X.", parameters = { second = "$B" } }', r"unknown name \$B"),
    ],
)
def test_a_wrong_record_is_refused(tmp_path: Path, claims: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        load_claims(write(tmp_path, claims))


def test_names_fit_what_is_recorded() -> None:
    name = parse("mtsa[token2token=false]@2")
    assert name.fits("mtsa.algorithm1[token2token=False]", 2)
    assert not name.fits("mtsa.algorithm1[token2token=False]", 8)
    assert not name.fits("mtsa.algorithm1", 2)
    assert not name.fits("mtsa.algorithm1[token2token=False,a=1]", 2)
    assert parse("mtsa.plain").fits("mtsa.plain", 8)
    assert not parse("mtsa.plain").fits("mtsa.algorithm1")
    assert not parse("mtsa").fits("mtsa_released.plain")
    recorded = ["b.x", "a.y", "a.x"]
    assert first_fitting(["a", "b.x"], recorded) == ["a.y", "a.x", "b.x"]
    assert first_fitting("c", recorded) == []


SOME = [
    claim("exact", "exact", "one", parameters={"check": "a"}),
    claim("exact", "exact", "two", parameters={"check": "b"}),
    claim(kind="not testable", name="three", why="No data.", lacks="data", about="cost"),
    claim(
        "time_ratio",
        name="four",
        parameters={"first": f"{OURS}@8", "second": f"{BASE}@8", **SIZE},
        tolerance={"at_most": 1.5},
    ),
    claim(
        "accuracy_difference",
        name="five",
        parameters={"first": "mtsa", "second": "disa", "task": "trec"},
        tolerance={"positive": True},
    ),
    claim(
        "ratio",
        "audit",
        "six",
        parameters={"table": "table1", "column": "memory", "first": "MTSA", "second": "DiSA"},
        tolerance={"at_most": 0.5},
    ),
]


SECONDS = {case(OURS, 64): 1.2, case(BASE, 64): 1.0}
RECORDS = [exact("a"), exact("b", "wrong"), *timed(SECONDS)]


def test_the_score_counts_every_claim_once_and_sums_no_kinds() -> None:
    verdicts = ledger(devices(d=RECORDS), claims=SOME)
    assert score_lines(verdicts, {"d": "D"}) == [
        "audit: 1 reproduced",
        "exact: 1 reproduced, 1 not reproduced",
        "cost: 1 reproduced, 1 not testable here (data)",
        "accuracy: 1 not measured yet",
    ]
    several = score_lines(verdicts, {"d": "D", "e": "E"})
    assert several[2:] == [
        "cost, on D: 1 reproduced",
        "cost, on none of these: 1 not testable here (data)",
        "accuracy, on none of these: 1 not measured yet",
    ], "what nobody can test is not told of each machine"
    ours = [replace(one, whose="ours") if one.lacks else one for one in SOME]
    lines = score_lines(ledger(devices(d=RECORDS), claims=ours), {"d": "D", "e": "E"})
    assert "cost, on none of these" not in "".join(lines)
    assert [v.id for v in verdicts if v.failed_exactly] == ["two"]
    assert [v.verdict for v in verdicts] == [
        "reproduced",
        "not reproduced",
        "not testable here",
        "reproduced",
        "not testable here",
        "reproduced",
    ]


def test_what_a_late_declaration_settles_is_counted_as_exploratory() -> None:
    (first, *_) = ledger(devices(d=RECORDS), claims=SOME)
    late = replace(first, reason="exploratory: a is better than b")
    assert (first.said, late.said) == ("reproduced", "reproduced (exploratory)")
    against = replace(late, verdict="not reproduced", direction="opposite")
    assert against.said == "not reproduced (opposite, exploratory)"
    assert replace(late, verdict="undecided").said == "undecided"
    assert "1 reproduced (exploratory)" in score_lines([late], {"d": "D"})[0]


@pytest.mark.parametrize("change", [{"whose": "ours"}, {"whose": "elsewhere"}, {"same_as": "one"}])
def test_what_is_no_claim_of_the_paper_or_counted_already_is_told_and_not_counted(
    change: dict[str, Any],
) -> None:
    change = {**change, "published": {"value": 1.2}}
    own = [replace(one, **change) if one.id in ("two", "four") else one for one in SOME]
    verdicts = ledger(devices(d=RECORDS), claims=own)
    assert len(verdicts) == len(SOME)
    found = score(verdicts, "d")
    assert found["exact"] == {"reproduced": 1}
    assert found["cost"] == {"not testable here (data)": 1}
    failed = [v.id for v in verdicts if v.failed_exactly]
    assert failed == ["two"]  # an exact check that fails, fails
    told = {name: verdicts[1].as_json()[name] for name in change}
    stated = "" if change.get("whose") == "ours" else "1.2"
    assert told == {**change, "published": stated}, "what no paper states has no printed number"
    assert whose_text(verdicts[1].claim)
    assert not whose_text(verdicts[0].claim)
    assert (verdicts[3].direction == "as published") == (change.get("whose") != "ours")
    assert verdicts[3].measured.endswith("]x")
    assert verdicts[3].unit == "x"


def test_a_claim_that_is_counted_as_another_names_it_as_a_reader_finds_it() -> None:
    claims = {one.id: one for one in load_claims()}
    again = [one for one in claims.values() if one.same_as]
    assert again
    for one in again:
        assert f"“{claims[one.same_as].statement}”" in whose_text(one)


def test_a_stress_test_of_arithmetic_is_no_accuracy_and_counted_once() -> None:
    """It trains nothing; and what it finds wrong is a finding, no check of ours that fails."""
    one = claim("exact", name="stress", parameters={"check": "a"})
    other = claim("exact", name="stressed", parameters={"check": "b"})
    verdicts = ledger(devices(d=RECORDS, e=RECORDS), claims=[one, other])
    lines = score_lines(verdicts, {"d": "Fast", "e": "Slow"})
    assert lines == ["exact: 1 reproduced, 1 not reproduced"]
    assert [v.id for v in shown(verdicts)] == ["stress", "stressed"]
    assert not any(v.failed_exactly or v.direction for v in verdicts)


def test_without_records_audits_are_settled_all_the_same() -> None:
    verdicts = ledger(())
    assert len(verdicts) == len(CLAIMS)
    assert not any(v.failed_exactly for v in verdicts)
    found = score(verdicts)
    for sort, counts in found.items():
        assert sum(counts.values()) == sum(c.counted and c.sort == sort for c in CLAIMS)
    assert {*found["exact"]} == {"not measured yet"}
    assert {*found["cost"]} == {"not measured yet", "not testable here (not built)"}
    assert {v.claim.kind for v in verdicts if v.wants_records} == {"exact", "measured"}
    decided = {v.claim.kind for v in verdicts if v.verdict != "not testable here"}
    assert decided == {"audit"}
