"""The driver's side: an interpreter that runs tasks and is replaced when it breaks."""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import time
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Literal, Self

import harness
from harness.errors import UsageError
from harness.isolate.outcome import Limits, Outcome, death, of_death, one_line, tail
from harness.isolate.processes import MARKER, Stream, kill_marked, write_all
from harness.isolate.server import START_SECONDS
from harness.isolate.worker import MALLOPT

Mode = Literal["fork", "persistent", "spawn"]
_STOP_SECONDS = 10.0
"""For the server to end when its stdin has; it is killed then."""
_ANSWER_SECONDS = 30.0
"""How much later than its deadline the server may answer before it is given up."""


class StartError(UsageError):
    """A fresh interpreter did not start; the message says why, in one line."""


class _Died(Exception):
    """The server ended by itself."""


class Interpreter:
    """A fresh Python interpreter in which tasks run, one at a time.

    Parameters
    ----------
    mode : {"fork", "persistent", "spawn"}
        ``fork``: a child of the interpreter per task. ``persistent``: all tasks in one process,
        which is replaced after a crash, a timeout or an oom. ``spawn``: a fresh process per task;
        where there is no Linux, ``fork`` becomes this.
    preload : sequence of str
        Modules to import first. For ``fork`` they may start no thread and touch no GPU.
    env : mapping
        Environment variables to set.
    path : sequence of path
        Folders whose modules win over all others (those of another revision, say).
    python : str, optional
        Another environment's Python. Its modules are its own: of the driver's search path only our
        own repository is passed on.

    Attributes
    ----------
    id : str
    generation : int
        How often the process that runs the tasks (in mode ``fork``: their parent) was replaced;
        counted when its successor has answered.
    start_seconds : float
        Time until it was ready, the last time it started.

    Raises
    ------
    StartError
        If a module can't be imported, say.

    Notes
    -----
    After a task in mode ``fork`` or ``spawn`` its process and all it started are killed as soon as
    it has answered, without atexit. In ``persistent`` threads and processes live until their
    worker is replaced (torch.compile keeps helpers), and allocator settings stay. Use an
    interpreter from one thread at a time; several don't disturb each other.

    On Linux whatever a task started is found, also if it detached itself or the server was killed.
    Elsewhere only its process group is killed.
    """

    def __init__(
        self,
        mode: Mode = "fork",
        *,
        preload: Sequence[str] = ("torch",),
        env: Mapping[str, str] | None = None,
        path: Sequence[Path] = (),
        python: str | None = None,
    ) -> None:
        # Forking a process that has used Apple's frameworks is not safe.
        self.mode: Mode = "spawn" if mode == "fork" and sys.platform != "linux" else mode
        self.id = uuid.uuid4().hex
        self.generation = 0
        self._preload = tuple(preload)
        self._python = python or sys.executable
        self._environment = {
            **os.environ,
            **(env or {}),
            "PYTHONPATH": search_path(path, own=python is None),
            MARKER: self.id,
        }
        self._serving: int | None = None
        self._serial = 0
        self._fresh = False
        self._closed = False
        self._process: subprocess.Popen[bytes] | None = None
        self._start()

    def run(
        self,
        call: str,
        arguments: Mapping[str, Any],
        limits: Limits | None = None,
        mallopt: Mapping[str, int] | None = None,
    ) -> Outcome:
        """Run one task: there is an outcome, whatever it does.

        Parameters
        ----------
        call : str
            ``"package.module:function"``.
        arguments : mapping
            Its keyword arguments, as JSON can hold them.
        mallopt : mapping, optional
            glibc's malloc parameters: M_MMAP_THRESHOLD, M_TRIM_THRESHOLD, M_MMAP_MAX, M_TOP_PAD.

        Raises
        ------
        ValueError, TypeError
            If the call, an allocator setting or the arguments can't be sent.
        RuntimeError
            If the interpreter is closed.
        """
        limits = limits or Limits()
        if self._closed:
            raise RuntimeError("this interpreter is closed; make a new one")
        if self._process is None or self._process.poll() is not None:
            self._stop()
            try:
                self._start()
            except StartError as error:
                return Outcome("crash", None, str(error))
        module, _, function = call.partition(":")
        if not (module and function):
            raise ValueError(f"given {call!r}; expected package.module:function")
        if unknown := set(mallopt or {}) - set(MALLOPT):
            raise ValueError(f"given {sorted(unknown)}; expected some of {sorted(MALLOPT)}")
        self._serial += 1
        told = {"call": call, "arguments": dict(arguments), **vars(limits)}
        told |= {"mallopt": dict(mallopt or {}), "fresh": self._fresh, "serial": self._serial}
        task = json.dumps(told).encode() + b"\n"
        began = time.monotonic()
        try:
            outcome = self._perform(task, limits)
        except StartError as error:
            return Outcome("crash", None, str(error))
        except _Died:
            code = self._stop()
            detail = f"the server was {death(code)}" if code < 0 else "the server ended"
            return Outcome("crash", None, detail, time.monotonic() - began)
        except TimeoutError:
            self._stop()
            detail = "no answer from the server, which was killed"
            return Outcome("timeout", None, detail, time.monotonic() - began)
        except BaseException:
            # A KeyboardInterrupt, say: nothing may go on running behind the user's back.
            self._stop()
            raise
        replace = outcome.status in ("oom", "timeout", "crash")
        self._fresh = self.mode == "spawn" or (self.mode == "persistent" and replace)
        return outcome

    def restart(self) -> None:
        """Kill the processes; the next task starts new ones (for a state that can't be trusted)."""
        self._stop()

    def close(self) -> None:
        """Kill everything that is left."""
        self._closed = True
        self._stop()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    @property
    def pid(self) -> int:
        """Process id of the server, which starts the workers and kills them."""
        assert self._process is not None
        return self._process.pid

    def _start(self) -> None:
        began = time.monotonic()
        reader, writer = os.pipe()
        self._replies = Stream(reader)
        try:
            self._process = subprocess.Popen(
                [
                    *(self._python, "-P", "-c", "import harness.isolate.server as s; s.main()"),
                    *(str(writer), self.mode, *self._preload),
                ],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                pass_fds=(writer,),
                env=self._environment,
                # Ctrl-C is the driver's; the server sees its stdin end.
                start_new_session=True,
            )
        finally:
            os.close(writer)
        self._fresh = False
        try:
            self._note(json.loads(self._line(began + START_SECONDS + _ANSWER_SECONDS)))
        except (_Died, TimeoutError) as error:
            code = self._stop()
            raise StartError(f"the interpreter {death(code)} at its start") from error
        except BaseException:
            self._stop()
            raise
        self.start_seconds = time.monotonic() - began

    def _note(self, report: Mapping[str, Any]) -> None:
        """Count a replaced process; refuse one that did not start."""
        if report["error"]:
            raise StartError(f"the interpreter did not start: {one_line(report['error'])}")
        if self._serving not in (None, report["pid"]):
            self.generation += 1
        self._serving = report["pid"]

    def _perform(self, task: bytes, limits: Limits) -> Outcome:
        assert self._process is not None
        assert self._process.stdin is not None
        latest = time.monotonic() + limits.seconds + _ANSWER_SECONDS
        if self._fresh:
            latest += START_SECONDS
        try:
            write_all(self._process.stdin.fileno(), task)
        except BrokenPipeError:
            raise _Died from None
        report = json.loads(self._line(latest))
        self._note(report)
        seconds, code, stderr = report["seconds"], report["exit"], report["stderr"]
        if report["answered"]:
            line = self._line(latest)
            try:
                return Outcome(**json.loads(line), seconds=seconds)
            except (ValueError, TypeError):
                # The task wrote to descriptors that are not its own.
                return Outcome("crash", None, "its answer can't be read", seconds, tail(stderr))
        if code is None:
            detail = f"no result after {limits.seconds:g} s"
            return Outcome("timeout", None, detail, seconds, tail(stderr))
        limited = limits.data_bytes is not None
        status, detail = of_death(code, stderr, limited, report["oom_killed"])
        return Outcome(status, None, detail, seconds, tail(stderr))

    def _line(self, latest: float) -> bytes:
        """Next line from the server."""
        while True:
            self._replies.drain()
            line = self._replies.line()
            if line is not None:
                return line
            if not self._replies.open:
                raise _Died
            left = latest - time.monotonic()
            if left <= 0:
                raise TimeoutError
            poll = select.poll()
            poll.register(self._replies.descriptor, select.POLLIN)
            poll.poll(min(left, 3600) * 1000)

    def _stop(self) -> int:
        """End the server and all below it; its exit code."""
        process, self._process = self._process, None
        if process is None:
            return 0
        assert process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        self._replies.close()
        if process.returncode != 0:
            kill_marked(self.id)
        return process.returncode


def run(
    call: str, arguments: Mapping[str, Any], limits: Limits | None = None, **options: Any
) -> Outcome:
    """Run one task in an interpreter of its own; `options` are those of `Interpreter`."""
    with Interpreter(**options) as interpreter:
        return interpreter.run(call, arguments, limits)


def search_path(first: Sequence[Path] = (), own: bool = True) -> str:
    """PYTHONPATH of an interpreter: some folders before all others, and our own repository.

    With `own` also where the driver finds modules (``--with``, editable installs).
    """
    root = str(Path(harness.__path__[0]).resolve().parent)
    entries = [str(Path(entry).absolute()) for entry in sys.path] if own else []
    return os.pathsep.join([*map(str, first), *(entries if root in entries else [root, *entries])])
