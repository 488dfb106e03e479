"""Sweeps on a Ray cluster: a real one of two nodes on this machine, one of which is killed."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.experiments.executors import Job
from harness.experiments.executors.ray import OtherNode, RayExecutor, inside
from harness.experiments.queue import RunSession, finished
from harness.isolate import run as run_isolated
from harness.records import journal
from suites.support.command_line import ROOT, attnbench, here
from suites.support.fake_training import CALL, NODE, begun, fake_run
from suites.support.made_up_data import write_data_directory

if os.environ.get("CI"):
    import ray  # CI installs it: there these tests are never left out
else:
    ray = pytest.importorskip("ray", reason="the extra 'cluster' is not installed")

QUICK = "--recipe width=12 --recipe heads=2 --recipe hidden=10 --recipe epochs=2 --device cpu"
# A dead node is noticed in seconds; in production Ray waits longer.
SYSTEM = {
    "health_check_initial_delay_ms": 0,
    "health_check_period_ms": 500,
    "health_check_timeout_ms": 1000,
    "health_check_failure_threshold": 3,
}


@pytest.fixture(scope="module")
def fingerprint() -> dict[str, Any]:
    outcome = run_isolated("harness.measure.device:fingerprint", {"device": "cpu"})
    return dict(outcome.value)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A cluster whose first node has room for one run; nodes may be added."""
    from ray.cluster_utils import Cluster

    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_USAGE_STATS_ENABLED", "0")
        patch.setenv("PYTHONPATH", str(ROOT))
        patch.delenv("RAY_ADDRESS", raising=False)
        made = Cluster(
            initialize_head=True,
            head_node_args={"num_cpus": 1, "include_dashboard": False, "_system_config": SYSTEM},
        )
        yield made
        ray.shutdown()
        made.shutdown()


@pytest.fixture
def second(cluster: Any) -> Iterator[Any]:
    """A second node for one run; a test may kill it."""
    node = cluster.add_node(num_cpus=1, env_vars={NODE: "second"})
    yield node
    if node in cluster.worker_nodes:
        cluster.remove_node(node)


def under_way_on_second(folder: Path) -> list[int]:
    """Processes of calls that began on the second node and have not ended."""
    begun_there = [path for path in folder.glob("*.begun") if "second" in path.read_text()]
    return [
        int(path.read_text().split()[0])
        for path in begun_there
        if not path.with_suffix(".ended").exists()
    ]


@pytest.mark.nightly
def test_a_node_that_dies_in_the_middle(
    cluster: Any, second: Any, fingerprint: dict[str, Any], tmp_path: Path
) -> None:
    """Nothing is lost and nothing is doubled."""
    todo = [fake_run(tmp_path, seed, "1.0") for seed in range(10)]
    writer = journal.Writer(tmp_path / "results", {"fingerprint": fingerprint})
    lost: list[int] = []
    with RayExecutor(fingerprint, cluster.address) as executor:
        assert executor.workers == 2
        session = RunSession(writer, fingerprint, executor, lambda _: None, call=CALL)
        records = []
        for record in session.run(todo):
            records.append(record)
            if not lost and record["on"] == "second":
                deadline = time.monotonic() + 10
                while not (lost := under_way_on_second(tmp_path)):
                    assert time.monotonic() < deadline, "no further run began there"
                cluster.remove_node(second, allow_graceful=False)
    writer.close()
    assert lost, "no node was killed"
    assert [r["status"] for r in records] == ["ok"] * 10
    assert Counter(r["key"] for r in records) == {run.key: 1 for run in todo}
    text = [
        line
        for path in (tmp_path / "results").glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    written = [r for r in map(json.loads, text) if r["kind"] == "run"]
    assert Counter(r["key"] for r in written) == {run.key: 1 for run in todo}
    assert set(finished(tmp_path / "results")) == {run.key for run in todo}
    # What was under way on the dead node was begun again on the other one.
    assert len(begun(tmp_path)) > 10
    assert {r["on"] for r in records} == {"", "second"}
    deadline = time.monotonic() + 20
    while any(Path(f"/proc/{pid}").exists() for pid in lost):
        assert time.monotonic() < deadline, "a run goes on on the dead node"
        time.sleep(0.1)


@pytest.mark.nightly
def test_time_left_falls_while_runs_are_under_way(
    cluster: Any, fingerprint: dict[str, Any], tmp_path: Path
) -> None:
    todo = [fake_run(tmp_path, seed, "3.0") for seed in range(2)]
    jobs = [Job(r.key, r.label, CALL, r.arguments, r.code) for r in todo]
    seen: list[dict[str, float]] = []
    with RayExecutor(fingerprint, cluster.address) as executor:
        assert executor.workers == 1
        said = executor.run(
            iter(jobs), lambda now: seen.append({key: s.seconds for key, s in now.items()})
        )
        assert [job.key for job, _ in said] == [job.key for job in jobs]
    for job, other in (jobs, jobs[::-1]):
        mine = [now[job.key] for now in seen if job.key in now]
        assert max(mine) > 1.5
        assert mine == sorted(mine)
        assert not any(other.key in now for now in seen if job.key in now), "there is room for one"


def test_a_run_that_crashes_is_a_result_and_not_tried_again(
    cluster: Any, fingerprint: dict[str, Any], tmp_path: Path
) -> None:
    todo = [fake_run(tmp_path, 0, "crash"), fake_run(tmp_path, 1, "0.05")]
    with RayExecutor(fingerprint, cluster.address) as executor:
        session = RunSession(None, fingerprint, executor, lambda _: None, call=CALL)
        found = {r["seed"]: r for r in session.run(todo)}
    assert (found[0]["status"], found[1]["status"]) == ("crash", "ok")
    assert "SIGSEGV" in found[0]["detail"]
    assert len(begun(tmp_path)) == 2
    assert found[0]["node"] == found[1]["node"] != ""


@pytest.mark.nightly
@pytest.mark.parametrize(
    ("code", "digest", "says"),
    [
        ("another code", "", r"other code for mtsa\.algorithm1 .*another code.*; install the same"),
        (None, "another digest", r"has other data in .* than this machine"),
    ],
)
def test_a_node_unlike_this_machine_is_refused(
    cluster: Any, fingerprint: dict[str, Any], tmp_path: Path, code: str, digest: str, says: str
) -> None:
    data = write_data_directory(tmp_path / "data")
    run = fake_run(data, 0)
    job = Job("a", "a", CALL, {**run.arguments, "vectors": "none"}, code or run.code, digest)
    with (
        RayExecutor(fingerprint, cluster.address) as executor,
        pytest.raises(UsageError, match=says),
    ):
        list(executor.run(iter([job]), lambda _: None))
    assert begun(data) == []


def test_another_kind_of_machine_is_refused(fingerprint: dict[str, Any], tmp_path: Path) -> None:
    run = fake_run(tmp_path, 0)
    with pytest.raises(OtherNode, match=r"of another kind \(model .*, this machine a better one\)"):
        inside(CALL, run.arguments, run.code, {**fingerprint, "model": "a better one"})
    assert begun(tmp_path) == []
    assert inside(CALL, run.arguments, run.code, fingerprint)["test"] == {"accuracy": 0.0}


@pytest.mark.nightly
def test_too_much_for_any_node_is_told(cluster: Any, fingerprint: dict[str, Any]) -> None:
    with (
        pytest.raises(UsageError, match="no node of the cluster has 8 CPUs and 0 GPUs"),
        RayExecutor(fingerprint, cluster.address, cpus=8.0),
    ):
        pass
    assert not ray.is_initialized()


@pytest.mark.nightly
def test_the_records_are_those_of_this_machine(cluster: Any, tmp_path: Path) -> None:
    data = write_data_directory(tmp_path / "data")
    both = f"--task trec {QUICK} --data {data}".split()
    sweep = f"sweep --models mtsa,multi_head --tasks trec --seeds 2 {QUICK} --data {data}".split()
    done = attnbench(*sweep, "--executor", "ray", "--address", cluster.address, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "4 of 4 runs are ok" in done.stdout
    again = attnbench(*sweep, cwd=tmp_path)
    assert "4 runs, 4 of them already there" in again.stdout
    compared = attnbench("compare", "mtsa", "multi_head", "--seeds", "2", *both, cwd=tmp_path)
    assert "4 runs, 4 of them already there" in compared.stdout
    alone = attnbench("train", "mtsa", *both, "--journal", "alone", cwd=tmp_path)
    assert alone.returncode == 0
    (mine,) = [r for r in journal.read(tmp_path / "alone").records if r["kind"] == "run"]
    theirs = finished(tmp_path / "results")[mine["key"]]
    assert theirs["test"] == mine["test"]
    assert [e["loss"] for e in theirs["epochs"]] == [e["loss"] for e in mine["epochs"]]
    assert set(theirs) - set(mine) == {"node"}


def test_no_cluster_is_told_in_one_line(tmp_path: Path) -> None:
    sweep = "sweep --models mtsa --tasks mirrored_summation --device cpu"
    done = here(
        *sweep.split(), "--executor", "ray", "--address", "127.0.0.1:1", cwd=tmp_path, code=2
    )
    assert "--address 127.0.0.1:1: no Ray cluster" in done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
