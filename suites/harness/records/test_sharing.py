"""Who is at work on a journal, in real processes: one that measures, or several that train."""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.records.sharing import OWNER, SESSIONS, at_work
from suites.support.command_line import LITTLE, TOY, here, pytest_here, started, verified_before

HOLD = """
import os, sys
from pathlib import Path
from harness.records.sharing import at_work
with at_work(Path(sys.argv[1]), sys.argv[2], alone=sys.argv[3] == "alone"):
    child = os.fork() if len(sys.argv) > 4 else 1
    if child:
        print(child, flush=True)
    sys.stdin.read()
"""


VERIFY = """
import sys
from pathlib import Path
from harness.records.sharing import in_turn
with in_turn(Path(sys.argv[1])):
    print("verifying", flush=True)
    sys.stdin.read()
"""


@contextlib.contextmanager
def other(folder: Path, *how: str, program: str = HOLD) -> Iterator[subprocess.Popen[str]]:
    """Another process at work on a journal."""
    process = started("-c", program, folder, *how)
    assert process.stdout is not None
    assert process.stdout.readline()
    with process:
        yield process


def refused(folder: Path, *, alone: bool) -> str:
    with pytest.raises(UsageError) as error, at_work(folder, "bench", alone=alone):
        pytest.fail("it may go on")
    return str(error.value)


MEASURES = "bench --only none --lengths 4 --profile quick --blocks 1"
MEASURING = (MEASURES, "frontier none --limit 8")
OTHERS = (
    "verify none --dtypes f64",
    f"train none --task {TOY}",
    f"compare none multi_head --task {TOY}",
    f"sweep --models none --tasks {TOY}",
)


@pytest.mark.parametrize(("how", "refused"), [("alone", OTHERS), ("shared", ())])
def test_a_command_beside_one_that_measures_or_measuring_beside_one_is_refused_in_one_line(
    tmp_path: Path, how: str, refused: tuple[str, ...]
) -> None:
    folder = tmp_path / "results"
    with other(folder, "sweep", how) as process:
        before = {path.name for path in folder.iterdir()}
        for command in (*MEASURING, *refused):
            done = here(f"{command} --journal {folder}", cwd=tmp_path, code=2)
            told = " ".join(done.stderr.split())
            assert f"{folder} is in use: attnbench sweep, process {process.pid} on " in told
            assert f"{socket.gethostname()} since 20" in told
            assert "wait until it has ended, or give another --journal" in told
        done = pytest_here(*LITTLE, cwd=tmp_path)  # as front end
        assert done.returncode == pytest.ExitCode.USAGE_ERROR
        assert "results is in use: attnbench sweep, process" in done.stdout + done.stderr
        assert {path.name for path in folder.iterdir()} == before, "something was done"


def test_what_another_session_is_verifying_is_not_verified_again(tmp_path: Path) -> None:
    """It is waited for, and its rows are taken over."""
    folder = tmp_path / "results"
    folder.mkdir()
    with other(folder, program=VERIFY) as process:

        def finish() -> None:
            verified_before(folder)
            process.kill()

        threading.Timer(1, finish).start()
        done = here(f"train none --task {TOY} --recipe epochs=1 --journal {folder}", cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "made up" in done.stdout


def test_sessions_that_train_share_a_journal(tmp_path: Path) -> None:
    with other(tmp_path, "train", "shared"), at_work(tmp_path, "sweep", alone=False):
        assert len(list(tmp_path.glob(f".*{OWNER}"))) == 2
    assert not list(tmp_path.glob(f".*{OWNER}"))


@pytest.mark.parametrize("more", [[], ["and a child"]], ids=["", "with a child"])
def test_a_killed_session_is_in_nobodys_way(tmp_path: Path, more: list[str]) -> None:
    """Not even where a child of it lives on."""
    with other(tmp_path, "bench", "alone", *more) as process:
        assert "process" in refused(tmp_path, alone=False)
        process.kill()
        process.wait()
        (left,) = tmp_path.glob(f".*{OWNER}")
        with at_work(tmp_path, "bench", alone=True):
            (own,) = tmp_path.glob(f".*{OWNER}")
            assert own != left
        assert not list(tmp_path.glob(f".*{OWNER}"))


def owner(folder: Path, **more: object) -> Path:
    path = folder / f".1-elsewhere{OWNER}"
    said = {"command": "bench", "since": "2026-01-01 00:00:00+00:00", "process": 1, **more}
    path.write_text(json.dumps(said))
    return path


@pytest.mark.parametrize(
    "more",
    [
        {"host": socket.gethostname(), "boot": "before the machine was started again"},
        {
            "host": "a container",
            "boot": Path("/proc/sys/kernel/random/boot_id").read_text().strip(),
        },
    ],
    ids=["started again", "a container of this machine"],
)
def test_what_a_killed_session_left_is_cleared_away_though_its_process_id_is_used_again(
    tmp_path: Path, more: dict[str, str]
) -> None:
    path = owner(tmp_path, **more)
    with at_work(tmp_path, "bench", alone=True):
        assert not path.exists()


def test_a_session_on_another_machine_is_named_with_what_to_do(tmp_path: Path) -> None:
    path = owner(tmp_path, host="node7", boot="another")
    told = refused(tmp_path, alone=True)
    assert told == (
        f"{tmp_path} may be in use on another machine: attnbench bench, process 1 on node7 since "
        f"2026-01-01 00:00:00+00:00; wait until it has ended; if it was killed, remove {path}"
    )
    with at_work(tmp_path, "train", alone=False):  # which disturbs nothing there
        assert path.exists()
    path.unlink()
    with at_work(tmp_path, "bench", alone=True):
        pass


def test_a_journal_without_an_owner_that_can_be_read_still_names_the_process(
    tmp_path: Path,
) -> None:
    with other(tmp_path, "bench", "alone") as process:
        for path in tmp_path.glob(f".*{OWNER}"):
            path.write_text("{")
        assert re.search(rf"is in use: process {process.pid};", refused(tmp_path, alone=True))


def test_a_journal_that_can_be_written_but_not_locked_is_refused(tmp_path: Path) -> None:
    (tmp_path / SESSIONS).mkdir()
    assert re.match(r"can't lock .*: .*; give a --journal on a file", refused(tmp_path, alone=True))


def test_a_journal_that_cannot_be_written_is_left_to_the_writer(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with at_work(tmp_path / "file" / "results", "train", alone=False):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["file"]
