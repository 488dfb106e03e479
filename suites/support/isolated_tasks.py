"""What the tests of `harness.isolate` let happen in a process of its own."""

from __future__ import annotations

import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

from harness import isolate
from reference_impls.mechanism import Unsupported


def add(a: float, b: float) -> float:
    """A well-behaved task."""
    return a + b


def numbers(count: int) -> list[int]:
    """A list of `count` numbers."""
    return list(range(count))


def shout() -> str:
    """Write what looks like an answer wherever a program may write."""
    answer = '{"status": "ok", "value": "forged", "detail": "", "traceback": ""}\n'
    print(answer, flush=True)
    sys.stderr.write(answer)
    for descriptor in (1, 2):
        os.write(descriptor, answer.encode())
        os.write(descriptor, b"\xff" * 200_000)
    return "genuine"


def read_stdin() -> str:
    """All of stdin."""
    return sys.stdin.read()


ERRORS: dict[str, Callable[[], BaseException]] = {
    "unsupported": lambda: Unsupported("no kernel for 8 heads\non this device"),
    "wrong": lambda: isolate.Wrong("error above budget", {"margin": 3.5}),
    "wrong, unsendable": lambda: isolate.Wrong("error above budget", {1}),
    "value": lambda: ValueError("first line\nsecond line"),
    "long": lambda: ValueError("x" * 9999),
    "exit": lambda: SystemExit(3),
    "memory": lambda: MemoryError("Unable to allocate 9 GiB"),
}


def fail(kind: str) -> NoReturn:
    """Raise one of `ERRORS`."""
    raise ERRORS[kind]()


def tensor_bytes(size: int) -> int:
    """Allocate a tensor of `size` bytes and write to it; return how many it has."""
    import torch

    return torch.ones(size, dtype=torch.uint8).numel()


def state() -> dict[str, Any]:
    """What a test may ask of a process before it has imported anything itself."""
    torch = sys.modules.get("torch")
    return {
        "torch": torch is not None,
        "cuda": torch is not None and torch.cuda.is_initialized(),
        "threads": os.environ.get("OMP_NUM_THREADS"),
        "server_threads": len(list(Path(f"/proc/{os.getppid()}/task").glob("*"))),
    }


def pid() -> int:
    """Process id."""
    return os.getpid()


def end_by_signal(number: int) -> None:
    """Send this process a signal, after some words on stderr."""
    sys.stderr.write("about to end\n")
    sys.stderr.flush()
    os.kill(os.getpid(), number)


def read_null() -> None:
    """A real segmentation fault."""
    ctypes.string_at(0)


def scribble() -> None:
    """Write to every descriptor there may be."""
    for descriptor in range(3, 32):
        with contextlib.suppress(OSError):
            os.write(descriptor, b"rubbish\n")


def end_by_code(code: int, leave: bool = False) -> None:
    """Leave without an answer, and a daemon that holds every pipe open if asked to."""
    if leave:
        detached()
    os._exit(code)


def kill_group() -> None:
    """Send SIGKILL to the own process group."""
    os.killpg(0, signal.SIGKILL)


def open_to_programs() -> list[int]:
    """Descriptors that a program inherits, of those that are open in this process."""
    command = "import os; print(*[fd for fd in range(256) if os.path.exists(f'/dev/fd/{fd}')])"
    return [
        int(number)
        for number in subprocess.run(
            [sys.executable, "-c", command], close_fds=False, capture_output=True, check=True
        ).stdout.split()
    ]


def end_server(number: int, pid_file: str) -> None:
    """Send the parent a signal, and go on as `hang` does."""
    Path(pid_file).write_text(f"{os.getpid()} {detached()}")
    os.kill(os.getppid(), number)
    time.sleep(60)


def hang(how: str, pid_file: str | None = None) -> None:
    """Never return.

    Parameters
    ----------
    how : {"sleep", "c"}
        ``c`` blocks every signal that can be blocked, and holds the GIL in C.
    pid_file : str, optional
        Where to write the own process id and that of a detached grandchild.
    """
    if pid_file is not None:
        Path(pid_file).write_text(f"{os.getpid()} {detached()}")
    if how == "c":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
        signal.pthread_sigmask(signal.SIG_BLOCK, set(signal.Signals))
        ctypes.PyDLL(None).sleep(60)
    while True:
        time.sleep(0.1)


def detached() -> int:
    """Start a daemon, twice forked in a session of its own; return its process id."""
    reader, writer = os.pipe()
    if os.fork() == 0:
        os.setsid()
        daemon = os.fork()
        if daemon == 0:
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGTERM, signal.SIGHUP})
            time.sleep(60)
            os._exit(0)
        os.write(writer, str(daemon).encode())
        os._exit(0)
    os.wait()
    return int(os.read(reader, 20))


def program() -> int:
    """Start a program and leave it; return its process id."""
    return subprocess.Popen(["sleep", "60"]).pid


def thread() -> str:
    """Leave a thread that would keep an interpreter from ending."""
    threading.Thread(target=time.sleep, args=(60,)).start()
    return "left one"


def flood(for_seconds: float) -> None:
    """Write to stderr, as fast as it is taken."""
    end = time.monotonic() + for_seconds
    while time.monotonic() < end:
        os.write(2, b"x" * 65536)


def set_global(value: int) -> int | None:
    """Leave a trace in the process; return what an earlier task left."""
    earlier = getattr(sys, "left_by_a_task", None)
    sys.left_by_a_task = value  # type: ignore[attr-defined]
    return earlier


def mapped(size: int) -> bool:
    """Whether malloc maps a block of `size` bytes on its own, instead of growing the heap."""
    libc = ctypes.CDLL(None)
    libc.malloc.restype = ctypes.c_void_p
    libc.sbrk.restype = ctypes.c_void_p
    heap = range(_heap_start(), libc.sbrk(0) + 64 * size)
    return libc.malloc(ctypes.c_size_t(size)) not in heap


def _heap_start() -> int:
    for line in Path("/proc/self/maps").read_text().splitlines():
        if line.endswith("[heap]"):
            return int(line.partition("-")[0], 16)
    raise RuntimeError("no heap")


def twin(seconds: float) -> str:
    """Fork, and both go on and answer, the twin later."""
    if os.fork() == 0:
        time.sleep(seconds)
        return "the twin"
    return "the worker"


def sleep_and_say(seconds: float, says: Any) -> Any:
    """Answer after a while."""
    time.sleep(seconds)
    return says


def replaces() -> None:
    """Put something else where the harness looks a function up."""
    vars(sys.modules["harness.isolate.processes"])["oom_kills"] = int
