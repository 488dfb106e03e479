"""Predictions beside a journal: they come back as they were written, or are lost by name."""

from __future__ import annotations

import base64
import io
import json
import tarfile
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from harness.errors import UsageError
from harness.records import journal, published
from harness.records.predictions import (
    FOLDER,
    PACKED,
    Predictions,
    PredictionsLost,
    keep,
    pack,
    read,
    unseen_of,
)

NOTHING = np.empty(0, np.uint8)
CLASSES = Predictions(
    items=np.array([3, 0, 7], np.int32),
    seen=np.array([True, False, False]),
    truth=np.array([0, 1, 1], np.uint8),
    said=np.array([0, 1, 0], np.uint8),
    confidence=np.array([255, 130, 128], np.uint8),
    errors=NOTHING,
)
DEGREES = replace(
    CLASSES,
    truth=np.array([1, 2.4, 5], np.float32),
    said=np.array([1.5, 2.5, 4], np.float16),
    confidence=NOTHING,
)
VECTORS = replace(
    CLASSES,
    truth=NOTHING,
    said=NOTHING,
    confidence=NOTHING,
    errors=np.array([0.5, 0.25, 2], np.float16),
)
TAGS = replace(
    CLASSES,
    truth=np.array([1, 2, 2, 1, 3], np.uint8),
    said=np.array([1, 2, 1, 1, 3], np.uint8),
    confidence=NOTHING,
    lengths=np.array([2, 0, 3], np.uint32),
    counts=np.array([[2, 2], [0, 0], [2, 3]], np.int32),
)
WRITTEN = replace(
    TAGS,
    truth=NOTHING,
    said=np.frombuffer("añ\u00fcb".encode(), np.uint8),
    lengths=np.array([1, 2, 3], np.uint32),
)


def kept(folder: Path, found: Predictions = CLASSES, key: str = "k") -> dict[str, Any]:
    """The record of a run, whose predictions are written."""
    told = keep(folder, key, found.text())
    return {"kind": "run", "key": key, "case": f"case {key}", "status": "ok", "predictions": told}


def same(first: Predictions | None, second: Predictions) -> bool:
    """Values and types of all arrays."""
    assert first is not None
    both = [(getattr(first, f.name), getattr(second, f.name)) for f in fields(Predictions)]
    return all(a.dtype == b.dtype and np.array_equal(a, b) for a, b in both)


def written(folder: Path, content: bytes) -> dict[str, Any]:
    """The record of a run whose file is these bytes, and says so."""
    return {"key": "k", "predictions": keep(folder, "k", base64.b64encode(content).decode())}


@pytest.mark.parametrize(
    "found",
    [CLASSES, DEGREES, VECTORS, TAGS, WRITTEN],
    ids=["classes", "degrees", "mse", "tags", "texts"],
)
def test_what_was_kept_comes_back(tmp_path: Path, found: Predictions) -> None:
    assert same(read([tmp_path], kept(tmp_path, found)), found)


def test_sequences_come_apart_where_they_ended() -> None:
    assert [one.tolist() for one in TAGS.sequences("said")] == [[1, 2], [], [1, 1, 3]]
    assert [bytes(one).decode() for one in WRITTEN.sequences("said")] == ["a", "ñ", "üb"]


@pytest.mark.parametrize(
    "changes",
    [
        {"lengths": np.array([2, 0, 2], np.uint32)},
        {"lengths": np.array([2, 3], np.uint32)},
        {"lengths": np.array([2, 0, 3], np.int8)},
        {"truth": np.array([1, 2], np.uint8)},
        {"counts": np.array([[2, 2], [2, 3]], np.int32)},
        {"counts": np.array([2, 0, 3], np.int32)},
        {"counts": np.ones((3, 2), np.float32)},
    ],
)
def test_sequences_that_do_not_fit_are_lost(tmp_path: Path, changes: dict[str, Any]) -> None:
    record = kept(tmp_path, replace(TAGS, **changes))
    with pytest.raises(PredictionsLost, match="case k can't be read"):
        read([tmp_path], record)


def test_the_same_predictions_are_the_same_bytes(tmp_path: Path) -> None:
    first = kept(tmp_path / "a")["predictions"]
    assert first == kept(tmp_path / "b")["predictions"]
    assert first != kept(tmp_path / "c", DEGREES)["predictions"]


def test_all_journals_that_were_read_are_looked_in(tmp_path: Path) -> None:
    record = kept(tmp_path / "b")
    assert same(read([tmp_path / "a", tmp_path / "b"], record), CLASSES)


@pytest.mark.parametrize("told", [{}, {"predictions": None}])
def test_an_older_record_tells_of_none(tmp_path: Path, told: dict[str, Any]) -> None:
    assert read([tmp_path], {"kind": "run", "key": "k", **told}) is None


def test_a_lost_file_is_named(tmp_path: Path) -> None:
    record = kept(tmp_path)
    place = tmp_path / FOLDER / "k.npz"
    place.unlink()
    with pytest.raises(PredictionsLost, match=f"of case k are lost: no {place}; copy the file"):
        read([tmp_path], record)


def test_an_altered_file_is_named(tmp_path: Path) -> None:
    record = kept(tmp_path)
    place = tmp_path / FOLDER / "k.npz"
    content = bytearray(place.read_bytes())
    content[len(content) // 2] ^= 1
    place.write_bytes(content)
    with pytest.raises(PredictionsLost, match=f"of case k were altered since .*: {place}"):
        read([tmp_path], record)


def arrays(**odd: Any) -> bytes:
    """An archive as `Predictions.text` writes it, but for some arrays."""
    out = io.BytesIO()
    those = {f.name: getattr(CLASSES, f.name) for f in fields(Predictions)} | odd
    np.savez(out, **{name: array for name, array in those.items() if array is not None})
    return out.getvalue()


def single(array: np.ndarray) -> bytes:
    out = io.BytesIO()
    np.save(out, array)
    return out.getvalue()


def huge() -> bytes:
    """An array whose head claims more than any memory."""
    head = b"{'descr': '<i8', 'fortran_order': False, 'shape': (%d,), }" % 2**60
    false = head.ljust(117) + b"\n"
    return b"\x93NUMPY\x01\x00" + len(false).to_bytes(2, "little") + false


ODD = {
    "text": b"nothing of the kind",
    "empty": b"",
    "one array": single(np.arange(3)),
    "objects": arrays(truth=np.array([{}, 1, 2], object)),
    "a column is missing": arrays(said=None),
    "a scalar": arrays(items=np.int32(3)),
    "no example": arrays(items=np.empty(0, np.int32)),
    "lengths": arrays(said=np.zeros(2, np.uint8)),
    "no seen": arrays(seen=np.empty(0, bool)),
    "truth without said": arrays(said=NOTHING),
    "words": arrays(said=np.array(["a", "b", "c"])),
    "confidence in shares": arrays(confidence=np.array([0.5, 0.5, 1])),
    "not finite": arrays(said=np.array([1, np.nan, 2], np.float16)),
    "half": arrays()[:-30],
    "huge": huge(),
}


@pytest.mark.parametrize("name", ODD)
def test_a_file_that_holds_no_predictions_is_named(tmp_path: Path, name: str) -> None:
    with pytest.raises(PredictionsLost, match=r"predictions of k (can't be read|are lost): "):
        read([tmp_path], written(tmp_path, ODD[name]))


@pytest.mark.parametrize(
    "name", ["../../k.npz", "/etc/passwd", "..", ".", "", "x" * 300, "a/../../outside/k.npz"]
)
def test_a_name_leads_nowhere_but_beside_the_journal(tmp_path: Path, name: str) -> None:
    folder = tmp_path / "journal"
    record = kept(tmp_path / "outside")
    (tmp_path / "outside" / FOLDER / "k.npz").rename(tmp_path / "k.npz")
    (folder / FOLDER).mkdir(parents=True)
    record["predictions"]["file"] = name
    with pytest.raises(PredictionsLost, match="of case k"):
        read([folder], record)


def test_packed_and_read_again(tmp_path: Path) -> None:
    folder, place = tmp_path / "journal", tmp_path / "published" / "cpu"
    records = [kept(folder, CLASSES, "a"), kept(folder, DEGREES, "b"), {"key": "old"}]
    assert pack(folder, place, records) == {"a.npz", "b.npz"}
    assert same(read([place], records[0]), CLASSES)
    assert same(read([place], records[1]), DEGREES)
    records[0] = kept(folder, DEGREES, "a")  # trained again: the file that was read is replaced
    pack(folder, place, records)
    assert same(read([place], records[0]), DEGREES)
    first = Path(f"{place}{PACKED}").read_bytes()
    pack(folder, place, records)
    assert Path(f"{place}{PACKED}").read_bytes() == first


def test_drawn_data_are_not_packed_and_a_former_pack_goes(tmp_path: Path) -> None:
    folder, place = tmp_path / "journal", tmp_path / "cpu"
    pack(folder, place, [kept(folder)])
    assert pack(folder, place, [kept(folder, VECTORS, "v")]) == set()
    assert not Path(f"{place}{PACKED}").exists()


def test_what_is_lost_is_not_packed(tmp_path: Path) -> None:
    record = kept(tmp_path / "journal")
    (tmp_path / "journal" / FOLDER / "k.npz").unlink()
    with pytest.raises(PredictionsLost, match="are lost"):
        pack(tmp_path / "journal", tmp_path / "cpu", [record])


def test_a_broken_pack_is_named(tmp_path: Path) -> None:
    folder, place = tmp_path / "journal", tmp_path / "cpu"
    record = kept(folder)
    pack(folder, place, [record])
    target = Path(f"{place}{PACKED}")
    target.write_bytes(target.read_bytes()[: target.stat().st_size // 2])
    with pytest.raises(PredictionsLost, match=f"{target} can't be read: .*; copy it again"):
        read([place], record)


def test_a_link_in_a_pack_is_nobodys_predictions(tmp_path: Path) -> None:
    record = kept(tmp_path / "journal")
    target = Path(f"{tmp_path / 'cpu'}{PACKED}")
    with tarfile.open(target, "w:xz") as tar:
        link = tarfile.TarInfo("k.npz")
        link.type, link.linkname = tarfile.SYMTYPE, "/etc/passwd"
        tar.addfile(link)
    with pytest.raises(PredictionsLost, match="are lost"):
        read([tmp_path / "cpu"], record)


def test_a_journal_is_published_with_its_predictions(tmp_path: Path) -> None:
    folder, place = tmp_path / "journal", tmp_path / "cpu"
    with journal.Writer(folder, {"fingerprint": {"device": "cpu"}}) as writer:
        writer.append({**kept(folder), "model": "m", "seed": 0, "status": "oom"})
        drawn = kept(folder, VECTORS, "drawn")
        writer.append({**drawn, "model": "m", "seed": 0, "status": "oom"})
    published.pack(folder, place)
    record, other = journal.read(place).records
    assert same(read([place], record), CLASSES)
    assert read([place], other) is None, "what is not packed is not told of"


def test_of_what_is_published_without_predictions_the_numbers_without_seen_examples_are(
    tmp_path: Path,
) -> None:
    folder, place = tmp_path / "journal", tmp_path / "cpu"
    half = {"kind": "run", "model": "m", "seed": 0, "status": "ok", "seconds": 1.0, "epochs": []}
    half |= {"chosen_epoch": 1, "parameters": 1, "parameters_with_words": 1}
    with journal.Writer(folder, {"fingerprint": {"device": "cpu"}}) as writer:
        for key in "ab":
            found = kept(folder, CLASSES, key)
            writer.append({**half, **found, "test": {"accuracy": 2 / 3, "f1": 0.5}})
    published.pack(folder, place, ["a"])
    first, second = journal.read(place).records
    assert read([place], first) is None
    assert first["unseen"] == {"examples": 3, "seen": 1, "test": {"accuracy": 0.5}}
    assert same(read([place], second), CLASSES)
    assert "unseen" not in second
    with pytest.raises(UsageError, match="no predictions of a run c; name others"):
        published.pack(folder, place, ["b", "c"])
    assert len(journal.read(published.pack(folder, place, "ab").parent / "cpu").records) == 2
    assert published.pack(place, tmp_path / "again", "ab"), "they have theirs already"


def test_where_every_test_example_is_seen_no_number_is_left(tmp_path: Path) -> None:
    found = unseen_of(["accuracy"], replace(CLASSES, seen=np.array([True] * 3)))
    assert found == {"examples": 3, "seen": 3, "test": {}}
    run = {"kind": "run", "key": "r", "model": "m", "seed": 0, "status": "oom", "unseen": found}
    lines = [{"kind": "session", "schema": 1, "session": "s"}, run]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    assert [r["key"] for r in journal.read(tmp_path).records] == ["r"]


def test_a_record_with_odd_predictions_is_skipped(tmp_path: Path) -> None:
    run = {"kind": "run", "key": "r", "model": "m", "seed": 0, "status": "oom"}
    told = ({"file": "a", "sha256": "b"}, {"file": "a"}, "a", {"file": 1, "sha256": "b"})
    lines = [{"kind": "session", "schema": 1, "session": "s"}]
    lines += [{**run, "key": f"r{number}", "predictions": one} for number, one in enumerate(told)]
    numbers = {"examples": 3, "seen": 1, "test": {"accuracy": 0.5}}
    odd = (
        numbers,
        {**numbers, "seen": "1"},
        {"examples": 3},
        {**numbers, "test": {"accuracy": "x"}},
    )
    lines += [{**run, "key": f"u{number}", "unseen": one} for number, one in enumerate(odd)]
    lines += [{**run, "kind": "withdrawn", "key": "w", "seed": "0"}]
    (tmp_path / "a.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    found = journal.read(tmp_path)
    assert [r["key"] for r in found.records] == ["r0", "u0"]
    assert len(found.warnings) == 7
