"""A killed run goes on where it was and gives the same numbers, bit for bit."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from harness.errors import UsageError
from harness.isolate.outcome import of_exception
from harness.records import journal
from harness.train.checkpoint import Checkpoint
from harness.train.reinforce import StagedTrainer
from harness.train.run import train_run
from harness.train.task import task
from harness.train.trainer import Trainer
from suites.support.command_line import environment
from suites.support.made_up_data import write_data_directory

SMALL: dict[str, Any] = {
    "width": 12,
    "heads": 2,
    "hidden": 10,
    "epochs": 3,
    "batch": 60,
    "rate": 5e-3,
    "policy_steps": 5,
    "policy_epochs": 2,
}
STEPS = 4
"""Of an epoch: 216 examples in batches of 60."""


class Killed(BaseException):
    """In place of a signal, which the tests that start processes send."""


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_data_directory(tmp_path_factory.mktemp("data"))


@pytest.fixture(autouse=True)
def _one_thread() -> Iterator[None]:
    threads = torch.get_num_threads()
    yield
    torch.set_num_threads(threads)


def train(
    data: Path, checkpoint: Path | None, model: str = "mtsa", seconds: float = 0.0, **recipe: Any
) -> dict[str, Any]:
    chosen = replace(task("trec").recipe, **{**SMALL, **recipe})
    return train_run(
        model,
        "trec",
        chosen.as_dict(),
        3,
        directory=str(data),
        vectors=task("trec").vectors,
        checkpoint=None if checkpoint is None else str(checkpoint),
        checkpoint_seconds=seconds,
    )


def numbers(record: dict[str, Any]) -> dict[str, Any]:
    """Everything of a result but times, memory, and how often it went on."""
    spent = ("seconds", "load_seconds", "peak_bytes", "memory_method", "resumed", "epochs")
    rows = [{k: v for k, v in row.items() if k != "seconds"} for row in record["epochs"]]
    return {"epochs": rows, **{k: v for k, v in record.items() if k not in spent}}


def killed_after(patch: pytest.MonkeyPatch, kind: type[Trainer], steps: int) -> None:
    """Let a trainer die at the beginning of a step, when so many are done."""
    real, done = kind._step, [0]

    def step(self: Any, *arguments: Any) -> Any:
        if done[0] == steps:
            raise Killed
        done[0] += 1
        return real(self, *arguments)

    patch.setattr(kind, "_step", step)


def interrupted(
    data: Path, file: Path, places: tuple[int, ...], kind: type[Trainer] = Trainer, **recipe: Any
) -> dict[str, Any]:
    """The result of a run that died after each of these numbers of steps, and went on."""
    for steps in places:
        with pytest.MonkeyPatch.context() as patch:
            killed_after(patch, kind, steps)
            with pytest.raises(Killed):
                train(data, file, **recipe)
        assert file.exists()
    return train(data, file, **recipe)


@pytest.mark.parametrize(
    "places",
    [(1,), (STEPS,), (STEPS + 2,), (2, 3, STEPS)],
    ids=["first epoch", "end of an epoch", "second epoch", "three times"],
)
@pytest.mark.parametrize("optimiser", ["adamw", "adadelta"])
def test_a_run_that_died_gives_the_numbers_of_one_that_did_not(
    data: Path, tmp_path: Path, places: tuple[int, ...], optimiser: str
) -> None:
    recipe: dict[str, Any] = {"optimiser": optimiser, "dropout": 0.3}
    whole = train(data, None, **recipe)
    again = interrupted(data, tmp_path / "run.pt", places, **recipe)
    assert numbers(again) == numbers(whole)
    assert again["resumed"] == len(places)
    assert "resumed" not in whole


@pytest.mark.parametrize(
    "places",
    [(STEPS + 1,), (3 * STEPS + 2,), (3 * STEPS + 5 + 1,), (STEPS, 2 * STEPS + 3, 4)],
    ids=["base", "policy", "both", "one after the other"],
)
def test_every_stage_of_a_policy_goes_on(
    data: Path, tmp_path: Path, places: tuple[int, ...]
) -> None:
    whole = train(data, None, "resa")
    assert [row["stage"] for row in whole["epochs"]] == [*["base"] * 3, "policy", *["both"] * 2]
    again = interrupted(data, tmp_path / "run.pt", places, StagedTrainer, model="resa")
    assert numbers(again) == numbers(whole)


def test_steps_that_are_done_are_not_done_again(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.pt"
    with pytest.MonkeyPatch.context() as patch:
        killed_after(patch, Trainer, STEPS + 1)
        with pytest.raises(Killed):
            train(data, file)
    real, done = Trainer._step, [0]

    def counting(self: Any, *arguments: Any) -> Any:
        done[0] += 1
        return real(self, *arguments)

    monkeypatch.setattr(Trainer, "_step", counting)
    record = train(data, file)
    assert done[0] == 3 * STEPS - (STEPS + 1)
    assert len(record["epochs"]) == 3


def test_patience_counts_across_a_death(data: Path, tmp_path: Path) -> None:
    recipe: dict[str, Any] = {"epochs": 30, "patience": 2, "rate": 1e-9}
    whole = train(data, None, **recipe)
    assert len(whole["epochs"]) == whole["chosen_epoch"] + 2 < 30
    places = ((len(whole["epochs"]) - 1) * STEPS + 1,)
    assert numbers(interrupted(data, tmp_path / "run.pt", places, **recipe)) == numbers(whole)


def test_time_and_memory_of_all_pieces_count(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "run.pt"
    with pytest.MonkeyPatch.context() as patch:
        killed_after(patch, Trainer, STEPS + 1)
        with pytest.raises(Killed):
            train(data, file)
    kept = torch.load(file, weights_only=True)
    kept["state"]["spent"] |= {"seconds": 1000.0, "peak_bytes": 10**12}
    kept["state"]["place"][4] = 500.0
    torch.save(kept, file)
    record = train(data, file)
    assert 1000 < record["seconds"] < 1100
    assert record["peak_bytes"] == 10**12
    assert record["epochs"][1]["seconds"] > 500 > record["epochs"][2]["seconds"]


def test_a_peak_that_an_earlier_piece_could_not_measure_is_not_known(
    data: Path, tmp_path: Path
) -> None:
    file = tmp_path / "run.pt"
    with pytest.MonkeyPatch.context() as patch:
        killed_after(patch, Trainer, STEPS + 1)
        with pytest.raises(Killed):
            train(data, file)
    kept = torch.load(file, weights_only=True)
    kept["state"]["spent"] |= {"peak_bytes": None, "memory_method": "no clear_refs here"}
    torch.save(kept, file)
    record = train(data, file)
    assert record["peak_bytes"] is None
    assert "an earlier piece of the run could not: no clear_refs here" in record["memory_method"]


def test_it_is_written_now_and_then(data: Path, tmp_path: Path) -> None:
    file = tmp_path / "folder" / "run.pt"
    train(data, file, seconds=3600.0)
    assert not file.parent.exists()
    train(data, file, seconds=0.0)
    assert [path.name for path in file.parent.iterdir()] == ["run.pt"]


def test_a_death_while_it_is_written_leaves_the_one_before(
    data: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "run.pt"
    kept = Checkpoint(file, {}, 0.0)
    kept.save({"step": 1})

    def killed(_file: int) -> None:
        raise Killed

    monkeypatch.setattr(os, "fsync", killed)
    with pytest.raises(Killed):
        kept.save({"step": 2})
    assert (tmp_path / "run.pt.new").exists()
    assert kept.load() == {"step": 1}


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full is here")
def test_a_full_disk_is_told_and_leaves_the_one_before(tmp_path: Path) -> None:
    kept = Checkpoint(tmp_path / "run.pt", {}, 0.0)
    kept.save({"step": 1})
    (tmp_path / "run.pt.new").symlink_to("/dev/full")
    with pytest.raises(UsageError, match="No space left on device; free some space and start"):
        kept.save({"step": torch.zeros(100_000)})
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]
    assert kept.load() == {"step": 1}


class _Evil:
    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> Any:
        return (Path.touch, (self.path,))


def test_a_file_that_is_none_of_ours_is_refused_and_not_executed(tmp_path: Path) -> None:
    file, done = tmp_path / "run.pt", tmp_path / "done"
    kept = Checkpoint(file, {"seed": 1}, 0.0)
    assert kept.load() is None

    def refused(says: str) -> None:
        with pytest.raises(UsageError, match=says) as caught:
            kept.load()
        # As a sweep records and shows it, cut to its length.
        _, detail = of_exception(caught.value, limited=False)
        assert detail.endswith("delete it, and the run starts from its beginning")
        assert "weights_only" not in detail

    torch.save({"version": 1, "run": {"seed": 1}, "state": _Evil(done)}, file)
    refused("can't read the checkpoint")
    assert not done.exists()
    kept.save({"step": 1})
    whole = file.read_bytes()
    file.write_bytes(whole[: len(whole) // 2])
    refused("can't read the checkpoint")
    file.write_bytes(b"")
    refused("can't read the checkpoint")
    torch.save({"version": 0, "run": {"seed": 1}, "state": {}}, file)
    refused("of another attnbench")
    Checkpoint(file, {"seed": 2}, 0.0).save({"step": 1})
    refused("of another run")


def test_a_folder_that_cannot_be_written_is_told(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(UsageError, match="can't write the checkpoint"):
        Checkpoint(tmp_path / "file" / "run.pt", {}, 0.0).save({})


# A real death: the process that trains is killed by the system.

SESSION = """
import sys
from pathlib import Path
from dataclasses import replace
from harness.experiments.design import Surroundings, make_run
from harness.experiments.model import Model
from harness.experiments.executors.local import LocalExecutor
from harness.experiments.session import RunSession
from harness.records import journal
from harness.registry import Registry
from harness.train.task import task

data, folder = sys.argv[1:]
record = task("trec")
recipe = replace(
    record.recipe, width=12, heads=2, hidden=10, epochs=12, patience=12, batch=8, rate=5e-3
)
fingerprint = {"device": "cpu", "threads": 1}
around = Surroundings(Registry(), fingerprint, data, record.vectors, "made up")
run = make_run(Model("mtsa.algorithm1"), record, recipe, 0, around)
writer = journal.Writer(Path(folder), {"fingerprint": fingerprint})
with LocalExecutor([{}]) as executor:
    session = RunSession(
        writer, fingerprint, executor, lambda _: None,
        checkpoints=Path(folder) / "checkpoints", checkpoint_seconds=0.0,
    )
    print([r["status"] for r in session.run([run])])
"""


def _session(data: Path, folder: Path) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", SESSION, str(data), str(folder)],
        env=environment(),
        text=True,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )


def _runs(folder: Path) -> list[dict[str, Any]]:
    return [r for r in journal.read(folder).records if r["kind"] == "run"]


def test_a_session_that_is_killed_goes_on_inside_its_run(data: Path, tmp_path: Path) -> None:
    whole, killed = tmp_path / "whole", tmp_path / "killed"
    done = _session(data, whole)
    assert done.communicate(timeout=200)[0] == "['ok']\n"
    first = _session(data, killed)
    deadline = time.monotonic() + 120
    places = killed / "checkpoints"
    while time.monotonic() < deadline and first.poll() is None:
        found = list(places.glob("*.pt")) if places.exists() else []
        if found and _epochs_done(found[0]) >= 2:
            break
        time.sleep(0.01)
    assert first.poll() is None, "it ended before it could be killed"
    os.killpg(first.pid, signal.SIGKILL)
    first.communicate()
    assert not _runs(killed)
    (checkpoint,) = places.glob("*.pt")
    checkpoint.with_name(f"{checkpoint.name}.new").write_bytes(b"killed while it was written")
    second = _session(data, killed)
    assert second.communicate(timeout=200)[0] == "['ok']\n"
    (one,), (two,) = _runs(whole), _runs(killed)
    assert two["resumed"] == 1
    for name in ("key", "test", "chosen_epoch", "parameters", "examples"):
        assert one[name] == two[name]
    assert numbers(one)["epochs"] == numbers(two)["epochs"]
    assert not places.exists(), "a finished run needs no checkpoint"
    assert not (whole / "checkpoints").exists()


def _epochs_done(file: Path) -> int:
    try:
        return len(torch.load(file, weights_only=True)["state"]["epochs"])
    except FileNotFoundError:
        return 0
