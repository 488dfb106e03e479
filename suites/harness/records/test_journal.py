"""The journal: torn lines, newer schemas, foreign files, two writers, full disks."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import typer

from harness.errors import UsageError
from harness.records import journal
from harness.records.journal import Follower
from harness.records.published import main, pack, places
from harness.records.ratios import time_frame
from harness.records.schema import key
from suites.support.made_up_records import record, unsealed

CASE = "mtsa.algorithm1-B1-N2-D4-H2-f32-forward-cpu"


def _time_record(name: str) -> dict[str, Any]:
    return record("time", CASE, key=name, samples=[0.5, 0.25], median=0.375)


def _written(folder: Path, *keys: str) -> Path:
    writer = journal.Writer(folder, {"fingerprint": {"device": "cpu"}})
    for name in keys:
        writer.append(_time_record(name))
    writer.close()
    return writer.path


def test_a_packed_journal_is_read_and_a_damaged_one_up_to_the_damage(tmp_path: Path) -> None:
    _written(tmp_path / "mine", *(f"key{i}" for i in range(2000)))
    packed = pack(tmp_path / "mine", tmp_path / "cpu" / "layers")
    read = journal.read(tmp_path / "cpu" / "layers")
    assert packed == tmp_path / "cpu" / "layers.jsonl.xz"
    assert places(tmp_path / "cpu") == [tmp_path / "cpu" / "layers"]
    assert read.records == journal.read(tmp_path / "mine").records
    assert [r["key"] for r in read.records] == [f"key{i}" for i in range(2000)]
    assert next(iter(read.sessions.values()))["fingerprint"] == {"device": "cpu"}
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
    epoch = {"epoch": 1, "loss": 0.123456, "dev": {"accuracy": 0.12345678}, "seconds": 12.3456}
    more = {"samples": [0.123456, 3], "median": 0.12345678912, "epochs": [epoch]}
    second.append({**new, **more, "test": {"mse": 0.12345678912}})
    second.append({**_time_record("other"), "code": "old", "fingerprint": "another machine"})
    second.close()
    first.path.rename(tmp_path / "1.jsonl")
    second.path.rename(tmp_path / "2.jsonl")
    pack(tmp_path, tmp_path / "published")
    read = journal.read(tmp_path / "published")
    assert [r["key"] for r in read.records] == ["new", "other"]
    assert [s["plan"] for s in read.sessions.values()] == [2]
    assert read.records[0]["samples"] == [0.123, 3]
    assert read.records[0]["median"] == 0.12345679
    assert read.records[0]["test"] == {"mse": 0.12345678912}, "two runs of one value tell it"
    assert read.records[0]["epochs"] == [
        {"epoch": 1, "dev": {"accuracy": 0.123457}, "seconds": 12.3}
    ]


def test_of_a_run_that_is_withdrawn_nothing_but_that_it_was_made(tmp_path: Path) -> None:
    def design(key: str, *runs: str, question: str = "") -> dict[str, Any]:
        of = {"models": ["a", "b"], "task": "trec", "seeds": [0], "metric": "m", "margin": 0.1}
        of |= {"recipes": [{"choose": "dev", "tuning_trials": 0}] * 2, "higher_is_better": True}
        of |= {"split": "s", "one_test_set": True, "match": "none", "runs": [[*runs]]}
        return {"kind": "design", "key": key, "question": question or key, **of}

    result = {"test": {"m": 0.5}, "epochs": [], "seconds": 1.0, "chosen_epoch": 1}
    result |= {"parameters": 1, "parameters_with_words": 1}
    told = {"model": "a", "task": "trec", "seed": 3, "recipe": {"rate": 1}, "status": "ok"}
    each = [design("of-y", "y", "z"), design("more", "x", "z")]
    family: dict[str, Any] = {"kind": "family", "key": "f", "question": "f", "designs": each}
    family |= {"baseline": "b", "models": ["a"], "tasks": ["trec"]}

    def write(*more: dict[str, Any]) -> None:
        with journal.Writer(tmp_path / "all", {"plan": 1}) as writer:
            for key in ("x", "y", "z"):
                writer.append({"kind": "run", "key": key, **told, **result})
            for one in (design("of-x", "x", "z"), design("of-y", "y", "z"), family, *more):
                writer.append(one)
                key = one["key"]
                writer.append({"kind": "verdict", "key": f"v {key}", "design": key})

    write()
    pack(tmp_path / "all", tmp_path / "whole")
    assert len(journal.read(tmp_path / "whole").records) == 9
    pack(tmp_path / "all", tmp_path / "published", withdrawn=["x"])
    first, *others = journal.read(tmp_path / "published").records
    own = {name: first[name] for name in ("key", "at", "session")}
    assert first == {"kind": "withdrawn", **told, **own}
    assert first["key"] != "x", "made again, it is a run like any other"
    assert [r["key"] for r in others] == ["y", "z", "of-y", "v of-y"], "nor a family that asks"
    again = pack(tmp_path / "published", tmp_path / "again", withdrawn=["x"])
    assert journal.read(tmp_path / "again").records == [first, *others], again
    with pytest.raises(UsageError, match="no run q to withdraw; name others"):
        pack(tmp_path / "all", tmp_path / "published", withdrawn=["x", "q"])
    write({**design("there", "y", "z", question="of-x"), "fingerprint": "another machine"})
    pack(tmp_path / "all", tmp_path / "published", withdrawn=["x"])
    assert "there" in [r["key"] for r in journal.read(tmp_path / "published").records]
    write(design("older", "y", "z", question="of-x"))
    with pytest.raises(UsageError, match="also asks by older what is withdrawn: of-x; withdraw"):
        pack(tmp_path / "all", tmp_path / "published", withdrawn=["x"])


def test_of_a_calibration_the_medians_are_published(tmp_path: Path) -> None:
    def arms(*us: float, **waited: float) -> dict[str, Any]:
        arm = {"ratio": 1.1234567, "base": {"inner": 2, "us": list(us), "waited_us": waited}}
        return {"product-80": {"same": arm, "control": arm}}

    first = arms(9.0, 1.0, 2.0, 3.0, 7.0, **{"1": 5.0})  # walls 2, 3, 6, 7, 9
    second, third = arms(4.0, 4.5, 40.0), arms(12.0, 13.0, 14.0)  # the median of all is 7
    with journal.Writer(tmp_path, {"plan": 1}) as writer:
        common = {"kind": "calibration", "status": "ok", "condition": "idle", "repeat": 0}
        for key, of in (("a", first), ("b", second), ("c", third)):
            writer.append({**common, "key": key, "block": key, "arms": of})
    pack(tmp_path, tmp_path / "published")
    read = journal.read(tmp_path / "published").records
    assert [one["arms"]["product-80"]["same"]["base"] for one in read] == [
        {"steps_us": [6, 0, 0, 1, 0]},
        {"steps_us": [4.5, 0, 2.5]},
        {"steps_us": [7, 6, 0]},
    ]
    assert all(
        one["arms"]["product-80"]["control"] == {"ratio": 1.1235, "base": {}} for one in read
    )
    assert [(one["ran_us"], one["waited_us"]) for one in read] == [(88, 20), (194, 0), (156, 0)]
    assert {one["arms"]["product-80"]["same"]["ratio"] for one in read} == {1.1235}
    # What is published already stays what it is.
    pack(tmp_path / "published", tmp_path / "again")
    assert journal.read(tmp_path / "again").records == read


def _flipped(line: bytes) -> list[bytes]:
    """A line with each of its bits the other way round."""
    number = int.from_bytes(line, "big")
    return [(number ^ 1 << bit).to_bytes(len(line), "big") for bit in range(8 * len(line))]


def test_a_record_of_which_any_bit_was_flipped_is_named_and_skipped(tmp_path: Path) -> None:
    with journal.Writer(tmp_path, {"fingerprint": {"device": "cpu"}}) as writer:
        writer.append(_time_record("a"))
        writer.append({"kind": "block", "block": 0, "text": 'caf\u00e9 ends ,"checksum":"0'})
        writer.append({"kind": "run", "key": "r", "model": "m", "seed": 0, "status": "oom"})
    first, *lines = writer.path.read_bytes().splitlines(keepends=True)
    for line in lines:
        altered = b"".join(_flipped(line))
        writer.path.write_bytes(first + altered)
        read = journal.read(tmp_path)
        assert read.records == []
        count = len(altered.removesuffix(b"\n").split(b"\n"))  # some bits make or join lines
        assert count > 1000
        assert [warning.split(" not a record (")[0] for warning in read.warnings] == [
            f"{writer.path.name}:{number}:" for number in range(2, count + 2)
        ]
        assert Follower(tmp_path, "run", tmp_path).new() == []


def test_a_session_whose_first_line_was_altered_is_skipped(tmp_path: Path) -> None:
    """Nobody knows then on what it was measured."""
    path = _written(tmp_path, "a")
    first, record = path.read_bytes().splitlines()
    path.unlink()
    for bit, altered in enumerate(_flipped(first)):
        (tmp_path / f"{bit:04}.jsonl").write_bytes(altered + b"\n" + record)
    read = journal.read(tmp_path)
    assert read.records == []
    assert read.sessions == {}
    named = {warning.split(" not a record (")[0] for warning in read.warnings}
    assert named >= {f"{bit:04}.jsonl:1:" for bit in range(8 * len(first))}


def test_records_of_before_there_were_checksums_are_read(tmp_path: Path) -> None:
    path = _written(tmp_path, "a")
    before = journal.read(tmp_path)
    unsealed(path)
    assert journal.read(tmp_path) == before


def test_a_packed_journal_of_which_a_byte_was_altered_or_added_is_not_used(tmp_path: Path) -> None:
    keys = (hashlib.sha256(bytes([i % 256, i // 256])).hexdigest() for i in range(3000))
    _written(tmp_path / "mine", *keys)
    packed = pack(tmp_path / "mine", tmp_path / "layers")
    whole = packed.read_bytes()
    places = (99, len(whole) // 2, len(whole) - 99)
    altered = [whole[:at] + bytes([whole[at] ^ 4]) + whole[at + 1 :] for at in places]
    for content in (*altered, whole + b"more"):
        packed.write_bytes(content)
        read = journal.read(tmp_path / "layers")
        assert read.records == []
        assert read.warnings == ["layers.jsonl.xz:1: not a record (torn or foreign line); skipped"]


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


def test_a_foreign_file_is_skipped_and_reported(tmp_path: Path) -> None:
    (tmp_path / "other.jsonl").write_text('{"kind": "time", "key": "x"}\n')
    (tmp_path / "binary.jsonl").write_bytes(bytes(range(256)))
    _written(tmp_path, "a")
    read = journal.read(tmp_path)
    assert [r["key"] for r in read.records] == ["a"]
    assert any("other.jsonl" in w for w in read.warnings)
    assert any("binary.jsonl" in w for w in read.warnings)


def test_a_journal_that_cannot_be_written_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").touch()
    says = r"^can't write the journal in .*: {}; give another --journal$"
    with pytest.raises(UsageError, match=says.format("Not a directory")):
        journal.Writer(tmp_path / "file" / "results", {})

    def refuse(*arguments: Any) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(UsageError, match=says.format("Read-only file system")):
        journal.Writer(tmp_path, {})


def test_a_journal_that_cannot_be_read_is_one_line_and_not_empty(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "gone.jsonl").symlink_to(tmp_path / "nowhere")
    says = r"can't read the journal .*gone\.jsonl: No such file or directory"
    with pytest.raises(UsageError, match=says):
        journal.read(tmp_path)
    with pytest.raises(UsageError, match=says):
        journal.stamp(tmp_path)

    def refuse(folder: Path) -> Any:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(folder))

    monkeypatch.setattr(Path, "iterdir", refuse)
    with pytest.raises(UsageError, match=r"can't read the journal .*: Permission denied"):
        journal.read(tmp_path)
    assert journal.read(tmp_path / "none").records == []


def test_nothing_in_a_record_is_executed(tmp_path: Path) -> None:
    path = _written(tmp_path, "a")
    target = tmp_path / "executed"
    evil = f"__import__('pathlib').Path({str(target)!r}).touch()"
    unsealed(path)
    with path.open("a") as file:
        file.write(json.dumps({**_time_record(evil), "detail": evil, "py/object": evil}) + "\n")
    frame = time_frame(journal.read(tmp_path).records)
    assert len(frame) == 2
    assert not target.exists()


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


@pytest.mark.parametrize("order", [("crash", "ok"), ("ok", "crash"), ("oom", "crash")], ids=str)
def test_a_crash_never_hides_a_result_and_gives_way_to_it(
    order: tuple[str, str], tmp_path: Path
) -> None:
    """Tried again, or two drivers at once, one of whose children was killed."""
    for name, status in zip("ab", order, strict=True):
        with journal.Writer(tmp_path, {}) as writer:
            writer.append({**_time_record("a"), "status": status})
        writer.path.rename(tmp_path / f"{name}.jsonl")
    (record,) = journal.read(tmp_path).records
    assert record["status"] == next(status for status in order if status != "crash")


def test_sessions_of_one_second_are_read_in_the_order_they_began(tmp_path: Path) -> None:
    for number in range(12):
        with journal.Writer(tmp_path, {}) as writer:
            writer.append({"kind": "block", "block": number})
    assert [r["block"] for r in journal.read(tmp_path).records] == list(range(12))


@pytest.mark.parametrize("kind", ["time", "accuracy"])
def test_older_code_of_a_case_is_another_subject(kind: str) -> None:
    record = {"kind": kind, "case": "a", "block": 0, "code": "old", "at": "2026-01-01"}
    newer = {**record, "code": "new", "at": "2026-01-02"}
    other = {"kind": kind, "case": "b", "block": 0, "code": "old", "at": "2025-01-01"}
    run = {"kind": "run", "code": "old", "at": "2025-01-01"}
    assert journal.newest_code([record, newer, other, run]) == [newer, other, run]


def test_a_disk_that_takes_little_at_a_time_still_gets_whole_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write = os.write
    monkeypatch.setattr(os, "write", lambda descriptor, data: write(descriptor, data[:7]))
    with journal.Writer(tmp_path, {}) as writer:
        writer.append({"kind": "block", "text": "x" * 100})
    read = journal.read(tmp_path)
    assert read.records[0]["text"] == "x" * 100
    assert read.warnings == []


def test_a_record_after_a_torn_line_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full in the middle of a line, and then it was not."""
    writer = journal.Writer(tmp_path, {})
    write, room = os.write, [20]

    def full(descriptor: int, data: bytes) -> int:
        if not room:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return write(descriptor, data[: room.pop()])

    with monkeypatch.context() as patched:
        patched.setattr(os, "write", full)
        with pytest.raises(UsageError, match="No space left"):
            writer.append({"kind": "block", "block": 1})
    writer.append({"kind": "block", "block": 2})
    writer.close()
    read = journal.read(tmp_path)
    assert [r["block"] for r in read.records] == [2]
    assert len(read.warnings) == 1


def test_a_journal_whose_stamps_go_back_is_read_in_the_order_of_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was written last has the earliest name; a crash still gives way to the result."""
    hours = itertools.count()

    class Backwards:
        @staticmethod
        def now(zone: object) -> datetime:
            return datetime(2026, 1, 1, tzinfo=UTC) - timedelta(hours=next(hours))

    monkeypatch.setattr(journal, "datetime", Backwards)
    for status in ("crash", "ok"):
        with journal.Writer(tmp_path, {}) as writer:
            for name in "ab":
                writer.append({**_time_record(name), "status": status})
    read = journal.read(tmp_path)
    assert read.warnings == []
    assert [(r["key"], r["status"]) for r in read.records] == [("a", "ok"), ("b", "ok")]
    assert read.records[0]["at"] > read.records[1]["at"]
    assert next(iter(read.sessions)) == read.records[0]["session"]
