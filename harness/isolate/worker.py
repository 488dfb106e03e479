"""Inside the process that runs a task: prepare it, call, send the answer.

``main``, with the arguments RESULT_FD MODULE ..., is a fresh interpreter that runs the tasks it
reads from stdin; a forked child calls `perform` once.
"""

from __future__ import annotations

import contextlib
import ctypes
import faulthandler
import importlib
import json
import os
import pkgutil
import queue
import sys
import threading
import traceback
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.isolate import processes, untouched
from harness.isolate.outcome import kind_of, of_exception, one_line, tail
from harness.isolate.processes import send, write_all
from reference_impls.mechanism import Unsupported

MALLOPT = {"M_TRIM_THRESHOLD": -1, "M_TOP_PAD": -2, "M_MMAP_THRESHOLD": -3, "M_MMAP_MAX": -4}
"""Allocator settings that a task can have; the numbers are glibc's."""
ALLOCATOR: dict[str, int] = {}
"""Those that this process has."""


def main() -> None:
    """Import the modules, say so, and run one task per line of stdin until it ends."""
    results = int(sys.argv[1])
    # Programs that a task starts must not hold the pipe.
    os.set_inheritable(results, False)
    settle(os.getppid())
    send(results, {"error": preload(sys.argv[2:])})
    # A task that reads stdin must find it empty, as in a forked child.
    source = os.dup(0)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    tasks: queue.SimpleQueue[bytes] = queue.SimpleQueue()
    threading.Thread(target=_read_tasks, args=(source, tasks), daemon=True).start()
    while True:
        perform(tasks.get(), results)


def _read_tasks(source: int, tasks: queue.SimpleQueue[bytes]) -> None:
    # A thread of its own sees the server's end also during a task, on every system.
    with os.fdopen(source, "rb") as lines:
        for line in lines:
            tasks.put(line)
    os._exit(0)


def preload(modules: Sequence[str]) -> str | None:
    """Import modules; one line that says what failed, or None."""
    for module in modules:
        try:
            importlib.import_module(module)
        except Exception as error:
            return f"can't import {module}: {type(error).__name__}: {one_line(str(error))}"
    untouched.remember()
    return None


def settle(parent: int) -> None:
    """Make this a process that runs tasks: it ends with its parent, and says where it crashed."""
    processes.tie_to(parent)
    faulthandler.enable(file=2)


def perform(line: bytes, results: int) -> None:
    """Run one task and write its answer to the descriptor `results`.

    One line: the task's serial number, a blank, JSON.
    """
    task = json.loads(line)
    data_bytes = task["data_bytes"]
    try:
        set_mallopt(task["mallopt"])
        function = pkgutil.resolve_name(task["call"])
        untouched.remember()
        with _data_limit(data_bytes):
            try:
                value = function(**task["arguments"])
            finally:  # else it would be told what came of that
                untouched.refuse_replaced()
        answer = {"status": "ok", "value": value, "detail": "", "traceback": "", "error": ""}
        encoded = _encode(answer)
    except BaseException as error:
        encoded = _encode_error(error, limited=data_bytes is not None)
    write_all(results, b"%d " % task["serial"] + encoded)


def _encode(answer: Mapping[str, Any]) -> bytes:
    try:
        return json.dumps(answer).encode() + b"\n"
    except (TypeError, ValueError, RecursionError) as error:
        kind = type(answer["value"]).__name__
        raise TypeError(f"the task's {kind} can't be sent as JSON: {error}") from error


def _encode_error(error: BaseException, limited: bool) -> bytes:
    status, detail = of_exception(error, limited)
    answer = {
        "status": status,
        "value": getattr(error, "value", None) if status in ("wrong", "unsupported") else None,
        "detail": detail,
        "traceback": tail("".join(traceback.format_exception(error))),
        "error": kind_of(error),
    }
    try:
        return _encode(answer)
    except TypeError as unsendable:  # the value of a Wrong
        return _encode_error(unsendable, limited)


def set_mallopt(settings: Mapping[str, int]) -> None:
    """Set parameters of glibc's malloc for this process.

    `Unsupported` if the C library is not glibc, `ValueError` if it refuses a value.
    """
    if not settings:
        return
    libc = ctypes.CDLL(None)
    if sys.platform != "linux" or not hasattr(libc, "gnu_get_libc_version"):
        raise Unsupported("mallopt needs glibc; run without allocator settings")
    for name, value in settings.items():
        # ctypes would cut a longer number to 32 bits without a word.
        if not (-(2**31) <= value < 2**31 and libc.mallopt(MALLOPT[name], value)):
            raise ValueError(f"glibc refuses {name}={value}")
        ALLOCATOR[name] = value


@contextlib.contextmanager
def _data_limit(head_room: int | None) -> Iterator[None]:
    if head_room is None:
        yield
        return
    if sys.platform != "linux":
        raise Unsupported("a limit on data needs Linux; run without data_bytes")
    import resource

    soft, hard = resource.getrlimit(resource.RLIMIT_DATA)
    status = Path("/proc/self/status").read_text()
    held = int(status.partition("VmData:")[2].split()[0]) * 1024
    wanted = held + head_room
    # The soft limit alone, so that it can be lifted again: an answer needs memory too.
    for bound in (soft, hard):
        if bound != resource.RLIM_INFINITY:
            wanted = min(wanted, bound)
    resource.setrlimit(resource.RLIMIT_DATA, (wanted, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
