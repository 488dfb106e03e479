"""``attnbench compare`` of several models or tasks, for real: declared and judged together."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from harness.cli import comparing
from harness.cli import run as cli
from harness.experiments.conclusion import conclusions
from harness.records import journal
from harness.registry import Registry
from suites.harness.cli.test_compare import QUICK
from suites.support.command_line import here, verified_before
from suites.support.made_up_data import write_data_directory

BASE = "multi_head.sdpa"


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data_directory(tmp_path_factory.mktemp("data"))


@pytest.fixture(scope="module")
def compared(data: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """Two models against one on two tasks, with two seeds."""
    folder = tmp_path_factory.mktemp("many")
    return folder, many(data, folder)


def many(data: Path, folder: Path, *more: str, code: int = 0) -> str:
    verified_before(folder / "results")
    done = here(
        "compare",
        "mtsa",
        "bi_lstm",
        "--baseline",
        "multi_head",
        "--task",
        "trec",
        "--task",
        "sick_relatedness",
        "--seeds",
        "2",
        *QUICK,
        "--data",
        str(data),
        "--json",
        "out.json",
        *more,
        cwd=folder,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done.stdout


def test_it_is_declared_before_the_first_run_and_trained_once(
    compared: tuple[Path, str], data: Path
) -> None:
    folder, text = compared
    records = journal.read(folder / "results").records
    kinds = [r["kind"] for r in records if r["kind"] != "verify"]
    assert kinds == ["family", *["run"] * 12, "verdict"], "the baseline is trained once per seed"
    assert "4 comparisons: mtsa.fused, bi_lstm.packed against multi_head.sdpa" in text
    again = many(data, folder)
    assert "12 runs, 12 of them already there" in again
    assert len(journal.read(folder / "results").records) == len(records)
    assert "changed after looking" not in again
    (found,) = conclusions(records)
    assert len(found.comparisons) == 4
    by = {(r["model"], r["task"], r["seed"]): r["test"] for r in records if r["kind"] == "run"}
    for c in found.comparisons:
        for seed, first, second in c.values:
            assert first == by[c.first, c.task, seed][c.metric]
            assert second == by[BASE, c.task, seed][c.metric]


def test_tables_tasks_and_warnings_are_printed(compared: tuple[Path, str]) -> None:
    _, text = compared
    places = [
        text.index(word)
        for word in (
            "2 models against multi_head.sdpa on trec, sick_relatedness: 4 descriptive only",
            "trec: test accuracy (higher is better), 2 paired seeds",
            "mean (sd)",
            "95 % interval",
            "p Holm",
            "baseline",
            "sick_relatedness: test pearson",
            "over tasks: trec, sick",
            "any difference among the 3 models (Friedman)",
            "signs only",
            "p Holm and the verdict allow for 4 comparisons",
            "warning:",
        )
    ]
    assert places == sorted(places)


def test_the_json_holds_all_but_the_records(compared: tuple[Path, str]) -> None:
    folder, text = compared
    found = json.loads((folder / "out.json").read_text())
    assert found["sentences"][0] in text
    assert len(found["comparisons"]) == 4
    assert "runs" not in found["comparisons"][0]
    assert found["overall"]["omnibus"]["ranks"].keys() == {"mtsa.fused", "bi_lstm.packed", BASE}


def test_fewer_models_after_looking_are_told(
    compared: tuple[Path, str], data: Path, tmp_path: Path
) -> None:
    folder, _ = compared
    copy = tmp_path / "results"
    copy.mkdir()
    for path in (folder / "results").glob("*.jsonl"):
        (copy / path.name).write_bytes(path.read_bytes())
    before = len(journal.read(copy).records)
    arguments = [
        "compare",
        "mtsa",
        "--baseline",
        "multi_head",
        *QUICK,
        "--data",
        str(data),
        "--journal",
        str(copy),
        "--seeds",
        "2",
        "--task",
        "trec",
    ]
    assert cli([*arguments, "--task", "sick_relatedness"]) == 0
    (newest,) = [m for m in conclusions(journal.read(copy).records) if len(m.models) == 1]
    assert any("2 comparisons that were seen together with these" in w for w in newest.warnings)
    assert cli(arguments) == 0
    (alone,) = [c for c in conclusions(journal.read(copy).records) if c.is_pair]
    assert any("one of 4 comparisons that were judged together" in w for w in alone.warnings)
    new = journal.read(copy).records[before:]
    assert not any(r["kind"] == "run" for r in new), "nothing is trained again"


class Few(Registry):
    """Four mechanisms, one of which needs a width of threes, and what pools every model."""

    def __init__(self, extra: Any = ()) -> None:
        super().__init__(extra)
        kept = ("bi_lstm", "multi_cnn", "multi_head", "none", "source2token")
        self.mechanisms = {name: self.mechanisms[name] for name in kept}


@pytest.mark.nightly
def test_all_against_one_leaves_out_what_cannot_be_built(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(comparing, "Registry", Few)
    verified_before(tmp_path / "j")
    arguments = [
        "compare",
        "--all",
        "multi_head",
        "--task",
        "trec",
        *QUICK,
        "--data",
        str(data),
        "--recipe",
        "width=14",
        "--seeds",
        "1",
        "--journal",
        str(tmp_path / "j"),
    ]
    assert cli(arguments) == 0
    text = capsys.readouterr().out
    assert "left out: multi_cnn.conv: " in text
    models = "bi_lstm.packed, none.fused, source2token.direct"
    assert f"3 comparisons: {models} against multi_head.sdpa on trec" in text
    assert cli(arguments) == 0
    assert "4 runs, 4 of them already there" in capsys.readouterr().out


@pytest.mark.nightly
def test_margins_are_of_a_task(data: Path, tmp_path: Path) -> None:
    many(data, tmp_path, "--margin", "trec:50%", "--margin", "sick_relatedness:1.5")
    (found,) = conclusions(journal.read(tmp_path / "results").records)
    assert {c.task: c.margin for c in found.comparisons} == {"trec": 0.5, "sick_relatedness": 1.5}


@pytest.mark.nightly
def test_several_models_are_narrowed_to_the_smallest(data: Path, tmp_path: Path) -> None:
    verified_before(tmp_path)
    arguments = [
        "compare",
        "mtsa",
        "bi_lstm",
        "--baseline",
        "multi_head",
        "--task",
        "trec",
        *QUICK,
        "--recipe",
        "width=60",
        "--data",
        str(data),
        "--seeds",
        "1",
        "--match",
        "parameters",
        "--journal",
        str(tmp_path),
    ]
    assert cli(arguments) == 0
    (found,) = conclusions(journal.read(tmp_path).records)
    sizes = {m: cost.parameters for c in found.comparisons for m, cost in c.costs.items()}
    assert len(sizes) == 3
    assert max(sizes.values()) / min(sizes.values()) < 1.1
    widths = {
        m: r["width"]
        for c in found.comparisons
        for m, r in zip(c.design["models"], c.design["recipes"], strict=True)
    }
    assert max(widths.values()) == 60
    assert min(widths.values()) < 60


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("mtsa", "disa", "bi_lstm"), "given 3 models; expected two"),
        (("mtsa", "disa", "bi_lstm"), "all against one: --baseline bi_lstm"),
        (("mtsa", "--all", "multi_head"), "--all BASELINE compares every mechanism"),
        (("--baseline", "disa", "--all", "multi_head"), "--all BASELINE compares every"),
        (("--all", "multi_hed"), "unknown mechanism 'multi_hed'; did you mean"),
        (("mtsa", "mtsa", "--baseline", "multi_head"), "expected each model once"),
        (("mtsa", "multi_head", "--baseline", "multi_head"), "compared with itself"),
        (
            ("mtsa", "mtsa[scale_t=log_sigmoid]", "disa", "--baseline", "multi_head"),
            "expected each model once",
        ),
        (("mtsa", "--task", "trec", "--task", "trec", "--data", "."), "--task: given trec, trec"),
        (
            (
                "--task",
                "mirrored_summation",
                "--task",
                "sick_relatedness",
                "--data",
                "DATA",
                "--margin",
                "1",
            ),
            "have different metrics; give one each",
        ),
        (("--margin", "trec:1%"), "'trec' is not compared; the tasks are mirrored_summation"),
        (("--margin", "1", "--margin", "2"), "--margin: given 1 and 2 for mirrored_summation"),
        (
            (
                "mtsa",
                "multi_cnn",
                "--baseline",
                "multi_head",
                "--seeds",
                "1",
                "--recipe",
                "width=64",
            ),
            "multi_cnn.conv can't be built on mirrored_summation",
        ),
    ],
)
def test_a_users_mistake_is_told_in_one_line(
    arguments: tuple[str, ...],
    says: str,
    data: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    given = [str(data) if word == "DATA" else word for word in arguments]
    assert cli(["compare", *given, "--device", "cpu"]) == 2
    told = capsys.readouterr().err
    assert says in told
    assert len(told.strip().splitlines()) == 1
    assert not (tmp_path / "results").exists() or not any(
        r["kind"] == "family" for r in journal.read(tmp_path / "results").records
    )
