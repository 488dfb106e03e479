"""``attnbench bench`` from end to end: what it says and records, replay, stops, own mechanisms."""

from __future__ import annotations

import json
import os
import re
import signal
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from harness.cli import bench
from harness.measure import blocks
from harness.records import journal
from harness.registry import Registry
from suites.harness.isolate.test_isolate import soon
from suites.support.command_line import (
    LITTLE,
    OWN,
    SMALL,
    here,
    pytest_here,
    started,
    verified_before,
)
from suites.support.made_up_records import unsealed
from suites.support.sessions import Launcher, ignore, made_up


def _tasks(folder: Path) -> list[tuple[str, str, int]]:
    kinds = ("time", "memory", "margin")
    return [
        (r["kind"], r["case"], r["block"])
        for r in journal.read(folder).records
        if r["kind"] in kinds
    ]


def _raw_keys(folder: Path) -> list[str]:
    """Keys of all lines that are whole, with those that reading would merge."""
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    whole = [json.loads(line) for line in lines if line.endswith("}")]
    return [record["key"] for record in whole if "key" in record]


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str]:
    """One finished small bench."""
    folder = tmp_path_factory.mktemp("mes résultats ☃")
    done = here("bench", *SMALL, "--blocks", "2", "--json", "out.json", cwd=folder, code=0)
    return folder, done.stdout


def test_every_reading_that_could_not_be_taken_is_told_once_and_why() -> None:
    def record(kind: str, case: str, status: str, **more: str) -> dict[str, str]:
        return {"kind": kind, "case": case, "status": status, "detail": f"why {case}", **more}

    inside = [f"mtsa.fused_flex-B1-N{n}-D8x16-H2-f32-training-cuda" for n in (64, 128)]
    some = [
        *[record("memory", "flex", "unsupported") for _ in range(3)],
        record("memory", "large", "oom"),
        record("memory", "fine", "ok"),
        record("memory", "slow", "timeout"),  # has no time either: its own line says why
        record("margin", "flex", "unsupported"),
        record("margin", "fine", "wrong"),  # its verdict says so
        record("peaks", "gauge", "unsupported"),
        *[record("memory", case, "ok", uncounted="it is compiled inside") for case in inside],
        record("memory", "slow", "ok", uncounted="nor this"),
    ]
    rows = [SimpleNamespace(case=c, status="ok") for c in ("flex", "large", "fine", *inside)]
    rows.append(SimpleNamespace(case="slow", status="timeout"))
    told = bench._failed_readings(SimpleNamespace(records=lambda: some), rows)  # type: ignore[arg-type]
    assert told == [
        "no memory of flex: unsupported: why flex",
        "no memory of large: oom: why large",
        "no margin of flex: unsupported: why flex",
        "no peaks of gauge: unsupported: why gauge",
        "launches of mtsa.fused_flex were not counted: it is compiled inside",
    ]


def test_a_bench_says_what_a_user_needs(measured: tuple[Path, str]) -> None:
    folder, said = measured
    first = said.splitlines()[0]
    assert all(word in first for word in ("torch", "measurements", "end is predicted"))
    sentences = json.loads((folder / "out.json").read_text())["sentences"]
    assert len(sentences) == 4
    three = r"(?:0\.0\d{2,}|\d\.\d\d|\d\d\.\d|\d{3,})"  # digits, as `ratio_text` writes them
    assert re.search(rf"takes {three}x \[{three}, {three}\]", sentences[0])
    assert "margin" in sentences[3]
    assert "A/A control" in sentences[3]
    page = (folder / "results" / "index.html").read_text()
    assert "<svg" in page
    assert "multi_cnn.conv" in page
    assert not re.search(r"""(src|href)=["']https?:""", page)


def test_a_session_records_its_environment(measured: tuple[Path, str]) -> None:
    for found in journal.read(measured[0] / "results").sessions.values():
        fingerprint, environment = found["fingerprint"], found["environment"]
        for name in ("device", "model", "torch", "python", "threads", "allocator"):
            assert fingerprint[name], name
        for name in ("commit", "dirty", "cpu", "packages", "state", "host", "platform"):
            assert name in environment, name
        assert environment["packages"]["torch"]
        assert environment["state"]["load"]


def test_replayed_samples_are_the_measured_ones(measured: tuple[Path, str], tmp_path: Path) -> None:
    folder = measured[0] / "results"
    blocks_done, out = ("--blocks", "2"), tmp_path / "benchmark.json"
    done = pytest_here(
        *SMALL, *blocks_done, "--journal", str(folder), f"--benchmark-json={out}", cwd=tmp_path
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(out.read_text())
    samples: dict[str, list[float]] = {}
    for r in journal.read(folder).records:
        if r["kind"] == "time":
            samples.setdefault(r["case"], []).extend(r["samples"])
    replayed = {b["extra_info"]["case"]: b["stats"] for b in told["benchmarks"]}
    assert set(replayed) == set(samples)
    for case, stats in replayed.items():
        assert sorted(stats["data"]) == sorted(samples[case])
        assert (stats["min"], stats["max"]) == (min(samples[case]), max(samples[case]))
    assert told["attnbench"]["journal"] == str(folder.resolve())
    assert told["machine_info"]["fingerprint"]["device"] == "cpu"


@pytest.fixture
def only_records(quick: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Made-up measurements, of which no page is drawn."""
    monkeypatch.setattr(bench, "write_page", lambda *_: "no page")


@pytest.mark.usefixtures("only_records")
def test_only_what_is_missing_is_measured(tmp_path: Path) -> None:
    """Of three blocks after two the third; of three again nothing; and nothing of a mistake."""
    verified_before(tmp_path / "results")
    here("bench", *SMALL, "--blocks", "2", cwd=tmp_path, code=0)
    before = _raw_keys(tmp_path / "results")
    unknown = here("bench", *SMALL, "--blocks", "3", "--", "--nonsense", cwd=tmp_path)
    assert (unknown.returncode, unknown.stderr.count("\n")) == (2, 1)
    assert "unrecognized arguments: --nonsense" in unknown.stderr
    assert _raw_keys(tmp_path / "results") == before
    here("bench", *SMALL, "--blocks", "3", cwd=tmp_path, code=0)
    after = _raw_keys(tmp_path / "results")
    # Six times, four peaks of memory, and the block.
    assert len(after) == len(set(after)) == len(before) + 6 + 4 + 1
    assert {b for _, _, b in _tasks(tmp_path / "results")} == {0, 1, 2}
    here("bench", *SMALL, "--blocks", "3", cwd=tmp_path, code=0)
    assert _raw_keys(tmp_path / "results") == after


def _every_case_has_its_baseline_beside_it(records: list) -> None:
    timed = [r for r in records if r["kind"] in ("time", "anchor")]
    for block in range(2):
        for phase in ("forward", "training"):
            here = [r for r in timed if r["block"] == block and phase in r["case"]]
            base = {r["interpreter"] for r in here if r["case"].startswith("multi_head")}
            for case in {r["case"] for r in here}:
                mine = [r for r in here if r["case"] == case]
                in_turn = any(r.get("ratio", 0) > 0 for r in mine)
                assert in_turn or base & {r["interpreter"] for r in mine}, case


def test_ctrl_c_while_verifying_says_so(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupted(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(bench, "verified", interrupted)
    said = here("bench", *SMALL, cwd=tmp_path, code=130).stdout
    assert "stopped while verifying" in said
    assert "the same command goes on from there" in said


@pytest.mark.usefixtures("only_records")
def test_ctrl_c_says_how_to_go_on_and_the_same_command_does(tmp_path: Path) -> None:
    folder, line = tmp_path / "results", ("bench", *SMALL, "--blocks", "8")
    verified_before(folder)
    process = started("-m", "suites.support.sessions", *line, cwd=tmp_path)
    assert soon(lambda: len(_tasks(folder)) > 1, within=120)
    os.killpg(process.pid, signal.SIGINT)
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 130, stdout + stderr
    assert "the same command goes on from there" in stdout + stderr
    assert "KeyboardInterrupt" not in stdout + stderr, "pytest tells it in its own words"
    assert journal.read(folder).warnings == []
    survived = _raw_keys(folder)
    assert len(survived) > 1
    here(*line, cwd=tmp_path, code=0)
    keys = _raw_keys(folder)
    assert set(survived) < set(keys), "it had ended, or something was lost"
    assert len(keys) == len(set(keys)), "something was measured twice"
    kinds = [kind for kind, _, _ in _tasks(folder)]
    assert (kinds.count("time"), kinds.count("margin")) == (8 * 6, 4)
    _every_case_has_its_baseline_beside_it(journal.read(folder).records)


@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(("baseline_finished", "added"), [(False, 3), (True, 2)])
def test_a_case_whose_baseline_was_not_reached_is_paired(
    tmp_path: Path, baseline_finished: bool, added: int
) -> None:
    """Killed with the case measured and its baseline not, or after the baseline came later.

    As on a GPU, where a case is not timed in turn with its baseline. What is added is the case
    again beside its baseline measured again; or beside baseline and control that were not reached.
    """
    blocks.run(made_up(tmp_path), ignore, {})
    for path in tmp_path.glob("*.jsonl"):
        lines = []
        for record in unsealed(path):
            if record.get("block") == 1 and record["kind"] == "time":
                if record["case"].startswith("multi_cnn"):
                    record["interpreter"] = "killed"
                    del record["ratio"]
                elif not baseline_finished:
                    continue
            lines.append(json.dumps(record) + "\n")
        path.write_text("".join(lines))
    before = len(_raw_keys(tmp_path))
    for _ in range(2):
        again = made_up(tmp_path)
        blocks.run(again, ignore, {})
        _every_case_has_its_baseline_beside_it(journal.read(tmp_path).records)
        (row,) = [r for r in again.rows() if "multi_cnn" in r.case]
        assert row.time is not None
        assert row.time.count == 2
        assert len(_raw_keys(tmp_path)) - before == added


def test_two_sessions_at_once(tmp_path: Path) -> None:
    with Launcher() as one, Launcher() as other:
        for launcher in (one, other):
            launcher.start(tmp_path)
        assert [launcher.wait() for launcher in (one, other)] == [0, 0]
    found = journal.read(tmp_path)
    assert (found.warnings, len(found.sessions)) == ([], 2)
    assert {r["status"] for r in found.records if "key" in r} == {"ok"}
    assert not made_up(tmp_path).missing()


@pytest.mark.usefixtures("quick")
def test_selection_by_pytest_measures_that_alone_and_its_baseline(tmp_path: Path) -> None:
    done = pytest_here(*SMALL, "--blocks", "1", "-k", "conv and forward", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = {case for _, case, _ in _tasks(tmp_path / "results")}
    assert all("forward" in c for c in cases)
    assert {c.partition("-")[0] for c in cases} == {"multi_cnn.conv", "multi_head.sdpa"}


@pytest.mark.usefixtures("quick")
def test_benchmark_disable_runs_once_and_leaves_no_record(tmp_path: Path) -> None:
    done = pytest_here(*SMALL, "--benchmark-disable", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("argument", "says"),
    [
        ("--benchmark-cprofile=tottime", "--benchmark-cprofile can't profile replayed samples"),
        ("--profile=slow", "--profile: given 'slow'; expected quick, full"),
        ("--only=mtza", "did you mean mtsa"),
    ],
)
def test_pytest_refuses_in_one_line(tmp_path: Path, argument: str, says: str) -> None:
    done = pytest_here(argument, cwd=tmp_path)
    assert done.returncode == pytest.ExitCode.USAGE_ERROR
    (error,) = [line for line in done.stderr.splitlines() if line.strip()]
    assert says in error


def test_a_newer_journal_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "future.jsonl").write_text('{"kind": "session", "schema": 99, "session": "f"}\n')
    done = here("bench", *SMALL, cwd=tmp_path, code=2)
    assert "schema 99" in done.stderr
    assert [p.name for p in folder.iterdir()] == ["future.jsonl"]


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """A folder with a package that someone else wrote."""
    (tmp_path / "own_attention").mkdir()
    (tmp_path / "own_attention" / "__init__.py").write_text("")
    (tmp_path / "own_attention" / "layers.py").write_text(OWN)
    return tmp_path


GIVEN = "--with own_attention.layers:"


def test_an_own_mechanism_is_verified_and_measured(package: Path) -> None:
    verified_before(package / "results")
    done = here(
        f"bench {GIVEN}Mean --option scale=0.5 --lengths 4 --batch 2 --width 24 --blocks 1 "
        "--device cpu --json out.json",
        cwd=package,
        code=0,
    )
    told = json.loads((package / "out.json").read_text())
    mine: list[dict[str, Any]] = [r for r in told["rows"] if "Mean.module[scale=0.5]" in r["case"]]
    assert {r["columns"]["phase"] for r in mine} == {"forward", "training"}
    assert all(r["status"] == "ok" and r["time"]["ratio"] > 0 for r in mine)
    assert {(r["verified"], r["by_itself"], r["unverified"]) for r in mine} == {(True, True, "")}
    cost, *_, correct = told["sentences"]
    assert re.match(r"Mean\.module\[.*takes \d+\.\d+x \[one block\] \(forward, ", cost)
    assert correct.startswith("Its error against its own float64 at this shape is ")
    assert "no oracle vouches for it" in correct
    assert "° against its own float64: no oracle vouches for it" in done.stdout
    page = (package / "results" / "index.html").read_text()
    assert len(re.findall(r"<td>[\d.]+x against its own float64</td>", page)) == 2


@pytest.mark.usefixtures("quick")
def test_what_is_refused_keeps_its_row_with_the_reason(package: Path) -> None:
    verified_before(package / "results")
    asked = "--only multi_cnn.conv --only Leaky --blocks 1 --json out.json"
    done = here(f"bench {asked} {GIVEN}Leaky", *LITTLE, cwd=package, code=1)
    told = json.loads((package / "out.json").read_text())
    rows = {(r["columns"]["name"], r["status"]): r for r in told["rows"]}
    assert set(rows) == {
        ("multi_head.sdpa", "ok"), ("multi_cnn.conv", "ok"), ("Leaky.module", "wrong"),
    }  # fmt: skip
    why = rows["Leaky.module", "wrong"]["detail"]
    assert "padding" in why
    assert f"Leaky.module has no cost to report at this size (wrong: {why})." in told["sentences"]
    table = done.stdout.partition("ratios to multi_head.sdpa")[2]
    assert len(re.findall(r"(?m)^ Leaky.module +wrong *$", table)) == 2
    assert table.count(f"+1-thread: wrong: {why}") == 2
    page = (package / "results" / "index.html").read_text()
    assert page.count('Leaky.module</td><td colspan="8" class="bad">wrong: ') == 2
    alone = here(f"bench {GIVEN}Leaky", *LITTLE, cwd=package, code=1)
    assert "nothing is left to measure beside the baseline" in alone.stdout


def test_a_factory_that_returns_no_module_is_said_so(package: Path) -> None:
    done = here(f"verify {GIVEN}not_a_module --dtypes f32 --device cpu", cwd=package, code=2)
    assert "returned a int; expected a torch.nn.Module" in done.stderr


def test_an_entry_point_is_found(package: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    info = package / "own_attention-1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-attention\nVersion: 1.0\n")
    (info / "entry_points.txt").write_text(
        "[attnbench.mechanisms]\nmean_context = own_attention.layers:Mean\n"
        "[attnbench.records]\nignored = own_records:RECORD\n"
    )
    (package / "own_records.py").write_text(
        "from harness.registry import foreign\n"
        "RECORD = foreign('recorded', 'own_attention.layers:Mean', 'a mean')\n"
    )
    monkeypatch.syspath_prepend(package)
    found = Registry()
    for name in ("mean_context", "recorded"):
        _, one = found.find(name)
        assert (one.name, one.factory) == ("module", "own_attention.layers:Mean")
