"""The longest sequence that fits: the search, its limits, its records, the command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from harness.errors import UsageError
from harness.isolate import Interpreter, Limits, Outcome
from harness.measure import device as devices
from harness.measure.bisection import BEYOND, next_length, resolution, stand
from harness.measure.blocks import PRELOAD
from harness.measure.frontier import PROBE_CALL, Bounds, judge, refuse_beyond
from harness.records import journal
from suites.support.command_line import attnbench, environment

MIB = 2**20
linux = pytest.mark.skipif(sys.platform != "linux", reason="limits and readings are Linux's")

FAKES = '''
import os
import time

import torch


class Fake(torch.nn.Module):
    def __init__(self, d_in, d_out):
        super().__init__()
        self.map = torch.nn.Linear(d_in, d_out)

    def forward(self, x, mask):
        return self.map(x) + self.cost(x.shape[1])


class Hungry(Fake):
    """Holds one MiB per token."""

    def cost(self, n):
        return torch.ones(n, 2**18).amin()


class Slow(Fake):
    """Takes 10 ms per token."""

    def cost(self, n):
        time.sleep(0.01 * n)
        return 0.0


class Fragile(Fake):
    """Dies of a segmentation fault beyond 300 tokens."""

    def cost(self, n):
        if n > 300:
            os.kill(os.getpid(), 11)
        return 0.0


class Broken(Fake):
    """Gives what is no number beyond 100 tokens."""

    def cost(self, n):
        return float("nan") if n > 100 else 0.0
'''
SMALL = ("--batch", "1", "--width", "8", "--device", "cpu")


def search(fits: object, guess: int, largest: int = 2**17) -> dict[int, bool]:
    """All lengths that are tried."""
    tried: dict[int, bool] = {}
    while (length := next_length(tried, guess, largest)) is not None:
        assert 1 <= length <= largest
        assert length not in tried, "probed twice"
        tried[length] = fits(length)  # type: ignore[operator]
        assert len(tried) < 60
    return tried


@pytest.mark.parametrize("guess", [1, 16, 250, 3000, 10**6])
@pytest.mark.parametrize("edge", [1, 2, 7, 15, 16, 17, 40, 100, 255, 1000, 4097, 60_000])
def test_the_frontier_is_found_to_the_resolution(edge: int, guess: int) -> None:
    tried = search(lambda n: n <= edge, guess)
    found = stand(tried)
    assert found.longest is not None
    assert found.first_miss is not None
    assert found.longest <= edge < found.first_miss
    assert found.first_miss - found.longest <= max(1, resolution(found.longest))
    assert found.not_monotone == ()
    misses = [n for n, fits in tried.items() if not fits]
    assert len(misses) > 1 or found.first_miss >= BEYOND * found.longest - 16


@pytest.mark.parametrize("edge", [300, 3000, 30_000])
def test_a_good_guess_saves_probes(edge: int) -> None:
    good = len(search(lambda n: n <= edge, int(0.97 * edge)))
    assert good <= 5
    assert good < len(search(lambda n: n <= edge, 16))


def test_where_nothing_fits_and_where_everything_does() -> None:
    assert stand(search(lambda n: False, 500)).longest is None
    everything = stand(search(lambda n: True, 500, largest=9000))
    assert (everything.longest, everything.first_miss) == (9000, None)


def test_an_accident_is_found_out_and_reported() -> None:
    accidents: set[int] = set()

    def fits(n: int) -> bool:
        if 1100 < n <= 1200 and not accidents:
            accidents.add(n)
            return False
        return n <= 2000

    found = stand(search(fits, 900))
    assert accidents
    assert found.longest is not None
    assert 1900 <= found.longest <= 2000
    assert set(found.not_monotone) == accidents


BOUNDS = Bounds(memory_bytes=100 * MIB, seconds=2.0, largest=4096)


@pytest.mark.parametrize(
    ("outcome", "status", "words"),
    [
        (Outcome("ok", {"peak_bytes": 100 * MIB, "pass_seconds": 2.0}), "ok", ""),
        (
            Outcome("ok", {"peak_bytes": 120 * MIB, "pass_seconds": 0.1}),
            "oom",
            "120.0 MiB, the limit 100.0 MiB",
        ),
        (Outcome("ok", {"peak_bytes": MIB, "pass_seconds": 2.1}), "timeout", "2.1 s"),
        (Outcome("oom", None, "MemoryError: x"), "oom", "MemoryError"),
        (Outcome("timeout", None, "no result after 38 s"), "timeout", "no result"),
        (Outcome("crash", None, "3 heads", error="usage"), "unsupported", "3 heads"),
        (Outcome("crash", None, "killed by SIGSEGV"), "crash", "SIGSEGV"),
        (Outcome("wrong", None, "output is not finite"), "wrong", "finite"),
    ],
)
def test_a_probe_is_judged_by_what_it_measured(outcome: Outcome, status: str, words: str) -> None:
    record = judge(outcome, BOUNDS)
    assert record["status"] == status
    assert words in record["detail"]


def test_more_than_nine_tenths_of_what_is_free_is_refused() -> None:
    refuse_beyond(900 * MIB, 1000 * MIB)
    with pytest.raises(UsageError, match="smaller --memory"):
        refuse_beyond(901 * MIB, 1000 * MIB)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["mtza"], "did you mean mtsa"),
        (["mtsa", "--memory", "lots"], "expected e.g. 4GiB"),
        (["mtsa", "--memory", "900TiB"], "are free and at most 90% of them are used"),
        (["mtsa", "--seconds", "0"], "expected a positive number"),
        (["mtsa", "--limit", "0"], "expected at least 1"),
        (["mtsa", "--passes", "backward"], "unknown pass 'backward'"),
        (["mtsa@3"], "even number"),
    ],
)
def test_bad_input_is_one_line_and_exit_2(
    tmp_path: Path, arguments: list[str], message: str
) -> None:
    done = attnbench("frontier", *arguments, "--device", "cpu", cwd=tmp_path)
    assert done.returncode == 2, done.stdout + done.stderr
    errors = [s for s in done.stderr.splitlines() if s.strip()]
    assert len(errors) == 1, done.stderr
    assert message in errors[0]
    assert not (tmp_path / "results").exists()


def probes(folder: Path) -> list[dict]:
    """The probes of a journal, as they stand in its files."""
    lines = (s for f in folder.glob("*.jsonl") for s in f.read_text().splitlines())
    return [r for r in map(json.loads, lines) if r["kind"] == "frontier"]


@pytest.fixture(scope="module")
def fakes(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with mechanisms of known cost."""
    folder = tmp_path_factory.mktemp("fakes")
    (folder / "fakes.py").write_text(FAKES)
    return folder


def run(fakes: Path, names: list[str], *more: str, json_file: str = "out.json") -> dict[str, dict]:
    """The rows by name."""
    given = [word for name in names for word in ("--with", f"fakes:{name}")]
    done = attnbench("frontier", *given, *SMALL, *more, "--json", json_file, cwd=fakes)
    assert done.stderr == ""
    rows = json.loads((fakes / json_file).read_text())["rows"]
    for row in rows:
        assert str(row["longest"]) in done.stdout
    return {row["name"].partition(".")[0]: {**row, "code": done.returncode} for row in rows}


@linux
def test_memory_time_and_the_largest_length_end_a_search(fakes: Path) -> None:
    limits = ("--seconds", "0.8", "--limit", "110", "--journal", "a")
    short = run(fakes, ["Hungry"], "--memory", "128MiB", *limits)["Hungry"]
    assert short["longest"] == 110
    assert short["why"] == "largest length tried"
    # A token is a MiB; what else the pass holds is a few KiB. Another limit is another question.
    rows = run(fakes, ["Hungry", "Slow"], "--memory", "64MiB", *limits)
    assert 40 <= rows["Hungry"]["longest"] <= 64
    assert rows["Hungry"]["why"] == "oom"
    assert rows["Hungry"]["peak_bytes"] <= 64 * MIB
    assert rows["Hungry"]["code"] == 0
    assert rows["Slow"]["longest"] <= 80
    assert rows["Slow"]["why"] == "timeout"
    assert rows["Slow"]["pass_seconds"] <= 0.8


@linux
def test_a_crash_and_a_wrong_result_are_said_so_and_the_rest_goes_on(fakes: Path) -> None:
    names = ["Fragile", "Broken", "Hungry"]
    rows = run(fakes, names, "--memory", "64MiB", "--limit", "500", "--journal", "b")
    assert rows["Fragile"]["longest"] in range(284, 301)
    assert rows["Fragile"]["why"] == "crash"
    assert "SIGSEGV" in rows["Fragile"]["detail"]
    assert rows["Broken"]["longest"] in range(84, 101)
    assert rows["Broken"]["why"] == "wrong"
    assert rows["Hungry"]["why"] == "oom"
    assert rows["Hungry"]["code"] == 1


@linux
def test_killed_and_started_again_it_probes_nothing_twice(fakes: Path) -> None:
    folder = fakes / "killed"
    names = ("--with", "fakes:Hungry", "--with", "fakes:Slow")
    command = (*names, *SMALL, "--memory", "64MiB", "--seconds", "0.8", "--journal", "killed")
    driver = subprocess.Popen(
        [sys.executable, "-m", "harness", "frontier", *command], cwd=fakes, env=environment(),
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and len(probes(folder)) < 3:
        time.sleep(0.01)
    assert driver.poll() is None, "it ended before it could be killed"
    os.kill(driver.pid, signal.SIGKILL)
    driver.wait()
    survived = {r["key"] for r in probes(folder)}
    for _ in range(2):
        done = attnbench("frontier", *command, cwd=fakes)
        assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(probes(folder))} of them from the journal" in done.stdout
    keys = [r["key"] for r in probes(folder)]
    assert survived <= set(keys)
    assert len(keys) == len(set(keys)), "something was probed twice"
    assert journal.read(folder).warnings == []


@linux
def test_built_in_mechanisms_train_up_to_their_frontier(tmp_path: Path) -> None:
    names = ("mtsa.algorithm1", "source2token.direct")
    sizes = ("--batch", "16", "--width", "128", "--heads", "2", "--device", "cpu")
    done = attnbench(
        "frontier", *names, *sizes, "--memory", "128MiB", "--seconds", "120", "--json", "out.json",
        cwd=tmp_path, timeout=600,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    rows = json.loads((tmp_path / "out.json").read_text())["rows"]
    bounds = Bounds(128 * MIB, 120.0, 2**17)
    with Interpreter(preload=PRELOAD) as interpreter:
        for row in rows:
            assert row["why"] == "oom", row
            assert 0.85 * 128 * MIB < row["peak_bytes"] <= 128 * MIB
            assert len(row["tried"]) <= 6, "the formula is a good first guess"
            longer = int(1.3 * row["longest"])
            outcome = interpreter.run(
                PROBE_CALL,
                {
                    "case": row["case"].replace(f"N{row['longest']}", f"N{longer}"),
                    "memory_bytes": bounds.memory_bytes,
                },
                Limits(120, 2**31),
                devices.MEMORY_ALLOCATOR,
            )
            assert judge(outcome, bounds)["status"] == "oom", outcome
    quadratic, linear = (row["longest"] for row in rows)
    assert linear > 2 * quadratic
