"""A killed run goes on where it was and gives the same numbers, bit for bit."""

from __future__ import annotations

import itertools
import os
import signal
import time
from contextlib import nullcontext
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
import torch

from harness.errors import UsageError
from harness.experiments.design import Surroundings, make_run
from harness.experiments.executors.local import LocalExecutor
from harness.experiments.model import Model
from harness.experiments.queue import RunSession
from harness.isolate.outcome import of_exception
from harness.records import journal
from harness.registry import Registry
from harness.train.checkpoint import Checkpoint
from harness.train.reinforce import StagedTrainer
from harness.train.task import task
from harness.train.trainer import Trainer
from suites.support.command_line import started
from suites.support.training import STEPS, numbers, small, train, trained


class Killed(BaseException):
    """In place of a signal, which the test that starts a process sends."""


def interrupted(
    folder: Path, file: Path, places: tuple[int, ...], kind: type[Trainer] = Trainer, **recipe: Any
) -> tuple[dict[str, Any], int]:
    """The result of a run that died after each of these numbers of steps, and its last steps."""
    real = kind._step
    for last in (*places, None):
        begun = itertools.count()

        def step(self: Any, *arguments: Any, begun: Any = begun, last: int | None = last) -> Any:
            if next(begun) == last:
                raise Killed
            return real(self, *arguments)

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(kind, "_step", step)
            with nullcontext() if last is None else pytest.raises(Killed):
                record = train(folder, checkpoint=file, **recipe)
        assert file.exists()
    return record, next(begun)


REWRITING = "rewriting[words=5,length=6,train=60,test=12]"
TRANSLATION = {"model": "mtsa_nmt", "name": REWRITING, "batch": 200, "averaged": 2, "warmup": 4}
DIED: dict[str, tuple[tuple[int, ...], int, dict[str, Any]]] = {
    "first step": ((1,), 3 * STEPS, {"dropout": 0.3}),
    "end of an epoch, and again": ((2, 3, STEPS), 3 * STEPS, {"dropout": 0.3}),
    "adadelta": ((STEPS + 2,), 3 * STEPS, {"optimiser": "adadelta", "dropout": 0.3}),
    # In the second epoch, in the policy's second step, and in the stage of both.
    "policy": ((STEPS + 1, 2 * STEPS + 1, 5), 3 * STEPS + 5 + 2 * STEPS, {"model": "resa"}),
    # Characters and a CRF beside the words.
    "tagging": ((1, 4), 9, {"name": "wnut17", "batch": 20, "crf": True, "dropout": 0.3}),
    # With a schedule and a mean of weights.
    "translation": ((2, 5), 12, TRANSLATION),
}
"""After which steps it dies, how many there are in all, and what is trained."""


@pytest.mark.parametrize(("places", "steps", "recipe"), DIED.values(), ids=DIED)
def test_a_run_that_died_gives_the_numbers_of_one_that_did_not(
    folder: Path, tmp_path: Path, places: tuple[int, ...], steps: int, recipe: dict[str, Any]
) -> None:
    whole = trained(folder, **recipe)
    kind = StagedTrainer if recipe.get("model") == "resa" else Trainer
    again, last = interrupted(folder, tmp_path / "run.pt", places, kind, **recipe)
    assert numbers(again) == numbers(whole)
    assert again["resumed"] == len(places)
    assert "resumed" not in whole
    assert last == steps - sum(places), "steps that were done were done again"


def test_patience_counts_across_a_death(folder: Path, tmp_path: Path) -> None:
    recipe: dict[str, Any] = {"epochs": 30, "patience": 2, "rate": 1e-9}
    whole = trained(folder, **recipe)
    assert len(whole["epochs"]) == whole["chosen_epoch"] + 2 < 30
    places = ((len(whole["epochs"]) - 1) * STEPS + 1,)
    again, _ = interrupted(folder, tmp_path / "run.pt", places, **recipe)
    assert numbers(again) == numbers(whole)


def test_time_and_memory_of_all_pieces_count(folder: Path, tmp_path: Path) -> None:
    """Where an earlier piece could not measure its peak, that of the run is not known."""
    file = tmp_path / "run.pt"
    interrupted(folder, file, (STEPS + 1,))
    kept = torch.load(file, weights_only=True)
    assert (len(kept["state"]["epochs"]), kept["state"]["place"][0]) == (2, STEPS)
    kept["state"]["spent"] |= {"seconds": 1000.0, "peak_bytes": 10**12}
    kept["state"]["place"][3:] = [500.0, 400.0]
    torch.save(kept, file)
    record = train(folder, checkpoint=file)
    assert 1000 < record["seconds"] < 1100
    assert record["peak_bytes"] == 10**12
    assert record["epochs"][1]["seconds"] < 500 < record["epochs"][2]["seconds"]
    assert 0 < record["epochs"][1]["passes"] < 400 == record["epochs"][2]["passes"]
    kept["state"]["spent"] |= {"peak_bytes": None, "memory_method": "no clear_refs here"}
    torch.save(kept, file)
    record = train(folder, checkpoint=file)
    assert record["peak_bytes"] is None
    assert "an earlier piece of the run could not: no clear_refs here" in record["memory_method"]


def test_it_is_written_now_and_then(folder: Path, tmp_path: Path) -> None:
    file = tmp_path / "folder" / "run.pt"
    train(folder, epochs=1, checkpoint=file, checkpoint_seconds=3600.0)
    assert not file.parent.exists()
    train(folder, epochs=1, checkpoint=file)
    assert [path.name for path in file.parent.iterdir()] == ["run.pt"]


def test_a_death_while_it_is_written_leaves_the_one_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    kept = Checkpoint(tmp_path / "run.pt", {}, 0.0)
    kept.save({"step": 1})
    monkeypatch.setattr(os, "fsync", Mock(side_effect=Killed))
    with pytest.raises(Killed):
        kept.save({"step": 2})
    assert (tmp_path / f"run.pt.{os.getpid()}").exists()
    assert kept.load() == {"step": 1}
    monkeypatch.undo()
    monkeypatch.setattr(os, "getpid", lambda: 1)
    # By another process, which takes nothing away from the draft of this one.
    kept.save({"step": 3})
    assert sorted(tmp_path.iterdir())[0].name == "run.pt"
    assert len([*tmp_path.iterdir()]) == 2


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="no device that is always full is here")
def test_what_cannot_be_written_is_told_and_leaves_the_one_before(tmp_path: Path) -> None:
    kept = Checkpoint(tmp_path / "run.pt", {}, 0.0)
    kept.save({"step": 1})
    (tmp_path / f"run.pt.{os.getpid()}").symlink_to("/dev/full")
    with pytest.raises(UsageError, match="No space left on device; free some space and start"):
        kept.save({"step": torch.zeros(100_000)})
    assert [path.name for path in tmp_path.iterdir()] == ["run.pt"]
    assert kept.load() == {"step": 1}
    with pytest.raises(UsageError, match="can't write the checkpoint"):
        Checkpoint(tmp_path / "run.pt" / "other.pt", {}, 0.0).save({})


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


# A real death: the session is killed by the system while its child trains.

RECIPE: dict[str, Any] = {"epochs": 6, "patience": 6, "batch": 8}
"""Long enough to be killed."""


def session(data: str, results: str) -> list[dict[str, Any]]:
    """The records of a session of one run."""
    fingerprint = {"device": "cpu", "threads": 1}
    around = Surroundings(Registry(), fingerprint, data, task("trec").vectors, "made up")
    run = make_run(Model("mtsa.algorithm1"), task("trec"), small("trec", **RECIPE), 0, around)
    writer = journal.Writer(Path(results), {"fingerprint": fingerprint})
    with LocalExecutor([{}]) as executor:
        place = Path(results) / "checkpoints"
        how: dict[str, Any] = {"checkpoints": place, "checkpoint_seconds": 0.0}
        return list(RunSession(writer, fingerprint, executor, lambda _: None, **how).run([run]))


def test_a_session_that_is_killed_goes_on_inside_its_run(folder: Path, tmp_path: Path) -> None:
    places = tmp_path / "checkpoints"
    told = f"{str(folder)!r}, {str(tmp_path)!r}"
    code = f"from {__name__} import session; session({told})"
    first = started("-c", code)
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and first.poll() is None:
        found = list(places.glob("*.pt")) if places.exists() else []
        if found and _epochs_done(found[0]) >= 2:
            break
        time.sleep(0.01)
    assert first.poll() is None, "it ended before it could be killed"
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not [r for r in journal.read(tmp_path).records if r["kind"] == "run"]
    (checkpoint,) = places.glob("*.pt")
    draft = checkpoint.with_name(f"{checkpoint.name}.{first.pid}")
    draft.write_bytes(b"killed while it was written")
    (record,) = session(str(folder), str(tmp_path))
    assert record["status"] == "ok"
    assert record["resumed"] == 1
    whole = trained(folder, "mtsa.algorithm1", **RECIPE)
    assert numbers(record)["epochs"] == numbers(whole)["epochs"]
    for name in ("test", "chosen_epoch", "parameters", "examples"):
        assert record[name] == whole[name]
    assert not places.exists(), "a finished run needs no checkpoint"


def _epochs_done(file: Path) -> int:
    try:
        return len(torch.load(file, weights_only=True)["state"]["epochs"])
    except FileNotFoundError:
        return 0
