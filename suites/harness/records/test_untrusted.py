"""Records are material: whatever a journal holds, it is counted, skipped with a word, or shown."""

from __future__ import annotations

import contextlib
import html
import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from papermill.translators import PythonTranslator
from rich.console import Console

from harness.cli.train import _show
from harness.errors import UsageError
from harness.experiments.buildable import checks
from harness.experiments.conclusion import conclusions
from harness.experiments.costs import Durations, run_seconds
from harness.experiments.estimate import recorded_spread
from harness.records import journal, schema
from harness.records.predictions import read
from harness.records.ratios import time_frame
from harness.train.task import task
from reports.core.words import file_name
from reports.pages.bench import write_page
from suites.harness.records.test_ratios import BASE, MINE, rows_of
from suites.support.comparisons import RECIPE, design, family, runs
from suites.support.sessions import made_up

CASE = "mtsa.algorithm1-B1-N2-D4-H2-f32-forward-cpu"
GOOD = {"kind": "time", "key": "good", "case": CASE, "block": 0, "status": "ok", "median": 0.1}
EVIL = "<script>alert(1)</script>"
ROOT = Path(__file__).parents[3]
PUBLISHED = sorted((ROOT / "reports/published").rglob(f"*{journal.PACKED}"))


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
}


@pytest.mark.parametrize("name", BAD_LINES)
def test_a_line_that_is_no_record_is_named_and_skipped(tmp_path: Path, name: str) -> None:
    _journal(tmp_path, BAD_LINES[name])
    read = journal.read(tmp_path)
    assert [r["key"] for r in read.records] == ["good"]
    (warning,) = read.warnings
    assert warning.startswith("a.jsonl:2: not a record (")
    assert len(warning) < 400
    assert time_frame(read.records)["seconds"].tolist() == [0.1]


COVERED = {"vectors": "v", "vocabulary": 9, "covered": 8, "running_words": 7, "covered_running": 6}


def _trained() -> list[dict[str, Any]]:
    """A comparison of three seeds, by itself and as one of several, a sweep, and a verdict."""
    more: dict[str, Any] = {
        **{"code": "c", "fingerprint": "f", "vectors": "v", "data": "d", "workers": 2},
        **{
            "fold": None,
            "recipe": {**RECIPE, "batch": 32},
            "predictions": {"file": "lost.npz", "sha256": "s"},
        },
        **{"task_seconds": 4.0, "memory_method": "VmHWM", "coverage": COVERED, "chosen_epoch": 1},
        "examples": {"train": 64},
    }
    epoch = {"epoch": 1, "loss": 0.5, "dev": {"accuracy": 0.8}, "seconds": 1.0}
    each = [
        {**run, "case": run["key"], "test": {"accuracy": run["test"]["accuracy"]}}
        for model in (MINE, BASE)
        for run in runs(
            model,
            [0.8 + 0.01 * seed**2 * len(model) for seed in range(3)],
            epochs=[epoch] * (2 if model == MINE else 1),  # unequal training
            **more,
        )
    ]
    sweep = {"kind": "sweep", "key": "s", "models": [MINE, BASE], "tasks": ["trec"]}
    return [
        design(3, key="d", one_test_set=True),
        family([MINE], ["trec"], 3, one_test_set=True),
        {**sweep, "status": "ok", "runs": [run["key"] for run in each]},
        *each,
        {"kind": "verdict", "key": "v", "design": "d", "designs": ["d"], "status": "ok"},
    ]


def _read_all(folder: Path) -> journal.Journal:
    """What compare, train, sweep and plan read of runs, designs and verdicts."""
    found = journal.read(folder)
    if found.warnings:  # the line is skipped, and what is left can be counted with
        return found
    conclusions(found.records, partial(read, [folder]))
    runs = [r for r in found.records if r["kind"] == "run"]
    checks([], runs)
    for run in runs:
        _show(Console(quiet=True), run, task("trec"), "dev")
        run_seconds(run)
    Durations({}, 2, found.records)
    with contextlib.suppress(UsageError):  # too few pairs, say
        recorded_spread(found.records, (MINE, BASE), "trec", "accuracy")
    return found


def _without(record: dict[str, Any], name: str) -> dict[str, Any]:
    return {key: value for key, value in record.items() if key != name}


def _edited(records: list[dict[str, Any]], index: int, line: dict[str, Any], folder: Path) -> Path:
    lines = [json.dumps(r) for r in (*records[:index], line, *records[index + 1 :])]
    return _journal(folder, *lines)


NOTHING = object()
SCALARS: tuple[Any, ...] = (NOTHING, None, -1, True, float("nan"), 10**400, "x")
NESTED: tuple[Any, ...] = ([], {}, [3], ["x"], [[3, 3]], [{}], {"mse": "x"}, {"accuracy": None})


@pytest.mark.parametrize("kind", ["design", "family", "sweep", "run", "verdict"])
def test_no_edit_of_a_record_stops_what_reads_it(tmp_path: Path, kind: str) -> None:
    records = _trained()
    index = next(i for i, r in enumerate(records) if r["kind"] == kind)
    assert _read_all(_edited(records, index, records[index], tmp_path).parent).warnings == []
    for name in [*records[index], "designs", "resumed", "selected", "test_sampled", "at"]:
        if name == "kind":
            continue
        for value in (*SCALARS, *NESTED):
            line = _without(records[index], name)
            if value is not NOTHING:
                line[name] = value
            try:
                _read_all(_edited(records, index, line, tmp_path).parent)
            except Exception as error:
                pytest.fail(f"{kind} with {name}={value!r}: {type(error).__name__}: {error}")


WRONG: list[tuple[str, dict[str, Any], str]] = [
    ("run", {"test": {}}, "test is empty"),
    ("run", {"test": None}, "ok, but test is missing"),
    ("run", {"test": {"accuracy": "x"}}, "test.accuracy is no finite number"),
    ("run", {"test": {"accuracy": float("nan")}}, "test.accuracy is no finite number"),
    ("run", {"test": {"accuracy": 1e200}}, "test.accuracy is no finite number"),
    ("run", {"epochs": None}, "ok, but epochs is missing"),
    ("run", {"epochs": [{"epoch": 1}]}, "epochs[0].seconds is no finite number of 0 or more"),
    ("run", {"seconds": "3"}, "seconds is no finite number of 0 or more"),
    ("run", {"chosen_epoch": None}, "ok, but chosen_epoch is missing"),
    ("run", {"coverage": 1}, "coverage is no dict"),
    ("run", {"examples": -1}, "examples is no dict"),
    ("run", {"examples": {"train": "x"}}, "examples.train is no finite number of 0 or more"),
    (
        "run",
        {"coverage": {**COVERED, "covered": "x"}},
        "coverage.covered is no finite number of 0 or more",
    ),
    ("run", {"recipe": 3}, "recipe is no dict"),
    ("design", {"margin": float("inf")}, "margin is no finite number above 0"),
    ("design", {"one_test_set": None}, "one_test_set is no bool"),
    ("design", {"higher_is_better": 1}, "higher_is_better is no bool"),
    ("design", {"split": None}, "split is no str"),
    ("design", {"match": None}, "match is no str"),
    ("design", {"recipes": [RECIPE]}, "recipes is no list of 2"),
    ("design", {"recipes": [RECIPE, {}]}, "recipes[1].choose is no str"),
    ("design", {"models": [MINE]}, "models is no list of 2"),
    ("design", {"runs": [["a"]]}, "runs[0] is no list of 2"),
    ("design", {"folds": 1}, "folds is 1 or less"),
    ("verdict", {"designs": 3}, "designs is no list"),
]


@pytest.mark.parametrize(
    ("kind", "edit", "why"), WRONG, ids=[f"{kind} {edit}"[:60] for kind, edit, _ in WRONG]
)
def test_a_wrong_field_is_named_and_its_line_skipped(
    tmp_path: Path, kind: str, edit: dict[str, Any], why: str
) -> None:
    records = _trained()
    index = next(i for i, r in enumerate(records) if r["kind"] == kind)
    read = journal.read(_edited(records, index, {**records[index], **edit}, tmp_path).parent)
    # The session's line is the first.
    assert [w for w in read.warnings if f":{index + 2}:" in w] == [
        f"a.jsonl:{index + 2}: not a record ({why}); skipped"
    ]
    assert len(read.records) == len(records)


def test_a_design_without_a_margin_says_null(tmp_path: Path) -> None:
    records = _trained()
    read = journal.read(_edited(records, 0, _without(records[0], "margin"), tmp_path).parent)
    assert "a.jsonl:2: not a record (margin is missing); skipped" in read.warnings


def test_a_run_that_failed_needs_no_result(tmp_path: Path) -> None:
    failed = {"kind": "run", "key": "r", "model": MINE, "seed": 0, "status": "oom"}
    read = journal.read(_journal(tmp_path, json.dumps(failed)).parent)
    assert read.warnings == []
    assert [r["key"] for r in read.records] == ["r", "good"]


@pytest.mark.parametrize("file", PUBLISHED, ids=lambda file: file.name)
def test_published_records_are_read_without_a_warning(file: Path) -> None:
    read = journal.read(file.with_name(file.name.removesuffix(journal.PACKED)))
    assert read.warnings == []
    assert read.records


def test_published_records_stay_small() -> None:
    assert PUBLISHED
    assert sum(file.stat().st_size for file in PUBLISHED) < 4 * 2**20


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
    return rows_of(read.records)


@pytest.mark.filterwarnings("ignore:constrained_layout")
def test_the_bench_page_escapes_every_text_of_a_record(tmp_path: Path) -> None:
    rows = _hostile_rows(tmp_path)
    assert len(rows) == 3
    verified = [{"name": EVIL, "dtype": EVIL, "verdict": EVIL, "detail": EVIL}]
    (session,) = journal.read(tmp_path).sessions.values()
    page = write_page(tmp_path, session["fingerprint"], "multi_head.sdpa", [EVIL], rows, verified)
    text = page.read_text(encoding="utf-8")
    assert EVIL not in text
    assert text.count("<script") == 1, "ours, which sorts tables"
    assert text.count(html.escape(EVIL)) > 10
    assert "<script" not in (tmp_path / "cost.svg").read_text()


def test_a_key_from_a_record_is_no_path_and_no_code(tmp_path: Path) -> None:
    for key in ("../../x", "a/b", "..", "", "\0", "C:\\x", "x" * 300):
        name = file_name(key)
        assert name.replace("-", "").isalnum()
        assert len(name) < 60
    assert file_name("0123456789abcdef") == "0123456789abcdef"
    assert file_name("../a") != file_name("../b")
    target = tmp_path / "executed"
    key = f'"\\"\n); __import__("pathlib").Path({str(target)!r}).touch() #\'\'\'"""${{x}}'
    values: dict[str, Any] = {}
    exec(PythonTranslator.codify({"design": key}), values)  # as the notebook's kernel does
    assert values["design"] == key
    assert not target.exists()
