"""``--data hub``: made-up rows through a stand-in for the library, and through the library itself.

Nothing here has a network.
"""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.errors import UsageError
from harness.train.data import hub
from harness.train.data.corpora import corpora
from harness.train.data.directory import VARIABLE, digest_of, read_table
from harness.train.data.hub import CONVERSIONS, HubSplit, clean, mr, trec
from harness.train.task import task
from suites.support.command_line import here
from suites.support.made_up_data import made_up_corpus
from suites.support.real_data import REAL, real

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


MAKERS = {"trec": _hub_trec, "mr": _hub_mr}


class Library:
    """A stand-in for `datasets`: hands over what it was given, and notes what was asked."""

    def __init__(self, splits: dict[str, HubSplit]) -> None:
        self.splits, self.asked = splits, list[tuple[str, str, dict[str, str]]]()

    def load_dataset(self, path: str, *, revision: str, data_files: dict[str, str]) -> Any:
        self.asked.append((path, revision, data_files))
        return {name: _Loaded(split) for name, split in self.splits.items()}


class _Loaded(list):
    def __init__(self, split: HubSplit) -> None:
        super().__init__(split.rows)
        columns = split.rows[0] if split.rows else {}
        self.features = {
            name: SimpleNamespace(names=split.names[name])
            if name in split.names
            else SimpleNamespace(dtype="string")
            for name in columns
        }


def _with_library(patch: pytest.MonkeyPatch, splits: dict[str, HubSplit]) -> Library:
    library = Library(splits)
    patch.setitem(sys.modules, "datasets", library)
    return library


def test_made_up_rows_by_hand() -> None:
    names = {"fine_label": ["NUM:dist", "LOC:city"], "coarse_label": COARSE}
    torn = "Which city has the oldest relationship as a sister city with Los Angeles ?"
    rows = [
        {"text": " How far\tis it ? ", "coarse_label": 5, "fine_label": 0},
        {"text": torn, "coarse_label": 4, "fine_label": 1},
    ]
    tables = trec({"train": HubSplit(rows, names), "test": HubSplit(rows[:1], names)})
    assert tables == {
        "trec/train.tsv": [
            ("NUM", "dist", "How far is it ?"),
            ("LOC", "city", torn.replace("sister city", "sisterðcity")),
        ],
        "trec/test.tsv": [("NUM", "dist", "How far is it ?")],
    }
    label = {"label": ["neg", "pos"]}
    one = HubSplit([{"text": "good", "label": 1}, {"text": "it\x92s bad", "label": 0}], label)
    two = HubSplit([{"text": "fine \x97", "label": 1}], label)
    assert mr({"train": one, "validation": two, "test": two}) == {
        "mr/all.tsv": [("0", "it’s bad"), ("1", "good"), ("1", "fine —"), ("1", "fine —")]
    }
    with pytest.raises(UsageError, match="is not Latin-1"):
        mr({"train": HubSplit([{"text": "“", "label": 0}], label)})
    assert clean("a\u2028b\x85c\n") == "a b c"


@pytest.mark.parametrize("name", list(CONVERSIONS))
def test_rows_of_the_hub_become_the_listed_tables_or_are_refused(
    folder: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = corpora()[name].hub
    assert source is not None
    splits, files = MAKERS[name](folder), task(name).files
    library = _with_library(monkeypatch, splits)
    monkeypatch.setattr(hub, "corpora", lambda: {name: made_up_corpus(folder, name, source)})
    for _ in range(2):  # what is there is not fetched again
        found = hub.directory(name, files, tmp_path / "found")
        assert library.asked == [(source.repository, source.revision, dict(source.files))]
    for file in files:
        assert digest_of([found / f"{file}.gz"]) == digest_of([folder / f"{file}.gz"])
    rows = [dict(row) for row in splits["test"].rows]
    rows[3]["text"] += " ."
    _with_library(monkeypatch, splits | {"test": replace(splits["test"], rows=rows)})
    with pytest.raises(UsageError, match="does not give the rows of") as caught:
        hub.directory(name, files, tmp_path / "other")
    assert "\n" not in str(caught.value)
    assert not list((tmp_path / "other").rglob("*/test.tsv*"))
    assert not list((tmp_path / "other").rglob("*/all.tsv*"))


def _publish(splits: dict[str, HubSplit], files: dict[str, str], place: Path) -> None:
    """Lay out a data set as the hub does: Parquet files that name their classes."""
    datasets = pytest.importorskip("datasets")
    for name, file in files.items():
        split = splits[name]
        features = {
            column: datasets.ClassLabel(names=split.names[column])
            if column in split.names
            else datasets.Value("string")
            for column in split.rows[0]
        }
        made = datasets.Dataset.from_list(split.rows, features=datasets.Features(features))
        (place / file).parent.mkdir(parents=True, exist_ok=True)
        made.to_parquet(place / file)


@pytest.mark.parametrize("name", list(CONVERSIONS))
def test_the_library_itself_gives_the_same_rows(
    folder: Path, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    datasets = pytest.importorskip("datasets")
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    source = corpora()[name].hub
    assert source is not None
    published = replace(source, repository=str(tmp_path / "published"))
    monkeypatch.setattr(hub, "corpora", lambda: {name: made_up_corpus(folder, name, published)})
    with pytest.raises(UsageError, match=r"can't be fetched \(.*give a folder") as caught:
        hub.directory(name, task(name).files, tmp_path / "found")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "found").exists()
    _publish(MAKERS[name](folder), dict(source.files), tmp_path / "published")
    found = hub.directory(name, task(name).files, tmp_path / "found")
    for file in task(name).files:
        assert digest_of([found / f"{file}.gz"]) == digest_of([folder / f"{file}.gz"])


def test_what_the_hub_has_not_or_the_library_refuses_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(UsageError, match=r"gives the rows of cr .*the hub has mr, trec"):
        hub.directory("cr", task("cr").files, tmp_path)
    monkeypatch.setitem(sys.modules, "datasets", None)
    with pytest.raises(UsageError, match=r"needs the library datasets: pip install"):
        hub.directory("trec", task("trec").files, tmp_path)

    def offline(*_: Any, **__: Any) -> Any:
        raise ConnectionError("no route to host\nand so on")

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
    monkeypatch.delenv(VARIABLE)
    for command, says in (
        ("train none --task cr --vectors none", "no data set of the hub gives the rows of cr"),
        ("train mtsa --task trec", "'top10k_100d_int8' are a table of a data directory"),
    ):
        done = here(*command.split(), "--data", "hub", "--device", "cpu", cwd=tmp_path)
        assert done.returncode == 2
        assert says in done.stderr
        assert done.stderr.count("\n") == 1


def test_every_source_on_the_hub_is_pinned_and_converted() -> None:
    sources = {c.name: c.hub for c in corpora().values() if c.hub is not None}
    assert set(sources) == set(CONVERSIONS)
    for source in sources.values():
        assert re.fullmatch("[0-9a-f]{40}", source.revision)


@real("trec/train.tsv.gz", "mr/all.tsv.gz")
@pytest.mark.parametrize("name", list(CONVERSIONS))
def test_what_the_hubs_scripts_make_of_the_real_corpora_comes_back(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _with_library(monkeypatch, MAKERS[name](REAL))
    found = hub.directory(name, task(name).files, tmp_path)
    for file in task(name).files:
        assert digest_of([found / f"{file}.gz"]) == digest_of([REAL / f"{file}.gz"])
