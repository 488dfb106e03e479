"""`harness.isolate`: whatever a task does, an outcome comes back and nothing stays behind."""

from __future__ import annotations

import math
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.errors import UsageError
from harness.isolate import Interpreter, Limits, Outcome, StartError, Wrong
from harness.isolate.interpreter import Mode
from harness.isolate.outcome import kind_of, of_death, of_exception
from reference_impls.mechanism import BadOption, Unsupported
from suites.support.command_line import started

HERE = "suites.support.isolated_tasks:"
MIB = 2**20
MODES: tuple[Mode, ...] = ("fork", "persistent", "spawn")
linux = pytest.mark.skipif(sys.platform != "linux", reason="uses /proc or RLIMIT_DATA")


@pytest.fixture(scope="module")
def fork() -> Iterator[Interpreter]:
    """Forks a child per task; loads nothing, so it starts at once."""
    with Interpreter(preload=()) as interpreter:
        yield interpreter


@pytest.fixture(scope="module")
def with_torch() -> Iterator[Interpreter]:
    """Forks a child per task, with torch loaded."""
    with Interpreter() as interpreter:
        yield interpreter


@pytest.fixture(scope="module", params=MODES)
def any_mode(request: pytest.FixtureRequest) -> Iterator[Interpreter]:
    """An interpreter of each mode, which must outlive whatever the tests do to it."""
    with Interpreter(request.param, preload=()) as interpreter:
        yield interpreter


def perform(interpreter: Interpreter, name: str, seconds: float = 30, **arguments: Any) -> Outcome:
    """Run one of the tasks beside this file."""
    return interpreter.run(HERE + name, arguments, Limits(seconds=seconds))


def gone(pid: int, within: float = 2.0) -> bool:
    """Whether the process is no more, or only a zombie that its parent has yet to notice.

    One whose threads are still ending is none that a parent can notice.
    """
    return soon(lambda: _state(pid) in ("", "Z", "X") and _threads(pid) <= 1, within)


def _threads(pid: int) -> int:
    try:
        return len(list(Path(f"/proc/{pid}/task").iterdir()))
    except OSError:
        return 0


def noted(file: Path) -> list[int]:
    """Process ids of a task and of the daemon that it left, which it has written to a file."""
    assert soon(lambda: file.exists() and len(file.read_text().split()) == 2, 20)
    return [int(pid) for pid in file.read_text().split()]


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""


def soon(condition: Callable[[], bool], within: float) -> bool:
    """Whether the condition comes true in time."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        if condition():
            return True
        time.sleep(0.01)
    return condition()


@pytest.mark.parametrize(
    ("name", "value"),
    [("add", 3.5), ("shout", "genuine"), ("read_stdin", ""), ("thread", "left one")],
)
def test_an_answer_is_right_whatever_else_a_task_prints_reads_or_leaves(
    any_mode: Interpreter, name: str, value: object
) -> None:
    for _ in range(2):
        outcome = perform(any_mode, name, 5, **({"a": 1, "b": 2.5} if name == "add" else {}))
        assert (outcome.status, outcome.value, outcome.detail) == ("ok", value, "")
        assert 0 < outcome.seconds < 5


def test_whatever_json_can_hold_travels(any_mode: Interpreter) -> None:
    assert perform(any_mode, "numbers", count=200_000).value == list(range(200_000))
    sent = {"a": "x" * MIB, "b": [math.inf, -math.inf]}
    assert any_mode.run("builtins:dict", sent).value == sent
    assert math.isnan(any_mode.run("builtins:dict", {"a": math.nan}).value["a"])


def raised(name: str, message: str, inner: BaseException | None = None) -> RuntimeError:
    """An error of a class that torch has, told by its name."""
    error: RuntimeError = type(name, (RuntimeError,), {})(message)
    if inner is not None:
        error.inner_exception = inner  # type: ignore[attr-defined]
    return error


TORCHS = "[enforce fail at alloc_cpu.cpp:127] err == 0. DefaultCPUAllocator: can't allocate memory"
HALF = "\"addmm_impl_cpu_\" not implemented for 'Half'"
NO_COMPILER = raised("InvalidCxxCompiler", "no g++")
THREAD = RuntimeError("can't start new thread")


@pytest.mark.parametrize(
    ("error", "limited", "status", "detail", "kind"),
    [
        (UsageError("--heads: given 3"), False, "crash", "--heads: given 3", "usage"),
        (BadOption("3 heads"), False, "crash", "3 heads", "usage"),
        (StartError("did not start"), False, "crash", "did not start", "usage"),
        (ValueError("UsageError: is said"), False, "crash", "ValueError: UsageError: is said", ""),
        (SystemExit(3), False, "crash", "SystemExit: 3", ""),
        (Wrong("error above budget"), False, "wrong", "error above budget", ""),
        (Unsupported("on a GPU\nor not"), False, "unsupported", "on a GPU", ""),
        (NotImplementedError("x"), False, "unsupported", "NotImplementedError: x", ""),
        (RuntimeError(HALF), False, "unsupported", f"RuntimeError: {HALF}", ""),
        (NO_COMPILER, False, "unsupported", "InvalidCxxCompiler: no g++", ""),
        (raised("Inductor", "x", NO_COMPILER), False, "unsupported", "Inductor: x", ""),
        (MemoryError("9 GiB"), False, "oom", "MemoryError: 9 GiB", ""),
        (RuntimeError("std::bad_alloc"), False, "oom", "RuntimeError: std::bad_alloc", ""),
        (RuntimeError(TORCHS), False, "oom", f"RuntimeError: {TORCHS}", ""),
        (raised("OutOfMemoryError", "CUDA"), False, "oom", "OutOfMemoryError: CUDA", ""),
        # A refused thread is a refusal of memory under a limit on data alone.
        (THREAD, True, "oom", "RuntimeError: can't start new thread", ""),
        (THREAD, False, "crash", "RuntimeError: can't start new thread", ""),
    ],
    ids=str,
)
def test_an_exception_has_its_status_and_kind(
    error: BaseException, limited: bool, status: str, detail: str, kind: str
) -> None:
    assert of_exception(error, limited) == (status, detail)
    assert kind_of(error) == (kind or type(error).__name__)


@pytest.mark.parametrize(
    ("kind", "status", "detail", "error"),
    [
        ("wrong", "wrong", "error above budget", "Wrong"),
        ("wrong, unsendable", "crash", "TypeError: the task's set can't be sent", "TypeError"),
        ("exit", "crash", "SystemExit: 3", "SystemExit"),
        ("long", "crash", "ValueError: " + "x" * 288, "ValueError"),
    ],
)
def test_what_a_task_raises_is_an_outcome(
    fork: Interpreter, kind: str, status: str, detail: str, error: str
) -> None:
    outcome = perform(fork, "fail", kind=kind)
    assert (outcome.status, outcome.error) == (status, error)
    assert outcome.detail.startswith(detail)
    assert len(outcome.detail) <= 300 + len("ValueError: ")
    assert "in fail" in outcome.traceback or kind == "long"
    assert len(outcome.traceback) <= 2000
    assert outcome.value == ({"margin": 3.5} if status == "wrong" else None)


@pytest.mark.parametrize("call", ["no_such_module:f", HERE + "no_such_function"])
def test_a_call_that_does_not_exist_is_a_crash(fork: Interpreter, call: str) -> None:
    outcome = fork.run(call, {})
    assert outcome.status == "crash"
    assert "no_such" in outcome.detail


@pytest.mark.parametrize(
    ("call", "arguments", "mallopt"),
    [("math", {}, {}), ("math:hypot", {"a": object()}, {}), ("math:hypot", {}, {"M_FOO": 1})],
)
def test_what_cannot_be_sent_is_refused_at_once(
    fork: Interpreter, call: str, arguments: dict[str, Any], mallopt: dict[str, int]
) -> None:
    with pytest.raises((ValueError, TypeError)):
        fork.run(call, arguments, None, mallopt)
    assert perform(fork, "add", a=1, b=1).value == 2


@pytest.mark.parametrize("limits", [{"seconds": 0}, {"seconds": math.inf}, {"data_bytes": 0}])
def test_a_limit_is_positive_and_finite(limits: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="expected a positive"):
        Limits(**limits)


@pytest.mark.parametrize(
    ("name", "arguments", "detail"),
    [
        ("end_by_signal", {"number": signal.SIGSEGV}, "killed by SIGSEGV: about to end"),
        ("end_by_signal", {"number": signal.SIGKILL}, "killed by SIGKILL: about to end"),
        ("end_by_code", {"code": 3}, "ended with exit code 3 and no result"),
        # A grandchild holds the pipes.
        ("end_by_code", {"code": 3, "leave": True}, "ended with exit code 3 and no result"),
        ("kill_group", {}, "killed by SIGKILL"),
        ("scribble", {}, ""),
    ],
    ids=str,
)
def test_a_death_is_a_crash_that_names_it_and_the_server_lives(
    any_mode: Interpreter, name: str, arguments: dict[str, Any], detail: str
) -> None:
    perform(any_mode, "shout")  # what was said before is not the dead one's
    server = any_mode.pid
    outcome = perform(any_mode, name, 10, **arguments)
    assert outcome.status == "crash"
    assert outcome.detail == detail or name == "scribble"
    assert outcome.seconds < 5
    assert perform(any_mode, "add", a=1, b=1).value == 2
    assert any_mode.pid == server


def test_last_words_are_heard_of_who_dies_before_the_server_looks() -> None:
    with Interpreter(preload=("suites.support.late_parent",)) as interpreter:
        outcome = perform(interpreter, "end_by_signal", number=signal.SIGSEGV)
    assert outcome.detail == "killed by SIGSEGV: about to end"
    assert 0.3 < outcome.seconds < 1.5, "taking it apart is no time of the task"


def test_a_segmentation_fault_shows_where(fork: Interpreter) -> None:
    outcome = perform(fork, "read_null")
    assert (outcome.status, outcome.detail) == ("crash", "killed by SIGSEGV")
    assert "in read_null" in outcome.traceback


NO_THREAD = "libgomp: Thread creation failed: Resource temporarily unavailable"


@pytest.mark.parametrize(
    ("code", "stderr", "limited", "oom_killed", "status"),
    [
        (-6, "terminate called after throwing an instance of 'std::bad_alloc'", 0, 0, "oom"),
        (-6, "out of memory, trying again\n1\n2\n3\nassertion failed", 0, 0, "crash"),
        (1, NO_THREAD, True, 0, "oom"),
        (1, NO_THREAD, False, 0, "crash"),
        (-9, "", False, True, "oom"),
        (-9, "out of memory", False, False, "crash"),
    ],
)
def test_a_death_for_lack_of_memory_is_oom(
    code: int, stderr: str, limited: bool, oom_killed: bool, status: str
) -> None:
    assert of_death(code, stderr, limited, oom_killed)[0] == status


def test_a_hang_ends_in_time_and_with_it_what_it_started(
    any_mode: Interpreter, tmp_path: Path
) -> None:
    outcome = perform(any_mode, "hang", seconds=1.5, how="c", pid_file=str(tmp_path / "pid"))
    assert 1.5 <= outcome.seconds < 20, "a hang lasts for a minute"
    assert (outcome.status, outcome.detail) == ("timeout", "no result after 1.5 s")
    assert all(gone(pid, within=0) for pid in noted(tmp_path / "pid"))
    assert perform(any_mode, "add", a=1, b=1).value == 2


def test_a_flood_of_output_neither_blocks_nor_outlives_its_time(fork: Interpreter) -> None:
    assert perform(fork, "flood", seconds=5, for_seconds=0.3).status == "ok"
    began = time.monotonic()
    assert perform(fork, "flood", seconds=0.4, for_seconds=60).status == "timeout"
    assert time.monotonic() - began < 20


@linux
@pytest.mark.parametrize("name", ["detached", "program"])
def test_processes_left_behind_are_killed(fork: Interpreter, name: str) -> None:
    assert (outcome := perform(fork, name, seconds=20)).status == "ok", "they last for a minute"
    assert gone(outcome.value, within=0)


@linux
def test_a_persistent_worker_keeps_its_processes_until_it_ends() -> None:
    with Interpreter("persistent", preload=()) as interpreter:
        pid = perform(interpreter, "detached", seconds=5).value
        perform(interpreter, "add", a=1, b=1)
        assert not gone(pid, within=0)
    assert gone(pid, within=0)


@linux
def test_the_limit_on_data_is_oom_and_over_with_its_task(with_torch: Interpreter) -> None:
    size = 2 * 2**30
    limits = Limits(data_bytes=512 * MIB)
    refused = with_torch.run(HERE + "tensor_bytes", {"size": size}, limits)
    assert refused.status == "oom"
    assert "allocate" in refused.detail
    fits = with_torch.run(HERE + "tensor_bytes", {"size": 400 * MIB}, limits)
    assert (fits.status, fits.value) == ("ok", 400 * MIB)
    assert perform(with_torch, "tensor_bytes", size=600 * MIB).value == 600 * MIB


@linux
def test_the_limit_on_data_is_lifted_in_a_persistent_worker() -> None:
    with Interpreter("persistent", preload=()) as interpreter:
        many = {"count": 10**6}
        limits = Limits(data_bytes=MIB)
        assert interpreter.run(HERE + "pid", {}, limits).status == "ok"
        assert interpreter.run(HERE + "numbers", many).status == "ok"
        assert interpreter.run(HERE + "numbers", {"count": 10**7}, limits).status == "oom"


@linux
def test_mallopt_changes_the_allocator(fork: Interpreter) -> None:
    size = {"size": 4 * MIB}
    assert fork.run(HERE + "mapped", size, mallopt={"M_MMAP_THRESHOLD": 4096}).value is True
    settings = {"M_MMAP_THRESHOLD": 32 * MIB, "M_TRIM_THRESHOLD": 2**30, "M_TOP_PAD": MIB}
    assert fork.run(HERE + "mapped", size, mallopt=settings).value is False
    assert fork.run(HERE + "mapped", size, mallopt={"M_MMAP_MAX": 0}).value is False
    assert fork.run(HERE + "mapped", size).value is True

    refused = fork.run(HERE + "mapped", size, mallopt={"M_MMAP_THRESHOLD": 2**32 + 1})
    assert refused.status == "crash"
    assert refused.detail == "ValueError: glibc refuses M_MMAP_THRESHOLD=4294967297"


@pytest.mark.parametrize("any_mode", ["fork", "spawn"], indirect=True)
def test_no_task_sees_what_another_left(any_mode: Interpreter) -> None:
    assert [perform(any_mode, "set_global", value=v).value for v in (1, 2)] == [None, None]


@linux
def test_the_late_answer_of_a_twin_is_not_taken_for_the_next_tasks() -> None:
    """In one process for all tasks, as on a GPU, who forked and went on answers later as well."""
    with Interpreter("persistent", preload=()) as interpreter:
        assert interpreter.run(HERE + "twin", {"seconds": 0.3}).value == "the worker"
        time.sleep(0.6)
        assert perform(interpreter, "add", a=1, b=2).value == 3


def test_a_persistent_worker_is_replaced_only_when_it_broke() -> None:
    with Interpreter("persistent", preload=()) as interpreter:
        assert perform(interpreter, "set_global", value=1).value is None
        for kind in ("unsupported", "wrong"):
            perform(interpreter, "fail", kind=kind)
        assert perform(interpreter, "set_global", value=2).value == 1
        assert interpreter.generation == 0
        breaking: list[tuple[str, dict[str, Any]]] = [
            ("fail", {"kind": "value"}),
            ("fail", {"kind": "memory"}),
            ("end_by_code", {"code": 3}),
            ("hang", {"how": "sleep", "seconds": 0.1}),
        ]
        for count, (name, arguments) in enumerate(breaking, start=1):
            assert perform(interpreter, name, **arguments).status in ("crash", "oom", "timeout")
            assert perform(interpreter, "set_global", value=1).value is None
            assert interpreter.generation == count
        # One that dies between two tasks costs none.
        worker = perform(interpreter, "pid").value
        os.kill(worker, signal.SIGKILL)
        assert gone(worker)
        assert perform(interpreter, "add", a=1, b=1).value == 2


@linux
@pytest.mark.parametrize("mode", MODES)
def test_a_killed_server_is_a_crash_and_is_replaced(mode: Mode, tmp_path: Path) -> None:
    with Interpreter(mode, preload=()) as interpreter:
        pids = tmp_path / "pids"
        outcome = perform(interpreter, "end_server", 20, number=signal.SIGKILL, pid_file=str(pids))
        assert (outcome.status, outcome.detail) == ("crash", "the server was killed by SIGKILL")
        assert outcome.seconds < 5
        assert all(map(gone, noted(pids)))
        assert perform(interpreter, "add", a=1, b=1).value == 2
        assert interpreter.generation == 1

        killed = interpreter.pid
        os.kill(killed, signal.SIGKILL)
        assert gone(killed)
        assert perform(interpreter, "add", a=1, b=1).value == 2
        assert interpreter.generation == 2


def test_a_server_that_does_not_answer_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("harness.isolate.interpreter._ANSWER_SECONDS", 0.3)
    monkeypatch.setattr("harness.isolate.interpreter._STOP_SECONDS", 0.1)
    with Interpreter(preload=()) as interpreter:
        pids = tmp_path / "pids"
        outcome = perform(interpreter, "end_server", 1.5, number=signal.SIGSTOP, pid_file=str(pids))
        assert outcome.status == "timeout"
        assert all(map(gone, noted(pids)))
        assert perform(interpreter, "add", a=1, b=1).value == 2


DRIVER = """
import sys
from harness.isolate import Interpreter
with Interpreter(sys.argv[1], preload=()) as interpreter:
    print(interpreter.pid, flush=True)
    arguments = {"how": sys.argv[2], "pid_file": sys.argv[3]}
    interpreter.run("suites.support.isolated_tasks:hang", arguments)
"""


@linux
@pytest.mark.parametrize(
    ("mode", "how", "number"),
    [
        ("fork", "sleep", signal.SIGINT),
        ("fork", "c", signal.SIGKILL),
        ("persistent", "c", signal.SIGTERM),
        ("spawn", "c", signal.SIGINT),
    ],
)
def test_no_orphan_outlives_its_driver(mode: str, how: str, number: int, tmp_path: Path) -> None:
    begun = started("-c", DRIVER, mode, how, tmp_path / "pids")
    assert begun.stdout is not None
    pids = [int(begun.stdout.readline()), *noted(tmp_path / "pids")]
    # To the whole group, as a terminal sends ctrl-C.
    os.killpg(begun.pid, number)
    _, stderr = begun.communicate(timeout=5)
    assert begun.returncode == -number
    assert ("KeyboardInterrupt" in stderr) == (number == signal.SIGINT)
    assert all(map(gone, pids))


@linux
@pytest.mark.parametrize("mode", ["fork", "spawn"])
def test_a_task_outlives_neither_when_driver_and_server_are_killed(
    mode: str, tmp_path: Path
) -> None:
    with started("-c", DRIVER, mode, "c", tmp_path / "pids") as begun:
        assert begun.stdout is not None
        server = int(begun.stdout.readline())
        worker, daemon = noted(tmp_path / "pids")
        begun.send_signal(signal.SIGSTOP)
        os.kill(server, signal.SIGKILL)
        begun.kill()
    assert gone(worker)
    os.kill(daemon, signal.SIGKILL)  # nobody is left who could have done it


@linux
def test_programs_that_a_task_starts_inherit_no_pipe(any_mode: Interpreter) -> None:
    assert perform(any_mode, "open_to_programs").value == [0, 1, 2]


def test_an_interrupted_interpreter_can_go_on(fork: Interpreter) -> None:
    timer = threading.Timer(0.3, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    with pytest.raises(KeyboardInterrupt):
        perform(fork, "hang", seconds=20, how="sleep")
    assert perform(fork, "add", a=1, b=1).value == 2


@linux
def test_preloading_touches_no_gpu_and_starts_no_pool(with_torch: Interpreter) -> None:
    state = perform(with_torch, "state").value
    assert state["torch"] is True
    assert state["cuda"] is False
    assert state["server_threads"] == 1


@pytest.mark.parametrize("mode", ["fork", "spawn"])
def test_a_module_that_cannot_be_imported_is_named(mode: Mode) -> None:
    with pytest.raises(StartError, match="no_such_module"):
        Interpreter(mode, preload=("no_such_module",))


@pytest.mark.parametrize("mode", ["fork", "spawn"])
def test_modules_are_found_as_in_the_driver_whatever_the_folder(
    mode: Mode, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "json.py").write_text("raise SystemExit('not the json that was meant')")
    (tmp_path / "path").mkdir()
    (tmp_path / "path" / "foreign.py").write_text("def answer(): return 42")
    monkeypatch.chdir(tmp_path / "folder")
    monkeypatch.syspath_prepend(tmp_path / "path")
    with Interpreter(mode, preload=()) as interpreter:
        assert interpreter.run("foreign:answer", {}).value == 42
        assert perform(interpreter, "add", a=1, b=1).value == 2


def test_without_linux_a_fork_becomes_a_fresh_process(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", "darwin")
    with Interpreter(preload=()) as interpreter:
        assert interpreter.mode == "spawn"
        assert perform(interpreter, "add", a=1, b=1).value == 2


def test_a_closed_interpreter_says_so() -> None:
    with Interpreter(preload=()) as interpreter, Interpreter(preload=()) as other:
        assert interpreter.id != other.id
        assert interpreter.start_seconds > 0
    with pytest.raises(RuntimeError, match="closed"):
        perform(interpreter, "add", a=1, b=1)
