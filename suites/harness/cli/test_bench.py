"""The whole line in processes of its own: kill -9, replay, refusals, own mechanisms."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.records import journal
from suites.support.command_line import SMALL, attnbench, environment, pytest_bench

MEAN = '''
import torch


class Mean(torch.nn.Module):
    """Every token plus the mean of its sentence."""

    def __init__(self, d_in, d_out, scale=1.0):
        super().__init__()
        self.scale = scale
        self.map = torch.nn.Linear(d_in, d_out)

    def forward(self, x, mask):
        x = x.masked_fill(~mask[..., None], 0)
        mean = x.sum(1, keepdim=True) / mask.sum(1).clamp(min=1)[:, None, None]
        return self.map(x + self.scale * mean).masked_fill(~mask[..., None], 0)


class Leaky(Mean):
    """Forgets that x at padding may be anything."""

    def forward(self, x, mask):
        return self.map(x + x.mean(1, keepdim=True)).masked_fill(~mask[..., None], 0)


class Poisoned(Mean):
    """Multiplies by the mask: NaN times zero is NaN."""

    def forward(self, x, mask):
        x = x * mask[..., None]
        return self.map(x + x.mean(1, keepdim=True) * 0).masked_fill(~mask[..., None], 0)


not_a_module = lambda d_in, d_out: 3
'''


def _tasks(folder: Path) -> list[tuple[str, str, int]]:
    kinds = ("time", "memory", "margin")
    return [
        (r["kind"], r["case"], r["block"])
        for r in journal.read(folder).records
        if r["kind"] in kinds
    ]


def _raw_keys(folder: Path) -> list[str]:
    keys = []
    for path in folder.glob("*.jsonl"):
        for line in path.read_text().splitlines():
            try:
                record = json.loads(line)
            except ValueError:
                continue
            if "key" in record:
                keys.append(record["key"])
    return keys


@pytest.fixture(scope="module")
def measured(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, subprocess.CompletedProcess]:
    """One finished small bench."""
    folder = tmp_path_factory.mktemp("mes résultats ☃")
    done = attnbench("bench", *SMALL, "--blocks", "3", "--json", "out.json", cwd=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return folder, done


def test_a_bench_says_what_a_user_needs(measured: tuple) -> None:
    folder, done = measured
    lines = done.stdout.splitlines()
    assert "torch" in lines[0]
    assert "measurements" in lines[0]
    assert "end is predicted" in lines[0]
    sentences = json.loads((folder / "out.json").read_text())["sentences"]
    assert len(sentences) == 4
    assert re.search(r"takes \d+\.\d\dx \[\d+\.\d\d, \d+\.\d\d\]", sentences[0])
    assert "margin" in sentences[3]
    assert "A/A control" in sentences[3]
    page = (folder / "results" / "index.html").read_text()
    assert "<svg" in page
    assert "multi_cnn.conv" in page
    assert not re.search(r"""(src|href)=["']https?:""", page)


def test_every_case_has_time_memory_and_margin(measured: tuple) -> None:
    folder, _ = measured
    tasks = _tasks(folder / "results")
    cases = {case for _, case, _ in tasks}
    real = {c for c in cases if "control" not in c}
    assert len(cases) == 6
    assert len(real) == 4
    assert {(k, c, b) for k, c, b in tasks if k == "time"} == {
        ("time", c, b) for c in cases for b in range(3)
    }
    assert {c for k, c, _ in tasks if k == "margin"} == real
    assert {(c, b) for k, c, b in tasks if k == "memory"} == {
        (c, b) for c in real for b in range(3)
    }
    records = [r for r in journal.read(folder / "results").records if r["kind"] == "margin"]
    assert all(r["status"] == "ok" and r["margin"] > 1 for r in records)


def test_a_session_records_its_environment(measured: tuple) -> None:
    folder, _ = measured
    sessions = journal.read(folder / "results").sessions.values()
    for session in sessions:
        fingerprint, environment = session["fingerprint"], session["environment"]
        for name in ("device", "model", "torch", "python", "threads", "allocator"):
            assert fingerprint[name], name
        for name in ("commit", "dirty", "cpu", "packages", "state", "host", "platform"):
            assert name in environment, name
        assert environment["packages"]["torch"]
        assert environment["state"]["load"]


def test_a_finished_bench_measures_nothing_again(measured: tuple) -> None:
    folder, _ = measured
    before = sorted(_raw_keys(folder / "results"))
    done = attnbench("bench", *SMALL, "--blocks", "3", cwd=folder)
    assert done.returncode == 0
    assert sorted(_raw_keys(folder / "results")) == before


def test_more_blocks_add_only_what_is_missing(measured: tuple) -> None:
    folder, _ = measured
    before = _raw_keys(folder / "results")
    done = attnbench("bench", *SMALL, "--blocks", "4", cwd=folder)
    assert done.returncode == 0
    after = _raw_keys(folder / "results")
    assert len(after) == len(set(after)) == len(before) + 7
    assert {b for _, _, b in _tasks(folder / "results")} == {0, 1, 2, 3}


@pytest.mark.parametrize("records_before_the_kill", [1, pytest.param(9, marks=pytest.mark.nightly)])
def test_killed_and_started_again(tmp_path: Path, records_before_the_kill: int) -> None:
    command = [
        sys.executable,
        "-m",
        "harness",
        "bench",
        *SMALL,
        "--blocks",
        "2",
        "--journal",
        "kept",
    ]
    folder = tmp_path / "kept"
    driver = subprocess.Popen(
        command,
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and driver.poll() is None:
        if folder.exists() and len(_tasks(folder)) >= records_before_the_kill:
            break
        time.sleep(0.01)
    assert driver.poll() is None, "the bench ended before it could be killed"
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    survived = _raw_keys(folder)
    assert len(_tasks(folder)) >= records_before_the_kill
    again = attnbench(*command[3:], cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    keys = _raw_keys(folder)
    assert set(survived) <= set(keys)
    assert len(keys) == len(set(keys)), "something was measured twice"
    tasks = _tasks(folder)
    assert len([t for t in tasks if t[0] == "time"]) == 12
    _every_case_has_its_baseline_beside_it(journal.read(folder).records, blocks=2)
    assert len([t for t in tasks if t[0] == "margin"]) == 4


def _every_case_has_its_baseline_beside_it(records: list, blocks: int) -> None:
    timed = [r for r in records if r["kind"] in ("time", "anchor")]
    for block in range(blocks):
        for phase in ("forward", "training"):
            here = [r for r in timed if r["block"] == block and phase in r["case"]]
            base = {r["interpreter"] for r in here if r["case"].startswith("multi_head")}
            for case in {r["case"] for r in here}:
                mine = [r for r in here if r["case"] == case]
                in_turn = any(r.get("ratio", 0) > 0 for r in mine)
                assert in_turn or base & {r["interpreter"] for r in mine}, case


@pytest.mark.parametrize("baseline_finished", [False, True])
def test_a_case_whose_baseline_was_not_reached_is_paired(
    measured: tuple, tmp_path: Path, baseline_finished: bool
) -> None:
    """Killed with the case measured and its baseline not, or after the baseline came later.

    As on a GPU, where a case is not timed in turn with its baseline.
    """
    shutil.copytree(measured[0] / "results", tmp_path / "results")
    for path in (tmp_path / "results").glob("*.jsonl"):
        lines = []
        for line in path.read_text().splitlines():
            record = json.loads(line)
            if record.get("block") == 1 and record["kind"] == "time":
                if record["case"].startswith("multi_cnn"):
                    record["interpreter"] = "killed"
                    del record["ratio"]
                elif not baseline_finished:
                    continue
            lines.append(json.dumps(record))
        path.write_text("\n".join(lines) + "\n")
    before = len(_raw_keys(tmp_path / "results"))
    done = attnbench("bench", *SMALL, "--blocks", "3", "--json", "out.json", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    _every_case_has_its_baseline_beside_it(journal.read(tmp_path / "results").records, blocks=3)
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    assert {r["time"]["count"] for r in rows if "multi_cnn" in r["case"]} == {3}
    # In both passes: the case again beside its baseline measured again; or the case again beside
    # baseline and control that had not been reached.
    added = 4 if baseline_finished else 6
    assert len(_raw_keys(tmp_path / "results")) - before == added
    again = attnbench("bench", *SMALL, "--blocks", "3", cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert len(_raw_keys(tmp_path / "results")) - before == added


def test_on_a_cpu_every_case_is_timed_in_turn_with_its_baseline(measured: tuple) -> None:
    records = journal.read(measured[0] / "results").records
    others = [r for r in records if r["kind"] == "time" and "multi_head.sdpa" not in r["case"]]
    controls = [r for r in records if r["kind"] == "time" and "+control" in r["case"]]
    assert len(others) == len(controls) > 0
    for r in [*others, *controls]:
        assert r["beside"].startswith("multi_head.sdpa")
        assert "+control" not in r["beside"]
        assert len(r["beside_samples"]) == len(r["samples"])
    baselines = [r for r in records if r["kind"] == "time" and r not in [*others, *controls]]
    assert baselines
    assert all("ratio" not in r for r in baselines)


def test_two_sessions_at_once(tmp_path: Path) -> None:
    command = [
        sys.executable,
        "-m",
        "harness",
        "bench",
        *SMALL,
        "--blocks",
        "1",
        "--journal",
        "shared",
    ]
    both = [
        subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        for _ in range(2)
    ]
    outputs = [driver.communicate(timeout=300)[0] for driver in both]
    assert [driver.returncode for driver in both] == [0, 0], outputs
    read = journal.read(tmp_path / "shared")
    assert read.warnings == []
    tasks = [(r["kind"], r["case"], r["block"]) for r in read.records if "key" in r]
    assert len(tasks) == len(set(tasks))


def test_replayed_samples_are_the_measured_ones(measured: tuple, tmp_path: Path) -> None:
    folder, _ = measured
    out = tmp_path / "benchmark.json"
    done = pytest_bench(
        *SMALL,
        "--blocks",
        "3",
        "--journal",
        str(folder / "results"),
        "--benchmark-json",
        str(out),
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    told = json.loads(out.read_text())
    measured_samples: dict[str, list[float]] = {}
    for r in journal.read(folder / "results").records:
        if r["kind"] == "time" and r["block"] < 3:
            measured_samples.setdefault(r["case"], []).extend(r["samples"])
    replayed = {b["extra_info"]["case"]: b["stats"]["data"] for b in told["benchmarks"]}
    for stats in (b["stats"] for b in told["benchmarks"]):
        assert (stats["min"], stats["max"]) == (min(stats["data"]), max(stats["data"]))
    assert set(replayed) == set(measured_samples)
    for case, samples in replayed.items():
        assert sorted(samples) == sorted(measured_samples[case])
    assert told["attnbench"]["journal"] == str((folder / "results").resolve())
    assert told["machine_info"]["fingerprint"]["device"] == "cpu"


def test_selection_by_pytest_measures_that_alone_and_its_baseline(tmp_path: Path) -> None:
    done = pytest_bench(*SMALL, "--blocks", "1", "-k", "conv and forward", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = {case for _, case, _ in _tasks(tmp_path / "results")}
    assert all("forward" in c for c in cases)
    assert {c.partition("-")[0] for c in cases} == {"multi_cnn.conv", "multi_head.sdpa"}


def test_benchmark_disable_runs_once_and_leaves_no_record(tmp_path: Path) -> None:
    done = pytest_bench(*SMALL, "--benchmark-disable", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "passed" in done.stdout
    assert not (tmp_path / "results").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--benchmark-cprofile", "tottime"],
            "--benchmark-cprofile can't profile replayed samples",
        ),
        (["--profile", "slow"], "--profile: given 'slow'; expected quick, full"),
        (["--only", "mtza"], "did you mean mtsa"),
    ],
)
def test_pytest_refuses_in_one_line(tmp_path: Path, arguments: list[str], message: str) -> None:
    done = pytest_bench(*arguments, cwd=tmp_path)
    assert done.returncode == 4
    errors = [s for s in done.stderr.splitlines() if s.strip()]
    assert len(errors) == 1, done.stderr
    assert message in errors[0]


def test_an_option_unknown_to_pytest_is_one_line_and_exit_2(measured: tuple) -> None:
    folder, _ = measured
    before = _raw_keys(folder / "results")
    done = attnbench("bench", *SMALL, "--blocks", "3", "--", "--nonsense", cwd=folder)
    assert done.returncode == 2
    errors = [s for s in done.stderr.splitlines() if s.strip()]
    assert len(errors) == 1, done.stderr
    assert "unrecognized arguments: --nonsense" in errors[0]
    assert _raw_keys(folder / "results") == before


def test_a_newer_journal_is_refused_before_anything_is_written(tmp_path: Path) -> None:
    folder = tmp_path / "results"
    folder.mkdir()
    (folder / "future.jsonl").write_text('{"kind": "session", "schema": 99, "session": "f"}\n')
    done = attnbench("bench", *SMALL, cwd=tmp_path)
    assert done.returncode == 2
    assert "schema 99" in done.stderr
    assert [p.name for p in folder.iterdir()] == ["future.jsonl"]


def test_ctrl_c_leaves_a_readable_journal_and_says_how_to_go_on(tmp_path: Path) -> None:
    driver = subprocess.Popen(
        [sys.executable, "-m", "harness", "bench", *SMALL, "--blocks", "50"],
        cwd=tmp_path,
        env=environment(),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    folder = tmp_path / "results"
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and not (folder.exists() and len(_tasks(folder)) > 3):
        time.sleep(0.02)
    os.killpg(driver.pid, signal.SIGINT)
    stdout, stderr = driver.communicate(timeout=60)
    assert driver.returncode == 130, stdout + stderr
    assert "the same command goes on from there" in stdout + stderr
    assert "Traceback" not in stderr
    assert journal.read(folder).warnings == []


class TestOwnMechanism:
    """A mechanism in a package that someone else wrote."""

    @pytest.fixture
    def package(self, tmp_path: Path) -> Path:
        """A package in a temporary folder."""
        (tmp_path / "own_attention").mkdir()
        (tmp_path / "own_attention" / "__init__.py").write_text("")
        (tmp_path / "own_attention" / "layers.py").write_text(MEAN)
        return tmp_path

    def test_it_is_verified_and_measured(self, package: Path) -> None:
        done = attnbench(
            *shlex.split(
                "bench --with own_attention.layers:Mean --option scale=0.5 --lengths 4 "
                "--batch 2 --width 24 --blocks 2 --device cpu --json out.json"
            ),
            cwd=package,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        told = json.loads((package / "out.json").read_text())
        mine = [r for r in told["rows"] if "Mean.module[scale=0.5]" in r["case"]]
        assert {r["columns"]["phase"] for r in mine} == {"forward", "training"}
        assert all(r["status"] == "ok" and r["time"]["ratio"] > 0 for r in mine)
        assert "error at this shape is not known" in told["sentences"][3]

    @pytest.mark.parametrize("name", ["Leaky", "Poisoned"])
    def test_padding_in_real_rows_is_refused_with_the_reason(
        self, package: Path, name: str
    ) -> None:
        factory = f"own_attention.layers:{name}"
        done = attnbench("verify", "--with", factory, "--dtypes", "f32", cwd=package)
        assert done.returncode == 1
        assert name in done.stdout
        assert "padding" in done.stdout
        measured = attnbench("bench", "--with", factory, *SMALL[2:], cwd=package)
        assert measured.returncode == 1
        assert "is not measured" in measured.stdout
        assert not any(name in case for _, case, _ in _tasks(package / "results"))

    def test_a_factory_that_returns_no_module_is_said_so(self, package: Path) -> None:
        done = attnbench(
            "verify", "--with", "own_attention.layers:not_a_module", "--dtypes", "f32", cwd=package
        )
        assert done.returncode == 2
        assert "returned a int; expected a torch.nn.Module" in done.stderr

    def test_an_entry_point_is_found(self, package: Path) -> None:
        info = package / "own_attention-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: own-attention\nVersion: 1.0\n")
        (info / "entry_points.txt").write_text(
            "[attnbench.mechanisms]\nmean_context = own_attention.layers:Mean\n"
        )
        listed = subprocess.run(
            [sys.executable, "-m", "harness", "verify", "mean_context", "--dtypes", "f64"],
            cwd=package,
            capture_output=True,
            text=True,
            timeout=120,
            env={**environment(), "PYTHONPATH": f"{environment()['PYTHONPATH']}:{package}"},
        )
        assert listed.returncode == 0, listed.stdout + listed.stderr
        assert "mean_context.module" in listed.stdout
