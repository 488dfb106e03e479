"""The journal: torn lines, newer schemas, foreign files, two writers, full disks."""

from __future__ import annotations

import json
import multiprocessing
import os
import time
from pathlib import Path

import pytest
import typer

from harness.errors import UsageError
from harness.records import journal
from harness.records.published import main, pack, places
from harness.records.ratios import time_frame
from harness.records.schema import SCHEMA, key

CASE = "mtsa.algorithm1-B1-N2-D4-H2-f32-forward-cpu"


def _time_record(name: str, block: int = 0) -> dict[str, object]:
    return {
        "kind": "time",
        "key": name,
        "case": CASE,
        "block": block,
        "status": "ok",
        "samples": [0.5, 0.25],
        "median": 0.375,
    }


def _written(folder: Path, *keys: str) -> Path:
    writer = journal.Writer(folder, {"fingerprint": {"device": "cpu"}})
    for name in keys:
        writer.append(_time_record(name))
    writer.close()
    return writer.path


def test_what_was_written_is_read_back(tmp_path: Path) -> None:
    _written(tmp_path, "a", "b")
    read = journal.read(tmp_path)
    assert [r["key"] for r in read.records] == ["a", "b"]
    assert read.warnings == []
    assert next(iter(read.sessions.values()))["fingerprint"] == {"device": "cpu"}


def test_a_torn_last_line_is_skipped_and_reported(tmp_path: Path) -> None:
    path = _written(tmp_path, "a", "b")
    text = path.read_bytes()
    path.write_bytes(text[:-20])
    read = journal.read(tmp_path)
    assert [r["key"] for r in read.records] == ["a"]
    assert len(read.warnings) == 1
    assert "torn" in read.warnings[0]


def test_a_packed_journal_is_read_and_a_damaged_one_up_to_the_damage(tmp_path: Path) -> None:
    _written(tmp_path / "mine", *(f"key{i}" for i in range(2000)))
    packed = pack(tmp_path / "mine", tmp_path / "cpu" / "layers")
    read = journal.read(tmp_path / "cpu" / "layers")
    assert packed == tmp_path / "cpu" / "layers.jsonl.xz"
    assert places(tmp_path / "cpu") == [tmp_path / "cpu" / "layers"]
    assert read.records == journal.read(tmp_path / "mine").records
    assert read.warnings == []
    whole = packed.read_bytes()
    packed.write_bytes(whole[: 4 * len(whole) // 5])
    cut = journal.read(tmp_path / "cpu" / "layers")
    assert 0 < len(cut.records) < 2000
    assert cut.records == read.records[: len(cut.records)]
    assert len(cut.warnings) == 1
    assert "torn" in cut.warnings[0]
    packed.write_bytes(b"not packed at all")
    assert "foreign line" in journal.read(tmp_path / "cpu" / "layers").warnings[0]


def test_only_what_is_read_is_published(tmp_path: Path) -> None:
    first = journal.Writer(tmp_path, {"plan": 1})
    first.append({**_time_record("old"), "code": "old", "fingerprint": "f"})
    first.append({"kind": "block", "block": 0})
    first.close()
    second = journal.Writer(tmp_path, {"plan": 2})
    new = {**_time_record("new"), "code": "new", "fingerprint": "f"}
    second.append({**new, "samples": [0.123456, 3], "median": 0.123456})
    second.append({**_time_record("other"), "code": "old", "fingerprint": "another machine"})
    second.close()
    first.path.rename(tmp_path / "1.jsonl")
    second.path.rename(tmp_path / "2.jsonl")
    pack(tmp_path, tmp_path / "published")
    read = journal.read(tmp_path / "published")
    assert [r["key"] for r in read.records] == ["new", "other"]
    assert [s["plan"] for s in read.sessions.values()] == [2]
    assert read.records[0]["samples"] == [0.1235, 3]
    assert read.records[0]["median"] == 0.123456


@pytest.mark.parametrize(
    ("line", "why"),
    [("", "no record that a page or a claim reads"), ('{"kind": "ti', "torn or foreign line")],
)
def test_nothing_is_published_of_a_journal_that_is_empty_or_torn(
    line: str, why: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = _written(tmp_path)
    path.write_text(path.read_text() + line)
    with pytest.raises(typer.Exit) as left:
        main(tmp_path, tmp_path / "published")
    assert left.value.exit_code == 2
    assert why in capsys.readouterr().err
    assert not journal.exists(tmp_path / "published")


def test_a_newer_schema_is_refused_and_untouched(tmp_path: Path) -> None:
    path = _written(tmp_path, "a")
    lines = path.read_text().splitlines()
    first = {**json.loads(lines[0]), "schema": SCHEMA + 1}
    path.write_text("\n".join([json.dumps(first), *lines[1:]]) + "\n")
    before = path.read_bytes()
    with pytest.raises(UsageError, match=f"schema {SCHEMA + 1}"):
        journal.read(tmp_path)
    assert path.read_bytes() == before


def test_a_foreign_file_is_skipped_and_reported(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"kind": "time", "key": "x"}\n')
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)))
    _written(tmp_path, "a")
    read = journal.read(tmp_path)
    assert [r["key"] for r in read.records] == ["a"]
    assert any("other.jsonl" in w for w in read.warnings)
    assert any("binary.jsonl" in w for w in read.warnings)


def test_an_unwritable_folder_is_one_line(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match=r"can't write the journal in .*give another --journal"):
        journal.Writer(blocked / "results", {})


def test_a_full_disk_is_one_line_and_loses_nothing(tmp_path: Path) -> None:
    writer = journal.Writer(tmp_path, {})
    writer.append(_time_record("a"))
    full = os.open("/dev/full", os.O_WRONLY)
    os.dup2(full, writer._descriptor)
    with pytest.raises(UsageError, match=r"No space left.*finished measurements are kept"):
        writer.append(_time_record("b"))
    os.close(full)
    assert [r["key"] for r in journal.read(tmp_path).records] == ["a"]


def _append_many(folder: str, name: str, count: int) -> None:
    writer = journal.Writer(Path(folder), {})
    for i in range(count):
        writer.append(_time_record(f"{name}{i}"))
    writer.close()


def test_two_sessions_at_once_keep_their_own_files(tmp_path: Path) -> None:
    context = multiprocessing.get_context("spawn")
    workers = [
        context.Process(target=_append_many, args=(str(tmp_path), name, 200)) for name in "pq"
    ]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    read = journal.read(tmp_path)
    assert read.warnings == []
    assert len(read.sessions) == 2
    assert sorted(r["key"] for r in read.records) == sorted(
        f"{name}{i}" for name in "pq" for i in range(200)
    )


def test_the_same_key_from_two_sessions_counts_once(tmp_path: Path) -> None:
    _written(tmp_path, "a")
    _written(tmp_path, "a", "b")
    assert sorted(r["key"] for r in journal.read(tmp_path).records) == ["a", "b"]


def test_paths_with_spaces_and_unicode(tmp_path: Path) -> None:
    folder = tmp_path / "mes résultats ☃"
    _written(folder, "a")
    assert len(journal.read(folder).records) == 1


def test_nothing_in_a_record_is_executed(tmp_path: Path) -> None:
    path = _written(tmp_path, "a")
    target = tmp_path / "executed"
    evil = f"__import__('pathlib').Path({str(target)!r}).touch()"
    with path.open("a") as file:
        file.write(json.dumps({**_time_record(evil), "detail": evil, "py/object": evil}) + "\n")
    frame = time_frame(journal.read(tmp_path).records)
    assert len(frame) == 2
    assert not target.exists()


def test_hundred_thousand_records_load_in_three_seconds(tmp_path: Path) -> None:
    path = _written(tmp_path, "a")
    lines = [json.dumps(_time_record(f"k{i}", i)) for i in range(100_000)]
    with path.open("a") as file:
        file.write("\n".join(lines) + "\n")
    start = time.process_time()  # of this process: the machine may be busy with others
    frame = time_frame(journal.read(tmp_path).records)
    assert time.process_time() - start < 3
    assert len(frame) == 100_001


def test_key_depends_on_everything_that_decides_a_number() -> None:
    base = ("time", CASE, 0, "code", {"torch": "2.13", "threads": 2})
    keys = {
        key(*base),
        key("memory", *base[1:]),
        key("time", CASE + "+1-thread", *base[2:]),
        key("time", CASE, 1, "code", base[4]),
        key("time", CASE, 0, "other", base[4]),
        key("time", CASE, 0, "code", {"torch": "2.12", "threads": 2}),
    }
    assert len(keys) == 6
    assert key(*base) == key("time", CASE, 0, "code", {"threads": 2, "torch": "2.13"})


def test_a_crash_that_was_tried_again_gives_way_to_the_result(tmp_path: Path) -> None:
    first = journal.Writer(tmp_path, {})
    first.append({**_time_record("a"), "status": "crash"})
    first.append(_time_record("b"))
    first.close()
    second = journal.Writer(tmp_path, {})
    second.append(_time_record("a"))
    second.append({**_time_record("b"), "status": "crash"})
    second.close()
    assert {r["key"]: r["status"] for r in journal.read(tmp_path).records} == {"a": "ok", "b": "ok"}


def test_older_code_of_a_case_is_another_subject() -> None:
    record = {"kind": "time", "case": "a", "block": 0, "code": "old", "at": "2026-01-01"}
    newer = {**record, "code": "new", "at": "2026-01-02"}
    other = {"kind": "time", "case": "b", "block": 0, "code": "old", "at": "2025-01-01"}
    run = {"kind": "run", "code": "old", "at": "2025-01-01"}
    assert journal.newest_code([record, newer, other, run]) == [newer, other, run]
