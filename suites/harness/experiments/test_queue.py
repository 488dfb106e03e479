"""Runs by an executor: what is done, by whom, how often; with stand-ins for training."""

from __future__ import annotations

import hashlib
import itertools
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from unittest import mock

import pytest

from harness.cli import compare
from harness.errors import UsageError
from harness.experiments import declare
from harness.experiments.costs import Durations, wall_seconds
from harness.experiments.design import Run, Surroundings
from harness.experiments.executors import PRELOAD, Job, local
from harness.experiments.executors import ray as ray_executor
from harness.experiments.executors.local import LocalExecutor, gpu_slots
from harness.experiments.executors.ray import KIND, RayExecutor, without_far_checkpoint
from harness.experiments.model import recipes_of
from harness.experiments.queue import (
    SessionProgress,
    checkpoint_of,
    finished,
    trained_elsewhere,
)
from harness.isolate import Interpreter
from harness.measure import device, gpu
from harness.options.train import CompareOptions
from harness.records import journal, schema
from harness.records.journal import Follower
from harness.records.published import pack
from harness.records.sharing import Reservations
from harness.registry import Registry
from reports.core import source
from suites.support.command_line import TOY, here, started
from suites.support.fake_training import (
    FINGERPRINT,
    RESULT,
    at_once,
    begun,
    do_locally,
    fake_run,
)
from suites.support.made_up_records import unsealed


def written(folder: Path) -> list[dict[str, Any]]:
    """Every run in a journal, with those that reading would merge."""
    lines = [
        json.loads(line)
        for path in folder.glob("*.jsonl")
        for line in path.read_text().splitlines()
    ]
    return [line for line in lines if line["kind"] == "run"]


def settled(key: str, status: str = "ok") -> dict[str, Any]:
    """The record of a run that has ended so."""
    return {"kind": "run", "key": key, "model": "m", "seed": 0, "status": status, **RESULT}


def test_runs_begin_in_the_order_given_and_as_many_at_a_time_as_there_are_workers(
    tmp_path: Path,
) -> None:
    todo = [fake_run(tmp_path, seed, "0.2") for seed in (5, 2, 9, 4)]
    records = do_locally(tmp_path / "results", todo)
    assert {r["seed"] for r in records[:2]} == {5, 2}
    assert {r["seed"] for r in records[2:]} == {9, 4}
    assert all(r["workers"] == 2 and r["task_seconds"] >= 0.2 for r in records)


def optimiser_imports() -> list[str]:
    import torch

    before = set(sys.modules)
    torch.optim.AdamW([torch.nn.Parameter(torch.zeros(2))])
    return sorted(set(sys.modules) - before)


def test_what_an_optimiser_imports_is_there_before_runs_are_forked() -> None:
    with Interpreter("fork", preload=PRELOAD) as one:
        outcome = one.run(f"{__name__}:optimiser_imports", {})
    assert (outcome.status, outcome.value) == ("ok", [])


def test_a_failed_run_does_not_end_the_others(tmp_path: Path) -> None:
    ways = ("0.05", "crash", "diverge", "mistake", "0.05")
    todo = [fake_run(tmp_path, seed, way) for seed, way in enumerate(ways)]
    records = {r["seed"]: r for r in do_locally(tmp_path / "results", todo, strict=False)}
    assert [records[seed]["status"] for seed in range(5)] == [
        "ok",
        "crash",
        "diverged",
        "refused",
        "ok",
    ]
    assert "SIGSEGV" in records[1]["detail"]
    assert records[3]["detail"] == "nothing to train on; give more data"
    # A user's mistake is no result, and what crashed is tried again.
    assert Counter(r["status"] for r in written(tmp_path / "results")) == {
        "ok": 2,
        "crash": 1,
        "diverged": 1,
    }
    assert set(finished(tmp_path / "results")) == {todo[i].key for i in (0, 2, 4)}


def test_what_depends_on_the_moment_is_tried_again(tmp_path: Path) -> None:
    statuses = ("ok", "diverged", "unsupported", "oom", "crash")
    with journal.Writer(tmp_path, {"fingerprint": {}}) as writer:
        for status in statuses:
            writer.append(settled(status, status))
    assert set(finished(tmp_path)) == {"ok", "diverged", "unsupported"}


def test_a_users_mistake_ends_what_is_strict(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"mtsa\.algorithm1 seed 0: nothing to train on"):
        do_locally(tmp_path / "results", [fake_run(tmp_path, 0, "mistake")])


def kept(folder: Path, todo: list[Run]) -> list[str]:
    """Statuses of a session that keeps checkpoints, each run's begun already."""
    place = folder / "results" / "checkpoints"
    place.mkdir(parents=True, exist_ok=True)
    for run in todo:
        checkpoint_of(place, run).touch()
    records = do_locally(folder / "results", todo, workers=1, checkpoints=place)
    return [record["status"] for record in records]


def test_a_checkpoint_is_taken_away_when_the_result_is_there(tmp_path: Path) -> None:
    place = tmp_path / "results" / "checkpoints"
    done, crashed = fake_run(tmp_path, 0, "0.05"), fake_run(tmp_path, 1, "crash")
    assert kept(tmp_path, [done, crashed]) == ["ok", "crash"]
    assert list(place.iterdir()) == [checkpoint_of(place, crashed)]
    checkpoint_of(place, crashed).unlink()
    assert kept(tmp_path, []) == []
    assert not place.exists()


def test_a_run_whose_time_was_up_goes_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run = fake_run(tmp_path, 0, "5")
    monkeypatch.setattr(local, "LIMIT_SECONDS", 0.5)
    assert kept(tmp_path, [run]) == ["timeout"]
    left = checkpoint_of(tmp_path / "results" / "checkpoints", run)
    assert left.exists(), "what it had done is lost"
    assert run.key not in finished(tmp_path / "results")


def test_a_node_that_does_not_see_the_folder_keeps_no_checkpoint(tmp_path: Path) -> None:
    near = {"seed": 1, "checkpoint": str(tmp_path / "k.pt"), "checkpoint_seconds": 1.0}
    assert without_far_checkpoint(near) == near
    assert without_far_checkpoint({**near, "checkpoint": "/nowhere/k.pt"}) == {"seed": 1}


def test_two_sessions_at_once_share_the_work(tmp_path: Path) -> None:
    how = ("-m", "suites.support.fake_training", tmp_path / "results", tmp_path, "0.2", 12)
    both = [started(*how) for _ in range(2)]
    said = [process.communicate(timeout=60)[0].split() for process in both]
    assert [process.returncode for process in both] == [0, 0]
    assert set(Counter(begun(tmp_path)).values()) == {1}, "a run was trained twice"
    records = written(tmp_path / "results")
    assert len(records) == len({r["key"] for r in records}) == 12
    assert len({r["session"] for r in records}) == 2, "one of them did nothing"
    # Each of them knows all results in the end.
    for keys in said:
        assert sorted(keys) == sorted({r["key"] for r in records})


def test_what_another_session_failed_at_is_not_tried_again_at_once(tmp_path: Path) -> None:
    """But what failed before this session began is."""
    first = fake_run(tmp_path, 0, "crash")
    do_locally(tmp_path / "results", [first])
    assert len(begun(tmp_path)) == 1
    (again,) = do_locally(tmp_path / "results", [first])
    assert again["status"] == "crash"
    assert len(begun(tmp_path)) == 2
    other = journal.Writer(tmp_path / "results", {"fingerprint": FINGERPRINT})
    todo = [fake_run(tmp_path, 1, "0.05"), first]

    def other_crashed(_: SessionProgress) -> None:
        if not told:
            told.append(other.append(settled(first.key, "crash")))

    told: list[Any] = []
    records = do_locally(tmp_path / "results", todo, workers=1, on_progress=other_crashed)
    assert [r["status"] for r in records] == ["ok", "crash"]
    assert records[1]["session"] == other.session
    assert len(begun(tmp_path)) == 3


def test_a_journal_that_cannot_be_locked_is_told_in_one_line(tmp_path: Path) -> None:
    (tmp_path / ".running").mkdir()
    with pytest.raises(UsageError, match=r"can't lock .*\.running: .*; give a --journal"):
        Reservations(tmp_path)


def test_only_what_is_new_and_whole_is_followed(tmp_path: Path) -> None:
    own = journal.Writer(tmp_path, {})
    other = journal.Writer(tmp_path, {})
    own.append(settled("own"))
    other.append(settled("a"))
    other.append({"kind": "design", "key": "run"})
    unsealed(other.path)
    follower = Follower(tmp_path, "run", own.path)
    assert [r["key"] for r in follower.new()] == ["a"]
    assert follower.new() == []
    line = json.dumps(settled("b"))
    with other.path.open("a") as file:
        file.write('{"kind": "run", "key": 7}\nno json "run"\n' + line[:20])
        file.flush()
        assert follower.new() == []
        file.write(line[20:] + "\n")
        file.flush()
        assert [r["key"] for r in follower.new()] == ["b"]


def test_each_gpu_has_as_many_runs_as_asked() -> None:
    devices = [("0", "NVIDIA H200"), ("GPU-8f", "NVIDIA H200")]
    slots = gpu_slots(devices, 2)
    assert [slot["CUDA_VISIBLE_DEVICES"] for slot in slots] == ["0", "GPU-8f", "0", "GPU-8f"]
    with pytest.raises(UsageError, match=r"not alike \(NVIDIA A100, NVIDIA H200\)"):
        gpu_slots([*devices, ("2", "NVIDIA A100")], 2)


@pytest.mark.parametrize(
    ("given", "found"),
    [
        (None, [("0", "NVIDIA A100"), ("1", "NVIDIA H200"), ("2", "NVIDIA H200")]),
        ("2,1", [("2", "NVIDIA H200"), ("1", "NVIDIA H200")]),
        ("", []),
    ],
)
def test_the_gpus_that_cuda_sees_are_used(
    given: str | None, found: list, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = ("NVIDIA A100", "NVIDIA H200", "NVIDIA H200")
    nvml = SimpleNamespace(
        NVMLError=IndexError,
        nvmlInit=lambda: None,
        nvmlShutdown=lambda: None,
        nvmlDeviceGetHandleByIndex=lambda index: names[index],
        nvmlDeviceGetName=lambda name: name,
    )
    monkeypatch.setitem(sys.modules, "pynvml", nvml)
    monkeypatch.delenv(gpu.VISIBLE, raising=False)
    if given is not None:
        monkeypatch.setenv(gpu.VISIBLE, given)
    assert gpu.visible() == found


def test_jobs_run_on_their_slots_gpu() -> None:
    slots = gpu_slots([("0", "x"), ("1", "x")], 1)
    jobs = [
        Job(str(i), "", "os:getenv", {"key": "CUDA_VISIBLE_DEVICES"}, reports=False)
        for i in range(2)
    ]
    with LocalExecutor(slots, preload=()) as executor:
        found = {outcome.value for _, outcome in executor.run(iter(jobs), lambda _: None)}
    assert found == {"0", "1"}


def test_progress_and_the_time_left(tmp_path: Path) -> None:
    seen: list[SessionProgress] = []
    todo = [fake_run(tmp_path, seed, "0.6") for seed in range(3)]
    records = do_locally(tmp_path / "results", todo, workers=1, on_progress=seen.append)
    longest = max(record["task_seconds"] for record in records)
    assert [p.done for p in seen] == sorted(p.done for p in seen)
    assert (seen[0].left_seconds, seen[-1].done, seen[-1].total) == (None, 3, 3)
    for progress in seen:
        if progress.left_seconds is not None:
            left = 3 - progress.done
            # That under way may be nearly done; no run takes less than 0.6 s.
            assert 0.6 * (left - 1) <= progress.left_seconds <= longest * left
    assert any("mtsa.algorithm1 seed 0" in text for p in seen for text in p.running)


def durations(*times: tuple[str, str, int, float], **more: Any) -> Durations:
    recipe = fake_run(Path(), 0).recipe.as_dict()
    found = Durations(FINGERPRINT, 2)
    for model, name, workers, seconds in times:
        record = {
            **settled("k"),
            "model": model,
            "task": name,
            "recipe": recipe,
            "vectors": "0.05",
            "workers": workers,
            "task_seconds": seconds,
            "seconds": None,
            "fingerprint": schema.digest(FINGERPRINT),
            **more,
        }
        found.add(record)
    return found


A, B = "mtsa.algorithm1", "multi_head.sdpa"


def test_a_run_takes_what_its_kind_took() -> None:
    known = durations((A, "trec", 2, 10.0), (A, "trec", 2, 20.0), (B, "sick_relatedness", 2, 99.0))
    assert known.of(fake_run(Path(), 0)) == 15.0
    assert known.of(fake_run(Path(), 0, model=B)) is None
    assert known.guess(fake_run(Path(), 0, model=B)) == 15.0
    assert known.guess(fake_run(Path(), 0, model=B, name="sick_relatedness")) == 99.0
    assert known.guess(fake_run(Path(), 0, model=B, name="cr")) == pytest.approx(43.0)
    assert Durations(FINGERPRINT, 2).guess(fake_run(Path(), 0)) is None


def test_what_a_time_is_known_by() -> None:
    tuned = {**fake_run(Path(), 0).recipe.as_dict(), "tuning_trials": 99}
    assert durations((A, "trec", 2, 10.0), recipe=tuned).of(fake_run(Path(), 0)) == 10.0
    known = durations((A, "trec", 1, 10.0), (A, "trec", 2, 30.0))
    assert known.of(fake_run(Path(), 0)) == 30.0, "as many at a time count more"
    assert durations((A, "trec", 1, 10.0)).of(fake_run(Path(), 0)) == 10.0
    resumed = durations((A, "trec", 2, 10.0), seconds=70.0)
    assert resumed.of(fake_run(Path(), 0)) == 70.0, "all of its time"


@pytest.mark.parametrize(
    "more",
    [
        {"fingerprint": "another device"},
        {"status": "crash"},
        {"recipe": {"epochs": 1}},
        {"vectors": "none"},
        {"task_seconds": None},
        {"task_seconds": "5"},
        {"kind": "design"},
    ],
)
def test_other_times_do_not_count(more: dict[str, Any]) -> None:
    assert durations((A, "trec", 2, 10.0), **more).of(fake_run(Path(), 0)) is None


@pytest.mark.parametrize(
    ("times", "workers", "wall"),
    [([], 3, 0), ([5], 2, 5), ([3, 3, 3], 2, 6), ([1, 1, 1, 9], 2, 10), ([9, 1, 1, 1], 2, 9)],
)
def test_wall_time_of_runs_that_begin_in_turn(times: list, workers: int, wall: float) -> None:
    assert wall_seconds(times, workers) == wall


@pytest.mark.alone
def test_the_prediction_is_within_one_and_a_half(tmp_path: Path) -> None:
    ways = itertools.cycle([(A, "0.6"), (B, "0.2")])
    todo = [fake_run(tmp_path, i // 2, way, model) for i, (model, way) in zip(range(8), ways)]  # noqa: B905
    first = do_locally(tmp_path / "results", todo[:2])
    known = Durations(FINGERPRINT, 2, first)
    predicted = wall_seconds([known.of(run) or 0.0 for run in todo[2:]], 2)
    began = time.monotonic()
    do_locally(tmp_path / "results", todo[2:])
    taken = time.monotonic() - began
    assert predicted / 1.5 < taken < 1.5 * predicted


# A Ray cluster without nodes, played without Ray: `test_ray.py` has a real one.


def waiting(
    monkeypatch: pytest.MonkeyPatch, on_tick: Callable[[object], None], **node: Any
) -> None:
    """Give a run to a cluster on whose one node it does not begin."""
    monkeypatch.setattr(ray_executor, "DESERTED_SECONDS", 0.05)
    monkeypatch.setattr(ray_executor, "COUNT_SECONDS", 0.0)
    executor = RayExecutor(dict.fromkeys(KIND, "x"), "head:6379")
    monkeypatch.setattr(executor, "_submit", lambda job: job.label)
    nodes = [{"Resources": {"CPU": 2.0}, **node}]
    ray = SimpleNamespace(nodes=lambda: nodes, wait=lambda references, **_: ([], references))
    monkeypatch.setattr(executor, "_ray", ray, raising=False)
    next(executor.run(iter([Job("k", "a run", "m:f", {})]), on_tick))


def test_a_cluster_without_a_node_is_given_up_with_the_reason(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with pytest.raises(UsageError, match=r"head:6379 has had no node .* finished runs are kept"):
        waiting(monkeypatch, lambda _: None, Alive=False)


def test_a_busy_cluster_is_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    enough = time.monotonic() + 0.2

    def on_tick(_: object) -> None:
        if time.monotonic() > enough:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        waiting(monkeypatch, on_tick, Alive=True)


PLAN = f"""
question = "Is it better?"
models = ["mtsa"]
baseline = "multi_head"
tasks = ["{TOY}"]
seeds = 3
recipe = ["epochs=2", "width=8", "heads=2", "hidden=4"]
family = "this one"
stopping = "all pairs"
hours = 1
"""


def on_machine(name: str, folder: Path, plan: str = "asked.toml") -> tuple[str, dict[str, Any]]:
    """What comparing by a design file says on a machine of that name, and concludes."""
    known = {**device.device_fingerprint("cpu"), "model": name}
    with (
        at_once(),
        mock.patch.object(declare, "device_fingerprint", return_value=known),
        mock.patch.object(compare, "verified_or_refused"),  # tried elsewhere
    ):
        done = here(f"compare --plan {plan} --device cpu --json out.json", cwd=folder)
    return done.stdout, json.loads((folder / "out.json").read_text())


@pytest.fixture(scope="module")
def went_on(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, dict[str, Any]]:
    """A design file of three pairs: one machine was lost after the first, another did the rest."""
    folder = tmp_path_factory.mktemp("went_on")
    (folder / "asked.toml").write_text(PLAN)
    on_machine("lost", folder)
    for path in (folder / "results").glob("*.jsonl"):
        lines = path.read_text().splitlines(keepends=True)
        if '"kind":"verdict"' in lines[-1]:
            path.unlink()
        elif any('"kind":"run"' in line for line in lines):
            # The session, the design, and a pair and a half.
            path.write_text("".join(lines[:5]))
    assert len(written(folder / "results")) == 3
    return folder, *on_machine("other", folder)


def test_a_design_file_goes_on_on_another_machine_pair_by_pair(
    went_on: tuple[Path, str, dict[str, Any]],
) -> None:
    folder, said, found = went_on
    assert "6 runs, 2 of them already there (2 from another machine)" in said
    sha = hashlib.sha256(PLAN.encode()).hexdigest()
    assert {r["plan"] for r in written(folder / "results")} == {sha}
    assert f"asked in asked.toml (not committed, SHA-256 {sha[:10]}): Is it better?" in said
    # The half pair is trained again: no pair is of two machines.
    counts = Counter(r["fingerprint"] for r in written(folder / "results"))
    assert sorted(counts.values()) == [3, 4]
    assert (found["finished"], found["pairs"], found["exploratory"]) == (3, 3, False)
    told = [w for w in found["warnings"] if "machine" in w or "before this design" in w]
    assert told == [
        "asked.toml was not committed, as it is, when this was declared: only this machine's clock "
        "says that it is older than the runs",
        "1 and 2 pairs were trained on 2 machines: seconds are medians over all of them",
    ]
    assert not any("added to a plan" in warning for warning in found["warnings"])


def test_what_went_on_is_done_everywhere_and_shown_once(
    went_on: tuple[Path, str, dict[str, Any]],
) -> None:
    folder, _, found = went_on
    for machine in ("other", "a third", "lost"):
        said, again = on_machine(machine, folder)
        assert "6 runs, 6 of them already there" in said
        assert again["values"] == found["values"]
    assert len(written(folder / "results")) == 7
    shown = [one for d in source.find(str(folder / "results")).devices for one in d.conclusions]
    assert [(c.complete, c.comparisons[0].exploratory) for c in shown] == [(True, False)]


def test_runs_of_another_file_or_of_another_torch_are_not_taken(
    went_on: tuple[Path, str, dict[str, Any]],
) -> None:
    folder = went_on[0] / "results"
    options, plan = declare.planned(CompareOptions(plan=went_on[0] / "asked.toml"))
    # What is published is packed, and gone on from like any other.
    found = journal.read(pack(folder, went_on[0] / "packed").with_name("packed"))
    registry = Registry()
    (toy,) = declare.read_tasks(options.tasks)
    models = declare.read_models(options, registry)
    sides = list(zip(models, recipes_of(toy, models, options.changes), strict=True))
    known = device.device_fingerprint("cpu")

    def taken(plan: Mapping[str, Any], **more: Any) -> int:
        around = Surroundings(registry, {**known, **more})
        return len(trained_elsewhere(found, plan, toy, sides, range(3), around))

    assert taken(plan) == 3
    assert taken(plan, model="other") == 1  # the others are its own
    assert taken(plan, torch="1.0") == 0
    assert taken(plan, device="cuda") == 0
    assert taken({**plan, "sha256": "another"}) == 0
