"""``--data hub``: rows that are published on this machine, through the library; no network."""

from __future__ import annotations

import gzip
import os
import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from unittest.mock import Mock, call

import pytest

from harness.errors import UsageError
from harness.train.data import hub
from harness.train.data.corpora import HubSource, corpora
from harness.train.data.directory import VARIABLE, digest_of, read_table
from harness.train.data.hub import CONVERSIONS, HubSplit, clean, mr, trec
from harness.train.task import task
from suites.support.made_up_data import made_up_corpus, write_table

if os.environ.get("CI"):
    import datasets  # CI installs it: there these tests are never left out
else:
    datasets = pytest.importorskip("datasets", reason="the extra 'data' is not installed")

PARTS, COLUMNS = ("train", "dev", "test2016", "test2017"), ("en_tok", "de_tok", "en_raw", "de_raw")
COARSE = ["ABBR", "ENTY", "DESC", "HUM", "LOC", "NUM"]


def _hub_trec(folder: Path) -> dict[str, HubSplit]:
    """What the hub's script makes of TREC: numbers for classes, a blank for one byte."""
    fine: list[str] = []
    splits = {}
    for name in ("train", "test"):
        rows = read_table(folder / "trec" / f"{name}.tsv.gz", ("coarse", "fine", "text"))
        fine += sorted({f"{r['coarse']}:{r['fine']}" for r in rows} - set(fine))
        made = [
            {
                "text": row["text"].replace("ð", " "),
                "coarse_label": COARSE.index(row["coarse"]),
                "fine_label": fine.index(f"{row['coarse']}:{row['fine']}"),
            }
            for row in rows
        ]
        splits[name] = HubSplit(made, {"coarse_label": COARSE, "fine_label": fine})
    return splits


def _hub_mr(folder: Path) -> dict[str, HubSplit]:
    """What the hub's script makes of the files: Latin-1, stripped, cut in three, pos before neg."""
    texts: dict[str, list[str]] = {"0": [], "1": []}
    for row in read_table(folder / "mr" / "all.tsv.gz", ("label", "text")):
        texts[row["label"]].append(row["text"].encode("cp1252").decode("latin-1").strip())
    splits = {}
    for name, (begin, end) in {
        "train": (0, 0.8),
        "validation": (0.8, 0.9),
        "test": (0.9, 1),
    }.items():
        rows = []
        for number in (1, 0):
            some = texts[str(number)]
            cut = slice(int(len(some) * begin + 0.5), int(len(some) * end + 0.5))
            rows += [{"text": text, "label": number} for text in some[cut]]
        splits[name] = HubSplit(rows, {"label": ["neg", "pos"]})
    return splits


def _lines(*lines: str) -> HubSplit:
    return HubSplit([{"text": line} for line in lines])


def _multi30k(folder: Path) -> dict[str, HubSplit]:
    """Its four files of each part."""
    splits: dict[str, HubSplit] = {}
    for name in PARTS:
        rows = read_table(folder / "multi30k" / f"{name}.tsv.gz", COLUMNS)
        splits |= {f"{name}_{c}": _lines(*(row[c] for row in rows), "") for c in COLUMNS}
    return splits


def _ud_ewt(folder: Path) -> dict[str, HubSplit]:
    """CoNLL-U, with what is no word: comments, a contraction, a node of the enhanced graph."""
    splits = {}
    for name in ("train", "dev", "test"):
        lines = []
        for row in read_table(folder / "ud_ewt" / f"{name}.tsv.gz", ("tokens", "upos", "xpos")):
            lines += ["# text = " + row["tokens"], "1-2\tit's\t_\t_\t_", "0.1\twas\tbe\tVERB\tVBD"]
            words = zip(*(row[c].split(" ") for c in ("tokens", "upos", "xpos")), strict=True)
            lines += [f"{i}\t{t}\t{t.lower()}\t{u}\t{x}\t_" for i, (t, u, x) in enumerate(words, 1)]
            lines.append("")
        splits[name] = _lines(*lines)
    return splits


def _wnut17(folder: Path) -> dict[str, HubSplit]:
    """A word a line; sentences end with an empty line or one that has a tab alone."""
    splits = {}
    for name in ("train", "dev", "test"):
        lines = []
        for i, row in enumerate(
            read_table(folder / "wnut17" / f"{name}.tsv.gz", ("tokens", "tags"))
        ):
            words = zip(row["tokens"].split(" "), row["tags"].split(" "), strict=True)
            lines += [f"{token}\t{tag}" for token, tag in words] + [("", "\t")[i % 2]]
        splits[name] = _lines(*lines[:-1])  # the last one may end with the file
    return splits


MAKERS = {
    "trec": _hub_trec,
    "mr": _hub_mr,
    "multi30k": _multi30k,
    "ud_ewt": _ud_ewt,
    "wnut17": _wnut17,
}


def _elsewhere(source: HubSource, place: Path) -> HubSource:
    """The same files below a folder."""
    return replace(source, repository=place.as_uri() if "://" in source.repository else str(place))


def _publish(splits: dict[str, HubSplit], source: HubSource) -> None:
    """Lay out a data set: text files, or as the hub does Parquet files that name their classes."""
    for name, file in source.files.items():
        if source.repository.startswith("file://"):
            text = "\n".join(row["text"] for row in splits[name].rows).encode()
            place = Path(source.repository.removeprefix("file://")) / source.revision / file
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(gzip.compress(text) if file.endswith(".gz") else text)
            continue
        split = splits[name]
        features = {
            column: datasets.ClassLabel(names=split.names[column])
            if column in split.names
            else datasets.Value("string")
            for column in split.rows[0]
        }
        made = datasets.Dataset.from_list(split.rows, features=datasets.Features(features))
        place = Path(source.repository) / file
        place.parent.mkdir(parents=True, exist_ok=True)
        made.to_parquet(place)


def test_what_the_hub_tore_is_mended_or_refused() -> None:
    torn = "Which city has the oldest relationship as a sister city with Los Angeles ?"
    split = HubSplit([{"text": f" {torn}\t", "fine_label": 0}], {"fine_label": ["LOC:city"]})
    mended = ("LOC", "city", torn.replace("sister city", "sisterðcity"))
    tables = trec({"train": split, "test": split})
    assert tables == {f"trec/{name}.tsv": [mended] for name in ("train", "test")}
    with pytest.raises(UsageError, match="is not Latin-1"):
        mr({"train": HubSplit([{"text": "“", "label": 0}], {"label": ["neg", "pos"]})})
    assert clean("a\u2028b\x85c\n") == "a b c"


@pytest.mark.parametrize("name", sorted({*CONVERSIONS} - {"snli"}))
def test_rows_of_the_hub_become_the_listed_tables_or_are_refused(
    folder: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = Mock(wraps=hub._splits)
    monkeypatch.setattr(hub, "_splits", asked)
    if name == "multi30k":
        folder = tmp_path / "tables"
        for part in PARTS:
            rows = [tuple(f"{c} {i} of {part}" for c in COLUMNS) for i in range(5)]
            write_table(folder / "multi30k" / f"{part}.tsv.gz", COLUMNS, rows)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    known, files = corpora()[name].hub, task(name).files
    source, other = (_elsewhere(known, tmp_path / place) for place in "ab")

    def fetched(source: HubSource, place: str) -> Path:
        corpus = made_up_corpus(folder, name, source)
        monkeypatch.setattr(hub, "corpora", lambda: {name: corpus})
        return hub.directory(name, files, tmp_path / place)

    with pytest.raises(UsageError, match=r"can't be fetched \(.*give a folder") as caught:
        fetched(source, "found")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "found").exists()
    splits = MAKERS[name](folder)
    _publish(splits, source)
    found = fetched(source, "found")
    assert asked.call_args_list == 2 * [call(source)]
    for file in files:
        assert digest_of([found / f"{file}.gz"]) == digest_of([folder / f"{file}.gz"])
    fetched(source, "found")
    assert asked.call_count == 2, "what is there was fetched again"
    last = list(splits)[-1]
    changed = [dict(row) for row in splits[last].rows]
    changed[3]["text"] = "x" + changed[3]["text"]
    _publish(splits | {last: replace(splits[last], rows=changed)}, other)
    with pytest.raises(UsageError, match="does not give the rows of") as caught:
        fetched(other, "refused")
    assert "\n" not in str(caught.value)
    for wrong in ("test2017", "test", "all"):
        assert not list((tmp_path / "refused").rglob(f"*/{wrong}.tsv*"))


def _inference(*labels: int) -> HubSplit:
    """Pairs as the hub has them: raw sentences, and -1 where there is no gold label."""
    raw = "The man's T-shirt isn't dry."
    rows = [
        {"premise": raw, "hypothesis": f"Pair {i} of\tit", "label": label}
        for i, label in enumerate(labels)
    ]
    return HubSplit(rows, {"label": ["entailment", "neutral", "contradiction"]})


def test_snli_of_the_hub_is_cut_and_its_pairs_are_counted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    known = corpora()["snli"]
    source, files = _elsewhere(known.hub, tmp_path / "a"), task("snli").files
    splits = {
        "train": _inference(2, -1, 0, 1),
        "validation": _inference(1, -1),
        "test": _inference(0, 0),
    }
    _publish(splits, source)
    numbers = {"snli/dev.tsv": 1, "snli/test.tsv": 2}
    listed = tuple(replace(file, rows=numbers[file.name]) for file in known.files)
    corpus = replace(known, hub=source, files=listed, yours={"snli/train.tsv": 3})
    monkeypatch.setattr(hub, "corpora", lambda: {"snli": corpus})
    found = hub.directory("snli", files, tmp_path / "found")
    columns = ("label", "sentence1", "sentence2")
    train = read_table(found / "snli" / "train.tsv.gz", columns)
    assert [row["label"] for row in train] == ["contradiction", "entailment", "neutral"]
    assert train[0]["sentence1"] == "The man 's T-shirt is n't dry ."
    assert train[1]["sentence2"] == "Pair 2 of it"
    assert len(read_table(found / "snli" / "test.tsv.gz", columns)) == 2
    with monkeypatch.context() as patch:
        patch.setattr(hub, "_splits", lambda _: pytest.fail("what is there was fetched again"))
        assert hub.directory("snli", files, tmp_path / "found") == found
    few = replace(corpus, yours={"snli/train.tsv": 4})
    monkeypatch.setattr(hub, "corpora", lambda: {"snli": few})
    with pytest.raises(UsageError, match=r"rows of snli/train.tsv \(3 rows, expected 4\); give"):
        hub.directory("snli", files, tmp_path / "refused")
    assert not (tmp_path / "refused").exists()


def test_what_the_hub_has_not_or_the_library_refuses_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(
        UsageError, match=r"rows of cr .*the hub has mr, trec, snli, multi30k, ud_ewt, w"
    ):
        hub.directory("cr", task("cr").files, tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"needs the library datasets: pip install"):
        hub.directory("trec", task("trec").files, tmp_path)
    offline = Mock(side_effect=ConnectionError("no route to host\nand so on"))
    monkeypatch.setitem(sys.modules, "datasets", SimpleNamespace(load_dataset=offline))
    with pytest.raises(UsageError, match=r"can't be fetched \(ConnectionError: no route to host\)"):
        hub.directory("trec", task("trec").files, tmp_path)


def test_hub_is_asked_for_by_name(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VARIABLE, "hub")
    assert hub.asked("hub")
    assert hub.asked(None)
    assert not hub.asked("./hub")
    monkeypatch.setenv(VARIABLE, "elsewhere")
    assert not hub.asked(None)
    monkeypatch.setenv(hub.CACHE, str(tmp_path))
    assert hub.cache_folder() == tmp_path / "hub"


def test_every_source_on_the_hub_is_pinned_and_converted() -> None:
    sources = {c.name: c.hub for c in corpora().values() if c.hub is not None}
    assert set(sources) == set(CONVERSIONS)
    for source in sources.values():
        assert re.fullmatch("[0-9a-f]{40}", source.revision)
