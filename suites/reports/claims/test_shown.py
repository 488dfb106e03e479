"""The ledger as it is shown: ``attnbench claims``, its page, and the audit's further sections."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

from harness.cli import run as command
from reports.claims.record import load_claims
from reports.contents import NOTEBOOKS, Scope
from reports.core.page import Output
from reports.pages.audit.figures import intervals
from reports.pages.audit.page import Audit
from reports.pages.claims import Ledger
from suites.support.made_up_records import case, exact, peaks, timed, trained
from suites.support.report_records import EVIL, write

OURS, BASE = case("mtsa.algorithm1", 64, heads=2), case("multi_head.sdpa", 64)
TOTAL = len(load_claims())
EXACT = sum(claim.sort == "exact" and claim.counted for claim in load_claims())


def some(equality: str = "ok") -> list[dict[str, Any]]:
    """A bench with the published ratios, one comparison, and an exact check."""
    parts = {
        name: {"verdict": equality, "value": 1e-15, "detail": f"d {EVIL}"}
        for name in ("output", "gradients")
    }
    return [
        *timed({OURS: 1.0, BASE: 1.0}),
        *peaks({OURS: [120.0] * 3, BASE: [100.0] * 3}),
        *trained("mtsa.algorithm1", [0.9, 0.91, 0.92, 0.9, 0.93]),
        *trained("multi_head.sdpa", [0.8, 0.81, 0.83, 0.8, 0.82]),
        exact("algorithm1", equality, parts=parts),
    ]


Told = Callable[..., tuple[int, list[str], Any]]


@pytest.fixture
def told(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> Told:
    """What the command answers where machines of these names have more records: its exit code,
    lines and JSON.
    """
    journal, file = tmp_path / "journal", tmp_path / "out.json"

    def answered(**records: Iterable[dict[str, Any]]) -> tuple[int, list[str], Any]:
        for name, its in records.items():
            write(journal, name, its)
        code = command(["claims", "--journal", str(journal), "--json", str(file)])
        return code, capsys.readouterr().out.splitlines(), json.loads(file.read_text())

    return answered


def test_claims_are_printed_with_their_score(told: Told) -> None:
    code, lines, told_json = told(Fast=some())
    assert code == 0
    assert "reproduced        Algorithm 1 gives the output of eq. 13." in lines
    line = next(line for line in lines if line.startswith("exact: "))
    assert line == f"exact: 2 reproduced, {EXACT - 2} not measured yet"
    by_id = {c["id"]: c for c in told_json["claims"]}
    assert len(by_id) == TOTAL
    assert by_id["mtsa-1-output"]["verdict"] == "reproduced"
    assert by_id["mtsa-2-multi-head"]["verdict"] == "reproduced"
    assert by_id["mtsa-2-multi-head"]["value"] == pytest.approx(1.2)
    assert by_id["mtsa-2-multi-head"]["records"]
    assert by_id["mtsa-3-epoch-multi-head"]["verdict"] == "reproduced"
    assert by_id["mtsa-8-measured-trec"]["verdict"] == "reproduced"
    assert by_id["mtsa-8-measured-cr"]["verdict"] == "not testable here"
    assert by_id["mtsa-8-best-cr"]["arithmetic"]
    (score,) = told_json["score"].values()
    assert score["exact"] == {"not measured yet": EXACT - 2, "reproduced": 2}
    assert score["cost"]["reproduced"] == 2
    assert by_id["mtsa-3-epoch-multi-head"]["hardware"] == "another class"
    assert by_id["mtsa-4-measured-time-multi-cnn"]["same_as"] == "mtsa-3-epoch-multi-cnn"


def test_a_measured_claim_that_fails_is_no_error(told: Told) -> None:
    """In a journal that holds but one check of ``verify`` beside it."""
    bad = [*timed({OURS: 9.0, BASE: 1.0}), *peaks({OURS: [1.0] * 3, BASE: [9.0] * 3})]
    code, _, told_json = told(Fast=[LAYERS, *bad])
    assert code == 0
    assert not told_json["published"]
    verdicts = {c["id"]: c["verdict"] for c in told_json["claims"]}
    assert verdicts["mtsa-3-epoch-multi-head"] == "not reproduced"
    assert verdicts["mtsa-2-multi-head"] == "not reproduced"
    assert verdicts["multi-scale-17-layer-2"] == "reproduced"
    assert verdicts["mtsa-1-output"] == "not testable here"


def test_an_exact_claim_that_fails_is_exit_code_1_and_each_device_has_a_score(told: Told) -> None:
    code, lines, told_json = told(Fast=some(), Slow=some("wrong"))
    assert code == 1
    assert told_json["failed"] == ["mtsa-1-output", "mtsa-1-gradients"]
    assert any(line.startswith("mtsa-1-output fails") for line in lines)
    assert len(told_json["score"]) == 2
    exactly = [line for line in lines if line.startswith("exact, on ")]
    assert sorted(line.split()[2] for line in exactly) == ["Fast", "Slow", "none"]
    assert sum(line.startswith("audit: ") for line in lines) == 1  # needs no records


def test_an_exact_claim_has_one_line_where_all_devices_agree(told: Told) -> None:
    _, lines, _ = told(Fast=some(), Slow=some())
    assert sum("Algorithm 1 gives the output of eq. 13." in line for line in lines) == 1
    assert sum("MTSA needs 1.2x the memory" in line for line in lines) == 2
    _, lines, _ = told(Wrong=some("wrong"))
    assert sum("Algorithm 1 gives the output of eq. 13." in line for line in lines) == 2


LAYERS = exact("heads per scale", parts={f"layer {i}": {"verdict": "ok"} for i in (1, 2, 3)})


@pytest.mark.parametrize(
    ("slow", "count", "costs"),
    [(timed({OURS: 1.0, BASE: 1.0}), 2, {"Fast", "Slow"}), ([LAYERS], 5, {"Fast"})],
    ids=["one tried nothing", "each tried some"],
)
def test_exact_claims_need_no_device_and_one_that_measured_nothing_of_a_sort_is_silent(
    told: Told, slow: Any, count: int, costs: set[str]
) -> None:
    """What mathematics says is counted together where all that tried it agree."""
    _, lines, told_json = told(Fast=some(), Slow=slow)
    exactly = [line for line in lines if "exact: " in line]
    assert exactly == [f"exact: {count} reproduced, {EXACT - count} not measured yet"]
    # What none of them has measured is counted once.
    assert {line.split()[2] for line in lines if line.startswith("cost, on ")} == {*costs, "none"}
    assert sum("on none of these" in line for line in lines) == 2  # cost and accuracy
    each = sorted(s["exact"]["not measured yet"] for s in told_json["score"].values())
    assert each == sorted([EXACT - 2, EXACT + 2 - count])


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> tuple[Ledger, Path]:
    place = tmp_path_factory.mktemp("page")
    folder = write(place / "journal", f"Fast {EVIL}", some())
    return Ledger.begin(journal=str(folder), out=str(place / "out"), page="claims"), place / "out"


def test_the_page_shows_every_claim(page: tuple[Ledger, Path]) -> None:
    report, out = page
    body = report.papers().html
    assert body.count("<tr>") == TOTAL + 4  # a head per paper
    for word in ("MTSA", "Multi-Scale", "DiSAN", "ReSAN"):
        assert f"<h3>{word}" in body
    row = next(r for r in body.split("<tr>") if "MTSA needs 1.2x the memory" in r)
    assert "558MB / 466MB = 1.2" in row
    assert "<strong>reproduced</strong>" in row
    assert 'href="scaling.html"' in row
    assert "records memory" in row
    table = pd.read_csv(out / "tables" / "claims-mtsa.csv")
    assert len(table) == sum(c.paper == "mtsa" for c in load_claims())
    assert {"id", "verdict", "value", "low", "high", "records", "arithmetic", "device"} <= set(
        table
    )


def test_links_lead_to_pages_that_there_are(page: tuple[Ledger, Path]) -> None:
    report, _ = page
    scope = Scope(report.source, "journal")
    known = {f"{p.name}.html" for b in NOTEBOOKS for p in b.pages(scope)}
    named = set(re.findall(r'href="([^"#]*\.html)"', report.papers().html))
    assert named
    assert named <= known
    anchors = set(re.findall(r'href="#([^"]*)"', report.papers().html))
    assert anchors <= set(re.findall(r'<h4 id="([^"]*)"', report.arithmetic().html))
    assert len(anchors) == sum(c.kind == "audit" for c in load_claims())


def test_the_records_behind_the_claims_are_one_link_away(page: tuple[Ledger, Path]) -> None:
    report, out = page
    shown = report.papers().html
    assert '<a href="tables/claims-records.jsonl">records</a>' in shown
    lines = (out / "tables" / "claims-records.jsonl").read_text().splitlines()
    kept = {json.loads(line)["key"] for line in lines}
    named = {key for v in report.verdicts for key in v.keys}
    assert named
    assert kept == named


def test_what_is_no_claim_of_the_paper_or_told_already_is_counted_in_no_table(
    page: tuple[Ledger, Path],
) -> None:
    report, _ = page
    table = [line.split("|") for line in report.counts().plain.splitlines() if "|" in line]
    cells = [cell.strip() for row in table[2:] for cell in row[3:-1]]
    counted = [v for v in report.listed if v.claim.counted]
    total = sum(int(cell.partition(" (")[0]) for cell in cells if cell)
    assert total == len(counted) < len(report.listed)


def test_nothing_of_a_record_is_markup(page: tuple[Ledger, Path]) -> None:
    report, _ = page
    pieces = (
        report.about(),
        report.score(),
        report.counts(),
        report.ratios(),
        report.papers(),
        report.arithmetic(),
    )
    # What stands on the index too.
    assert any(one.startswith("exact: ") for one in pieces[1].sentences)
    body = "".join(piece.html for piece in pieces)
    assert "&lt;script&gt;" in body
    assert "<script" not in body


def test_found_ratios_are_drawn_beside_published_ones(page: tuple[Ledger, Path]) -> None:
    report, out = page
    mine = [v for v in report.verdicts if v.id in ("mtsa-2-multi-head", "mtsa-3-epoch-multi-head")]
    (axes,) = intervals(mine, "t", "u", "x", ratios=True).axes
    memory, epoch = (v.id for v in mine)
    drawn = {line.get_label(): float(np.asarray(line.get_xdata())[0]) for line in axes.lines}
    assert drawn[memory] == pytest.approx(1.2)
    assert drawn[f"{memory}: published"] == pytest.approx(558 / 466)
    assert drawn[epoch] == pytest.approx(mine[1].value)
    assert drawn[f"{epoch}: published"] == pytest.approx(180 / 179)
    assert [t.get_text() for t in axes.get_yticklabels()] == [
        "MTSA needs 1.2x the memory of multi-head attention",
        "Training with MTSA takes as long as with multi-head attention (18…",
    ]
    assert axes.get_xscale() == "log"
    report.ratios()
    assert (out / "figures" / "claims-ratios.svg").is_file()


def test_a_row_and_the_score_name_the_machine_that_made_the_runs(
    page: tuple[Ledger, Path],
) -> None:
    source = page[0].source
    (device,) = source.devices
    sessions = (*device.sessions, {"session": "s2", "fingerprint": {"kind": "cpu", "model": "Far"}})
    records = tuple({**r, "session": "s2"} if r["kind"] == "run" else r for r in device.records)
    moved = replace(device, records=records, sessions=sessions)
    twin = replace(
        device, key="twin", fingerprint={**device.fingerprint, "model": "Twin"}, records=()
    )
    ledger = Ledger(replace(source, devices=(moved, twin)), Output(None, "p"))
    far = next(title for title in moved.machines if title.startswith("Far"))
    measured = next(v for v in ledger.verdicts if v.id == "mtsa-8-measured-trec")
    row = ledger.of_paper("mtsa").plain.partition(measured.claim.statement)[2].partition("\n")[0]
    assert f"({far}, {len(measured.keys)} runs)" in row
    score = ledger.score().plain.splitlines()
    (line,) = (line for line in score if line.startswith(f"accuracy, on {far}: "))
    assert line.endswith(": 1 reproduced (more favourable, exploratory)")


def test_what_another_machine_decides_is_told_and_counted_in_no_table(
    page: tuple[Ledger, Path],
) -> None:
    """Fewer seeds of the same two models, on a machine of its own."""
    report, source = page[0], page[0].source
    (device,) = source.devices
    few = tuple(r for r in device.records if r["kind"] == "run" and r["seed"] < 3)
    far = {**device.fingerprint, "model": "Far"}
    twin = replace(device, key="far", fingerprint=far, records=few)
    ledger = Ledger(replace(source, devices=(device, twin)), Output(None, "p"))
    (row,) = (
        line for line in ledger.of_paper("mtsa").plain.splitlines() if "on TREC (publ" in line
    )
    told, other, _ = row.split("<br>", 2)
    assert "; p = " in told
    assert ", 6 runs: undecided, 9.67 [8.23, 11.1] points. " in other
    assert "; p = " not in other, "of three seeds there is none"
    assert (
        ledger.counts().plain.partition("accuracy")[2].partition("\n")[0]
        == (report.counts().plain.partition("accuracy")[2].partition("\n")[0])
    )


@pytest.mark.parametrize("turn", [1, -1])
def test_a_claim_has_one_row_and_what_another_machine_settles_otherwise_stands_in_it(
    tmp_path: Path, turn: int
) -> None:
    """Whichever machine is the first: the one with most readings has it, and is counted."""
    write(tmp_path, "Fast", some())
    dear = peaks({OURS: [360.0] * 5, BASE: [100.0] * 5})
    write(tmp_path, "Slow", [*timed({OURS: 1.0, BASE: 1.0}), *dear])
    source = Ledger.begin(journal=str(tmp_path), out="", page="claims").source
    ledger = Ledger(replace(source, devices=source.devices[::turn]), Output(None, "p"))
    lines = ledger.of_paper("mtsa").plain.splitlines()
    (row,) = (line for line in lines if "MTSA needs 1.2x the memory" in line)
    assert row.startswith("| not reproduced<br>elsewhere reproduced | cost | ")
    told, _, other = row.partition("<br>Fast")
    assert "(360 MiB and 100 MiB; 5 readings). (Slow " in told
    assert ": reproduced, 1.2x. mtsa.algorithm1 2h" in other
    (costs,) = (row for row in ledger.counts().plain.splitlines() if "| MTSA | cost |" in row)
    reproduced, lost = (cell.strip() for cell in costs.split("|")[3:5])
    assert (reproduced, lost) == ("1", "1 (1 less favourable)"), "the time, and the memory"


def test_what_is_nearest_to_the_published_form_fills_the_row(tmp_path: Path) -> None:
    """Before what has more readings."""
    far = [case("mtsa.fused", 64, heads=2), BASE]
    lost = timed({case("mtsa_released.algorithm1", 64, heads=2): 1.0, BASE: 1.0})
    write(tmp_path, "Failed", [{**r, "status": "oom"} for r in lost])
    write(tmp_path, "Far", [*timed(dict.fromkeys(far, 1.0)), *peaks({c: [9.0] * 5 for c in far})])
    write(tmp_path, "Near", some())
    ledger = Ledger.begin(journal=str(tmp_path), out="", page="claims")
    lines = ledger.of_paper("mtsa").plain.splitlines()
    (row,) = (line for line in lines if "MTSA needs 1.2x the memory" in line)
    told, _, other = row.partition("<br>Far")
    assert "120 MiB and 100 MiB; 3 readings). (Near" in told, "and not what failed"
    assert "mtsa.fused 2h" in other
    assert "5 readings" in other


def test_of_growth_too_the_nearest_form_fills_the_row(tmp_path: Path) -> None:
    lengths = (128, 256, 512)
    for machine, form, more in (
        ("Far", "disa.chunked", [1024, 300, 400, 700]),
        ("Near", "disa.broadcast", []),
    ):
        times = {case(form, n): float(n**2) for n in (*lengths, *more)}
        write(tmp_path, machine, [*timed(times)])
    ledger = Ledger.begin(journal=str(tmp_path), out="", page="claims")
    lines = ledger.of_paper("mtsa").plain.splitlines()
    (row,) = (line for line in lines if "DiSA's time grows as n^2 d" in line)
    told, _, other = row.partition("<br>Far")
    assert ("disa.broadcast, time" in told, "disa.chunked, time" in other) == (True, True)


def test_how_several_claims_were_measured_is_said_once(page: tuple[Ledger, Path]) -> None:
    plain = page[0].of_paper("mtsa").plain
    setup = next(c.setup for c in load_claims() if c.id.endswith("mtsa-2-multi-head"))
    assert plain.count(setup) == 1
    (said,) = (line for line in plain.splitlines() if setup in line)
    number = said.partition(". ")[0]
    rows = [line for line in plain.splitlines() if f"<br>{number}. " in line]
    assert len(rows) == sum(c.setup == setup for c in load_claims())
    assert any("MTSA needs 1.2x the memory" in row for row in rows)


def test_ticks_of_many_octaves_do_not_overlap(page: tuple[Ledger, Path]) -> None:
    some = next(v for v in page[0].verdicts if v.id == "mtsa-3-epoch-multi-head")
    wide = [replace(some, value=v, low=v, high=v) for v in (1 / 20, 1 / 3, 1.0, 20.0)]
    figure = intervals(wide, "t", "u", "x", ratios=True)
    figure.canvas.draw()
    (axes,) = figure.axes
    low, high = axes.get_xlim()
    shown = [t for t in axes.get_xticklabels() if low <= t.get_position()[0] <= high]
    assert [t.get_text() for t in shown][:2] == ["1/16x", "1/8x"]
    boxes = [t.get_window_extent() for t in shown]
    assert all(a.x1 + 2 < b.x0 for a, b in pairwise(boxes))


def test_without_measured_ratios_the_command_is_named(tmp_path: Path) -> None:
    folder = write(tmp_path / "journal", "Fast", [exact("algorithm1")])
    report = Ledger.begin(journal=str(folder), out="", page="claims")
    assert "attnbench bench --profile paper" in report.ratios().plain


def test_the_audit_page_draws_what_the_ledger_lists(
    tmp_path: Path, page: tuple[Ledger, Path]
) -> None:
    audit = Audit(Output(tmp_path, "audit"))
    plain = "\n".join(piece().plain for piece in (audit.shares, audit.data_sets, audit.costs))
    assert "84.245; printed is 84.01" in plain
    assert "mean +0.72 points over 16 data sets" in plain
    for name in ("shares", "data-sets", "costs"):
        assert (tmp_path / "figures" / f"audit-{name}.svg").is_file()
    listed = {v.id for v in page[0].listed}
    assert {c.id for c in load_claims() if c.kind == "audit"} <= listed
