"""Records are material: whatever a journal holds, it is counted, skipped with a word, or shown."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import pytest
from papermill.translators import PythonTranslator

from harness.ratios import summarise
from harness.records import journal, schema, table
from reports.bench_page import write_page
from reports.pages import file_name
from suites.harness.sessions import made_up

CASE = "mtsa.algorithm1-B1-N2-D4-H2-f32-forward-cpu"
GOOD = {"kind": "time", "key": "good", "case": CASE, "block": 0, "status": "ok", "median": 0.1}
EVIL = "<script>alert(1)</script>"


def _journal(folder: Path, *lines: str, first: dict[str, Any] | None = None) -> Path:
    head = {"kind": "session", "schema": schema.SCHEMA, "session": "s", **(first or {})}
    path = folder / "a.jsonl"
    path.write_text("\n".join([json.dumps(head), *lines, json.dumps(GOOD)]) + "\n")
    return path


BAD_LINES = {
    "half a line": json.dumps(GOOD)[:-9],
    "two lines in one": json.dumps(GOOD) + json.dumps(GOOD),
    "zeros": "\0" * 4096,
    "too deep": "[" * 100_000,
    "too deep inside": json.dumps({**GOOD, "key": "x"})[:-1] + ', "a": ' + '{"a": ' * 100_000,
    "a number": "1",
    "a list": json.dumps([GOOD]),
    "no kind": json.dumps({k: v for k, v in GOOD.items() if k != "kind"}),
    "kind is a list": json.dumps({**GOOD, "kind": ["time"]}),
    "key is a list": json.dumps({**GOOD, "key": ["x"]}),
    "key is missing": json.dumps({k: v for k, v in GOOD.items() if k != "key"}),
    "key of a block": json.dumps({"kind": "block", "key": {}}),
    "status is missing": json.dumps({k: v for k, v in GOOD.items() if k != "status"}),
    "block is text": json.dumps({**GOOD, "block": "0"}),
    "block is true": json.dumps({**GOOD, "block": True}),
    "case is foreign": json.dumps({**GOOD, "case": "rm -rf"}),
    "unknown setting": json.dumps({**GOOD, "case": CASE + "+warp"}),
    "time is text": json.dumps({**GOOD, "median": EVIL}),
    "time is nan": json.dumps({**GOOD, "median": float("nan")}),
    "time is negative": json.dumps({**GOOD, "median": -0.1}),
    "time is missing": json.dumps({k: v for k, v in GOOD.items() if k != "median"}),
    "samples are text": json.dumps({**GOOD, "samples": EVIL}),
    "memory is text": json.dumps({**GOOD, "kind": "memory", "peak_bytes": EVIL}),
    "margin is text": json.dumps({**GOOD, "kind": "margin", "margin": EVIL}),
    "design is bare": json.dumps({"kind": "design", "key": "d"}),
    "run is bare": json.dumps({"kind": "run", "key": "r"}),
}  # fmt: skip


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_line_that_is_no_record_is_named_and_skipped(tmp_path: Path, name: str) -> None:
    _journal(tmp_path, BAD_LINES[name])
    read = journal.read(tmp_path)
    assert [r["key"] for r in read.records] == ["good"]
    (warning,) = read.warnings
    assert warning.startswith("a.jsonl:2: not a record (")
    assert len(warning) < 400
    assert table.times(read.records)["seconds"].tolist() == [0.1]


@pytest.mark.parametrize(
    "first", [{"environment": EVIL}, {"fingerprint": [1]}, {"environment": {"packages": EVIL}}]
)
def test_a_session_that_is_none_is_skipped_with_its_records(
    tmp_path: Path, first: dict[str, Any]
) -> None:
    _journal(tmp_path, first=first)
    read = journal.read(tmp_path)
    assert read.records == []
    assert "is no dict" in read.warnings[0]


def test_half_a_surrogate_pair_can_be_shown(tmp_path: Path) -> None:
    _journal(tmp_path, '{"kind": "block", "text": "caf\\ud800 \\uD83D\\uDE00"}')
    assert journal.read(tmp_path).records[0]["text"] == "caf? \N{GRINNING FACE}"


def _hostile_rows(folder: Path) -> list[Any]:
    """One case that is ok and one that failed, both of a mechanism with a hostile name."""
    session = made_up(folder)
    base = session.cases[0].id
    writer = journal.Writer(
        folder,
        {
            "fingerprint": {"model": EVIL, "device": "cpu", EVIL: EVIL},
            "environment": {"commit": EVIL, "platform": EVIL, "packages": {EVIL: EVIL}},
        },
    )
    shared = {"kind": "time", "block": 0, "interpreter": "i", "status": "ok", "median": 0.1}
    writer.append({**shared, "key": "a", "case": base})
    writer.append({**shared, "key": "b", "case": base.replace("multi_head.sdpa", f"{EVIL}.{EVIL}")})
    failed = {"status": "crash", "median": None, "detail": EVIL}
    other = base.replace("multi_head.sdpa", f"{EVIL}.other[{EVIL}={EVIL}]")
    writer.append({**shared, "key": "c", "case": other, **failed})
    writer.close()
    read = journal.read(folder)
    assert read.warnings == []
    records = read.records
    return summarise(
        table.times(records), table.memory(records), table.margins(records), "multi_head.sdpa"
    )


@pytest.mark.filterwarnings("ignore:constrained_layout")
def test_the_bench_page_escapes_every_text_of_a_record(tmp_path: Path) -> None:
    rows = _hostile_rows(tmp_path)
    assert len(rows) == 3
    verified = [{"name": EVIL, "dtype": EVIL, "verdict": EVIL, "detail": EVIL}]
    (session,) = journal.read(tmp_path).sessions.values()
    page = write_page(tmp_path, session["fingerprint"], "multi_head.sdpa", [EVIL], rows, verified)
    text = page.read_text(encoding="utf-8")
    assert "<script" not in text
    assert text.count(html.escape(EVIL)) > 10
    assert "<script" not in (tmp_path / "cost.svg").read_text()


def test_a_key_from_a_record_is_no_path_and_no_code(tmp_path: Path) -> None:
    for key in ("../../x", "a/b", "..", "", "\0", "C:\\x", "x" * 300):
        name = file_name(key)
        assert name.isalnum()
        assert len(name) == 8 or name == key
    assert file_name("0123456789abcdef") == "01234567"
    assert file_name("../a") != file_name("../b")
    target = tmp_path / "executed"
    key = f'"\\"\n); __import__("pathlib").Path({str(target)!r}).touch() #\'\'\'"""${{x}}'
    values: dict[str, Any] = {}
    exec(PythonTranslator.codify({"design": key}), values)  # as the notebook's kernel does
    assert values["design"] == key
    assert not target.exists()
