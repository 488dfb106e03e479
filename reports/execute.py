"""Executes notebooks with papermill's parameters; a kernel serves one after another."""

from __future__ import annotations

import os
import subprocess
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from pathlib import Path
from threading import Lock
from typing import Any, TypeVar

import nbformat
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager
from jupyter_core.utils import run_sync
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from papermill.iorw import load_notebook_node
from papermill.parameterize import parameterize_notebook

ROOT = Path(__file__).resolve().parents[1]
_INSTALLED = Path(__file__).with_name("notebooks")
NOTEBOOKS = _INSTALLED if _INSTALLED.is_dir() else ROOT / "notebooks"
"""A wheel has them inside the package, a clone beside it."""
KERNEL = "python3"
LIMIT_SECONDS = 600
START_OVER = "from reports.core.parameters import start_over as _over; _over()"
"""What the kernel runs between two notebooks: the second finds nothing of the first."""
THREADS = ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS")

T = TypeVar("T")


class RunningPython(AsyncKernelManager):
    """A kernel of the Python that runs this, whatever kernels are installed where."""

    @property
    def kernel_spec(self) -> KernelSpec:
        """How it is started: with our packages importable from any folder."""
        path = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(os.pathsep)
        return KernelSpec(
            argv=[
                sys.executable,
                "-m",
                "ipykernel_launcher",
                "-f",
                "{connection_file}",
                "--IPKernelApp.log_level=ERROR",
            ],
            display_name="Python 3",
            language="python",
            # Several run at a time, and what they compute is small.
            env={
                "PYTHONPATH": path,
                "PYDEVD_DISABLE_FILE_VALIDATION": "1",
                **dict.fromkeys(THREADS, "1"),
            },
        )

    async def start_kernel(self, **options: Any) -> None:  # type: ignore[override]
        """Start it without its chatter; what fails in a cell comes back as a message."""
        await super().start_kernel(**{**options, "stderr": subprocess.DEVNULL})


class NotebookFailed(Exception):
    """A notebook did not run to its end; the message is one line."""


class Kernel:
    """A kernel that executes notebooks, one at a time, from one thread.

    It starts with the first of them. Starting and importing takes longer than most notebooks, so
    it is kept, and forgets everything between two of them; after a failure that is not a cell's
    own a fresh one takes its place.
    """

    def __init__(self) -> None:
        self._client: NotebookClient | None = None
        self.started = 0

    def execute(self, name: str, parameters: Mapping[str, str], to: Path) -> Any:
        """Run ``notebooks/<name>.ipynb`` and return it executed; it is saved, too.

        Raises
        ------
        NotebookFailed
        """
        given = load_notebook_node(str(NOTEBOOKS / f"{name}.ipynb"))
        book = parameterize_notebook(given, dict(parameters), kernel_name=KERNEL, language="python")
        try:
            self._run(book)
        except CellExecutionError as error:
            raise NotebookFailed(_one_line(f"{error.ename}: {error.evalue}")) from None
        except Exception as error:  # a kernel that can't start or dies has many types
            self.close()
            raise NotebookFailed(_one_line(f"{type(error).__name__}: {error}")) from None
        finally:
            nbformat.write(book, to)
        return book

    def _run(self, book: Any) -> None:
        before = self._client
        manager = before.km if before else RunningPython(kernel_name=KERNEL)
        self.started += before is None
        client = NotebookClient(book, km=manager, timeout=LIMIT_SECONDS)
        if before is not None:
            client.kc = before.kc
            run_sync(_start_over)(client)
        self._client = client
        client.execute()

    def close(self) -> None:
        """End the kernel."""
        client, self._client = self._client, None
        if client is not None:
            with suppress(Exception):  # it may be dead already
                client._cleanup_kernel()


async def _start_over(client: Any) -> None:
    """Make the kernel forget, and wait until it has."""
    message = client.kc.execute(START_OVER, silent=True, store_history=False)
    await client.async_wait_for_reply(message)


def in_parallel(
    tasks: Sequence[Callable[[Kernel], T]], workers: int, on_done: Callable[[int, T], None]
) -> list[T]:
    """Do the tasks, several at a time, each worker with a kernel of its own; results in order.

    Parameters
    ----------
    on_done : callable
        Called with number and result of each as they end, one at a time.
    """
    todo = deque(enumerate(tasks))
    found: dict[int, T] = {}
    telling = Lock()

    def work() -> None:
        # One call per thread: a kernel's sockets belong to the event loop of its thread.
        with closing(Kernel()) as kernel:
            while True:
                try:
                    number, task = todo.popleft()
                except IndexError:
                    return
                found[number] = task(kernel)
                with telling:
                    on_done(number, found[number])

    with ThreadPoolExecutor(max(1, min(workers, len(tasks)))) as pool:
        running = [pool.submit(work) for _ in range(workers)]
        try:
            for one in as_completed(running):
                one.result()
        except BaseException:  # ctrl-C, say: what is waiting is not begun
            todo.clear()
            raise
    return [found[number] for number in range(len(tasks))]


def _one_line(text: str) -> str:
    """First line; the executed notebook holds the rest."""
    return next((line for line in text.splitlines() if line.strip()), "unknown error").strip()
