"""The server: starts the processes that run tasks, watches them, and kills all that is left.

``main``, with the arguments REPLY_FD MODE MODULE ..., reads one task per line of stdin. For each it
writes to the descriptor a line that says how the process fared, followed by the task's own answer
where there is one. In mode ``fork`` the server imports the modules and forks a child per task;
otherwise it stays small, and the worker is a fresh interpreter. As soon as stdin ends, also during
a task, it kills everything below it and ends.
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import select
import signal
import subprocess
import sys
import time
import warnings
from typing import Any, NoReturn

from harness.isolate import processes
from harness.isolate import worker as inside
from harness.isolate.outcome import tail
from harness.isolate.processes import Stream, send, write_all

START_SECONDS = 300.0
"""For a fresh interpreter to import its modules, from a slow disk if need be."""
_KEPT = 16384
"""Bytes of stderr: faulthandler's report and what was said before."""


def main() -> NoReturn:
    """Serve, as the command line says."""
    Server(int(sys.argv[1]), sys.argv[2], sys.argv[3:]).serve()
    os._exit(0)  # taking a loaded torch apart in good order takes longer than running a task


class _DriverGone(Exception):
    """Stdin ended."""


def _is_late(line: bytes, serial: int) -> bool:
    """Whether a line answers an earlier task than `serial`."""
    number = line.partition(b" ")[0]
    return number.isdigit() and int(number[:18]) < serial


class _Worker:
    """A process that runs tasks: its pid, its pipes, and its exit code once it has one."""

    def __init__(self, pid: int, results: int, stderr: int, tasks: int | None = None) -> None:
        self.pid = pid
        self.results = Stream(results)
        self.stderr = Stream(stderr, keep=_KEPT)
        self.tasks = tasks
        self.exit: int | None = None

    def close(self) -> None:
        self.results.close()
        self.stderr.close()
        if self.tasks is not None:
            os.close(self.tasks)


class Server:
    """Runs one task after another, in some mode, with modules to import before the first one.

    It replies to a descriptor.
    """

    def __init__(self, replies: int, mode: str, modules: list[str]) -> None:
        self.replies = replies
        self.forks = mode == "fork"
        self.modules = modules
        self.worker: _Worker | None = None
        processes.adopt_orphans()
        # Wakes the poll when a child dies: a pipe can't tell, a grandchild may hold it open.
        reader, writer = os.pipe()
        os.set_blocking(writer, False)
        self.wake = Stream(reader, keep=1)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(writer, warn_on_full_buffer=False)

    def serve(self) -> None:
        """Run tasks until stdin ends."""
        tasks = Stream(0)
        try:
            if self.forks:
                error = inside.preload(self.modules)
                # Frozen objects are left alone by the children's collector, and so their pages.
                gc.collect()
                gc.freeze()
            else:
                error = self._spawn()
            send(self.replies, {"pid": self._pid(), "error": error})
            while True:
                tasks.drain()
                line = tasks.line()
                if line is not None:
                    self._run(line)
                elif tasks.open:
                    select.select([tasks.descriptor], [], [])
                else:
                    break
        except (_DriverGone, BrokenPipeError):
            pass
        finally:
            self._end()

    def _pid(self) -> int:
        return self.worker.pid if self.worker and not self.forks else os.getpid()

    def _run(self, line: bytes) -> None:
        task = json.loads(line)
        oom_kills = processes.oom_kills()
        if self.forks:
            began = time.monotonic()
            self._fork(line)
        else:
            self._reap()
            if task["fresh"] or self.worker is None or self.worker.exit is not None:
                error = self._spawn()
                if error:
                    send(self.replies, {"pid": os.getpid(), "error": error})
                    return
            began = time.monotonic()
        worker, pid = self.worker, self._pid()
        assert worker is not None
        if worker.tasks is not None:
            # Not of a fork: it runs, and may have said its last words already.
            worker.stderr.drain()
            worker.stderr.clear()  # what an earlier task said
            # A worker that just died is found by the watch.
            with contextlib.suppress(BrokenPipeError):
                write_all(worker.tasks, line)
        answer = self._watch(began + task["seconds"], task["serial"])
        seconds = time.monotonic() - began  # taking apart what it held is no time of the task
        death = worker.exit
        if self.forks or answer is None:
            self._end()
        report: dict[str, Any] = {
            "pid": pid,
            "error": None,
            "seconds": seconds,
            "answered": answer is not None,
            "exit": death,
            "oom_killed": death == -signal.SIGKILL and processes.oom_kills() > oom_kills,
            "stderr": worker.stderr.text(),
        }
        send(self.replies, report)
        if answer is not None:
            write_all(self.replies, answer.removeprefix(b"%d " % task["serial"]))

    def _fork(self, line: bytes) -> None:
        results, results_writer = os.pipe()
        stderr, stderr_writer = os.pipe()
        parent = os.getpid()
        with warnings.catch_warnings():
            # Newer Pythons warn of threads; OpenBLAS has some, and joins them before a fork.
            warnings.simplefilter("ignore", DeprecationWarning)
            pid = os.fork()
        if pid == 0:
            self._child(line, parent, results_writer, stderr_writer)
        os.close(results_writer)
        os.close(stderr_writer)
        self.worker = _Worker(pid, results, stderr)

    def _child(self, line: bytes, parent: int, results: int, stderr: int) -> NoReturn:
        try:
            os.setsid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os.dup2(stderr, 2)
            # A grandchild that held these would hide the driver's end from the server, and the
            # server's from the driver.
            null = os.open(os.devnull, os.O_RDONLY)
            os.dup2(null, 0)
            for descriptor in (null, stderr, self.replies):
                os.close(descriptor)
            inside.settle(parent)
            inside.perform(line, results)
            os._exit(0)
        except BaseException:
            sys.excepthook(*sys.exc_info())
            sys.stderr.flush()
        finally:
            os._exit(1)

    def _spawn(self) -> str | None:
        """Replace the worker by a fresh interpreter; one line that says what failed, or None."""
        self._end()
        results, writer = os.pipe()
        process = subprocess.Popen(
            [
                *(sys.executable, "-P", "-c", "import harness.isolate.worker as w; w.main()"),
                *(str(writer), *self.modules),
            ],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            pass_fds=(writer,),
            start_new_session=True,
        )
        os.close(writer)
        assert process.stdin is not None
        assert process.stderr is not None
        worker = _Worker(
            process.pid, results, os.dup(process.stderr.fileno()), os.dup(process.stdin.fileno())
        )
        process.stdin.close()
        process.stderr.close()
        process.returncode = 0  # `_reap` waits for it, Popen must not
        self.worker = worker
        line = self._watch(time.monotonic() + START_SECONDS)
        if line is None:
            why = "is not ready" if worker.exit is None else f"ended with {worker.exit}"
            error = f"a fresh interpreter {why}: {tail(worker.stderr.text())[-300:]}"
        else:
            error = json.loads(line)["error"]
        if error:
            self._end()
        return error

    def _watch(self, deadline: float, serial: int = 0) -> bytes | None:
        """Wait for the worker's next line; None if it died or the deadline passed.

        Answers to tasks before `serial` are passed over: whatever forked and went on, as the
        worker's twin, answers a second time, at any later moment.

        Raises
        ------
        _DriverGone
            If stdin ended: the driver writes nothing while a task runs.
        """
        worker = self.worker
        assert worker is not None
        while True:
            # In this order: what a dead worker wrote is in the pipe by the time it is reaped.
            self.wake.drain()
            self._reap()
            worker.results.drain()
            worker.stderr.drain()
            line = worker.results.line()
            while line is not None and _is_late(line, serial):
                line = worker.results.line()
            left = deadline - time.monotonic()
            if line is not None or worker.exit is not None or left <= 0:
                return line
            poll = select.poll()
            for stream in (self.wake, worker.results, worker.stderr):
                if stream.open:
                    poll.register(stream.descriptor, select.POLLIN)
            poll.register(0, select.POLLIN)
            # Rounded up, or the last millisecond would be spent spinning.
            if any(descriptor == 0 for descriptor, _ in poll.poll(min(left, 3600) * 1000 + 1)):
                raise _DriverGone

    def _reap(self) -> None:
        """Wait for whoever has died, and note the worker's exit code."""
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    return
                self._note(pid, status)

    def _note(self, pid: int, status: int) -> None:
        if self.worker is not None and pid == self.worker.pid:
            self.worker.exit = os.waitstatus_to_exitcode(status)

    def _end(self) -> None:
        """Kill the worker and everything it started."""
        worker = self.worker
        if worker is None:
            return
        if worker.exit is None:
            os.kill(worker.pid, signal.SIGKILL)
        # The group outlives a worker that has ended; macOS refuses where only zombies are left.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(worker.pid, signal.SIGKILL)
        if worker.exit is None:
            self._note(*os.waitpid(worker.pid, 0))
        with contextlib.suppress(ChildProcessError):
            while True:
                pid, status = os.waitpid(-1, os.WNOHANG)
                if pid == 0:
                    # Children of a dead child become ours: level by level nothing escapes, and a
                    # child not yet waited for can't have given its pid to another process.
                    for child in processes.children():
                        with contextlib.suppress(ProcessLookupError):
                            os.kill(child, signal.SIGKILL)
                    pid, status = os.waitpid(-1, 0)
                self._note(pid, status)
        worker.stderr.drain()
        worker.close()
        self.worker = None
